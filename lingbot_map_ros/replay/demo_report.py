# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the demo says about the files that the node saved."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lingbot_map_ros.replay import plots
from lingbot_map_ros.replay.evaluation import Evaluation, evaluate, read_tum
from lingbot_map_ros.wording import counted

_VERTEX = np.dtype([("xyz", "<f4", 3), ("rgb", "u1", 3)])
_UNIT = "model units"


def report(
    folder: Path, truth: Path, trajectory: Path, cloud: Path, voxel: float
) -> dict[str, Any]:
    """Draw trajectory and map into ``folder``, write report.json, and return its content.

    Parameters
    ----------
    folder : Path
        Where the pictures and report.json go.
    truth, trajectory : Path
        TUM files: the true camera in metres, and the node's trajectory.
    cloud : Path
        The node's map, a PLY file.
    voxel : float
        Edge of its voxels in model units.

    Raises
    ------
    EvaluationError
        If the trajectories cannot be compared.
    ExportError
        If a picture cannot be written.
    """
    _, positions = read_tum(trajectory)
    xyz, rgb = read_ply(cloud)
    plots.plot_map(folder / "map.png", xyz, rgb, positions, _UNIT, voxel)
    evaluation = evaluate(truth, trajectory)
    _draw_trajectory(folder / "trajectory.png", evaluation, positions, read_tum(truth)[1])
    content = {"poses": len(positions), "map_points": len(xyz), **evaluation.summary}
    plots.write_whole(folder / "report.json", (json.dumps(content, indent=2) + "\n").encode())
    return content


def read_ply(path: Path) -> tuple[NDArray[np.float32], NDArray[np.uint8]]:
    """Points [N, 3] and colours [N, 3] of a map as the node writes it."""
    content = path.read_bytes()
    _, mark, body = content.partition(b"end_header\n")
    vertices = np.frombuffer(body if mark else b"", _VERTEX)
    return vertices["xyz"], vertices["rgb"]


def lines(content: dict[str, Any]) -> list[str]:
    """Report for the terminal."""
    ate = content["ate"]["sim3"]["rmse"]
    share = content["ate_percent"]
    relative = (
        "" if share is None else f", {share:.1f}% of the way of {content['path_length']:.1f} m"
    )
    return [
        f"poses       {content['poses']}",
        f"ATE         {ate:.3f} m rmse after Sim(3) alignment{relative}",
        f"RPE         {content['rpe_translation']['sim3']['rmse']:.3f} m and "
        f"{content['rpe_rotation']['sim3']['rmse']:.2f} degrees from frame to frame",
        f"map         {counted(content['map_points'], 'point')}",
    ]


def _draw_trajectory(
    path: Path,
    evaluation: Evaluation,
    positions: NDArray[np.float64],
    truth: NDArray[np.float64],
) -> None:
    A = evaluation.alignment
    plots.plot_trajectory(
        path,
        positions @ A[:3, :3].T + A[:3, 3],
        "m",
        truth=truth,
        title=evaluation.title,
    )
