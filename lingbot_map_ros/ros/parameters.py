# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The node's parameters: one table from which everything else about them is made.

``Parameters`` declares each parameter once: name, type, default, group, range or choices and
description. The node's descriptors, the checks (``parameter_checks``), ``config/map.yaml`` and the
README's table come from it::

    python -m lingbot_map_ros.ros.parameters --yaml > config/map.yaml
    python -m lingbot_map_ros.ros.parameters --markdown
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

GROUPS = {
    "model": "what runs, and where",
    "stream": "how much of the past the model sees",
    "keyframes": "which frames stay in the caches",
    "input": "how images come in",
    "frames": "frame names and TF",
    "scale": "from model units to metres",
    "output": "what is published, and how much of it",
    "guards": "what watches the stream",
}
FIXED_GROUPS = frozenset({"model", "stream", "input", "frames"})
"""Groups whose parameters cannot change once the node is configured."""


def _parameter(
    group: str,
    default: Any,
    description: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: Sequence[str] = (),
) -> Any:
    about = {
        "group": group,
        "description": description,
        "low": low,
        "high": high,
        "choices": tuple(choices),
    }
    return dataclasses.field(default=default, metadata=about)


@dataclasses.dataclass(frozen=True)
class Parameters:
    """Every parameter of the node, with its value; the fields are the table."""

    checkpoint: str = _parameter(
        "model",
        "builtin:small",
        "Weights: a path (.pt, .safetensors), hf://OWNER/REPO/FILE, builtin:NAME, or "
        "random:PRESET (random weights, for tests).",
    )
    checkpoint_sha256: str = _parameter(
        "model", "", "Expected SHA-256 of the checkpoint; empty accepts any."
    )
    model: str = _parameter(
        "model", "auto", "Preset of the model (vitl, small, tiny); auto reads the checkpoint."
    )
    device: str = _parameter(
        "model", "auto", "cpu, cuda or cuda:N; auto takes the GPU where there is one."
    )
    dtype: str = _parameter(
        "model",
        "auto",
        "Precision of the blocks; auto is bfloat16 on a GPU that has it, else float32.",
        choices=("auto", "float32", "float16", "bfloat16"),
    )
    attention_backend: str = _parameter(
        "model",
        "auto",
        "Paged attention: flashinfer needs an NVIDIA GPU, sdpa runs anywhere.",
        choices=("auto", "flashinfer", "sdpa"),
    )
    kv_cache_dtype: str = _parameter(
        "model",
        "auto",
        "Type of the cached keys and values; auto is the dtype of the blocks, fp8 halves it.",
        choices=("auto", "fp8"),
    )
    image_size: int = _parameter(
        "model",
        0,
        "Longer side of the network's input in pixels, a multiple of 14; 0 is the model's own.",
        low=0,
        high=2072,
    )
    camera_iterations: int = _parameter(
        "model", 4, "Refinement iterations of the camera head.", low=1, high=16
    )
    depth_every: int = _parameter(
        "model",
        1,
        "Depth is computed for every N-th frame, and for every keyframe.",
        low=1,
        high=1000,
    )

    num_scale_frames: int = _parameter(
        "stream",
        8,
        "Frames that start a stream together and fix its scale. At the default, the model's own.",
        low=1,
        high=64,
    )
    sliding_window: int = _parameter(
        "stream",
        64,
        "Recent keyframes that are attended to in full. At the default, the model's own.",
        low=1,
        high=1024,
    )
    max_keyframes: int = _parameter(
        "stream",
        320,
        "Cached keyframes at which the next window opens. At the default, the model's own.",
        low=2,
        high=4096,
    )
    overlap_keyframes: int = _parameter(
        "stream",
        8,
        "Keyframes that the next window shares with the last. At the default, num_scale_frames.",
        low=1,
        high=64,
    )
    pending_limit: int = _parameter(
        "stream", 16, "Most frames that may wait for a decision.", low=1, high=64
    )
    pending_policy: str = _parameter(
        "stream",
        "commit_oldest",
        "What happens to a pending frame when pending_limit is reached.",
        choices=("commit_oldest", "rollback_newest"),
    )
    memory_limit_gb: float = _parameter(
        "stream",
        0.0,
        "Memory that the node may plan for, in GB; 0 is what the device has.",
        low=0.0,
        high=1024.0,
    )

    keyframe_mode: str = _parameter(
        "keyframes",
        "interval",
        "Who decides what stays: every N-th frame, image motion, or the services.",
        choices=("interval", "motion", "manual"),
    )
    keyframe_interval: int = _parameter(
        "keyframes", 1, "Every N-th frame is a keyframe (interval mode).", low=1, high=1000
    )
    keyframe_motion_px: float = _parameter(
        "keyframes",
        12.0,
        "Mean image motion since the last keyframe, in pixels of the network's input, that makes "
        "a keyframe (motion mode).",
        low=0.0,
        high=1000.0,
    )
    keyframe_max_gap: int = _parameter(
        "keyframes", 30, "Most frames between two keyframes (motion mode).", low=1, high=10000
    )

    image_transport: str = _parameter(
        "input",
        "raw",
        "raw subscribes to image, compressed to the resolved name of image + /compressed.",
        choices=("raw", "compressed"),
    )
    image_qos: str = _parameter(
        "input",
        "sensor_data",
        "QoS of the image subscription; sensor_data (best effort) connects to every publisher.",
        choices=("sensor_data", "reliable", "system_default"),
    )
    drop_policy: str = _parameter(
        "input",
        "latest",
        "latest processes the newest image and drops older ones; all keeps every image "
        "(with image_qos reliable: lossless).",
        choices=("latest", "all"),
    )
    max_rate_hz: float = _parameter(
        "input",
        0.0,
        "Most images a second, by their stamps; 0 has no limit.",
        low=0.0,
        high=1000.0,
    )
    use_camera_info: bool = _parameter(
        "input", True, "Use camera_info, when it comes, to undistort and for the intrinsics."
    )

    map_frame: str = _parameter(
        "frames", "map", "World of the map: the first camera's pose, x forward, z up."
    )
    odom_frame: str = _parameter("frames", "odom", "World of the continuous odometry.")
    base_frame: str = _parameter("frames", "base_link", "The robot's frame, whose pose goes out.")
    camera_frame: str = _parameter(
        "frames", "", "Optical frame of the camera; empty is the image's frame_id."
    )
    base_to_camera: tuple[float, ...] = _parameter(
        "frames",
        (),
        "Pose of the camera's optical frame in the base (x y z qx qy qz qw), used where TF has "
        "none; unset is a camera that looks along x of the base.",
    )
    tf_mode: str = _parameter(
        "frames",
        "odom",
        "odom broadcasts map -> odom and odom -> base, map only map -> odom over somebody's "
        "odom -> base (needs metres: scale_source), none nothing.",
        choices=("odom", "map", "none"),
    )
    transform_tolerance: float = _parameter(
        "frames",
        0.1,
        "Seconds by which map -> odom is stamped ahead of now.",
        low=0.0,
        high=10.0,
    )

    scale_source: str = _parameter(
        "scale",
        "none",
        "Where metres come from: nowhere (model units), the parameter scale, or the odom topic.",
        choices=("none", "fixed", "odometry"),
    )
    scale: float = _parameter(
        "scale", 1.0, "Metres per model unit (scale_source: fixed).", low=1e-6, high=1e6
    )

    depth_confidence_min: float = _parameter(
        "output",
        1.5,
        "Depth of a lower confidence (at least 1) is left out of depth, points and map.",
        low=0.0,
        high=1000.0,
    )
    points_stride: int = _parameter(
        "output", 2, "Every N-th pixel of a row and a column becomes a point.", low=1, high=64
    )
    map_voxel_size: float = _parameter(
        "output",
        0.05,
        "Edge of a voxel of the map, in model units; a change holds from the next reset on.",
        low=1e-4,
        high=100.0,
    )
    map_max_points: int = _parameter(
        "output",
        5_000_000,
        "Most points of the map; a change holds from the next reset on.",
        low=1000,
        high=100_000_000,
    )
    map_rate_hz: float = _parameter(
        "output", 0.5, "Rate of the map topic; 0 only for new subscribers.", low=0.0, high=30.0
    )
    path_max_length: int = _parameter(
        "output",
        5000,
        "Most poses of the path; the newest stay.",
        low=2,
        high=1_000_000,
    )
    covariance_position: float = _parameter(
        "output",
        0.01,
        "Variance of the position, in square metres (or square model units).",
        low=1e-12,
        high=1e6,
    )
    covariance_rotation: float = _parameter(
        "output", 0.01, "Variance of the rotation, in square radians.", low=1e-12, high=10.0
    )
    output_directory: str = _parameter(
        "output", "~/.ros/lingbot_map", "Where save_map and save_trajectory write."
    )

    no_input_timeout: float = _parameter(
        "guards",
        5.0,
        "Seconds without an image after which the node says why there may be none.",
        low=0.1,
        high=3600.0,
    )
    stall_timeout: float = _parameter(
        "guards",
        10.0,
        "Seconds without a result while images arrive that count as a stall.",
        low=0.5,
        high=3600.0,
    )
    lost_after: int = _parameter(
        "guards",
        10,
        "Withheld frames in a row before the stream re-anchors.",
        low=1,
        high=1000,
    )
    reset_on_time_jump: bool = _parameter(
        "guards", True, "Start a new session when time goes backwards (a bag loops)."
    )
    autostart: bool = _parameter("guards", True, "Configure and activate without being asked.")

    def is_default(self, name: str) -> bool:
        """Whether ``name`` was left at its default, so that the model's own value holds."""
        return bool(getattr(self, name) == getattr(Parameters(), name))


if __name__ == "__main__":
    from lingbot_map_ros.ros.parameter_docs import main

    main()
