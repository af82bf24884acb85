# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""An image on its way into the network."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import cv2
import numpy as np
import torch
from numpy.typing import NDArray

_COARSE = 8  # Of so many pixels each way one is looked at for the contrast.
_MEAN = np.full((1, 3), 1 / 3, np.float32)


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
    def pixels(self) -> NDArray[np.uint8]:
        """The image ``[H, W, 3]`` as the network sees it."""
        return self._on_host

    def on_device(self) -> torch.Tensor:
        """Pixels on the device, where they are quickly made."""
        pixels = (self.tensor * 255).round_().to(torch.uint8)
        return pixels.permute(1, 2, 0).contiguous()

    @cached_property
    def _on_host(self) -> Any:
        return self.on_device().cpu().numpy()

    @property
    def is_on_host(self) -> bool:
        """Whether the pixels are on the host already."""
        return "_on_host" in self.__dict__

    def remember(self, pixels: NDArray[np.uint8]) -> None:
        """Take ``on_device`` as somebody else has brought it to the host."""
        self.__dict__["_on_host"] = pixels


def contrast(image: NDArray[np.uint8]) -> float:
    """Standard deviation in grey levels of a subsampled image [H, W, 3]."""
    size = tuple(-(-length // _COARSE) for length in image.shape[1::-1])
    coarse = cv2.resize(image, size, interpolation=cv2.INTER_NEAREST)
    grey = cv2.transform(coarse.astype(np.float32), _MEAN)
    return float(cv2.meanStdDev(grey)[1].item())
