# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""From parameters to a session that is ready: device, memory plan, weights, warm-up.

Runs on the worker. PyTorch is imported here and not with the node, so that the node is up, and can
say what is missing, before and without it.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from lingbot_map_ros.errors import ConfigurationError
from lingbot_map_ros.ros.network import ASSUMED_IMAGE, load_network
from lingbot_map_ros.ros.parameters import Parameters

if TYPE_CHECKING:
    from lingbot_map_ros.ros.image_fit import ImageFit
    from lingbot_map_ros.streaming.session import StreamingSession

logger = logging.getLogger(__name__)


def require_torch() -> None:
    """Raise ConfigurationError, with the command that helps, where PyTorch is not installed."""
    if importlib.util.find_spec("torch") is None:
        raise ConfigurationError(
            f"PyTorch is not installed for {sys.executable}; install it with: "
            f"{sys.executable} -m pip install torch"
        )


def load_session(
    parameters: Parameters, image_size: Callable[[], tuple[int, int] | None]
) -> tuple[StreamingSession, ImageFit]:
    """Load the model and warm it up; returns its session, and what fits it to images.

    `image_size` tells height and width of the images that will come, as soon as they are known.

    Raises
    ------
    ConfigurationError, CheckpointError, MemoryPlanError, BackendUnavailableError
        With the reason and what to change.
    """
    began = time.monotonic()
    from lingbot_map_ros.ros.image_fit import ImageFit
    from lingbot_map_ros.streaming.session import SessionConfig, StreamingSession

    planned = image_size() or ASSUMED_IMAGE
    model = load_network(parameters, planned)
    loaded = time.monotonic()
    fit = ImageFit(model, parameters, planned)
    fit.require(*(image_size() or ASSUMED_IMAGE))
    session = StreamingSession(
        model, SessionConfig(**session_settings(parameters, model.config.num_scale_frames))
    )
    logger.info(
        "%s is ready on %s (%s): loaded in %.1f s, warmed up in %.1f s",
        parameters.checkpoint,
        model.device,
        model.precision,
        loaded - began,
        time.monotonic() - loaded,
    )
    return session, fit


def session_settings(parameters: Parameters, scale_frames: int) -> dict[str, Any]:
    """Arguments of ``SessionConfig``; None leaves a setting to the model."""
    overlap = None if parameters.is_default("overlap_keyframes") else parameters.overlap_keyframes
    return {
        "overlap_keyframes": overlap or scale_frames,
        "pending_limit": parameters.pending_limit,
        "pending_policy": parameters.pending_policy,
        "keyframe_mode": parameters.keyframe_mode,
        "keyframe_interval": parameters.keyframe_interval,
        "keyframe_motion_px": parameters.keyframe_motion_px,
        "keyframe_max_gap": parameters.keyframe_max_gap,
        "depth_every": parameters.depth_every,
        "lost_after": parameters.lost_after,
    }
