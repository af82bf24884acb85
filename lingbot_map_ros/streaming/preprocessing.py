# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Camera images to the network's input, on the device and with one upload."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import cv2
import numpy as np
import torch
from torch.nn.functional import grid_sample, interpolate

from lingbot_map_ros.errors import ConfigurationError, InputError
from lingbot_map_ros.streaming.camera_model import CameraModel, CameraModelError, undistortion
from lingbot_map_ros.streaming.image_files import (
    load_image,
    preprocess_file,
    require_rgb,
    resize_image,
)

__all__ = [
    "Preprocessor",
    "load_image",
    "network_crop",
    "network_size",
    "preprocess_file",
    "resize_image",
]

# A principal point this close to the centre (fraction of the size) is not worth a resampling.
_CENTRED = 0.01


class InputSize(Protocol):
    """The part of the model's configuration that decides about the size of its input."""

    @property
    def image_size(self) -> int:
        """Longer side in pixels."""

    @property
    def image_height(self) -> int:
        """Shorter side of a model of one fixed size; 0 = by the aspect of the camera image."""

    @property
    def patch_size(self) -> int:
        """Side of a patch in pixels; both sides of the input are multiples of it."""


class Crop(NamedTuple):
    """Part of a camera image, in pixels."""

    top: int
    left: int
    height: int
    width: int


def network_size(height: int, width: int, config: InputSize) -> tuple[int, int]:
    """Size (h, w) of the network's input for camera images of height x width.

    The longer side becomes ``image_size``, the other follows by the rule of the released models:
    ``round(other * image_size / longer / patch) * patch``, half to even. A model of fixed size has
    ``image_height`` as shorter side. Portrait images get a portrait input.

    Raises InputError for an image whose shorter side is, or would become, less than a patch, and
    ConfigurationError for sides that are no multiple of the patch.
    """
    patch, longer, fixed = config.patch_size, config.image_size, config.image_height
    if longer < patch or longer % patch or fixed % patch or not 0 <= fixed <= longer:
        raise ConfigurationError(
            f"image_size {longer} and image_height {fixed} must be multiples of {patch}, "
            "the longer side first"
        )
    if height <= 0 or width <= 0:
        raise InputError(f"an image of {width}x{height} pixels is empty")
    if min(height, width) < patch:
        raise InputError(
            f"an image of {width}x{height} pixels is too small: no side may have less than the "
            f"{patch} pixels of a patch"
        )
    portrait = height > width
    long_side, short_side = (height, width) if portrait else (width, height)
    shorter = fixed or round(short_side * (longer / long_side) / patch) * patch
    if shorter < patch:
        raise InputError(
            f"an image of {width}x{height} pixels is too narrow: at {longer} pixels on its longer "
            f"side less than one patch of {patch} remains on the other; crop it"
        )
    return (longer, shorter) if portrait else (shorter, longer)


