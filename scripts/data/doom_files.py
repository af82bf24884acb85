# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The lumps of Doom's WAD files, and the images of walls and flats among them."""

import io
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

_MAP_LUMPS = (
    *("THINGS", "LINEDEFS", "SIDEDEFS", "VERTEXES", "SEGS"),
    *("SSECTORS", "NODES", "SECTORS", "REJECT", "BLOCKMAP"),
)
_FLAT_SIDE = 64
_END_OF_COLUMN = 255
_PNG = b"\x89PNG"


def text(name: bytes) -> str:
    """Name of up to eight characters, in capitals as the game compares them."""
    return name.split(b"\0")[0].decode("latin1").upper()


class Wad:
    """The lumps of a WAD file in their order; of those with equal names the last one counts."""

    def __init__(self, path: Path) -> None:
        self.name = path.name
        data = path.read_bytes()
        if len(data) < 12 or data[:4] not in (b"IWAD", b"PWAD"):
            raise ValueError(f"{self.name} is not a WAD file")
        count, table = struct.unpack_from("<ii", data, 4)
        if min(count, table) < 0 or table + 16 * count > len(data):
            raise ValueError(f"{self.name}: its directory of {count} lumps is truncated")
        self._lumps: list[tuple[str, bytes]] = []
        for offset, size, raw in struct.iter_unpack("<ii8s", data[table : table + 16 * count]):
            if size and (min(offset, size) < 0 or offset + size > len(data)):
                raise ValueError(f"{self.name}: lump {text(raw)} is truncated")
            self._lumps.append((text(raw), data[offset : offset + size]))
        self._by_name = dict(self._lumps)

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def lump(self, name: str) -> bytes:
        """Content of a lump."""
        if name not in self._by_name:
            raise ValueError(f"{self.name} has no lump {name}")
        return self._by_name[name]

    def between(self, start: str, end: str) -> dict[str, bytes]:
        """Content of the lumps between two markers."""
        names = [name for name, _ in self._lumps]
        if start not in names or end not in names:
            raise ValueError(f"{self.name} has no lumps {start} to {end}")
        return dict(self._lumps[names.index(start) + 1 : names.index(end)])

    def maps(self) -> dict[str, dict[str, bytes]]:
        """Lumps of each map, by the name of the marker that precedes them."""
        found: dict[str, dict[str, bytes]] = {}
        for (marker, _), (first, _), start in zip(
            self._lumps, self._lumps[1:], range(1, len(self._lumps))
        ):
            if first == _MAP_LUMPS[0]:
                lumps = dict(self._lumps[start : start + len(_MAP_LUMPS)])
                found[marker] = {name: lumps[name] for name in _MAP_LUMPS if name in lumps}
        return found


class _Patch(NamedTuple):
    """Image that is a part of textures."""

    pixels: np.ndarray  # [H, W, 3] uint8
    opaque: np.ndarray  # [H, W] bool


class _Texture(NamedTuple):
    """Image of a wall, put together of patches."""

    size: tuple[int, int]  # width, height
    parts: list[tuple[int, int, int]]  # x, y, index into the patches' names


