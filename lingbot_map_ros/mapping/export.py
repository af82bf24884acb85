# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Maps and trajectories as files: PLY, TUM and COLMAP text models.

A file is written aside, flushed to the disk and renamed into place. Whatever goes wrong, its name
holds either the complete new content or what was there before, and an ExportError tells the reason.
Only a killed process can leave the hidden `.part` file it was writing; a later save in the same
directory removes it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from lingbot_map_ros.errors import ExportError
from lingbot_map_ros.geometry.poses import invert, matrix_to_quaternion

_CHUNK = 1 << 18
_ABANDONED_S = 3600.0
"""No save takes so long: a part that was not written to meanwhile belongs to a killed process."""
_PLY_VERTEX = np.dtype(
    [("x", "<f4"), ("y", "<f4"), ("z", "<f4"), ("red", "u1"), ("green", "u1"), ("blue", "u1")]
)


@dataclass(frozen=True, eq=False)
class CameraView:
    """One image of a COLMAP model: camera-to-world pose and the pinhole that took it."""

    stamp_ns: int
    T: NDArray[np.float64]
    """[4, 4]"""
    K: NDArray[np.float64]
    """[3, 3], pixel centres at integers"""
    size: tuple[int, int]
    """(H, W)"""
    file: str = ""
    """Name of the image's file; empty where there is none, as for a bag's."""

    def uncropped(
        self, part: tuple[float, float, float, float], size: tuple[int, int]
    ) -> CameraView:
        """Return the view of a whole image, of which a part was cut out and resized to this one.

        ``part`` is top, left, height and width in pixels of the whole image of ``size`` (H, W).
        """
        top, left, height, width = part
        x, y = width / self.size[1], height / self.size[0]
        # resizing keeps the outer edges in place, half a pixel beyond the outer centres
        half = np.array([[1, 0, 0.5], [0, 1, 0.5], [0, 0, 1]])
        resized = np.array([[x, 0, left], [0, y, top], [0, 0, 1]])
        return replace(self, K=np.linalg.inv(half) @ resized @ half @ self.K, size=size)


def write_ply(path: Path, xyz: NDArray[np.float32], rgb: NDArray[np.uint8]) -> int:
    """Write a binary little-endian PLY of points [N, 3] and colours [N, 3]; return N."""
    header = "\n".join(
        (
            "ply",
            "format binary_little_endian 1.0",
            f"element vertex {len(xyz)}",
            *(f"property float {axis}" for axis in "xyz"),
            *(f"property uchar {colour}" for colour in ("red", "green", "blue")),
            "end_header\n",
        )
    )
    with _replacing(path) as (file,):
        file.write(header.encode("ascii"))
        for start in range(0, len(xyz), _CHUNK):
            points, colours = xyz[start : start + _CHUNK], rgb[start : start + _CHUNK]
            vertices = np.empty(len(points), _PLY_VERTEX)
            for i, axis in enumerate("xyz"):
                vertices[axis] = points[:, i]
            for i, colour in enumerate(("red", "green", "blue")):
                vertices[colour] = colours[:, i]
            file.write(vertices.tobytes())
    return len(xyz)


def write_tum(path: Path, stamps_ns: NDArray[np.int64], poses: NDArray[np.float64]) -> int:
    """Write poses [N, 4, 4] as lines `stamp x y z qx qy qz qw`, stamp in seconds; return N.

    The stamps keep every nanosecond; positions and quaternions have nine decimals.
    """
    rows = np.concatenate((poses[:, :3, 3], matrix_to_quaternion(poses[:, :3, :3])), -1)
    with _replacing(path) as (file,):
        for stamp, row in zip(stamps_ns.tolist(), rows.tolist(), strict=True):
            numbers = " ".join(f"{number:.9f}" for number in row)
            file.write(f"{_seconds(stamp)} {numbers}\n".encode("ascii"))
    return len(rows)


