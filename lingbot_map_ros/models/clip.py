# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Whole clips in one masked forward, equal to feeding them to the stream frame by frame.

The stream's caches decide which keys a frame sees; here the same visibility is a mask over all
frames of a clip, so that a batch of clips can be processed, and trained on, at once.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from lingbot_map_ros.errors import ConfigurationError
from lingbot_map_ros.layers.attention import Attend
from lingbot_map_ros.layers.rope import RotaryTable, rope_3d, split_3d
from lingbot_map_ros.models.gct_stream import GCTStream

# A third faster on an H200 than what PyTorch 2.11 chooses for heads of 64. (Its type of the options
# does not know that they can be set for one direction.)
_FORWARD_TILES: Any = {
    "fwd_BLOCK_M": 128,
    "fwd_BLOCK_N": 64,
    "fwd_num_warps": 4,
    "fwd_num_stages": 3,
}


@dataclass(frozen=True)
class ClipLayout:
    """Which frames of a clip are scale frames, keyframes or skipped, and what the caches keep.

    ``first_call`` frames are processed together at first; ``scale_frames`` and ``window`` are the
    cache's regions. Later frames are keyframes where ``(i - first_call) % interval == 0``.
    """

    frames: int
    first_call: int
    scale_frames: int
    window: int
    interval: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.first_call <= self.frames:
            raise ConfigurationError(
                f"first_call={self.first_call} must lie between 1 and frames={self.frames}"
            )
        if min(self.scale_frames, self.window, self.interval) < 1:
            raise ConfigurationError("scale_frames, window and interval must be at least 1")

    def kept(self) -> Tensor:
        """Bool ``[frames]``: which frames stay in the caches."""
        index = torch.arange(self.frames) - self.first_call
        return (index < 0) | (index % self.interval == 0)

    def times(self) -> Tensor:
        """Temporal position ``[frames]`` of each frame: the number of frames kept before it."""
        kept = self.kept().long()
        return kept.cumsum(0) - kept

    def previous(self) -> Tensor:
        """Index ``[frames]`` of the last frame kept before each one; 0 for the first."""
        index = torch.where(self.kept(), torch.arange(self.frames), 0)
        return torch.cat((index.new_zeros(1), index.cummax(0).values[:-1]))

    def special_visibility(self) -> Tensor:
        """Bool ``[query frame, key frame]`` for special tokens and the camera head."""
        index = torch.arange(self.frames)
        before = (index[None] < index[:, None]) & self.kept()[None]
        together = (index[:, None] < self.first_call) & (index[None] < self.first_call)
        return before | together | torch.eye(self.frames, dtype=torch.bool)

    def patch_visibility(self) -> Tensor:
        """Bool ``[query frame, key frame]`` for patch tokens."""
        times, kept = self.times(), self.kept()
        age = times[:, None] - times[None]
        # A keyframe has evicted the oldest frame before it attends; a skipped frame has not.
        in_window = age < self.window + (~kept).long()[:, None]
        together = torch.arange(self.frames) < self.first_call
        resident = in_window | (times < self.scale_frames)[None] | together[:, None]
        return self.special_visibility() & resident


class ClipPrediction(NamedTuple):
    """Output for ``B`` clips of ``S`` frames.

    ``poses [iterations, B, S, 9]``; ``depth`` and ``confidence [n, H, W]`` of the chosen frames;
    ``outputs``: the aggregator's selected outputs, each ``[B, S, P, 2 * dim]``.
    """

    poses: Tensor
    depth: Tensor
    confidence: Tensor
    outputs: list[Tensor]


class ClipMask:
    """The attention masks and rotary tables of one layout on one device; made once, used often.

    ``flex`` selects block-sparse attention, which pays on a GPU under ``torch.compile``.
    """

    def __init__(
        self,
        model: GCTStream,
        layout: ClipLayout,
        size: tuple[int, int],
        *,
        flex: bool = False,
    ) -> None:
        aggregator, device = model.aggregator, model.device
        grid = aggregator.patch_embed.grid(*size)
        self.layout = layout
        self.previous = layout.previous().to(device)
        self.num_special = aggregator.num_special
        self.tokens = aggregator.num_special + grid[0] * grid[1]
        self.frame_rope = aggregator.frame_rope(grid, device)
        self.global_rope = aggregator.global_rope(grid, layout.times().to(device), device)
        special = layout.special_visibility().to(device)
        self.camera_rope = _camera_rope(model, layout.frames)
        self.camera_attend = _dense_attention(special)
        self.attend: Attend
        if flex:
            self.attend = FlexAttention(layout, self.num_special, self.tokens, device)
        else:
            frame = torch.arange(layout.frames, device=device).repeat_interleave(self.tokens)
            is_special = torch.arange(self.tokens, device=device) < self.num_special
            columns = is_special.repeat(layout.frames)[None]
            patch = layout.patch_visibility().to(device)
            visible = torch.where(columns, special[:, frame], patch[:, frame])
            self.attend = _dense_attention(visible[frame])


