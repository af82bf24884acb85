# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The files of OpenArena's and Nexuiz's ``.pk3`` archives, and the materials among them."""

import io
import re
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image


class GameFiles:
    """The merged file tree of a folder of ``.pk3`` archives; later ones override earlier ones."""

    def __init__(self, folder: Path) -> None:
        self._entries: dict[str, tuple[zipfile.ZipFile, str]] = {}
        for path in sorted(folder.glob("*.pk3")):
            archive = zipfile.ZipFile(path)
            for name in archive.namelist():
                self._entries[name.lower()] = (archive, name)

    def names(self, prefix: str, suffix: str) -> list[str]:
        """Names that start and end so, sorted."""
        return sorted(n for n in self._entries if n.startswith(prefix) and n.endswith(suffix))

    def read(self, name: str) -> bytes:
        """Content of a file; ``KeyError`` if there is none."""
        archive, entry = self._entries[name.lower()]
        return archive.read(entry)

    def image(self, name: str) -> np.ndarray | None:
        """RGB image by a name whose extension may be absent or wrong, or None."""
        stem = re.sub(r"\.(jpg|jpeg|tga|png)$", "", name.lower())
        for extension in (".jpg", ".tga", ".png"):
            if stem + extension in self._entries:
                try:
                    return np.asarray(
                        Image.open(io.BytesIO(self.read(stem + extension))).convert("RGB")
                    )
                except OSError:
                    continue
        return None


def read_shaders(files: GameFiles) -> dict[str, tuple[set[str], list[str]]]:
    """Per material: its surface properties and the image names that may show it, best first."""
    shaders: dict[str, tuple[set[str], list[str]]] = {}
    for script in files.names("scripts/", ".shader"):
        text = re.sub(r"//.*", "", files.read(script).decode("latin1"))
        depth, name = 0, ""
        for token_line in re.sub(r"([{}])", r"\n\1\n", text).splitlines():
            words = token_line.lower().split()
            if not words:
                continue
            if words[0] == "{":
                depth += 1
            elif words[0] == "}":
                depth -= 1
            elif depth == 0:
                name = words[0]
                shaders[name] = (set(), [])
            elif name and len(words) > 1:
                properties, images = shaders[name]
                if words[0] == "surfaceparm":
                    properties.add(words[1])
                elif words[0] in ("map", "clampmap") and not words[1].startswith("$"):
                    images.append(words[1])
                elif words[0] == "animmap" and len(words) > 2:
                    images.append(words[2])
                elif words[0] == "qer_editorimage":
                    images.append(words[1])
    return shaders


def material_image(
    files: GameFiles, name: str, shaders: dict[str, tuple[set[str], list[str]]], size: int
) -> np.ndarray:
    """Image ``[size, size, 3]`` uint8 of a material; mid grey where the game has none."""
    for candidate in (name, *shaders.get(name, (set(), []))[1]):
        image = files.image(candidate)
        if image is not None:
            return np.asarray(Image.fromarray(image).resize((size, size), Image.Resampling.BOX))
    return np.full((size, size, 3), 128, np.uint8)
