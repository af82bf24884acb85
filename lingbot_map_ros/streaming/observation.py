# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the network said of a frame, in the raw world of the window that saw it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

from lingbot_map_ros.geometry.poses import decode_pose, intrinsics_from_fov, is_valid_pose
from lingbot_map_ros.streaming.comparison import MAX_FLOW, Comparison, Sketch, compare

THUMBNAIL_WIDTH = 70
_COARSE = 8  # Of so many pixels each way one is looked at for the contrast.
_MEAN = np.full((1, 3), 1 / 3, np.float32)

if TYPE_CHECKING:
    from lingbot_map_ros.models.gct_stream import Prediction


@dataclass(frozen=True, eq=False)
class Frame:
    """An image on its way into the network."""

    index: int
    stamp_ns: int
    tensor: torch.Tensor
    """``[3, H, W]`` in [0, 1], on the model's device."""
    contrast: float
    """Standard deviation of the image in grey levels."""
    intrinsics: NDArray[np.float64] | None = None
    """``[3, 3]`` of the tensor, from the calibration that it was prepared with."""

    @property
    def thumbnail_stride(self) -> int:
        """Pixels of the tensor, each way, that a pixel of the thumbnail is the mean of."""
        return max(1, round(self.tensor.shape[-1] / THUMBNAIL_WIDTH))

    @cached_property
    def thumbnail(self) -> torch.Tensor:
        """Grey levels ``[h, w]`` in 0 to 255, about `THUMBNAIL_WIDTH` wide, on the device."""
        grey = self.tensor.mean(0, keepdim=True) * 255
        return torch.nn.functional.avg_pool2d(grey[None], self.thumbnail_stride)[0, 0]

    @property
    def pixels(self) -> NDArray[np.uint8]:
        """The image ``[H, W, 3]`` as the network sees it."""
        return self._on_host

    def on_device(self) -> torch.Tensor:
        """Pixels on the device, where they are quickly made."""
        pixels = (self.tensor * 255).round_().to(torch.uint8)
        return pixels.permute(1, 2, 0).contiguous()

    @cached_property
    def _on_host(self) -> Any:
        return to_host(self.on_device())[0]

    @property
    def is_on_host(self) -> bool:
        """Whether the pixels are on the host already."""
        return "_on_host" in self.__dict__

    def remember(self, pixels: NDArray[np.uint8]) -> None:
        """Take ``on_device`` as somebody else has brought it to the host."""
        self.__dict__["_on_host"] = pixels


@dataclass(frozen=True, eq=False)
class Observation:
    """One frame's output: camera-to-world pose, intrinsics, and depth where it was computed."""

    frame: Frame
    pose: NDArray[np.float64]
    """``[4, 4]``, optical axes, raw units of the window."""
    intrinsics: NDArray[np.float64]
    """``[3, 3]`` in pixels of the network's image, as the network sees its lens."""
    depth: NDArray[np.float32] | None
    confidence: NDArray[np.float32] | None
    valid: bool
    """Everything is finite and the encoding is a pose; see ``geometry.poses.is_valid_pose``."""
    typical_depth: float | None
    typical_confidence: float | None
    """Medians over as many pixels as the thumbnail has."""
    sketch: Sketch
    comparison: Comparison | None = None
    """With the frame before, None where nothing can be said."""


