# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Windows with the trained model on rendered loops that it has never seen.

What is asked holds for any trained model, not for the weights of the day.
"""

import os

import numpy as np
import pytest
import torch
from evaluate_windows import FIRST_SEED, TARGETS, evaluate_loop, extrapolated

from lingbot_map_ros.models.checkpoint import load_model
from lingbot_map_ros.streaming.session import SessionConfig
from lingbot_map_ros.synthetic.sequence import make_sequence

LUCK = 0.01
"""Of the path: the error of a single run may happen to be smaller."""
SHARED = 4
"""Keyframes that two windows share, as many as scale frames."""
FIRM = SHARED**0.5 / (SHARED - 1)
"""Of what shared keyframes disagree by (RMS): leaving one out moves a mean by its residual over one
less than their number, and that residual is at most the RMS times the root of their number."""


def loop(model, seed, frames, difficulty=0.4):
    width, height = model.config.image_size, model.config.image_height
    return make_sequence(seed, frames, width, height, "loop", difficulty)


def check(figures, windows):
    """What holds for every loop."""
    assert figures["windows"] >= windows and figures["withheld"] == 0
    assert figures["odometry_at_switch"] <= TARGETS["odometry at a switch"]
    assert all(np.isfinite(figures["alignment_error"]))
    # An outlier may move the map by no more than a keyframe that is left out.
    disagreement = FIRM * max(figures["alignment_error"])
    assert figures["outlier_shift"] <= max(TARGETS["outlier, of the scene"], disagreement)
    # The robust alignment gives nothing away where there is no outlier.
    assert figures["ate_m"] <= 1.25 * figures["contract_ate_m"] + LUCK * figures["path_m"]


def compare_with_single(loops):
    """Judge the mean errors; returns that of the windows, and what luck may do to a single run."""
    windowed, single = (np.mean([x[key] for x in loops]) for key in ("ate_m", "single_ate_m"))
    floor = LUCK * np.mean([x["path_m"] for x in loops])
    assert windowed <= TARGETS["against a single window"] * max(single, floor)
    return windowed, floor


def test_five_windows_on_short_loops():
    """In the mean over loops; of a single one the ratio scatters widely."""
    torch.set_num_threads(min(2, os.cpu_count() or 1))
    frames = 116
    model = load_model("builtin:small", max_keyframes=frames + 1)
    config = SessionConfig(max_keyframes=27, pending_limit=1)
    loops = []
    for i in range(3):
        s = loop(model, FIRST_SEED + 50 + i, frames)
        loops.append(evaluate_loop(model, s.images, s.poses, config))
        check(loops[-1], 5)
    compare_with_single(loops)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_long_windows_drift_no_more_than_one_would_by_extrapolation():
    frames, trained = 300, 120
    model = load_model("builtin:small", max_keyframes=frames + 1)
    config = SessionConfig(max_keyframes=60, pending_limit=1)
    loops = []
    for i in range(3):
        s = loop(model, FIRST_SEED + i, frames, 0.3 + 0.2 * i)
        loops.append(evaluate_loop(model, s.images, s.poses, config))
        check(loops[-1], 5)
    windowed, floor = compare_with_single(loops)
    expected = max(extrapolated(loops, frames, trained), floor)
    assert windowed <= TARGETS["against it by extrapolation"] * expected