def write_colmap(
    directory: Path, views: list[CameraView], xyz: NDArray[np.float32], rgb: NDArray[np.uint8]
) -> int:
    """Write cameras.txt, images.txt (world-to-camera) and points3D.txt; return the image count.

    COLMAP puts the centre of the first pixel at (0.5, 0.5), so half a pixel is added to the
    principal points. Equal cameras are written once, and a file whose name holds a space is named
    by its stamp. The three files are renamed into place together, after all are complete.
    """
    names = ("cameras.txt", "images.txt", "points3D.txt")
    with _replacing(*(directory / name for name in names)) as (cameras, images, points):
        identifiers: dict[str, int] = {}
        for number, view in enumerate(views, start=1):
            camera = identifiers.setdefault(_pinhole(view), len(identifiers) + 1)
            T = invert(view.T)
            x, y, z, w = matrix_to_quaternion(T[:3, :3])
            pose = " ".join(f"{value:.12g}" for value in (w, x, y, z, *T[:3, 3]))
            # Readers of this format take a name up to the next space.
            split = not view.file or len(view.file.split()) != 1
            name = f"{view.stamp_ns}.png" if split else view.file
            # The second line lists image points, of which a depth model has none.
            images.write(f"{number} {pose} {camera} {name}\n\n".encode(errors="surrogateescape"))
        for pinhole, identifier in identifiers.items():
            cameras.write(f"{identifier} {pinhole}\n".encode("ascii"))
        for start in range(0, len(xyz), _CHUNK):
            rows = zip(
                range(start + 1, len(xyz) + 1),
                xyz[start : start + _CHUNK].tolist(),
                rgb[start : start + _CHUNK].tolist(),
            )
            lines = [
                f"{i} {x:.6f} {y:.6f} {z:.6f} {red} {green} {blue} 0\n"
                for i, (x, y, z), (red, green, blue) in rows
            ]
            points.write("".join(lines).encode("ascii"))
    return len(views)


def _pinhole(view: CameraView) -> str:
    H, W = view.size
    K = view.K
    parameters = (K[0, 0], K[1, 1], K[0, 2] + 0.5, K[1, 2] + 0.5)
    return f"PINHOLE {W} {H} " + " ".join(f"{value:.12g}" for value in parameters)


def _seconds(stamp_ns: int) -> str:
    """Decimal seconds with nine places, exact for every integer (a float would lose 100 ns)."""
    sign = "-" if stamp_ns < 0 else ""
    seconds, nanoseconds = divmod(abs(stamp_ns), 1_000_000_000)
    return f"{sign}{seconds}.{nanoseconds:09d}"


@contextlib.contextmanager
def _replacing(*paths: Path) -> Iterator[list[IO[bytes]]]:
    """Open a file aside for each path; rename all into place if the body and the disk succeed."""
    suffix = f".{os.getpid()}-{secrets.token_hex(4)}.part"
    aside = [path.with_name(f".{path.name}{suffix}") for path in paths]
    try:
        with contextlib.ExitStack() as stack:
            for parent in {path.parent for path in paths}:
                parent.mkdir(parents=True, exist_ok=True)
                _remove_abandoned(parent)
            files: list[IO[bytes]] = [stack.enter_context(path.open("xb")) for path in aside]
            yield files
            for file in files:
                file.flush()
                os.fsync(file.fileno())
        for part, path in zip(aside, paths, strict=True):
            part.replace(path)
        for parent in {path.parent for path in paths}:
            _sync_directory(parent)
    except OSError as error:
        raise ExportError(
            f"cannot write {paths[0] if len(paths) == 1 else paths[0].parent}: "
            f"{error.strerror or error}; nothing was changed"
        ) from error
    finally:
        for part in aside:
            with contextlib.suppress(OSError):
                part.unlink()


def _remove_abandoned(directory: Path) -> None:
    """Free the room that killed processes have left taken in a directory."""
    for part in directory.glob(".*.*-????????.part"):
        with contextlib.suppress(OSError):
            if time.time() - part.stat().st_mtime > _ABANDONED_S:
                part.unlink()


def _sync_directory(directory: Path) -> None:
    """Make the renames of a directory survive a power cut, where the file system can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
