# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Image files to the network's input, exactly as the released models were shown them.

Pillow's bicubic filter on the CPU; `preprocessing` is the fast way for cameras.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from PIL import Image, ImageOps

from lingbot_map_ros.errors import PILLOW_ERRORS, ConfigurationError, InputError, SourceError

Mode = Literal["crop", "pad"]
_PATCH = 14
_ORIENTATION, _FIRST_TURNED = 0x0112, 5
"""EXIF tag, and the first of its values that exchange height and width."""
# Pillow 9.0 has no Image.Resampling yet.
_BICUBIC = getattr(Image, "Resampling", Image).BICUBIC


def load_image(source: str | Path | bytes) -> np.ndarray:
    """Read an image file, or its bytes, as uint8 RGB [H, W, 3].

    EXIF orientation is applied; RGBA is composited on white; every other mode loses its
    transparency. Of 16 bits the upper eight are kept, in grey images as Pillow does in coloured
    ones. Raises SourceError for a file that is missing or damaged, or whose values of 32 bits
    (integers or floating point) are not those of 0 to 255.
    """
    name = "the image" if isinstance(source, bytes) else str(source)
    try:
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source) as file:
            image = ImageOps.exif_transpose(file)
            # Pillow would show all above 255 as white; files of 16 bits may come as 32
            if image.mode.startswith("I;16") or (
                image.mode == "I" and file.format in ("PNG", "PPM")
            ):
                levels = (np.array(image) >> 8).clip(0, 255).astype(np.uint8)
                return np.repeat(levels[..., None], 3, axis=-1)
            if image.mode in ("I", "F"):
                _require_levels(np.array(image), name)
            if image.mode == "RGBA":
                white = Image.new("RGBA", image.size, (255, 255, 255, 255))
                image = Image.alpha_composite(white, image)
            return np.array(image.convert("RGB"))
    except (*PILLOW_ERRORS, Image.DecompressionBombError) as error:
        raise SourceError(f"{name} cannot be read: {error}") from error


def _require_levels(values: np.ndarray, name: str) -> None:
    """Raise SourceError for values, of 32 bits, that are no levels from 0 to 255; 0 alone is."""
    low, high = np.fmin.reduce(values, axis=None), np.fmax.reduce(values, axis=None)
    if not (low > -1 and (1 < high < 256 or high == 0)):
        said = "no number" if np.isnan(high) else f"values from {low:.3g} to {high:.3g}"
        raise SourceError(
            f"{name} holds {said} in 32 bits, where 0 to 255 are needed: scale them, or save the "
            "images with 8 bits"
        )


def image_size(path: Path) -> tuple[int, int]:
    """Height and width that `load_image` would give, from the head of the file where that does.

    Raises SourceError for a file that is missing or damaged.
    """
    try:
        with Image.open(path) as file:
            width, height = file.size
            if file.format == "TIFF":  # some versions of Pillow turn them as they are loaded
                width, height = ImageOps.exif_transpose(file).size
                return height, width
            # Pillow would decode a whole PNG to look for orientation behind its pixels.
            known = file.format != "PNG" or "exif" in file.info
            turned = known and file.getexif().get(_ORIENTATION, 1) >= _FIRST_TURNED
    except (*PILLOW_ERRORS, Image.DecompressionBombError) as error:
        raise SourceError(f"{path} cannot be read: {error}") from error
    return (width, height) if turned else (height, width)


def require_rgb(image: object) -> None:
    """Raise InputError for anything but a non-empty uint8 RGB array [H, W, 3]."""
    if not isinstance(image, np.ndarray):
        raise InputError(
            f"an image must be a numpy array, uint8 RGB [H, W, 3], not {type(image).__name__}"
        )
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8 or not image.size:
        raise InputError(
            f"an image must be uint8 RGB [H, W, 3], not {image.dtype} {list(image.shape)}: repeat "
            "the channel of a grey image, drop the alpha of RGBA, scale floats to 0..255"
        )


def resized_part(height: int, width: int, size: int) -> tuple[float, float, float, float]:
    """Top, left, height and width of what `resize_image` keeps in ``crop`` mode of an image.

    In pixels of that image, height x width; only images higher than wide lose rows.
    """
    resized = _resized_height(height, width, size)
    row = height / resized
    return max(0, resized - size) // 2 * row, 0.0, min(resized, size) * row, float(width)


def _resized_height(height: int, width: int, size: int) -> int:
    return round(height * (size / width) / _PATCH) * _PATCH


def resize_image(image: np.ndarray, size: int = 518, mode: Mode = "crop") -> np.ndarray:
    """Bring uint8 RGB [H, W, 3] to the network's size, uint8 [h, w, 3].

    ``crop``: width ``size``, height by aspect in whole patches, of which at most the middle
    ``size`` rows are kept. ``pad``: the longer side becomes ``size``, the rest is white.

    Raises InputError for no such image, one that is smaller than a patch, or so wide or so high
    that no patch remains, and ConfigurationError for a ``size`` that is no multiple of the patch.
    """
    require_rgb(image)
    if size < _PATCH or size % _PATCH:
        raise ConfigurationError(f"the image size must be a multiple of {_PATCH}, not {size}")
    if mode not in ("crop", "pad"):
        raise ConfigurationError(f"the mode must be crop or pad, not '{mode}'")
    height, width = image.shape[:2]
    if min(height, width) < _PATCH:
        raise InputError(
            f"an image of {width}x{height} pixels is too small: no side may have less than the "
            f"{_PATCH} pixels of a patch"
        )
    if mode == "crop" or width >= height:
        new_width, new_height = size, _resized_height(height, width, size)
    else:
        new_width, new_height = round(width * (size / height) / _PATCH) * _PATCH, size
    if min(new_width, new_height) < _PATCH:
        raise InputError(f"an image of {width}x{height} pixels is too narrow for size {size}")
    resized = np.array(Image.fromarray(image).resize((new_width, new_height), _BICUBIC))
    if mode == "crop":
        top = max(0, new_height - size) // 2
        return resized[top : top + size]
    padded = np.full((size, size, 3), 255, np.uint8)
    top, left = (size - new_height) // 2, (size - new_width) // 2
    padded[top : top + new_height, left : left + new_width] = resized
    return padded


def preprocess_file(
    source: str | Path | bytes, size: int = 518, mode: Mode = "crop"
) -> torch.Tensor:
    """Network input float32 [3, h, w] in [0, 1] of an image file: `load_image`, `resize_image`."""
    image = np.ascontiguousarray(resize_image(load_image(source), size, mode))
    return torch.from_numpy(image).permute(2, 0, 1).float().div(255.0).contiguous()
