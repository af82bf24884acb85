# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The files that `replay` leaves behind."""

import csv
import io
import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lingbot_map_ros.errors import ExportError
from lingbot_map_ros.mapping.export import write_colmap, write_tum
from lingbot_map_ros.replay import plots
from lingbot_map_ros.replay.evaluation import Evaluation, read_tum
from lingbot_map_ros.replay.runner import FrameTimes, Runner

TRAJECTORY, KEYFRAMES, MAP = "trajectory.tum", "keyframes.tum", "map.ply"
TIMINGS, REPORT, TRUTH = "timings.csv", "report.json", "ground_truth.tum"
PLOT_TRAJECTORY, PLOT_ERRORS = "trajectory.png", "errors.png"
PLOT_MAP, PLOT_DEPTH = "map.png", "depth.png"
COLMAP = "colmap"
ALL = (
    *(TRAJECTORY, KEYFRAMES, MAP, TIMINGS, REPORT, TRUTH),
    *(PLOT_TRAJECTORY, PLOT_ERRORS, PLOT_MAP, PLOT_DEPTH),
    *(f"{COLMAP}/{name}.txt" for name in ("cameras", "images", "points3D")),
)
_STRIP = 6
_FEWEST_DRAWN = 2


def make_folder(folder: Path) -> None:
    """Create the folder for the results; ExportError if nothing can be written there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExportError(f"{folder} cannot be used: {error.strerror or error}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ExportError(f"{folder} cannot be used: no permission to write there")


def remove_old(folder: Path) -> None:
    """Remove what an earlier run left there, under the names of ``ALL`` only."""
    try:
        for name in ALL:
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise ExportError(f"{folder} cannot be used: {error.strerror or error}") from error


def write_results(folder: Path, runner: Runner, *, colmap: bool) -> None:
    """Write trajectory, keyframes, map and timings, and a COLMAP model on request.

    Raises ExportError if one fails.
    """
    mapper, world = runner.stream.mapper, runner.world
    for name, keyframes_only in ((TRAJECTORY, False), (KEYFRAMES, True)):
        stamps, poses = mapper.trajectory.poses(keyframes_only=keyframes_only)
        write_tum(folder / name, stamps, world.apply_pose(poses))
    mapper.write_map(folder / MAP, world)
    if colmap:
        make_folder(folder / COLMAP)
        write_colmap(folder / COLMAP, runner.views(), *mapper.points(world))
    _write_timings(folder / TIMINGS, runner.times)


def draw(
    folder: Path, runner: Runner, unit: str, evaluation: Evaluation | None, truth: Path | None
) -> None:
    """Draw what there is something to draw of; ExportError if a picture cannot be written."""
    mapper, world, strip = runner.stream.mapper, runner.world, runner.strip
    stamps, poses = mapper.trajectory.poses()
    if len(stamps) < _FEWEST_DRAWN:
        return
    positions = world.apply_pose(poses)[:, :3, 3]
    _, keyframes = mapper.trajectory.poses(keyframes_only=True)
    marks = world.apply_pose(keyframes)[:, :3, 3]
    switches = positions[np.isin(stamps, _switch_stamps(runner.times))]
    if evaluation is not None and truth is not None:
        times, true_positions = read_tum(truth)
        A = evaluation.alignment
        low, high = evaluation.stamps.min() - 1, evaluation.stamps.max() + 1
        compared = (times >= low) & (times <= high)
        plots.plot_trajectory(
            folder / PLOT_TRAJECTORY,
            _moved(A, positions),
            "m",
            truth=true_positions[compared],
            keyframes=_moved(A, marks),
            switches=_moved(A, switches),
            title=evaluation.title,
        )
        plots.plot_errors(
            folder / PLOT_ERRORS,
            evaluation.stamps - evaluation.stamps[0],
            evaluation.errors,
            "position error after Sim(3) alignment",
        )
    else:
        plots.plot_trajectory(
            folder / PLOT_TRAJECTORY, positions, unit, keyframes=marks, switches=switches
        )
    voxel = mapper.voxel_map.voxel_size * world.scale
    plots.plot_map(folder / PLOT_MAP, *mapper.points(world), positions, unit, voxel)
    if strip:
        chosen = np.unique(np.linspace(0, len(strip) - 1, _STRIP).round().astype(int))
        samples = [strip[index] for index in chosen]
        plots.plot_depth_strip(
            folder / PLOT_DEPTH,
            [sample.image for sample in samples],
            [sample.depth * np.float32(world.scale) for sample in samples],
            [f"{(sample.stamp_ns - int(stamps[0])) * 1e-9:.1f} s" for sample in samples],
            unit,
        )


def write_report(folder: Path, report: dict[str, Any]) -> None:
    """Write the report, to be called last: where it is, everything is; ExportError if it fails."""
    files = sorted(name for name in ALL if (folder / name).exists())
    text = json.dumps(_finite({**report, "files": [*files, REPORT]}), indent=2)
    plots.write_whole(folder / REPORT, (text + "\n").encode())


def _finite(value: Any) -> Any:
    """Replace numbers that JSON does not know by null."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _write_timings(path: Path, times: Sequence[FrameTimes]) -> None:
    text = io.StringIO()
    names = [field.name for field in fields(FrameTimes)]
    milliseconds = ("read", "preprocess", "model", "map")
    writer = csv.writer(text)
    writer.writerow([f"{name}_ms" if name in milliseconds else name for name in names])
    for row in times:
        values = asdict(row)
        values["keyframe"] = int(row.keyframe)
        writer.writerow(
            f"{value:.3f}" if name in milliseconds else value for name, value in values.items()
        )
    plots.write_whole(path, text.getvalue().encode(errors="surrogateescape"))


def _switch_stamps(times: Sequence[FrameTimes]) -> list[int]:
    """Stamps of the first frames of all windows but the first."""
    answered = [row for row in times if row.results]
    return [row.stamp_ns for last, row in pairwise(answered) if row.window != last.window]


def _moved(A: NDArray[np.float64], points: NDArray[np.float64]) -> NDArray[np.float64]:
    return points @ A[:3, :3].T + A[:3, 3]
