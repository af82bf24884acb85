# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Sessions over small models, images for them, and what to compare of their results."""

from dataclasses import replace
from functools import lru_cache

import numpy as np
import torch
from golden import ROOT, load_weights, model_config

from lingbot_map_ros.models.config import GCTConfig
from lingbot_map_ros.models.gct_stream import GCTStream
from lingbot_map_ros.models.random_weights import randomize_
from lingbot_map_ros.streaming.session import SessionConfig, StreamingSession

PERIOD = 100_000_000
"""Nanoseconds between images."""


@lru_cache
def clip():
    """The 20 images of the golden clip, uint8 [20, 70, 112, 3]."""
    with np.load(ROOT / "clips" / "clip20_70x112.npz") as file:
        return np.ascontiguousarray(file["images"].transpose(0, 2, 3, 1))


def image(index):
    """Image of a stream without end: the clip forth and back, so that nothing jumps."""
    turn = 2 * len(clip()) - 2
    phase = index % turn
    return clip()[phase if phase < len(clip()) else turn - phase]


@lru_cache
def tiny_state():
    return randomize_(GCTStream(GCTConfig.preset("tiny"), attention_backend="sdpa")).state_dict()


def tiny_model(room=6, **overrides):
    """Tiny network with random weights, and room for so many pending frames and a newcomer."""
    torch.set_num_threads(1)
    config = replace(GCTConfig.preset("tiny"), max_keyframes=12, **overrides)
    model = GCTStream(config, attention_backend="sdpa", pending_limit=room)
    model.load_state_dict(tiny_state())
    return model


def golden_model(case):
    """Network of a golden model case, whose input size is the clip's."""
    config = replace(model_config(case.config), image_size=112)
    model = GCTStream(config, attention_backend="sdpa")
    model.load_state_dict(load_weights(case))
    return model


def tiny_session(room=6, model=None, **settings):
    return StreamingSession(tiny_model(room) if model is None else model, SessionConfig(**settings))


def session_of(mode="interval", policy="commit_oldest", lost_after=3, room=4, interval=2):
    """Small windows, so that short histories cross several."""
    return StreamingSession(
        tiny_model(room, image_size=56),
        SessionConfig(
            max_keyframes=8,
            overlap_keyframes=2,
            keyframe_mode=mode,
            keyframe_interval=interval,
            keyframe_max_gap=3,
            pending_policy=policy,
            lost_after=lost_after,
        ),
    )


def inside(session):
    """Everything that later frames depend on."""
    model = session._model
    cache, camera = model.aggregator.kv_cache, model.camera_head.cache
    return (
        str(session.status()),
        session._rule,
        model.num_pending,
        model.num_frames,
        cache and [cache.page_table(block) for block in range(cache.num_blocks)],
        cache and cache._defer_eviction,
        camera and camera.snapshot(),
    )


def feed(session, indices):
    """Step a session with the images of these numbers; all results."""
    return [r for i in indices for r in session.step(image(i), i * PERIOD)]


def fingerprint(result):
    """What must not differ, bit for bit, between two ways to the same frame."""
    return (
        result.stamp_ns,
        result.pose_map.tobytes(),
        result.pose_odom.tobytes(),
        result.intrinsics.tobytes(),
        None if result.depth is None else result.depth.tobytes(),
        None if result.confidence is None else result.confidence.tobytes(),
        result.image.tobytes(),
        result.keyframe,
        result.pending,
        result.covariance_scale,
        result.segment,
        result.window,
    )


def fingerprints(results):
    return [fingerprint(result) for result in results]
