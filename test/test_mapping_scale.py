# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Metres per model unit: from a path known in both worlds."""

import re

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from lingbot_map_ros.errors import ConfigurationError
from lingbot_map_ros.geometry.poses import make_pose
from lingbot_map_ros.geometry.sim3 import Sim3
from lingbot_map_ros.mapping.scale import MAX_KNOTS, ScaleEstimator

TRUTH = 3.7
FRAME_NS = 33_000_000


def drive(estimator, seed=0, steps=2000, jitter=0.0, slips=0, glitches=0, step=0.03):
    """Feed a wandering path in metres, and the same in a turned, shifted model world."""
    rng = np.random.default_rng(seed)
    world = Sim3(1 / TRUTH, Rotation.random(random_state=seed).as_matrix(), rng.normal(0, 5, 3))
    yaw = np.cumsum(rng.normal(0, 0.05, steps))
    moves = step * np.stack((np.cos(yaw), np.sin(yaw), np.zeros(steps)), -1)
    path = np.cumsum(moves, 0)
    model = world.apply(path) + rng.normal(0, jitter / TRUTH, path.shape)
    slipped = np.zeros(steps)
    slipped[rng.choice(np.arange(60, max(steps, 61)), slips, replace=False)] = 5
    metric = path + np.cumsum(moves * slipped[:, None], 0)
    for i in rng.choice(np.arange(steps), glitches, replace=False):
        model[i] += rng.normal(0, 3, 3)
    for i in range(steps):
        estimator.add(make_pose(np.eye(3), model[i]), make_pose(np.eye(3), metric[i]), i * FRAME_NS)
        if estimator.settled:
            return (i + 1) * step
    return None


@pytest.mark.parametrize("seed", range(6))
def test_a_clean_path_settles_within_two_metres(seed):
    estimator = ScaleEstimator("odometry")
    assert drive(estimator, seed) < 2
    assert estimator.scale == pytest.approx(TRUTH, rel=0.002)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    "faults", [{"jitter": 0.02}, {"jitter": 0.01, "slips": 8}, {"jitter": 0.005, "glitches": 100}]
)
def test_the_settled_scale_is_right_within_three_percent(seed, faults):
    estimator = ScaleEstimator("odometry")
    assert drive(estimator, seed, **faults) is not None
    assert estimator.scale == pytest.approx(TRUTH, rel=0.03)


@pytest.mark.parametrize("slips", [(20,), (29, 57), (27, 62, 66), (8, 23, 40, 42, 62)])
def test_slips_on_the_first_metres_do_not_spoil_the_scale(slips):
    estimator = ScaleEstimator("odometry")
    for i in range(4000):
        metric = 0.03 * i + 0.15 * sum(i >= slip for slip in slips)
        model = make_pose(np.eye(3), np.array([0, 0.03 * i / TRUTH, 0]))
        estimator.add(model, make_pose(np.eye(3), np.array([metric, 0, 0])), i * FRAME_NS)
    assert estimator.settled
    assert estimator.scale == pytest.approx(TRUTH, rel=0.03)


@pytest.mark.parametrize(
    "jumps",
    [
        pytest.param(lambda i: 1e6 * (i > 0), id="begins at zero, then in map coordinates"),
        pytest.param(lambda i: 50.0 * (i >= 20), id="begins again"),
        pytest.param(lambda i: 1e300 * (i % 7 == 3) * (i < 30), id="wild values"),
    ],
)
def test_odometry_that_jumps_before_the_scale_is_known_begins_a_new_path(jumps):
    estimator = ScaleEstimator("odometry")
    for i in range(200):
        model = make_pose(np.eye(3), np.array([0, 0.03 * i / TRUTH, 0]))
        metric = make_pose(np.eye(3), np.array([0.03 * i + jumps(i), 0, 0]))
        estimator.add(model, metric, i * FRAME_NS)
    assert estimator.settled
    assert estimator.scale == pytest.approx(TRUTH, rel=0.002)


def test_a_pose_far_off_costs_nothing_but_itself():
    """Spikes of 5 m every five seconds, out of reach at this speed, and back."""
    estimator = ScaleEstimator("odometry")
    for i in range(600):
        model = make_pose(np.eye(3), np.array([0, 0.01 * i / TRUTH, 0]))
        spike = 5.0 * (i % 150 == 100)
        metric = make_pose(np.eye(3), np.array([0.01 * i, spike, 0]))
        estimator.add(model, metric, i * FRAME_NS)
        if estimator.settled:
            break
    assert estimator.settled and i > 150
    assert estimator.scale == pytest.approx(TRUTH, rel=1e-6)


def test_without_motion_nothing_settles():
    estimator = ScaleEstimator("odometry")
    assert drive(estimator, jitter=0.05, step=0.0) is None
    assert not estimator.settled
    assert estimator.missing == "the robot moved 0.0 m of the 1 m needed"
    short = ScaleEstimator("odometry")
    assert drive(short, steps=30) is None
    assert (short.settled, short.scale) == (False, 1.0)
    assert re.fullmatch(r"the robot moved 0\.[789] m of the 1 m needed", short.missing)


def test_steps_that_are_too_long_are_counted():
    estimator = ScaleEstimator("odometry")
    assert drive(estimator, steps=10, step=0.5) is None
    assert estimator.missing == (
        "the path has 10 of the 16 places needed, which lie 0.1 m apart or further"
    )


