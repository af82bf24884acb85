# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Milliseconds of each part of our network, each replayed from a CUDA graph of its own.

A whole frame is one graph, in which no timer fits between the parts; as graphs of their own they do
the same work with the same kernels, and their sum can be held against the frame.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from gpu.timing import replay_ms, summary
from lingbot_map_ros.models.gct_stream import GCTStream


@torch.no_grad()
def time_parts(model: GCTStream, image: Tensor) -> dict[str, dict[str, object]]:
    """Time each part on ``image [1, 3, H, W]`` as the next frame; leaves no trace in the stream."""
    measured: dict[str, dict[str, object]] = {}
    camera = model.allocate(*image.shape[-2:])
    with model.transaction(), model.aggregator.next_frame(image, "skip"):
        camera.begin(1)
        for name, run in parts(model, image).items():
            try:
                times, how = replay_ms(run, model.device)
                measured[name] = {**summary(times), "how": how}
            except Exception as error:  # One part that fails must not cost the others.
                measured[name] = {"error": f"{type(error).__name__}: {error}"}
    return measured


def parts(model: GCTStream, image: Tensor) -> dict[str, Callable[[], object]]:
    """Each part of the begun frame ``image``, as a call that can be repeated.

    The blocks get what they got when the frame ran once.
    """
    trunk = model.aggregator
    height, width = image.shape[-2:]
    with _recorded((*trunk.frame_blocks, *trunk.global_blocks)) as calls:
        outputs = trunk.run_frame()
    # A frame block and a global block in turn.
    frame_calls, global_calls = calls[::2], calls[1::2]
    camera_tokens = outputs[-1][:, :, 0]
    return {
        "patch embed": lambda: trunk.embed_patches(image),
        "frame blocks": lambda: [block(*inputs) for block, inputs in frame_calls],
        "global blocks": lambda: [block(*inputs) for block, inputs in global_calls],
        "camera head": lambda: model.camera_head(camera_tokens),
        "depth head": lambda: model.depth_head(outputs, height, width),
    }


@contextmanager
def _recorded(modules: Iterable[nn.Module]) -> Iterator[list[tuple[nn.Module, Any]]]:
    """Calls of ``modules`` within the body, in their order, with their positional arguments."""
    calls: list[tuple[nn.Module, Any]] = []
    hooks = [
        module.register_forward_pre_hook(lambda module, inputs: calls.append((module, inputs)))
        for module in modules
    ]
    try:
        yield calls
    finally:
        for hook in hooks:
            hook.remove()
