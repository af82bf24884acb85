# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Calibrated cameras, and the pinhole camera that the network wants instead.

Pixel centres lie at integers; K has fx, fy, cx, cy in pixels of the full camera image.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np

from lingbot_map_ros.errors import InputError
from lingbot_map_ros.wording import shortened

# Numbers of coefficients that OpenCV understands, by the names of sensor_msgs/CameraInfo.
_COEFFICIENTS = {
    "plumb_bob": (4, 5),
    "rational_polynomial": (8, 12, 14),
    "equidistant": (4,),
    "none": (0,),
}
_ALIASES = {"fisheye": "equidistant", "": "plumb_bob", "pinhole": "none"}

# A pinhole image of more than this is stretched beyond anything that the network saw in training.
MAX_FIELD_OF_VIEW = math.radians(110.0)
# Focal lengths in units of the image's size: beyond these they are no pixels.
_SHORTEST, _LONGEST = 0.01, 1000.0
# A pinhole image that shows less than a tenth of the camera's is of no use.
_MOST_ZOOM = 10.0
_EDGE_SAMPLES = 33
_RADIAL_SAMPLES = 24
_BISECTIONS = 40
_UNUSABLE = "distortion and principal point leave no usable part of the image around its centre"


class CameraModelError(InputError):
    """A calibration that cannot be right, or that belongs to another image."""


@dataclass(frozen=True)
class CameraModel:
    """Intrinsics and distortion of one camera.

    Parameters
    ----------
    width, height
        Size in pixels of the images that the calibration is for.
    K
        Pinhole matrix [3, 3].
    D
        Distortion coefficients in OpenCV's order; empty or all zero for none.
    model
        ``plumb_bob``, ``rational_polynomial``, ``equidistant`` or ``none``, as in CameraInfo.

    Raises
    ------
    CameraModelError
        Not finite, a focal length that is none in pixels (an uncalibrated camera), a principal
        point outside of the image, an unknown model, a wrong number of coefficients, or a
        distortion of which no pinhole image comes.

    """

    width: int
    height: int
    K: np.ndarray
    D: tuple[float, ...] = ()
    model: str = "none"

    def __post_init__(self) -> None:
        K = np.array(self.K, np.float64)
        D = tuple(float(value) for value in self.D)
        model = _ALIASES.get(self.model.lower(), self.model.lower())
        if self.width <= 0 or self.height <= 0:
            raise CameraModelError(f"the calibration is for {self.width}x{self.height} pixels")
        if K.shape != (3, 3) or not np.isfinite(K).all() or not np.isfinite(D).all():
            raise CameraModelError("the calibration holds NaN, infinity or no 3x3 matrix")
        size = np.array([self.width, self.height])
        if not ((_SHORTEST * size < np.diag(K)[:2]) & (np.diag(K)[:2] < _LONGEST * size)).all():
            raise CameraModelError(
                f"focal lengths {K[0, 0]:g} and {K[1, 1]:g} for {self.width}x{self.height} pixels: "
                "the camera is not calibrated"
            )
        if not (0 < K[0, 2] < self.width and 0 < K[1, 2] < self.height):
            raise CameraModelError(
                f"principal point ({K[0, 2]:g}, {K[1, 2]:g}) outside of {self.width}x{self.height}"
            )
        if not any(D):
            D, model = (), "none"
        elif model not in _COEFFICIENTS:
            known = ", ".join(_COEFFICIENTS)
            raise CameraModelError(f"distortion model {shortened(self.model)!r} is none of {known}")
        elif len(D) not in _COEFFICIENTS[model]:
            allowed = " or ".join(map(str, _COEFFICIENTS[model]))
            raise CameraModelError(f"{model} has {allowed} coefficients, not {len(D)}")
        K.setflags(write=False)
        object.__setattr__(self, "K", K)
        object.__setattr__(self, "D", D)
        object.__setattr__(self, "model", model)
        border = _border(self.width, self.height) - (size - 1) / 2
        if not _inside(self, border / (np.diag(K)[:2] * _MOST_ZOOM)):
            raise CameraModelError(_UNUSABLE)

    def __eq__(self, other: object) -> bool:
        """Whether two calibrations are the same numbers."""
        if not isinstance(other, CameraModel):
            return NotImplemented
        return (self.width, self.height, self.D, self.model) == (
            *(other.width, other.height, other.D, other.model),
        ) and bool((self.K == other.K).all())

    def __hash__(self) -> int:
        return hash((self.width, self.height, self.K.tobytes(), self.D, self.model))

    def project(self, rays: np.ndarray) -> np.ndarray:
        """Pixels [N, 2] of the rays (x, y, 1) given as [N, 2], distortion included."""
        points = np.ascontiguousarray(rays, np.float64).reshape(-1, 1, 2)
        D = np.array(self.D)
        if self.model == "equidistant":
            return cv2.fisheye.distortPoints(points, self.K, D).reshape(-1, 2)
        origin = np.zeros(3)
        directions = np.concatenate((points, np.ones_like(points[..., :1])), -1)
        return cv2.projectPoints(directions, origin, origin, self.K, D)[0].reshape(-1, 2)


