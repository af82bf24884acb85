# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The command line of `replay`; what the node can be told too has its names and defaults."""

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from lingbot_map_ros.errors import ConfigurationError
from lingbot_map_ros.replay.arguments import non_negative, positive
from lingbot_map_ros.replay.source import Span
from lingbot_map_ros.ros.arguments import strip_ros_arguments
from lingbot_map_ros.ros.parameter_checks import check
from lingbot_map_ros.ros.parameters import Parameters

SHARED = (
    "checkpoint",
    "checkpoint_sha256",
    "model",
    "device",
    "dtype",
    "attention_backend",
    "attention_kernel",
    "kv_cache_dtype",
    "compile",
    "image_size",
    "camera_iterations",
    "depth_every",
    "num_scale_frames",
    "sliding_window",
    "max_keyframes",
    "overlap_keyframes",
    "memory_limit_gb",
    "keyframe_mode",
    "keyframe_interval",
    "keyframe_motion_px",
    "keyframe_max_gap",
    "use_camera_info",
    "base_frame",
    "camera_frame",
    "base_to_camera",
    "scale_source",
    "scale",
    "depth_confidence_min",
    "points_stride",
    "map_voxel_size",
    "map_max_points",
    "lost_after",
)
# Nobody is there to decide about pending frames.
_NOT_OFFLINE = {"keyframe_mode": {"manual"}}
EXIT_CODES = (
    "Exit codes: 0 done; 1 failed; 2 wrong arguments; 3 done as far as a damaged input goes; "
    "4 done but not compared with the ground truth; 130, 143 stopped by SIGINT or SIGTERM, and "
    "what was done is written."
)


@dataclasses.dataclass(frozen=True)
class Options:
    """What the user asked for: exactly one of ``bag``, ``images`` and ``video`` is not None."""

    bag: Path | None
    images: Path | None
    video: Path | None
    output: Path
    topic: str
    odom: str
    span: Span
    ground_truth: str
    colmap: bool
    parameters: Parameters
    changed: dict[str, object]


def parse(argv: Sequence[str]) -> Options:
    """Parse a command line; arguments for ROS are ignored.

    Raises
    ------
    ConfigurationError
        For a value that the node would refuse too, or one that is of no use beside the others.
    """
    given = _parser().parse_args(strip_ros_arguments(argv)[0])
    values = {name: getattr(given, name) for name in SHARED}
    values["base_to_camera"] = tuple(values["base_to_camera"])
    parameters = Parameters(**values)
    check(parameters)
    if given.odom and parameters.scale_source != "odometry":
        raise ConfigurationError(f"--odom {given.odom} is for --scale-source odometry: add that")
    if not parameters.is_default("scale") and parameters.scale_source != "fixed":
        raise ConfigurationError(f"--scale {given.scale:g} is for --scale-source fixed: add that")
    return Options(
        bag=given.bag,
        images=given.images,
        video=given.video,
        output=given.output,
        topic=given.topic,
        odom=given.odom,
        span=Span(given.start_offset, given.duration, given.rate),
        ground_truth=given.ground_truth,
        colmap=given.colmap,
        parameters=parameters,
        changed={name: values[name] for name in SHARED if not parameters.is_default(name)},
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="replay",
        description="Process every frame of a recording and write trajectory, map and report.",
        epilog=EXIT_CODES,
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--bag", type=Path, help="rosbag2 directory, .mcap or .db3 file")
    source.add_argument("--images", type=Path, metavar="DIR", help="folder of images")
    source.add_argument("--video", type=Path, metavar="FILE", help="video file")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="for the results")
    parser.add_argument("--topic", default="", help="image topic (default: the only one)")
    parser.add_argument(
        "--odom", default="", help="Odometry topic (default: the only one that is not the truth)"
    )
    parser.add_argument("--start-offset", type=non_negative, default=0.0, metavar="S")
    parser.add_argument("--duration", type=positive, metavar="S")
    parser.add_argument(
        "--rate",
        type=non_negative,
        default=0.0,
        metavar="HZ",
        help="at most so many frames a second; in a folder without times, its frames a second",
    )
    parser.add_argument(
        "--ground-truth",
        default="",
        metavar="TUM|TOPIC",
        help="poses of the camera's optical frame as a TUM file, or a topic with poses of a frame "
        "that /tf_static knows",
    )
    parser.add_argument(
        "--colmap", action="store_true", help="also write the keyframes and the map as COLMAP text"
    )
    settings = parser.add_argument_group("settings of the node")
    for field in dataclasses.fields(Parameters):
        if field.name in SHARED:
            _add_parameter(settings, field)
    return parser


def _add_parameter(group: argparse._ArgumentGroup, field: dataclasses.Field) -> None:
    flag = "--" + field.name.replace("_", "-")
    default, text = field.default, f"{field.metadata['description']} Default: {field.default}"
    text = text.replace("%", "%%")
    if isinstance(default, bool):
        action = argparse.BooleanOptionalAction
        group.add_argument(flag, action=action, default=default, help=text)
    elif isinstance(default, tuple):
        group.add_argument(flag, nargs="+", type=float, default=default, metavar="X", help=text)
    else:
        out = _NOT_OFFLINE.get(field.name, set())
        choices = [choice for choice in field.metadata["choices"] if choice not in out]
        group.add_argument(
            flag, type=type(default), default=default, choices=choices or None, help=text
        )
