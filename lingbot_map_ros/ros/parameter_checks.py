# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Which values, and combinations of values, the parameters may have."""

from __future__ import annotations

import dataclasses

from lingbot_map_ros.errors import ConfigurationError
from lingbot_map_ros.integers import require_integers
from lingbot_map_ros.ros.frames import parse_base_to_camera
from lingbot_map_ros.ros.output_folder import output_folder
from lingbot_map_ros.ros.parameters import Parameters
from lingbot_map_ros.streaming.keyframes import check_depth


def check(values: Parameters) -> None:
    """Refuse values, and combinations of values, that cannot work.

    Raises
    ------
    ConfigurationError
        Names the parameter, its value and what is allowed.
    """
    check_each(values)
    names = (values.map_frame, values.odom_frame, values.base_frame)
    if not all(names) or len(set(names)) != len(names):
        raise ConfigurationError(
            "map_frame, odom_frame and base_frame must be three different, non-empty names, "
            f"not {names}"
        )
    if values.tf_mode == "map" and values.scale_source == "none":
        raise ConfigurationError(
            "tf_mode: map joins somebody's odometry, which is in metres, but "
            "scale_source: none leaves the map in model units; set scale_source to odometry "
            "or fixed, or tf_mode to odom or none"
        )
    if values.overlap_keyframes >= values.max_keyframes:
        raise ConfigurationError(
            f"overlap_keyframes ({values.overlap_keyframes}) must be below max_keyframes "
            f"({values.max_keyframes})"
        )
    if values.attention_backend == "sdpa" and values.attention_kernel != "auto":
        raise ConfigurationError(
            f"attention_kernel: {values.attention_kernel} is one of FlashInfer's, but "
            "attention_backend is sdpa; set one of the two to auto"
        )
    check_depth(values.keyframe_mode, values.depth_every)
    if values.image_size % 14:
        raise ConfigurationError(
            f"image_size must be 0 or a multiple of 14, not {values.image_size}; "
            f"{values.image_size // 14 * 14} is"
        )
    parse_base_to_camera(values.base_to_camera)
    output_folder(values.output_directory)


def check_each(values: Parameters) -> None:
    """Refuse values outside the range or the choices of their parameter (ConfigurationError)."""
    require_integers(values)
    for field in dataclasses.fields(values):
        value, about = getattr(values, field.name), field.metadata
        if about["choices"] and value not in about["choices"]:
            raise ConfigurationError(
                f"{field.name} must be one of {', '.join(about['choices'])}, not {value!r}"
            )
        if about["low"] is not None and not about["low"] <= value <= about["high"]:
            raise ConfigurationError(
                f"{field.name} must be from {about['low']:g} to {about['high']:g}, not {value}"
            )
