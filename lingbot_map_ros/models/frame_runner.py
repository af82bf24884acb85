# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The forward pass of a call, made fast where the device allows: compiled parts, CUDA graphs."""

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import ref

import torch
from torch import Tensor

from lingbot_map_ros.aggregator.stream import AggregatorStream
from lingbot_map_ros.heads.camera_head import CameraHead
from lingbot_map_ros.heads.dpt_head import DPTHead
from lingbot_map_ros.layers.block import Block
from lingbot_map_ros.models.frame_graph import FrameGraphs


def compile_obstacle(device: torch.device) -> str:
    """Why nothing is compiled for ``device``; empty if it can be."""
    if device.type != "cuda":
        return f"the device is '{device}', no GPU"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    if not hasattr(torch.compiler, "set_stance"):
        return f"PyTorch {torch.__version__} cannot leave single calls uncompiled"
    return ""


class FrameRunner:
    """Runs the network for a call that the caches have begun.

    All methods return the poses ``[iterations, S, 9]`` and, if ``depth``, depth and confidence
    ``[S, H, W]``.
    """

    def __init__(
        self,
        aggregator: AggregatorStream,
        camera_head: CameraHead,
        depth_head: DPTHead,
        *,
        compile: bool,
    ) -> None:
        self._aggregator, self._camera, self._depth = aggregator, camera_head, depth_head
        self._device = aggregator.device
        self._graphs = FrameGraphs(self._device)
        self._reads: tuple[ref[object], ...] = ()
        self._compiled = compile and not compile_obstacle(self._device)
        self._compiled_for: tuple[int, int] | None = None
        if self._compiled:
            for part in (aggregator, camera_head):
                for module in part.modules():
                    if isinstance(module, Block):
                        module.compile_halves()

    def frame(self, height: int, width: int, *, depth: bool) -> tuple[Tensor, ...]:
        """Run the one frame that aggregator and camera cache have begun."""

        def run() -> tuple[Tensor, ...]:
            outputs = self._aggregator.run_frame()
            poses = self._camera(outputs[-1][:, :, 0])[:, 0]
            return (poses, *self._depth(outputs, height, width)) if depth else (poses,)

        self._compile_for(height, width)
        cache, inputs = self._aggregator.kv_cache, self._aggregator.inputs
        moving = self._camera.enable_3d_rope  # Its rotary table is new in every frame.
        if cache is None or inputs is None or not cache.backend.capturable or moving:
            return run()
        # Graphs hold the addresses of the buffers that they were recorded with, but must not keep
        # those of another image size from being freed.
        reads: tuple[ref[object], ...] = (ref(cache), ref(inputs))
        if self._reads != reads:
            self._graphs, self._reads = FrameGraphs(self._device), reads
        return self._graphs.run((height, width, depth), run)

    def scale_frames(
        self, images: Tensor, *, depth: bool, num_scale_frames: int, camera_block: int | None
    ) -> tuple[Tensor, ...]:
        """Run the first call of a stream, ``images [S, 3, H, W]``."""
        height, width = images.shape[-2:]
        with self._eager():
            outputs = self._aggregator(images[None], num_scale_frames=num_scale_frames)
            tokens = outputs[-1][:, :, 0]
            if camera_block is None:
                poses = self._camera.encode(tokens)[:, 0]
            else:
                poses = self._camera.without_cache(tokens, camera_block)[:, 0]
            return (poses, *self._depth(outputs, height, width)) if depth else (poses,)

    def _compile_for(self, height: int, width: int) -> None:
        """Let blocks be compiled for this image size, and forget those for another one.

        PyTorch compiles a function for eight kinds of input, and from then on runs it uncompiled.
        The blocks are of up to four kinds, so that a third size would be too much.
        """
        if self._compiled and self._compiled_for != (height, width):
            torch.compiler.reset()
            self._compiled_for = (height, width)

    @contextmanager
    def _eager(self) -> Iterator[None]:
        """Run without compiling: for shapes that come once a window it would not pay."""
        if not self._compiled:
            yield
            return
        with torch.compiler.set_stance("force_eager"):
            yield
