# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What `replay` says about a run: as data for report.json, and in a few lines for the terminal."""

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from lingbot_map_ros.replay.options import Options
from lingbot_map_ros.replay.runner import FrameTimes, Runner
from lingbot_map_ros.streaming.camera_model import CameraModel
from lingbot_map_ros.wording import counted


def describe(
    options: Options, runner: Runner, seconds: float, damage: Sequence[str]
) -> dict[str, Any]:
    """Everything about the run but its end and its evaluation, ready for JSON."""
    source, mapper = runner.source, runner.stream.mapper
    status = runner.stream.session.status()
    stamps, poses = mapper.trajectory.poses()
    keyframes, _ = mapper.trajectory.poses(keyframes_only=True)
    positions = runner.world.apply(poses[:, :3, 3])
    length = float(np.linalg.norm(np.diff(positions, axis=0), axis=1).sum())
    # where the camera's clock was set back no time passed
    duration = int(np.diff(stamps).clip(0).sum()) * 1e-9
    return {
        "version": _version(),
        "source": source.name,
        "checkpoint": options.parameters.checkpoint,
        "settings": options.changed,
        "span": {
            "start_offset": options.span.start_offset,
            "duration": options.span.duration,
            "rate": options.span.rate,
        },
        "calibration": _calibration(source.camera),
        "frames": {
            "expected": source.expected,
            "processed": len(runner.times),
            "poses": len(stamps),
            "keyframes": len(keyframes),
            "withheld": runner.withheld,
            "left_out": source.losses.frames,
            "windows": status.window + 1,
            "segments": mapper.segments,
        },
        "damage": [*damage, *source.losses.sentences],
        "notes": list(source.losses.notes),
        "world": "first camera in the origin: x along its view, y left, z up in its image",
        "poses_of": "optical frame of the camera (x right, y down, z along the view)",
        "unit": "m" if runner.metric else "model units",
        "scale": runner.world.scale,
        "trajectory": {"length": length, "seconds": duration},
        "map": {
            "points": len(mapper.voxel_map),
            "voxel_size": mapper.voxel_map.voxel_size * runner.world.scale,
        },
        "speed": _speed(runner.times, seconds),
    }


def lines(report: dict[str, Any]) -> list[str]:
    """Summary for the terminal."""
    frames, speed = report["frames"], report["speed"]
    unit = report["unit"]
    text = [
        f"{counted(frames['processed'], 'frame')} in {speed['seconds']:.1f} s "
        f"({speed['frames_per_second']:.1f} frames/s), {counted(frames['poses'], 'pose')}, "
        f"{counted(frames['keyframes'], 'keyframe')}, {frames['left_out']} left out",
        f"trajectory {report['trajectory']['length']:.2f} {unit}, map "
        f"{counted(report['map']['points'], 'point')}",
    ]
    if evaluation := report.get("evaluation"):
        share = evaluation["ate_percent"]
        relative = "" if share is None else f" ({share:.2f}% of {evaluation['path_length']:.1f} m)"
        text.append(
            f"ATE {evaluation['ate']['sim3']['rmse']:.4f} m after Sim(3){relative}, "
            f"{evaluation['ate']['se3']['rmse']:.4f} m after SE(3); RPE "
            f"{evaluation['rpe_translation']['sim3']['rmse']:.4f} m and "
            f"{evaluation['rpe_rotation']['sim3']['rmse']:.3f} deg a frame"
        )
    return text


def _calibration(camera: CameraModel | None) -> str:
    """Where the intrinsics come from."""
    if camera is None:
        return "by the network"
    distortion = "no distortion" if camera.model == "none" else camera.model
    return f"camera_info, {distortion}"


def _speed(times: Sequence[FrameTimes], seconds: float) -> dict[str, Any]:
    # The first results come with a whole batch of frames; they would distort the percentiles.
    single = [row.model for row in times if row.results == 1]
    return {
        "seconds": seconds,
        "frames_per_second": len(times) / seconds if seconds else 0.0,
        "model_ms_median": float(np.median(single)) if single else None,
        "model_ms_p95": float(np.percentile(single, 95)) if single else None,
    }


def _version() -> str:
    try:
        return version("lingbot_map_ros")
    except PackageNotFoundError:
        return "not installed"
