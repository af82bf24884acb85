# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Numbers that are no integers are refused wherever a configuration needs one."""

import dataclasses
from typing import get_type_hints

import numpy as np
import pytest

from lingbot_map_ros.aggregator.base import ViTConfig
from lingbot_map_ros.errors import ConfigurationError
from lingbot_map_ros.layers.page_table import PageLayout
from lingbot_map_ros.mapping.mapper import MapperOptions
from lingbot_map_ros.models.config import GCTConfig
from lingbot_map_ros.models.gct_stream import GCTStream
from lingbot_map_ros.ros.parameter_checks import check_each
from lingbot_map_ros.ros.parameters import Parameters
from lingbot_map_ros.ros.player import PlayOptions
from lingbot_map_ros.streaming.config import SessionConfig
from lingbot_map_ros.streaming.keyframes import KeyframeRule
from lingbot_map_ros.streaming.session import StreamingSession

CONFIGURATIONS = (
    SessionConfig(),
    KeyframeRule(),
    GCTConfig(),
    ViTConfig(),
    MapperOptions(),
    PlayOptions(),
    PageLayout(20, 4, 3, 8, 16, 4),
)
KINDS = {
    int: (2.5, 8.0, np.float32(8), "8", True, None),
    int | None: (2.5, 8.0, "8", True),
    tuple[int, ...]: ((4, 11.5, 17, 23), 4, "4"),
    tuple[int, int, int, int]: ((256, 512.5, 1024, 1024), None),
}


def wrong_values(config):
    for name, kind in get_type_hints(type(config)).items():
        for value in KINDS.get(kind, ()):
            yield name, value


@pytest.mark.parametrize("config", CONFIGURATIONS, ids=lambda config: type(config).__name__)
def test_every_integer_of_a_configuration_is_one(config):
    tried = list(wrong_values(config))
    assert tried
    for name, value in tried:
        with pytest.raises(ConfigurationError, match=rf"{name} must be (an integer|integers), not"):
            dataclasses.replace(config, **{name: value})


def test_every_integer_parameter_is_one():
    for name, value in wrong_values(Parameters()):
        with pytest.raises(ConfigurationError, match=f"{name} must be an integer, not"):
            check_each(dataclasses.replace(Parameters(), **{name: value}))
    check_each(Parameters(num_scale_frames=np.int64(4)))


def test_integers_of_numpy_and_unset_ones_are_taken():
    assert SessionConfig(num_scale_frames=np.int64(4)).max_keyframes is None
    assert MapperOptions(stride=np.uint8(3)).stride == 3


def test_a_running_session_refuses_them_and_is_as_before():
    session = StreamingSession(GCTStream(GCTConfig.preset("tiny")))
    with pytest.raises(ConfigurationError, match=r"keyframe_interval must be an integer, not 2\.5"):
        session.update_keyframes(interval=2.5)
    with pytest.raises(ConfigurationError, match=r"lost_after must be an integer, not 2\.5"):
        session.update_lost_after(2.5)
    assert session.config == SessionConfig()


@pytest.mark.parametrize("limit", [4.5, True, "4", 0])
def test_a_model_needs_an_integer_of_pending_frames(limit):
    with pytest.raises(ConfigurationError, match="pending_limit"):
        GCTStream(GCTConfig.preset("tiny"), pending_limit=limit)
