# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Summaries of single frames as CUDA graphs: hundreds of small kernels for one launch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from lingbot_map_ros.models.frame_graph import FrameGraphs, Outputs
from lingbot_map_ros.models.prediction import Prediction
from lingbot_map_ros.streaming.comparison import Sketch
from lingbot_map_ros.streaming.summary import Summary, summarize

_USUAL = 4 + len(Sketch._fields)


class SummaryRecorder:
    """Summarizes frames; on a GPU it records what that takes, and replays it.

    Only for the usual frame is that done: one image, whose depth and whose predecessor's are known.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._graphs = FrameGraphs(device)
        self._inputs: tuple[Tensor, ...] = ()

    def __call__(
        self,
        images: Sequence[Tensor],
        prediction: Prediction,
        last: Sketch | None,
        max_flow: float,
    ) -> Summary:
        """Summarize as `summarize` does."""
        tensors = (images[0], prediction.pose_enc, prediction.depth, prediction.confidence)
        inputs = [tensor for tensor in (*tensors, *(last or ())) if tensor is not None]
        if self._device.type != "cuda" or len(images) > 1 or len(inputs) < _USUAL:
            return summarize(images, prediction, last, max_flow)
        self._take(inputs)
        return Summary(*self._graphs.run(max_flow, lambda: self._summarize(max_flow)))

    def _summarize(self, max_flow: float) -> Outputs:
        image, pose_enc, depth, confidence, *last = self._inputs
        prediction = Prediction(pose_enc, depth, confidence, ())
        summary = summarize([image], prediction, Sketch(*last), max_flow)
        return tuple(part for part in summary if part is not None)

    def _take(self, tensors: Sequence[Tensor]) -> None:
        """Copy the tensors to where recorded kernels read them."""
        kinds = [(tensor.shape, tensor.dtype) for tensor in tensors]
        if kinds != [(tensor.shape, tensor.dtype) for tensor in self._inputs]:
            self._graphs = FrameGraphs(self._device)
            self._inputs = tuple(torch.empty_like(t).contiguous() for t in tensors)
        for ours, theirs in zip(self._inputs, tensors, strict=True):
            ours.copy_(theirs)
