# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Windows with the trained model on rendered loops that it has never seen.

What is asked holds for any trained model, not for the weights of the day.
"""

import numpy as np
import pytest
import torch
from evaluate_windows import FIRST_SEED, TARGETS, evaluate_loop, extrapolated

from lingbot_map_ros.models.checkpoint import load_model
from lingbot_map_ros.streaming.session import SessionConfig
from lingbot_map_ros.synthetic.sequence import make_sequence

LUCK = 0.01
"""Of the path: the error of a single run may happen to be smaller."""
ONE_LOOP = 2.5
"""The targets hold for the mean over loops; for one short loop the ratio scatters widely."""


def loop(model, seed, frames, difficulty=0.4):
    width, height = model.config.image_size, model.config.image_height
    return make_sequence(seed, frames, width, height, "loop", difficulty)


def check(figures, windows):
    """What holds for every loop."""
    assert figures["windows"] >= windows and figures["withheld"] == 0
    assert figures["odometry_at_switch"] <= TARGETS["odometry at a switch"]
    assert figures["outlier_shift"] <= TARGETS["outlier, of the scene"]
    assert all(np.isfinite(figures["alignment_error"]))
    # The robust alignment gives nothing away where there is no outlier.
    assert figures["ate_m"] <= 1.25 * figures["contract_ate_m"] + LUCK * figures["path_m"]


def test_five_windows_on_a_short_loop():
    torch.set_num_threads(1)
    frames = 116
    model = load_model("builtin:small", max_keyframes=frames + 1)
    s = loop(model, FIRST_SEED + 50, frames)
    config = SessionConfig(max_keyframes=27, pending_limit=1)
    figures = evaluate_loop(model, s.images, s.poses, config)
    check(figures, 5)
    single = max(figures["single_ate_m"], LUCK * figures["path_m"])
    assert figures["ate_m"] <= ONE_LOOP * single


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
    windowed, single = (np.mean([x[key] for x in loops]) for key in ("ate_m", "single_ate_m"))
    floor = LUCK * np.mean([x["path_m"] for x in loops])
    assert windowed <= TARGETS["against a single window"] * max(single, floor)
    expected = max(extrapolated(loops, frames, trained), floor)
    assert windowed <= TARGETS["against it by extrapolation"] * expected