class WadImages:
    """The images of a WAD's walls and flats."""

    def __init__(self, wad: Wad) -> None:
        self._wad = wad
        palette = wad.lump("PLAYPAL")
        if len(palette) < 768:
            raise ValueError(f"{wad.name}: lump PLAYPAL is truncated")
        self._palette = np.frombuffer(palette, np.uint8, 768).reshape(256, 3)
        self._flats = wad.between("F_START", "F_END")
        try:
            (count,) = struct.unpack_from("<i", wad.lump("PNAMES"))
            raw = struct.unpack_from(f"<{'8s' * count}", wad.lump("PNAMES"), 4)
        except struct.error as error:
            raise ValueError(f"{wad.name}: lump PNAMES is truncated") from error
        self._patch_names = [text(name) for name in raw]
        self._textures = self._read_textures("TEXTURE1")
        if "TEXTURE2" in wad:
            self._textures.update(self._read_textures("TEXTURE2"))

    def _read_textures(self, lump: str) -> dict[str, _Texture]:
        data, textures = self._wad.lump(lump), {}
        try:
            (count,) = struct.unpack_from("<i", data)
            for start in struct.unpack_from(f"<{count}i", data, 4):
                name, _, width, height, _, parts = struct.unpack_from("<8sihhih", data, start)
                at = [start + 22 + 10 * part for part in range(parts)]
                patches = [struct.unpack_from("<hhh", data, offset) for offset in at]
                textures[text(name)] = _Texture((width, height), patches)
        except struct.error as error:
            raise ValueError(f"{self._wad.name}: lump {lump} is truncated") from error
        return textures

    def wall_size(self, name: str) -> tuple[int, int]:
        """Width and height of a wall's image."""
        if name not in self._textures:
            raise ValueError(f"{self._wad.name} has no texture {name}")
        return self._textures[name].size

    def wall(self, name: str) -> np.ndarray:
        """Image ``[H, W, 3]`` uint8 of a wall; black where it has holes."""
        width, height = self.wall_size(name)
        image = np.zeros((height, width, 3), np.uint8)
        for x, y, index in self._textures[name].parts:
            if not 0 <= index < len(self._patch_names):
                raise ValueError(f"{self._wad.name}: texture {name} has no patch {index}")
            patch = self._patch(self._patch_names[index])
            left, top = max(-x, 0), max(-y, 0)
            right = min(patch.opaque.shape[1], width - x)
            bottom = min(patch.opaque.shape[0], height - y)
            if left < right and top < bottom:
                opaque = patch.opaque[top:bottom, left:right]
                target = image[y + top : y + bottom, x + left : x + right]
                target[opaque] = patch.pixels[top:bottom, left:right][opaque]
        return image

    def flat(self, name: str) -> np.ndarray:
        """Image ``[64, 64, 3]`` uint8 of a floor or a ceiling."""
        if name not in self._flats:
            raise ValueError(f"{self._wad.name} has no flat {name}")
        data = self._flats[name]
        if data.startswith(_PNG):
            return self._png(name, data).pixels
        if len(data) < _FLAT_SIDE**2:
            raise ValueError(f"{self._wad.name}: flat {name} is truncated")
        indices = np.frombuffer(data, np.uint8, _FLAT_SIDE**2).reshape(_FLAT_SIDE, _FLAT_SIDE)
        return self._palette[indices]

    def _png(self, name: str, data: bytes) -> _Patch:
        try:
            image = np.asarray(Image.open(io.BytesIO(data)).convert("RGBA"))
        except OSError as error:
            raise ValueError(f"{self._wad.name}: image {name} is no readable PNG") from error
        return _Patch(image[..., :3], image[..., 3] > 127)

    def _patch(self, name: str) -> _Patch:
        data = self._wad.lump(name)
        if data.startswith(_PNG):
            return self._png(name, data)
        try:
            return self._picture(data)
        except (struct.error, IndexError, ValueError) as error:
            raise ValueError(f"{self._wad.name}: patch {name} is malformed") from error

    def _picture(self, data: bytes) -> _Patch:
        """Image of columns, each of which is runs of palette indices."""
        width, height = struct.unpack_from("<hh", data)
        indices, opaque = np.zeros((height, width), np.uint8), np.zeros((height, width), bool)
        for x, at in enumerate(struct.unpack_from(f"<{width}i", data, 8)):
            while data[at] != _END_OF_COLUMN:
                top, count = data[at], data[at + 1]
                # One byte of padding on both sides of the run.
                run = np.frombuffer(data, np.uint8, count, at + 3)[: max(height - top, 0)]
                indices[top : top + len(run), x], opaque[top : top + len(run), x] = run, True
                at += count + 4
        return _Patch(self._palette[indices], opaque)
