# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the network said of a frame, in the raw world of the window that saw it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from lingbot_map_ros.geometry.poses import decode_pose, intrinsics_from_fov, is_valid_pose

THUMBNAIL_WIDTH = 70

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

    @property
    def pixels(self) -> NDArray[np.uint8]:
        """The image ``[H, W, 3]`` as the network sees it."""
        return self._on_host[0]

    @property
    def thumbnail(self) -> NDArray[np.float32]:
        """Grey levels ``[h, w]`` in 0 to 255, about `THUMBNAIL_WIDTH` wide."""
        return self._on_host[1]

    def on_device(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Pixels and thumbnail on the device, where they are quickly made."""
        pixels = (self.tensor * 255).round_().to(torch.uint8)
        grey = self.tensor.mean(0, keepdim=True) * 255
        small = torch.nn.functional.avg_pool2d(grey[None], self.thumbnail_stride)[0, 0]
        return pixels.permute(1, 2, 0).contiguous(), small

    @cached_property
    def _on_host(self) -> tuple[Any, Any]:
        pixels, thumbnail = to_host(*self.on_device())
        return pixels, thumbnail

    @property
    def is_on_host(self) -> bool:
        """Whether pixels and thumbnail are on the host already."""
        return "_on_host" in self.__dict__

    def remember(self, pixels: NDArray[np.uint8], thumbnail: NDArray[np.float32]) -> None:
        """Take ``on_device`` as somebody else has brought it to the host."""
        self.__dict__["_on_host"] = (pixels, thumbnail)


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


def contrast(image: NDArray[np.uint8]) -> float:
    """Standard deviation in grey levels of a subsampled image [H, W, 3]."""
    # By channels: numpy takes several times as long for a mean over an axis of three.
    red, green, blue = (image[::8, ::8, i] for i in range(3))
    return float((np.add(red, green, dtype=np.uint16) + blue).std()) / 3


def observe(frames: Sequence[Frame], prediction: Prediction) -> list[Observation]:
    """Bring the predictions of one call to the host, a frame each."""
    # All in one copy, which waits for the network but once; a GPU is still at work until then.
    new = [frame for frame in frames if not frame.is_on_host]
    views = [view for frame in new for view in frame.on_device()]
    encodings, depth, confidence, sums, *arrays = to_host(
        prediction.pose_enc, prediction.depth, prediction.confidence, _sums(prediction), *views
    )
    for frame, pixels, thumbnail in zip(new, arrays[::2], arrays[1::2], strict=True):
        frame.remember(pixels, thumbnail)
    encodings = encodings.astype(np.float64)
    poses, fov = decode_pose(encodings)
    valid = is_valid_pose(encodings) & (sums is None or np.isfinite(sums))
    height, width = frames[0].tensor.shape[-2:]
    intrinsics = intrinsics_from_fov(fov, (height, width))
    return [
        Observation(
            frame=frame,
            pose=poses[i],
            intrinsics=intrinsics[i],
            depth=None if depth is None else depth[i],
            confidence=None if confidence is None else confidence[i],
            valid=bool(valid[i]),
        )
        for i, frame in enumerate(frames)
    ]


def _sums(prediction: Prediction) -> torch.Tensor | None:
    """A number for each frame ``[S]`` that is finite if all of its depth and confidence is.

    The device makes it while the host waits, which then need not read the maps once more. It is not
    finite either where they are so large that their sum overflows: nothing to be trusted.
    """
    if prediction.depth is None or prediction.confidence is None:
        return None
    return (prediction.depth + prediction.confidence).flatten(1).sum(1)


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