class FlexAttention:
    """Block-sparse attention over a clip's tokens.

    Keys are regrouped, special tokens first: patches of frames that are out of sight then fill
    whole blocks, which are left out.
    """

    def __init__(
        self, layout: ClipLayout, num_special: int, tokens: int, device: torch.device
    ) -> None:
        frames, first = layout.frames, layout.first_call
        patches = tokens - num_special
        boundary = frames * num_special
        self.shape = (frames, tokens)
        self.num_special = num_special

        # The same as ``special_visibility`` and ``patch_visibility``, computed: the kernel would
        # wait for every element that it looked up.
        def kept(frame: Tensor) -> Tensor:
            return (frame < first) | ((frame - first) % layout.interval == 0)

        def time(frame: Tensor) -> Tensor:
            later = first + (frame - first + layout.interval - 1) // layout.interval
            return torch.where(frame < first, frame, later)

        def visible(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            special = key < boundary
            now = query // tokens
            then = torch.where(special, key // num_special, (key - boundary) // patches)
            together = (now < first) & (then < first)
            known = together | (then == now) | ((then < now) & kept(then))
            in_window = time(now) - time(then) < layout.window + (~kept(now)).int()
            resident = in_window | (time(then) < layout.scale_frames) | (now < first)
            return known & (special | resident)

        length = frames * tokens
        self.block_mask: BlockMask = create_block_mask(
            visible, None, None, length, length, device=device
        )

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attend with ``q, k, v [B, heads, frames * tokens, head_dim]``."""
        return flex_attention(
            q,
            self._regroup(k),
            self._regroup(v),
            block_mask=self.block_mask,
            kernel_options=_FORWARD_TILES if q.is_cuda else None,
        )

    def _regroup(self, x: Tensor) -> Tensor:
        x = x.unflatten(2, self.shape)
        special, patches = x[..., : self.num_special, :], x[..., self.num_special :, :]
        return torch.cat((special.flatten(2, 3), patches.flatten(2, 3)), dim=2)


def _dense_attention(mask: Tensor) -> Attend:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    return attend


def _camera_rope(model: GCTStream, frames: int) -> RotaryTable | None:
    head = model.camera_head
    if not head.enable_3d_rope:
        return None
    positions = torch.zeros(frames, 3, device=model.device)
    positions[:, 0] = torch.arange(frames, device=model.device)
    return rope_3d(positions, split_3d(head.head_dim), head.rope_theta)


def forward_clip(
    model: GCTStream,
    images: Tensor,
    mask: ClipMask,
    depth_frames: Tensor | None = None,
) -> ClipPrediction:
    """Process clips ``images [B, S, 3, H, W]`` in [0, 1]; the model's caches are not touched.

    ``depth_frames`` are the indices, among ``B * S``, of the frames whose depth is wanted; all by
    default.
    """
    batch, frames = images.shape[:2]
    if frames != mask.layout.frames:
        raise ConfigurationError(
            f"a clip of length {frames} does not fit a mask of {mask.layout.frames}"
        )
    aggregator = model.aggregator
    patches = aggregator.embed_patches(images.flatten(0, 1)).unflatten(0, (batch, frames))
    special = aggregator.special_tokens(0, frames, mask.layout.first_call)
    tokens = torch.cat((special.expand(batch, -1, -1, -1), patches), dim=2).float()
    outputs = aggregator.run_blocks(
        tokens, mask.frame_rope, mask.global_rope, lambda _: mask.attend
    )
    # The camera head computes in float32 in the stream too.
    with torch.autocast(images.device.type, enabled=False):
        poses = model.camera_head.refine(
            outputs[-1][:, :, 0].float(), lambda _i, _b: mask.camera_attend, mask.camera_rope
        )
    chosen = [output.flatten(0, 1) for output in outputs]
    if depth_frames is not None:
        chosen = [output[depth_frames] for output in chosen]
    depth, confidence = model.depth_head([o[:, None] for o in chosen], *images.shape[-2:])
    return ClipPrediction(poses, depth, confidence, outputs)
