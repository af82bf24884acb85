# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The reference implementation, driven and compiled as its own profiler and demo do."""

import contextlib
import os
import sys
from typing import Any

import torch
from torch import Tensor

from gpu.comparison import Outputs, calls
from gpu.timing import PartTimer
from lingbot_map_ros.errors import ConfigurationError
from lingbot_map_ros.models.config import GCTConfig

VARIABLE = "LINGBOT_REF"
WARM_UP = 10
"""Streamed frames of a warm-up, behind the scale frames."""


def obstacle() -> str:
    """Why the reference cannot run here; empty if it can."""
    if VARIABLE not in os.environ:
        return f"{VARIABLE} names no checkout of the reference implementation"
    if not torch.cuda.is_available():
        return "the reference needs an NVIDIA GPU"
    return ""


class Reference:
    """A stream through the reference: FlashInfer and bfloat16 autocast.

    Parameters
    ----------
    state
        Weights by name, float32.
    config
        Window and scale frames; the sizes are those of the released model.
    frames
        Longest stream that will be shown.
    fa3
        FlashInfer's Hopper kernel, with the padded pages that it has there.
    bf16_trunk
        Hold the aggregator in bfloat16 as the demo does, not in float32 as the profiler does.
    """

    def __init__(
        self,
        state: dict[str, Tensor],
        config: GCTConfig,
        frames: int,
        *,
        fa3: bool = False,
        bf16_trunk: bool = False,
    ) -> None:
        if reason := obstacle():
            raise ConfigurationError(reason)
        sys.path.insert(0, os.environ[VARIABLE])
        from lingbot_map.models.gct_stream import GCTStream as Model

        with torch.device("cuda"):
            model = Model(
                img_size=518,
                patch_size=14,
                enable_3d_rope=True,
                max_frame_num=max(frames + 100, 1024),
                kv_cache_sliding_window=config.sliding_window,
                kv_cache_scale_frames=config.num_scale_frames,
                use_sdpa=False,
                camera_num_iterations=config.camera_iterations,
            )
        model.load_state_dict(state, strict=True)
        self.model: Any = model.cuda().eval()
        if bf16_trunk:
            self.model.aggregator = self.model.aggregator.to(torch.bfloat16)
        self.model.aggregator.kv_cache_fa3 = fa3
        self._scale = config.num_scale_frames

    def reset(self) -> None:
        """Start a new stream."""
        self.model.clean_kv_cache()

    @torch.no_grad()
    def step(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Pose encodings ``[S, 9]`` and depths ``[S, H, W]`` of the next call's frames."""
        torch.compiler.cudagraph_mark_step_begin()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            out = self.model.forward(
                images[None],
                num_frame_for_scale=self._scale,
                num_frame_per_block=len(images),
                causal_inference=True,
            )
        return out["pose_enc"][0].float(), out["depth"][0, ..., 0].float()

    def run(self, images: Tensor) -> Outputs:
        """Poses and depths of a new stream over ``images``."""
        self.reset()
        poses, depths = [], []
        for start, end in calls(len(images), self._scale):
            pose, depth = self.step(images[start:end].cuda())
            poses.append(pose.cpu())
            depths.append(depth.cpu())
        return poses, depths

    def warm_up(self, images: Tensor, passes: int) -> None:
        """Run the start of a stream several times."""
        for _ in range(passes):
            self.run(images[: self._scale + WARM_UP])
        torch.cuda.synchronize()

    def compile(self) -> None:
        """Compile what the profiler compiles; takes effect in the next warm-up."""

        def compiled(part: Any) -> Any:
            return torch.compile(part, mode="reduce-overhead")

        trunk = self.model.aggregator
        for blocks in (trunk.frame_blocks, trunk.patch_embed.blocks):
            for i, block in enumerate(blocks):
                blocks[i] = compiled(block)
        for block in trunk.global_blocks:
            for name in ("attn_pre", "ffn_residual"):
                if hasattr(block, name):
                    setattr(block, name, compiled(getattr(block, name)))
            block.attn.proj = compiled(block.attn.proj)

    @contextlib.contextmanager
    def timed_parts(self, timer: PartTimer) -> Any:
        """Put timers around the parts within the body."""
        model, trunk = self.model, self.model.aggregator
        parts = (
            ("patch embed", trunk, "_embed_images"),
            ("frame blocks", trunk, "_process_frame_attention"),
            ("global blocks", trunk, "_process_global_attention"),
            ("camera head", model, "_predict_camera"),
            ("depth head", model, "_predict_depth"),
        )
        for name, owner, method in parts:
            setattr(owner, method, timer.wrap(name, getattr(owner, method)))
        try:
            yield
        finally:
            for _, owner, method in parts:
                delattr(owner, method)
