# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Cameras as grids of viewing rays: pinhole, and exact inverses of two lens distortions.

Pixel centres lie at integers; a ray is (x, y) of the direction (x, y, 1) in optical axes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError

LENSES = ("pinhole", "plumb_bob", "equidistant")
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Camera:
    """A camera: size in pixels, intrinsics [3,3], and ROS distortion model and coefficients.

    ``plumb_bob`` takes (k1, k2, p1, p2, k3), ``equidistant`` (k1, k2, k3, k4).
    """

    width: int
    height: int
    intrinsics: Array
    model: str = "pinhole"
    distortion: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        needed = {"pinhole": 0, "plumb_bob": 5, "equidistant": 4}.get(self.model)
        if needed is None:
            raise InputError(f"unknown camera model {self.model!r}; choose one of {LENSES}")
        if len(self.distortion) != needed:
            raise InputError(f"{self.model} takes {needed} coefficients, not {self.distortion}")

    def rays(self, shift: tuple[float, float] = (0.0, 0.0)) -> Array:
        """Rays [H,W,2] through the pixel centres moved by ``shift`` (x, y) pixels.

        Raises InputError when the lens cannot see some pixel as a ray in front of the camera.
        """
        fx, fy = self.intrinsics[0, 0], self.intrinsics[1, 1]
        x = (np.arange(self.width) + shift[0] - self.intrinsics[0, 2]) / fx
        y = (np.arange(self.height) + shift[1] - self.intrinsics[1, 2]) / fy
        image = np.stack(np.meshgrid(x, y), -1)
        if self.model == "pinhole":
            return image
        if self.model == "equidistant":
            return _invert_equidistant(image, np.array(self.distortion))
        return _invert_plumb_bob(image, np.array(self.distortion))


def pinhole(width: int, height: int, horizontal_fov: float) -> Camera:
    """A pinhole camera of square pixels, principal point (W/2, H/2); field of view in radians."""
    f = width / (2 * math.tan(horizontal_fov / 2))
    k = np.array([[f, 0, width / 2], [0, f, height / 2], [0, 0, 1.0]])
    return Camera(width, height, k)


def lens(model: str, width: int, height: int) -> Camera:
    """A camera with the strong barrel distortion of a common wide-angle lens, or a fisheye's."""
    if model == "pinhole":
        return pinhole(width, height, math.radians(70.0))
    focal, coefficients = {
        "plumb_bob": (0.72, (-0.28, 0.075, 0.0006, -0.0004, -0.008)),
        "equidistant": (0.5, (-0.012, 0.006, -0.004, 0.0008)),
    }[model]
    k = np.array([[focal * width, 0, width / 2 + 3], [0, focal * width, height / 2 - 2], [0, 0, 1]])
    return Camera(width, height, k, model, coefficients)


def distort_plumb_bob(rays: Array, k: Array) -> Array:
    """Image coordinates [...,2] (before the intrinsics) of rays [...,2]."""
    x, y = np.moveaxis(rays, -1, 0)
    r2 = x * x + y * y
    radial = 1 + r2 * (k[0] + r2 * (k[1] + r2 * k[4]))
    dx = 2 * k[2] * x * y + k[3] * (r2 + 2 * x * x)
    dy = k[2] * (r2 + 2 * y * y) + 2 * k[3] * x * y
    return np.stack([x * radial + dx, y * radial + dy], -1)


def _invert_plumb_bob(image: Array, k: Array) -> Array:
    """Newton's method with a numerical Jacobian, to far below a hundredth of a pixel."""
    rays, eps = image.copy(), 1e-6
    for _ in range(30):
        value = distort_plumb_bob(rays, k)
        error = value - image
        jx, jy = ((distort_plumb_bob(rays + step, k) - value) / eps for step in eps * np.eye(2))
        det = jx[..., 0] * jy[..., 1] - jx[..., 1] * jy[..., 0]
        dx = (error[..., 0] * jy[..., 1] - error[..., 1] * jy[..., 0]) / det
        dy = (jx[..., 0] * error[..., 1] - jx[..., 1] * error[..., 0]) / det
        rays -= np.stack([dx, dy], -1)
    return _checked(rays, np.abs(distort_plumb_bob(rays, k) - image).max())


def _invert_equidistant(image: Array, k: Array) -> Array:
    """Newton's method on the angle from the axis."""
    radius = np.linalg.norm(image, axis=-1)
    powers = np.arange(4)[:, None, None]
    theta = np.minimum(radius, 1.4)
    for _ in range(30):
        even = theta[None] ** (2 * powers + 2)
        value = theta * (1 + np.tensordot(k, even, 1))
        slope = 1 + np.tensordot(k * (2 * np.arange(4) + 3), even, 1)
        theta = theta - (value - radius) / slope
    if theta.max() >= math.radians(85):
        raise InputError(
            "the lens sees beyond 85 degrees from its axis; take a longer focal length"
        )
    scale = np.where(radius > 1e-12, np.tan(theta) / np.maximum(radius, 1e-12), 1.0)
    even = theta[None] ** (2 * powers + 2)
    return _checked(
        image * scale[..., None], np.abs(theta * (1 + np.tensordot(k, even, 1)) - radius).max()
    )


def _checked(rays: Array, error: float) -> Array:
    if not error < 1e-9:
        raise InputError("the distortion cannot be inverted over the whole image; make it weaker")
    return rays
