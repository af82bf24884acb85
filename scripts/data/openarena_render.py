# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Colour and depth of a map by ray casting on the CPU (Embree through ``embreex``)."""

import numpy as np
from embreex.mesh_construction import TriangleMesh
from embreex.rtcore_scene import EmbreeScene

TEXTURE_SIZE = 128
_LEVELS = 5
_SKY = np.array([150, 180, 215], np.float32)
_OVERBRIGHT = 4.0
_GAMMA = 1 / 1.15


class MapScene:
    """A map ready for ray casting.

    ``mesh`` holds the arrays of ``openarena_maps.MapMesh``; ``images [M, 128, 128, 3]`` uint8 are
    the materials' images in the order of its texture ids; ``sky [3]`` is what shows elsewhere.
    """

    def __init__(
        self, mesh: dict[str, np.ndarray], images: np.ndarray, sky: np.ndarray = _SKY
    ) -> None:
        self._scene = EmbreeScene()
        self._sky = sky
        self._triangles = mesh["triangles"]
        corners = np.ascontiguousarray(mesh["positions"][self._triangles], np.float32)
        TriangleMesh(self._scene, corners)
        self._uv = mesh["uv"][self._triangles].astype(np.float32)
        self._light_uv = mesh["light_uv"][self._triangles].astype(np.float32)
        self._colors = mesh["colors"][self._triangles].astype(np.float32)
        self._texture_ids, self._light_ids = mesh["texture_ids"], mesh["light_ids"]
        lightmaps = mesh["lightmaps"]
        self._lightmaps = lightmaps if len(lightmaps) else np.full((1, 128, 128, 3), 100, np.uint8)
        self._levels = [images]
        for _ in range(_LEVELS - 1):
            finer = self._levels[-1].astype(np.float32)
            side = finer.shape[1] // 2
            means = finer.reshape(-1, side, 2, side, 2, 3).mean((2, 4))
            self._levels.append(means.round().astype(np.uint8))
        self._texels_per_metre = self._density(corners)

    def _density(self, corners: np.ndarray) -> np.ndarray:
        edges = corners[:, 1:] - corners[:, :1]
        area = np.linalg.norm(np.cross(edges[:, 0], edges[:, 1]), axis=-1)
        uv_edges = self._uv[:, 1:] - self._uv[:, :1]
        uv_area = np.abs(
            uv_edges[:, 0, 0] * uv_edges[:, 1, 1] - uv_edges[:, 0, 1] * uv_edges[:, 1, 0]
        )
        return TEXTURE_SIZE * np.sqrt(uv_area / np.maximum(area, 1e-9))

    def cast(self, origins: np.ndarray, directions: np.ndarray) -> dict[str, np.ndarray]:
        """First hits of rays ``[N, 3]``: ``tfar``, ``primID`` (-1 for none), ``u``, ``v``."""
        return self._scene.run(
            np.ascontiguousarray(origins, np.float32),
            np.ascontiguousarray(directions, np.float32),
            query="INTERSECT",
            output=True,
        )

    def distance(self, origins: np.ndarray, directions: np.ndarray) -> np.ndarray:
        """Distance ``[N]`` to the first hit along unit rays, infinite where nothing is hit."""
        hit = self.cast(origins, directions)
        return np.where(hit["primID"] >= 0, hit["tfar"], np.inf)

    def render(
        self, pose: np.ndarray, focal: tuple[float, float], size: tuple[int, int], samples: int = 2
    ) -> tuple[np.ndarray, np.ndarray]:
        """Image ``[H, W, 3]`` uint8 and depth ``[H, W]`` float32 in metres (0 where sky).

        ``pose`` is camera-to-world; the principal point lies at (W/2, H/2) with pixel centres at
        integers; ``samples`` squared rays make a pixel.
        """
        height, width = size
        offset = (np.arange(samples) + 0.5) / samples - 0.5
        u = (np.arange(width)[:, None] + offset).reshape(-1)
        v = (np.arange(height)[:, None] + offset).reshape(-1)
        rays = np.stack(
            np.broadcast_arrays(
                (u[None] - width / 2) / focal[0], (v[:, None] - height / 2) / focal[1], 1.0
            ),
            axis=-1,
        ).reshape(-1, 3)
        directions = rays @ pose[:3, :3].T
        hit = self.cast(np.broadcast_to(pose[:3, 3], directions.shape), directions)
        seen = hit["primID"] >= 0
        # The rays have z = 1 in the camera, so the ray parameter is the depth.
        depth = np.where(seen, hit["tfar"], 0).astype(np.float32)
        color = self._shade(hit, depth / (min(focal) * samples))
        color[~seen] = self._sky
        color = color.reshape(height, samples, width, samples, 3).mean((1, 3))
        centre = depth.reshape(height, samples, width, samples)
        # With an even number of samples none hits the pixel's centre: the nearest of the middle.
        middle = samples // 2
        lower = (samples - 1) // 2
        depth = centre[:, lower : middle + 1, :, lower : middle + 1]
        depth = np.where((depth > 0).all((1, 3)), depth.mean((1, 3)), 0)
        spread = centre.max((1, 3)) - centre.min((1, 3))
        # Across a silhouette the mean is on neither surface: keep the central sample's surface.
        depth = np.where(spread > 0.05 * depth, centre[:, middle, :, middle], depth)
        return color.round().astype(np.uint8), depth

    def light(self, hit: dict[str, np.ndarray]) -> np.ndarray:
        """Light ``[N, 3]`` on the surfaces that rays hit, 0 to 255; any where nothing is hit."""
        face = np.maximum(hit["primID"], 0)
        light = _interpolate(self._colors, hit)
        mapped = np.flatnonzero(self._light_ids[face] >= 0)
        side = self._lightmaps.shape[1]
        light_uv = _interpolate(self._light_uv, hit)[mapped]
        cell = np.clip((light_uv * side).astype(np.int64), 0, side - 1)
        light[mapped] = self._lightmaps[self._light_ids[face[mapped]], cell[:, 1], cell[:, 0]]
        return light

    def _shade(self, hit: dict[str, np.ndarray], metres_per_sample: np.ndarray) -> np.ndarray:
        face = np.maximum(hit["primID"], 0)
        uv = _interpolate(self._uv, hit)
        texture = self._texture_ids[face]
        level = np.log2(np.maximum(self._texels_per_metre[face] * metres_per_sample, 1))
        level = np.minimum(level.round().astype(np.int64), _LEVELS - 1)
        color = np.empty((len(face), 3), np.float32)
        for index, images in enumerate(self._levels):
            chosen = np.flatnonzero(level == index)
            color[chosen] = _bilinear(images, texture[chosen], uv[chosen])
        color *= self.light(hit) * (_OVERBRIGHT / 255)
        brightest = np.maximum.reduce([color[:, 0], color[:, 1], color[:, 2]])
        color *= (255 / np.maximum(brightest, 255))[:, None]
        return 255 * (color / 255) ** _GAMMA


def _interpolate(corners: np.ndarray, hit: dict[str, np.ndarray]) -> np.ndarray:
    """Values ``[N, C]`` where rays hit, between those at triangles' ``corners [T, 3, C]``."""
    weights = np.stack([1 - hit["u"] - hit["v"], hit["u"], hit["v"]], axis=-1)
    return np.einsum("nij,ni->nj", corners[np.maximum(hit["primID"], 0)], weights)


def _bilinear(images: np.ndarray, index: np.ndarray, uv: np.ndarray) -> np.ndarray:
    """Sample tiled ``images [M, side, side, 3]`` at ``uv [N, 2]``."""
    side = images.shape[1]
    at = (uv % 1) * side - 0.5
    low = np.floor(at).astype(np.int64)
    weight = (at - low)[..., None]
    x0, y0 = (low % side).T
    x1, y1 = ((low + 1) % side).T
    top = images[index, y0, x0] * (1 - weight[:, 0]) + images[index, y0, x1] * weight[:, 0]
    bottom = images[index, y1, x0] * (1 - weight[:, 0]) + images[index, y1, x1] * weight[:, 0]
    return top * (1 - weight[:, 1]) + bottom * weight[:, 1]
