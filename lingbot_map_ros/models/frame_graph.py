# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""One frame's work as CUDA graphs: hundreds of kernels for the price of one launch."""

import logging
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

logger = logging.getLogger(__name__)

Outputs = tuple[Tensor, ...]


class FrameGraphs:
    """Calls functions of fixed buffers; each is recorded at its second call and replayed then.

    The first call runs as it is, because kernels are compiled and chosen in it. What a replay
    returns is a copy, safe from the next one. Where recording fails, functions run as they are.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._graphs: dict[Hashable, tuple[torch.cuda.CUDAGraph, Outputs]] = {}
        self._seen: set[Hashable] = set()
        self._memory: Any = None
        self._stream: torch.cuda.Stream | None = None
        self._enabled = True

    def run(self, key: Hashable, function: Callable[[], Outputs]) -> Outputs:
        """Outputs of ``function``, which stands for the same work whenever ``key`` is the same."""
        if not self._enabled or key not in self._seen:
            outputs = function()
            self._seen.add(key)
            return outputs
        if key not in self._graphs:
            recorded = self._record(function)
            if recorded is None:
                return function()
            self._graphs[key] = recorded
        graph, outputs = self._graphs[key]
        graph.replay()
        return tuple(output.clone() for output in outputs)

    def _record(
        self, function: Callable[[], Outputs]
    ) -> tuple[torch.cuda.CUDAGraph, Outputs] | None:
        graph = torch.cuda.CUDAGraph()
        try:
            # The device need not be the current one, which PyTorch would take. Other threads may
            # go on with CUDA meanwhile.
            with torch.cuda.device(self._device):
                self._stream = self._stream or torch.cuda.Stream()
                # One graph after the other: what each leaves behind is copied before the next one
                # runs, so all may use the same memory.
                with torch.cuda.graph(
                    graph, self._memory, self._stream, capture_error_mode="thread_local"
                ):
                    outputs = function()
        except RuntimeError as error:
            self._enabled = False
            self._graphs.clear()
            logger.warning("frames run without CUDA graphs, which is slower: %s", error)
            return None
        self._memory = graph.pool()
        return graph, outputs
