# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Register a folder of photographs with COLMAP, as pseudo truth for ``evaluate_small.py``.

Writes ``truth.tum``: frame number as stamp, camera centre and camera-to-world quaternion, in
COLMAP's own unit. Needs the extra package pycolmap.
"""

import argparse
import math
import tempfile
from pathlib import Path

import numpy as np
import pycolmap
from PIL import Image


def main() -> None:
    """Extract, match all pairs, map; keep the largest model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("photos", type=Path, help="images of one moving camera, in order")
    parser.add_argument("output", type=Path, help="truth.tum to write")
    args = parser.parse_args()
    names = sorted(
        p.name for p in args.photos.iterdir() if p.suffix.lower() in (".jpg", ".jpeg", ".png")
    )
    width, height = Image.open(args.photos / names[0]).size
    focal = width / 2 / math.tan(math.radians(65) / 2)
    reader = pycolmap.ImageReaderOptions()
    reader.camera_model = "SIMPLE_RADIAL"
    reader.camera_params = f"{focal},{width / 2},{height / 2},0"
    with tempfile.TemporaryDirectory() as folder:
        database = Path(folder) / "database.db"
        pycolmap.extract_features(
            database,
            args.photos,
            image_names=names,
            camera_mode=pycolmap.CameraMode.SINGLE,
            reader_options=reader,
        )
        pycolmap.match_exhaustive(database)
        models = pycolmap.incremental_mapping(database, args.photos, folder)
    best = max(models.values(), key=lambda model: model.num_reg_images())
    rows = []
    for image in best.images.values():
        pose = image.cam_from_world().inverse()
        rows.append([names.index(image.name), *pose.translation, *pose.rotation.quat])
    np.savetxt(args.output, sorted(rows), "%.9f")
    print(f"{len(rows)} of {len(names)} images registered, {best.summary()}")


if __name__ == "__main__":
    main()
