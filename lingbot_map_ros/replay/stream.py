# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""From parameters to a stream and a map, as the node makes them."""

from dataclasses import dataclass

from lingbot_map_ros.mapping.mapper import Mapper, MapperOptions
from lingbot_map_ros.mapping.scale import ScaleEstimator
from lingbot_map_ros.models.config import GCTConfig
from lingbot_map_ros.ros.loading import session_settings
from lingbot_map_ros.ros.network import ASSUMED_IMAGE, load_network
from lingbot_map_ros.ros.parameters import Parameters
from lingbot_map_ros.streaming.session import SessionConfig, StreamingSession


@dataclass(frozen=True, eq=False)
class Stream:
    """A fresh session with its model's configuration, an empty map, and what will give metres."""

    session: StreamingSession
    config: GCTConfig
    mapper: Mapper
    scale: ScaleEstimator


def open_stream(parameters: Parameters, image_size: tuple[int, int] | None = None) -> Stream:
    """Load the model of the parameters for images of a height and width, where they are known.

    Raises
    ------
    ConfigurationError, CheckpointError, MemoryPlanError, BackendUnavailableError
        With the reason and what to change.
    """
    model = load_network(parameters, image_size or ASSUMED_IMAGE)
    settings = session_settings(parameters, model.config.num_scale_frames)
    options = MapperOptions(
        voxel_size=parameters.map_voxel_size,
        max_points=parameters.map_max_points,
        confidence_min=parameters.depth_confidence_min,
        stride=parameters.points_stride,
    )
    return Stream(
        StreamingSession(model, SessionConfig(**settings)),
        model.config,
        Mapper(options),
        ScaleEstimator(parameters.scale_source, parameters.scale),
    )