def test_a_scale_that_changes_along_the_path_does_not_settle():
    estimator = ScaleEstimator("odometry")
    for i in range(1500):
        x = 0.03 * i
        model = make_pose(np.eye(3), np.array([x * (1 + 0.2 * x), 0, 0]))
        estimator.add(model, make_pose(np.eye(3), np.array([x, 0, 0])), i * FRAME_NS)
    assert not estimator.settled
    assert len(estimator._knots) <= MAX_KNOTS
    for part in ("first half", "second half"):
        assert re.search(rf"{part} by \d+\.\d %", estimator.missing)
    limits = "less than 2 % is needed, 25 % once the path is 12.8 m long"
    assert re.search(rf"\({limits}, of which it has 45\.\d m\)$", estimator.missing)


def drifting(seed, spread, correlation):
    """Model units per metre [N] that wander along the path, with steps of 3 cm."""
    rng = np.random.default_rng(seed)
    kernel = np.exp(-0.5 * (np.arange(-400, 401) * 0.03 / correlation) ** 2)
    wander = np.convolve(rng.normal(size=2000 + 800), kernel, "valid")
    return np.exp(spread * wander / wander.std()) / TRUTH


@pytest.mark.parametrize("seed", range(8))
def test_a_unit_that_drifts_settles_when_more_path_would_tell_no_better(seed):
    estimator, units = ScaleEstimator("odometry"), drifting(seed, 0.1, 1.0)
    model = np.cumsum(0.03 * units)
    for i in range(len(units)):
        seen = make_pose(np.eye(3), np.array([0, model[i], 0]))
        estimator.add(seen, make_pose(np.eye(3), np.array([0.03 * i, 0, 0])), i * FRAME_NS)
        if estimator.settled:
            break
    assert estimator.settled and 0.03 * i < 13
    assert estimator.differs < 0.25
    # What the path so far says.
    assert estimator.scale == pytest.approx(0.03 * i / (model[i] - model[0]), rel=0.1)


def test_a_path_that_has_ended_settles_by_what_is_known():
    estimator, units = ScaleEstimator("odometry"), drifting(5, 0.1, 1.0)
    for i, x in enumerate(np.cumsum(0.03 * units[:200])):
        seen = make_pose(np.eye(3), np.array([0, x, 0]))
        estimator.add(seen, make_pose(np.eye(3), np.array([0.03 * i, 0, 0])), i * FRAME_NS)
    assert not estimator.settled
    estimator.conclude()
    assert estimator.settled and 0.02 < estimator.differs < 0.25
    assert estimator.scale == pytest.approx(1 / np.mean(units[:200]), rel=0.1)
    for path in ({"steps": 30}, {"steps": 200, "step": 0.0}, {"steps": 0}):
        short = ScaleEstimator("odometry")
        drive(short, **path)
        missing = short.missing
        short.conclude()
        assert not short.settled and short.missing == missing


def test_opinions_that_agree_once_by_chance_do_not_settle_the_scale():
    """Units that differ by a fifth along the path, and are the same in both halves of 1.8 m."""
    estimator, model = ScaleEstimator("odometry"), 0.0
    for i in range(100):
        x = 0.03 * i
        model += 0.03 * (1 + 0.2 * np.cos(2 * np.pi * (x - 0.9) / 1.8)) / TRUTH
        seen = make_pose(np.eye(3), np.array([0, model, 0]))
        estimator.add(seen, make_pose(np.eye(3), np.array([x, 0, 0])), i * FRAME_NS)
    assert not estimator.settled


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("moves", "said"),
    [
        pytest.param(lambda i: 0, "the model sees no motion", id="stands"),
        pytest.param(lambda i: max(i - 100, 0), "first half by over 100 %", id="stood"),
    ],
)
def test_a_model_that_sees_no_motion_is_named(moves, said):
    estimator = ScaleEstimator("odometry")
    for i in range(200):
        model = make_pose(np.eye(3), np.array([0.01 * moves(i), 0, 0]))
        estimator.add(model, make_pose(np.eye(3), np.array([0.03 * i, 0, 0])), i * FRAME_NS)
    assert not estimator.settled
    assert said in estimator.missing


def test_a_settled_scale_is_held():
    estimator = ScaleEstimator("odometry")
    drive(estimator)
    held = estimator.scale
    drive(estimator, seed=1)
    for i in range(100):
        T = make_pose(np.eye(3), np.array([float(i), 0, 0]))
        estimator.add(T, T, (10_000 + i) * 10**9)
    assert (estimator.scale, estimator.settled, estimator.missing) == (held, True, "")


def test_bad_poses_and_stamps_are_left_out():
    estimator = ScaleEstimator("odometry")
    bad = make_pose(np.eye(3), np.array([np.nan, 0, 0]))
    for i in range(200):
        good = make_pose(np.eye(3), np.array([0.1 * i, 0, 0]))
        estimator.add(bad, good, i * FRAME_NS)
        estimator.add(good, bad, i * FRAME_NS)
        estimator.add(good, good, 5)
    assert not estimator.settled
    only_bad = ScaleEstimator("odometry")
    only_bad.add(bad, bad, 1)
    assert only_bad.missing == "no odometry matched an image yet"


def test_fixed_and_none():
    fixed = ScaleEstimator("fixed", 2.5)
    assert (fixed.scale, fixed.settled) == (2.5, True)
    drive(fixed)
    assert fixed.scale == 2.5
    none = ScaleEstimator("none", 2.5)
    drive(none)
    assert (none.scale, none.settled) == (1.0, False)
    assert fixed.missing == none.missing == ""


@pytest.mark.parametrize("arguments", [("fixed", 0), ("fixed", np.nan), ("wheel", 1)])
def test_impossible_settings_are_refused(arguments):
    with pytest.raises(ConfigurationError):
        ScaleEstimator(*arguments)
