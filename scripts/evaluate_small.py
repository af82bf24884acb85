# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Measure the small model: as a stream, with a window shorter than the sequences.

::

    python scripts/evaluate_small.py --output evaluation.json
    python scripts/evaluate_small.py --openarena data/oaclips --photos PHOTOS --output all.json

Synthetic sequences are rendered here; OpenArena tracks come from
``scripts/data/openarena_clips.py --part held_out --tracks 1``; PHOTOS is a folder of images with a
``truth.tum`` of ``scripts/data/photo_truth.py``.
Needs the program evo_ape (package evo).
"""

import lingbot_map_ros.passive_threads  # noqa: F401 (before PyTorch)

# isort: split

import argparse
import json
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from training.evaluation import (
    Result,
    checks,
    evaluate_photos,
    evaluate_track,
    frame_rate,
    openarena_tracks,
    synthetic_tracks,
)

from lingbot_map_ros.models.checkpoint import load_model

TARGETS = {
    "synthetic": {"ate_percent": 3.0, "rpe_deg": 2.0, "absrel": 0.08, "fov_deg": 3.0},
    "openarena": {"ate_percent": 5.0, "absrel": 0.12},
    "photos": {"ate_percent": 8.0},
    "speed": {"frames_per_s": 5.0},
}


def summarise(results: list[Result]) -> dict[str, dict[str, float]]:
    """Median and worst of every figure."""
    return {
        key: {
            "median": float(np.median([r.figures[key] for r in results])),
            "worst": float(np.max([r.figures[key] for r in results])),
        }
        for key in results[0].figures
    }


def table(report: dict) -> str:
    """Lines of text: each figure with its median, worst and target."""
    lines = [f"{'set':12} {'figure':14} {'median':>10} {'worst':>10} {'target':>8}"]
    for name, part in report.items():
        for key, value in part.get("summary", {}).items():
            target = TARGETS.get(name, {}).get(key)
            wanted = "" if target is None else f"{target:8.3g}"
            lines.append(
                f"{name:12} {key:14} {value['median']:10.4g} {value['worst']:10.4g} {wanted}"
            )
    return "\n".join(lines)


def main() -> None:
    """Evaluate, print the table, write the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", default="builtin:small")
    parser.add_argument("--output", type=Path, required=True, help="JSON report")
    parser.add_argument("--sequences", type=int, default=20, help="held-out synthetic sequences")
    parser.add_argument("--frames", type=int, default=120)
    parser.add_argument("--openarena", type=Path, help="folder of rendered clips")
    parser.add_argument("--tracks", type=int, default=10, help="held-out OpenArena tracks")
    parser.add_argument("--photos", type=Path, help="folder of photographs with truth.tum")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", help="float32, bfloat16, or auto as the node")
    args = parser.parse_args()
    model = load_model(args.checkpoint, device=args.device, dtype=args.dtype)
    report: dict[str, dict] = {}

    def measure(name: str, results: Iterable[Result]) -> None:
        """Take in one result after the other; what is done is on disk even if a later one fails."""
        done: list[Result] = []
        for result in results:
            done.append(result)
            print(name, result.name, json.dumps(result.figures), flush=True)
            report[name] = {
                "summary": summarise(done),
                "sequences": {r.name: r.figures for r in done},
            }
            args.output.write_text(json.dumps(report, indent=1))

    if args.photos:
        measure("photos", [evaluate_photos(model, args.photos)])
    if args.openarena:
        tracks = openarena_tracks(args.openarena, args.tracks, args.frames)
        measure("openarena", (evaluate_track(model, track) for track in tracks))
    if args.sequences:
        tracks = synthetic_tracks(model, args.sequences, args.frames)
        measure("synthetic", (evaluate_track(model, track) for track in tracks))
        report["checks"] = checks(model, args.frames // 2)
    rate = frame_rate(model)
    report["speed"] = {
        "date": time.strftime("%Y-%m-%d"),
        "threads": torch.get_num_threads(),
        "summary": {"frames_per_s": {"median": rate, "worst": rate}},
    }
    args.output.write_text(json.dumps(report, indent=1))
    print(table(report))
    if "checks" in report:
        print(json.dumps(report["checks"]))


if __name__ == "__main__":
    main()