def contrast(image: NDArray[np.uint8]) -> float:
    """Standard deviation in grey levels of a subsampled image [H, W, 3]."""
    size = tuple(-(-length // _COARSE) for length in image.shape[1::-1])
    coarse = cv2.resize(image, size, interpolation=cv2.INTER_NEAREST)
    grey = cv2.transform(coarse.astype(np.float32), _MEAN)
    return float(cv2.meanStdDev(grey)[1].item())


def observe(
    frames: Sequence[Frame],
    prediction: Prediction,
    last: Observation | None = None,
    max_flow: float = MAX_FLOW,
) -> list[Observation]:
    """Bring the predictions of one call to the host, a frame each.

    The first is compared with ``last``, of the same window, where that is given; see `compare`.
    """
    summary = summarize(frames, prediction)
    sketches = summary.sketches
    compared = None if last is None else compare(last.sketch, sketches[0], max_flow)
    # All in one copy, which waits for the network but once; a GPU is still at work until then.
    new = [frame for frame in frames if not frame.is_on_host]
    figures, poses, intrinsics, depth, confidence, compared, *pixels = to_host(
        summary.figures,
        summary.poses,
        summary.intrinsics,
        prediction.depth,
        prediction.confidence,
        compared,
        *(frame.on_device() for frame in new),
    )
    for frame, image in zip(new, pixels, strict=True):
        frame.remember(image)
    valid = is_valid_pose(figures[:, :9]) & np.isfinite(figures).all(1)
    measured = figures.shape[1] > 9
    return [
        Observation(
            frame=frame,
            pose=poses[i],
            intrinsics=intrinsics[i],
            depth=None if depth is None else depth[i],
            confidence=None if confidence is None else confidence[i],
            valid=bool(valid[i]),
            typical_depth=float(figures[i, 9]) if measured else None,
            typical_confidence=float(figures[i, 10]) if measured else None,
            sketch=sketches[i],
            comparison=None if i or compared is None else Comparison.of(compared),
        )
        for i, frame in enumerate(frames)
    ]


class Summary(NamedTuple):
    """Predictions reduced on their device, where the host does not wait for it."""

    figures: torch.Tensor
    """``[S, 9 or 12]``: ``pose_enc``; where depth was computed the medians of depth and confidence,
    and a sum that is finite if all of a frame's depth and confidence is. It is not finite either
    where they are so large that it overflows: nothing to be trusted. So the host need not read the
    maps again."""
    poses: torch.Tensor
    """``[S, 4, 4]`` float64."""
    intrinsics: torch.Tensor
    """``[S, 3, 3]`` float64."""
    sketches: list[Sketch]


@torch.no_grad()
def summarize(frames: Sequence[Frame], prediction: Prediction) -> Summary:
    """Reduce the predictions of one call, a frame each."""
    stride, size = frames[0].thumbnail_stride, frames[0].tensor.shape[-2:]
    thumbnails = [frame.thumbnail for frame in frames]
    thinned, figures = None, prediction.pose_enc
    if prediction.depth is not None and prediction.confidence is not None:
        maps = torch.stack(
            [
                _thinned(values, stride, thumbnails[0].shape)
                for values in (prediction.depth, prediction.confidence)
            ],
            dim=1,
        )
        thinned = maps[:, 0]
        total = (prediction.depth + prediction.confidence).flatten(1).sum(1, keepdim=True)
        figures = torch.cat((figures, maps.flatten(2).median(-1).values, total), 1)
    poses, fov = decode_pose(prediction.pose_enc.double())
    intrinsics = intrinsics_from_fov(fov, (size[0], size[1]))
    # Of an image whose pixels are means over stride x stride pixels.
    reduced = intrinsics.clone()
    reduced[:, :2, 2] -= (stride - 1) / 2
    reduced[:, :2] /= stride
    sketches = [
        Sketch(thumbnail, None if thinned is None else thinned[i], poses[i], reduced[i])
        for i, thumbnail in enumerate(thumbnails)
    ]
    return Summary(figures, poses, intrinsics, sketches)


def _thinned(values: torch.Tensor, stride: int, shape: Sequence[int]) -> torch.Tensor:
    """Values at the centres of a thumbnail's pixels."""
    half = stride // 2
    return values[:, half::stride, half::stride][:, : shape[0], : shape[1]]


def to_host(*tensors: torch.Tensor | None) -> list[Any]:
    """Copy tensors to arrays on the host, from a GPU all at once; None stays None."""
    device = next((t.device for t in tensors if t is not None and t.is_cuda), None)
    if device is None:
        return [None if tensor is None else tensor.numpy() for tensor in tensors]
    copies = [
        # Into pinned memory, which a GPU writes several times faster.
        tensor if tensor is None else torch.empty_like(tensor, device="cpu", pin_memory=True)
        for tensor in tensors
    ]
    for tensor, copy in zip(tensors, copies, strict=True):
        if tensor is not None and copy is not None:
            copy.copy_(tensor, non_blocking=True)
    torch.cuda.current_stream(device).synchronize()
    return [None if copy is None else copy.numpy() for copy in copies]