def network_crop(height: int, width: int, config: InputSize) -> Crop:
    """Part of the camera image that the network sees.

    All of it, except for a model of fixed size: there the middle with the aspect of the input, so
    that pixels stay square.
    """
    if not config.image_height:
        return Crop(0, 0, height, width)
    h, w = network_size(height, width, config)
    crop_height = min(height, max(1, round(width * h / w)))
    crop_width = min(width, max(1, round(height * w / h)))
    return Crop((height - crop_height) // 2, (width - crop_width) // 2, crop_height, crop_width)


class Preprocessor:
    """Turns camera images of one size into the network's input.

    Undistortion to a centred pinhole image (if a calibration is given and worth it), centre crop
    (models of fixed size only), antialiased bicubic resize. An image that already has the
    network's size passes unchanged.

    Parameters
    ----------
    height, width
        Size of the camera images.
    config
        The model's configuration (`InputSize`).
    device
        Where the input is wanted; resampling and resize run there too.
    camera
        Calibration of exactly these images, or None.

    Attributes
    ----------
    size : tuple[int, int]
        (h, w) of the network's input.
    intrinsics : numpy.ndarray | None
        Pinhole matrix [3, 3] of the network's input (pixel centres at integers) as calibrated;
        None without a calibration.

    Raises
    ------
    InputError, ConfigurationError
        As `network_size`; CameraModelError for a calibration of another size.

    """

    def __init__(
        self,
        height: int,
        width: int,
        config: InputSize,
        device: torch.device | str = "cpu",
        camera: CameraModel | None = None,
    ) -> None:
        self.size = network_size(height, width, config)
        self.intrinsics: np.ndarray | None = None
        self._maps: Sequence[np.ndarray] | None = None
        self._grid: torch.Tensor | None = None
        self._shape = (height, width, 3)
        self._crop = network_crop(height, width, config)
        self._device = torch.device(device)
        if camera is not None:
            if (camera.height, camera.width) != (height, width):
                raise CameraModelError(
                    f"the calibration is for {camera.width}x{camera.height} pixels, "
                    f"the images have {width}x{height}"
                )
            self._use(camera)

    @property
    def undistorts(self) -> bool:
        """Whether images are resampled to another camera than they were taken with."""
        return self._maps is not None

    def __call__(self, image: np.ndarray) -> torch.Tensor:
        """Prepare one image, uint8 RGB [H, W, 3], as float32 [3, h, w] in [0, 1] on the device.

        Raises InputError for another shape or type.
        """
        require_rgb(image)
        if image.shape != self._shape:
            raise InputError(f"expected an image of shape {self._shape}, not {image.shape}")
        if self._device.type == "cpu":
            pixels = self._resample_bytes(image)
        else:
            pixels = self._resample_floats(_upload(image, self._device).float())
        return pixels.float().div(255.0).clamp_(0.0, 1.0).contiguous()

    def _resample_bytes(self, image: np.ndarray) -> torch.Tensor:
        """Undistort and resize on the CPU, where bytes are several times as fast as floats."""
        if self._maps is not None:
            map1, map2 = self._maps
            image = cv2.remap(image, map1, map2, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
        return self._resize(_upload(image, self._device))

    def _resample_floats(self, pixels: torch.Tensor) -> torch.Tensor:
        """Undistort and resize float pixels [1, 3, H, W] where they are."""
        if self._grid is not None:
            pixels = grid_sample(
                pixels, self._grid, mode="bilinear", padding_mode="border", align_corners=True
            )
        return self._resize(pixels)

    def _resize(self, pixels: torch.Tensor) -> torch.Tensor:
        top, left, height, width = self._crop
        pixels = pixels[..., top : top + height, left : left + width]
        if pixels.shape[-2:] != self.size:
            pixels = interpolate(pixels, size=self.size, mode="bicubic", antialias=True)
        return pixels[0]

    def _use(self, camera: CameraModel) -> None:
        h, w = self.size
        crop = self._crop
        scale = np.array([w / crop.width, h / crop.height])
        offset = np.array([crop.left, crop.top])
        # Resizing keeps the outer edges of the image in place, which lie half a pixel off.
        centre = (np.array([w, h]) / 2 + 0.5) / scale - 0.5 + offset
        K = camera.K
        off_centre = np.abs(K[:2, 2] - centre) / (camera.width, camera.height)
        if camera.model != "none" or (off_centre > _CENTRED).any() or abs(K[0, 1]) > 1e-6:
            found = undistortion(camera, (float(centre[0]), float(centre[1])))
            K = found.K
            self._maps = cv2.convertMaps(found.map_x, found.map_y, cv2.CV_16SC2)
            # For grid_sample -1 and 1 are the centres of the outer pixels.
            last = np.array([camera.width - 1, camera.height - 1], np.float32)
            grid = 2 * np.stack((found.map_x, found.map_y), -1) / last - 1
            self._grid = torch.from_numpy(grid)[None].to(self._device)
        self.intrinsics = np.array(
            [
                [K[0, 0] * scale[0], 0.0, (K[0, 2] - offset[0] + 0.5) * scale[0] - 0.5],
                [0.0, K[1, 1] * scale[1], (K[1, 2] - offset[1] + 0.5) * scale[1] - 0.5],
                [0.0, 0.0, 1.0],
            ]
        )


def _upload(image: np.ndarray, device: torch.device) -> torch.Tensor:
    """Bytes [1, 3, H, W] on the device of an image [H, W, 3]."""
    if device.type == "cuda":
        # By way of pinned memory, of which PyTorch sees to it that nobody writes there before the
        # copy has ended; from other memory the host would wait for the copy, and the caller might
        # change the image.
        pixels = torch.empty(image.shape, dtype=torch.uint8, pin_memory=True)
        np.copyto(pixels.numpy(), image)
    else:
        # torch wants writable memory without negative strides; messages may offer neither.
        pixels = torch.from_numpy(np.require(image, requirements=["C", "W"]))
    return pixels.to(device, non_blocking=True).permute(2, 0, 1)[None]