@dataclass(frozen=True)
class Undistortion:
    """Resampling of a camera image to a pinhole image of the same size.

    ``map_x``, ``map_y`` [H, W] float32 give for each pixel of the pinhole image where to look in
    the camera image; ``K`` [3, 3] is the pinhole camera.
    """

    map_x: np.ndarray
    map_y: np.ndarray
    K: np.ndarray


def undistortion(camera: CameraModel, principal_point: tuple[float, float]) -> Undistortion:
    """Resampling to the widest pinhole image that has no empty corner.

    The ratio of fx and fy is kept; the principal point becomes the one given (cx, cy). The field
    of view is the widest of which every pixel comes from within the camera image, at most
    MAX_FIELD_OF_VIEW. Raises CameraModelError if no such image exists.
    """
    cx, cy = principal_point
    zoom = _smallest_zoom(camera, principal_point)
    K = np.array(
        [[camera.K[0, 0] * zoom, 0.0, cx], [0.0, camera.K[1, 1] * zoom, cy], [0.0, 0.0, 1.0]]
    )
    size, D, straight = (camera.width, camera.height), np.array(camera.D), np.eye(3)
    if camera.model == "equidistant":
        maps = cv2.fisheye.initUndistortRectifyMap(camera.K, D, straight, K, size, cv2.CV_32FC1)
    else:
        maps = cv2.initUndistortRectifyMap(camera.K, D, straight, K, size, cv2.CV_32FC1)
    return Undistortion(*maps, K)


def _smallest_zoom(camera: CameraModel, principal_point: tuple[float, float]) -> float:
    """Factor on the focal lengths at which the border of the pinhole image just stays inside."""
    border = _border(camera.width, camera.height) - principal_point
    focal = np.array([camera.K[0, 0], camera.K[1, 1]])
    half = np.array([camera.width, camera.height]) / 2
    low = float((half / focal / math.tan(MAX_FIELD_OF_VIEW / 2)).max())
    if _inside(camera, border / (focal * low)):
        return low
    high = low
    while not _inside(camera, border / (focal * high)):
        high *= 1.25
        if high > 2 * _MOST_ZOOM:
            raise CameraModelError(_UNUSABLE)
    low = high / 1.25
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if _inside(camera, border / (focal * middle)):
            high = middle
        else:
            low = middle
    return high


def _border(width: int, height: int) -> np.ndarray:
    """Pixels [N, 2] along the four edges of an image."""
    u, v = np.linspace(0, width - 1, _EDGE_SAMPLES), np.linspace(0, height - 1, _EDGE_SAMPLES)
    return np.concatenate(
        [np.stack((u, np.full_like(u, edge)), -1) for edge in (0.0, height - 1.0)]
        + [np.stack((np.full_like(v, edge), v), -1) for edge in (0.0, width - 1.0)]
    )


def _inside(camera: CameraModel, rays: np.ndarray) -> bool:
    """Whether the rays [N, 2] of a border, and all within it, fall onto the camera image.

    A polynomial distortion folds back beyond the field it was fitted on: a ray far outside then
    seems to hit the image. So the way out to each ray must lead ever further from the centre.
    """
    fractions = np.linspace(0.0, 1.0, _RADIAL_SAMPLES)
    paths = camera.project((fractions[:, None, None] * rays).reshape(-1, 2))
    paths = paths.reshape(_RADIAL_SAMPLES, -1, 2)
    distance = np.linalg.norm(paths - camera.K[:2, 2], axis=-1)
    last = np.array([camera.width - 1, camera.height - 1])
    return bool(
        np.isfinite(paths).all()
        and (np.diff(distance, axis=0) > 0).all()
        and (paths[-1] >= 0).all()
        and (paths[-1] <= last).all()
    )
