# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The node's parameters: one table from which everything else about them is made.

``Parameters`` declares each parameter once (those of the network in ``stream_parameters``): name,
type, default, group, range or choices and description. The node's descriptors, the checks
(``parameter_checks``), ``config/map.yaml`` and the README's table come from it::

    python -m lingbot_map_ros.ros.parameter_docs --yaml > config/map.yaml
    python -m lingbot_map_ros.ros.parameter_docs --markdown
"""

from __future__ import annotations

import dataclasses

from lingbot_map_ros.ros.parameter_field import parameter
from lingbot_map_ros.ros.stream_parameters import StreamParameters


@dataclasses.dataclass(frozen=True)
class Parameters(StreamParameters):
    """Every parameter of the node, with its value; the fields are the table."""

    image_transport: str = parameter(
        "input",
        "raw",
        "raw subscribes to image, compressed to the resolved name of image + /compressed.",
        choices=("raw", "compressed"),
    )
    image_qos: str = parameter(
        "input",
        "sensor_data",
        "QoS of the image subscription; sensor_data (best effort) connects to every publisher.",
        choices=("sensor_data", "reliable", "system_default"),
    )
    drop_policy: str = parameter(
        "input",
        "latest",
        "latest processes the newest image and drops older ones; all keeps every image "
        "(with image_qos reliable: lossless).",
        choices=("latest", "all"),
    )
    max_rate_hz: float = parameter(
        "input",
        0.0,
        "Most images a second, by their stamps; 0 has no limit.",
        low=0.0,
        high=1000.0,
    )
    use_camera_info: bool = parameter(
        "input", True, "Use camera_info, when it comes, to undistort and for the intrinsics."
    )

    map_frame: str = parameter(
        "frames", "map", "World of the map: the first camera's pose, x forward, z up."
    )
    odom_frame: str = parameter("frames", "odom", "World of the continuous odometry.")
    base_frame: str = parameter("frames", "base_link", "The robot's frame, whose pose goes out.")
    camera_frame: str = parameter(
        "frames", "", "Optical frame of the camera; empty is the image's frame_id."
    )
    base_to_camera: tuple[float, ...] = parameter(
        "frames",
        (),
        "Pose of the camera's optical frame in the base (x y z qx qy qz qw), used where TF has "
        "none; unset is a camera that looks along x of the base. In metres, which go with the "
        "poses only where the scale is known (scale_source).",
    )
    tf_mode: str = parameter(
        "frames",
        "odom",
        "odom broadcasts map -> odom and odom -> base, map only map -> odom over somebody's "
        "odom -> base (needs metres: scale_source), none nothing.",
        choices=("odom", "map", "none"),
    )
    transform_tolerance: float = parameter(
        "frames",
        0.1,
        "Seconds by which map -> odom is stamped ahead of now.",
        low=0.0,
        high=10.0,
    )

    scale_source: str = parameter(
        "scale",
        "none",
        "Where metres come from: nowhere (model units), the parameter scale, or the odom topic; "
        "what that has settled is forgotten by a change.",
        choices=("none", "fixed", "odometry"),
    )
    scale: float = parameter(
        "scale", 1.0, "Metres per model unit (scale_source: fixed).", low=1e-6, high=1e6
    )

    depth_confidence_min: float = parameter(
        "output",
        1.5,
        "Depth of a lower confidence is left out of depth, points and map; confidences begin at "
        "1, so up to that all stays. What is in the map stays there.",
        low=0.0,
        high=1000.0,
    )
    points_stride: int = parameter(
        "output",
        2,
        "Every N-th pixel of a row and a column becomes a point, of this frame and of the map.",
        low=1,
        high=64,
    )
    map_voxel_size: float = parameter(
        "output",
        0.05,
        "Edge of a voxel of the map, in model units; a change holds from the next reset on.",
        low=1e-4,
        high=100.0,
    )
    map_max_points: int = parameter(
        "output",
        5_000_000,
        "Most points of the map; a change holds from the next reset on.",
        low=1000,
        high=100_000_000,
    )
    map_rate_hz: float = parameter(
        "output",
        0.5,
        "Rate of the map topic; 0 only for new subscribers; a change holds at once.",
        low=0.0,
        high=30.0,
    )
    path_max_length: int = parameter(
        "output",
        5000,
        "Most poses of the path; the newest stay; a change holds at once.",
        low=2,
        high=1_000_000,
    )
    covariance_position: float = parameter(
        "output",
        0.01,
        "Variance of the position, in square metres (or square model units).",
        low=1e-12,
        high=1e6,
    )
    covariance_rotation: float = parameter(
        "output", 0.01, "Variance of the rotation, in square radians.", low=1e-12, high=10.0
    )
    output_directory: str = parameter(
        "output",
        "~/.ros/lingbot_map",
        "Where save_map and save_trajectory write; a change holds at once.",
    )

    no_input_timeout: float = parameter(
        "guards",
        5.0,
        "Seconds without an image after which the node says why there may be none.",
        low=0.1,
        high=3600.0,
    )
    stall_timeout: float = parameter(
        "guards",
        10.0,
        "Seconds without a result while images arrive that count as a stall.",
        low=0.5,
        high=3600.0,
    )
    lost_after: int = parameter(
        "guards",
        10,
        "Withheld frames in a row before the stream re-anchors.",
        low=1,
        high=1000,
    )
    reset_on_time_jump: bool = parameter(
        "guards", True, "Start a new session when time goes backwards (a bag loops)."
    )
    autostart: bool = parameter(
        "guards",
        True,
        "Configure and activate without being asked, when the node starts; read-only afterwards.",
        start_only=True,
    )

    def is_default(self, name: str) -> bool:
        """Whether ``name`` was left at its default, so that the model's own value holds."""
        return bool(getattr(self, name) == getattr(Parameters(), name))
