# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Milliseconds of each part of our network, each replayed from a CUDA graph of its own.

The parts run one after the other over the same frame, at the state that the stream has. The whole
step is one chain of graphs, in which no event fits between the parts; as graphs of their own they
do the same work with the same kernels, and their sum can be held against the step.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from gpu.timing import replay_ms, summary
from lingbot_map_ros.layers.attention import Attend
from lingbot_map_ros.models.gct_stream import GCTStream


@torch.no_grad()
def time_parts(model: GCTStream, image: Tensor) -> dict[str, dict[str, object]]:
    """Time each part on ``image [1, 3, H, W]`` as the next frame; leaves no trace in the stream."""
    measured: dict[str, dict[str, object]] = {}
    with model.transaction():
        for name, run in parts(model, image).items():
            try:
                times, how = replay_ms(run, model.device)
                measured[name] = {**summary(times), "how": how}
            except Exception as error:  # One part that fails must not cost the others.
                measured[name] = {"error": f"{type(error).__name__}: {error}"}
    return measured


def parts(model: GCTStream, image: Tensor) -> dict[str, Callable[[], object]]:
    """Each part as a call that can be repeated."""
    trunk, camera, depth = model.aggregator, model.camera_head, model.depth_head
    height, width = image.shape[-2:]
    grid = trunk.patch_embed.grid(height, width)
    times = torch.arange(model.num_frames, model.num_frames + 1)
    frame_rope = trunk.frame_rope(grid, model.device)
    global_rope = trunk.global_rope(grid, times, model.device)
    patches = trunk.embed_patches(image)
    special = trunk.special_tokens(model.num_frames, 1, model.config.num_scale_frames)
    tokens = torch.cat((special, patches), dim=1).float()
    outputs = [torch.cat((tokens, tokens), dim=-1)[None] for _ in trunk.selected_layers]
    cache = trunk.allocate(tokens.shape[1])
    kept_poses = camera.allocate(model.capacity + 1, model.device)
    state = cache.snapshot()

    def frame_blocks() -> Tensor:
        x = tokens
        for block in trunk.frame_blocks:
            x = block(x, frame_rope)
        return x

    def global_blocks() -> Tensor:
        x = tokens
        for i, block in enumerate(trunk.global_blocks):
            x = block(x, global_rope, through_cache(i))
        cache.restore(state)
        return x

    def through_cache(block: int) -> Attend:
        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            cache.append_frame(block, k[0].transpose(0, 1), v[0].transpose(0, 1))
            cache.evict_frames(block)
            return cache.compute_attention(block, q[0].transpose(0, 1)).transpose(0, 1)[None]

        return attend

    def camera_head() -> Tensor:
        held = kept_poses.snapshot()
        poses = camera(outputs[-1][:, :, 0])
        kept_poses.restore(held)
        return poses

    return {
        "patch embed": lambda: trunk.embed_patches(image),
        "frame blocks": frame_blocks,
        "global blocks": global_blocks,
        "camera head": camera_head,
        "depth head": lambda: depth(outputs, height, width),
    }
