# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""From parameters to a stream and a map, as the node makes them."""

from dataclasses import dataclass

import torch

from lingbot_map_ros.mapping.mapper import Mapper, MapperOptions
from lingbot_map_ros.mapping.scale import ScaleEstimator
from lingbot_map_ros.models.checkpoint import load_model
from lingbot_map_ros.models.config import GCTConfig
from lingbot_map_ros.models.placement import resolve_device, resolve_dtype
from lingbot_map_ros.ros.loading import model_overrides, plan_memory, session_settings
from lingbot_map_ros.ros.parameters import Parameters
from lingbot_map_ros.streaming.session import SessionConfig, StreamingSession


@dataclass(frozen=True, eq=False)
class Stream:
    """A fresh session with its model's configuration, an empty map, and what will give metres."""

    session: StreamingSession
    config: GCTConfig
    mapper: Mapper
    scale: ScaleEstimator


def open_stream(parameters: Parameters) -> Stream:
    """Load the model of the parameters.

    Raises
    ------
    ConfigurationError, CheckpointError, MemoryPlanError, BackendUnavailableError
        With the reason and what to change.
    """
    device = resolve_device(parameters.device)
    dtype = resolve_dtype(parameters.dtype, device)
    cache_dtype = torch.float8_e4m3fn if parameters.kv_cache_dtype == "fp8" else None
    # On "meta" the weights stay in the file until it is known that they fit.
    model = load_model(
        parameters.checkpoint,
        model=parameters.model,
        sha256=parameters.checkpoint_sha256,
        device=torch.device("meta"),
        attention_backend=parameters.attention_backend,
        # A newcomer stands in the caches before the policy decides about the oldest.
        pending_limit=parameters.pending_limit + 1,
        cache_dtype=cache_dtype,
        **model_overrides(parameters),
    )
    plan_memory(model, parameters, device, dtype, cache_dtype)
    model.place(device, dtype)
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
