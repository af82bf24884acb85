# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Endless streams: what a window switch does to poses, odometry, scale and pending frames."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from golden import load_case, load_clip
from oracle import CONFIG, ROOM, Oracle, loop, numbered, room_depth, turn
from streams import PERIOD, golden_model

from lingbot_map_ros.errors import LingbotMapError
from lingbot_map_ros.geometry.poses import invert, make_pose, rotation_angle
from lingbot_map_ros.geometry.stitching import Window, stitch, window_spans
from lingbot_map_ros.streaming.results import SessionState
from lingbot_map_ros.streaming.session import SessionConfig, StreamingSession


def run(oracle, frames, session=None, start=0, **settings):
    session = session or StreamingSession(oracle, SessionConfig(**settings))
    numbers = range(start, start + frames)
    return session, [r for i in numbers for r in session.step(numbered(i), i * PERIOD)]


def relative_to_first(poses):
    return invert(poses[0]) @ poses


def position_errors(results, poses):
    truth = relative_to_first(poses)[[r.index for r in results], :3, 3]
    return np.linalg.norm(np.stack([r.pose_map[:3, 3] for r in results]) - truth, axis=-1)


def scale_to_truth(results, poses):
    """The oracle's first window has a unit of its own; lengths in the map per metre."""
    return np.median(results[0].depth / room_depth(poses[0]))


def test_windowed_mode_of_the_reference():
    """The contract's own windows (9.3), which ours are compared with, over the same model."""
    case = load_case("a_windowed")
    setting = case.spec["run"]
    model, clip = golden_model(case), load_clip(case)
    scale, n = setting["num_scale_frames"], setting["keyframe_interval"]
    spans, overlap = window_spans(
        len(clip), setting["window_size"], scale, n, setting["overlap_keyframes"]
    )
    windows = []
    for begin, end in spans:
        model.reset()
        kept = [i < scale or (i - scale) % n == 0 for i in range(end - begin)]
        predictions = [model.step(clip[begin : begin + scale])] + [
            model.step(clip[begin + i][None], "keyframe" if kept[i] else "skip")
            for i in range(scale, end - begin)
        ]
        windows.append(
            Window(
                *(
                    torch.cat([getattr(p, name) for p in predictions]).numpy()
                    for name in ("pose_enc", "depth", "confidence")
                ),
                np.array(kept),
            )
        )
    joined, transforms = stitch(windows, overlap)
    case.check(torch.from_numpy(joined.pose_enc), "out.pose_enc")
    case.check(torch.from_numpy(joined.depth), "out.depth")
    case.check(torch.from_numpy(joined.confidence), "out.depth_conf")
    case.check(torch.tensor([t.scale for t in transforms]), "out.chunk_scales")
    assert (joined.is_keyframe == case["out.is_keyframe"].numpy()).all()


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"keyframe_interval": 3},
        {"keyframe_mode": "motion", "keyframe_motion_px": 3.0},
        {"overlap_keyframes": 8},
        {"overlap_keyframes": 2},
        {"num_scale_frames": 2, "max_keyframes": 9},
        {"depth_every": 5, "keyframe_interval": 3},
    ],
)
def test_exact_windows_make_one_exact_world(settings):
    poses = loop(200)
    oracle = Oracle(poses)
    session, results = run(oracle, 200, **settings)
    assert [r.index for r in results] == list(range(200))
    assert results[-1].window >= 3 and results[-1].segment == 0
    unit = scale_to_truth(results, poses)
    truth = relative_to_first(poses)
    truth[:, :3, 3] *= unit
    np.testing.assert_allclose([r.pose_map for r in results], truth, atol=2e-4)
    np.testing.assert_allclose([r.pose_odom for r in results], truth, atol=2e-4)
    for r in results[::10]:
        if r.depth is not None:
            np.testing.assert_allclose(r.depth, unit * room_depth(poses[r.index]), rtol=1e-3)
    np.testing.assert_allclose(session.map_from_odom, np.eye(4), atol=2e-4)
    status = session.status()
    assert status.alignment_inliers == 1.0 and status.alignment_error < 1e-3
    assert {r.covariance_scale for r in results} == {1.0}


def test_a_switch_costs_one_batch_of_scale_frames_and_caches_stay_within_bounds():
    oracle = Oracle(loop(120))
    session, _ = run(oracle, 120)
    batches = [call for call in oracle.calls if len(call[0]) > 1]
    singles = [call for call in oracle.calls if len(call[0]) == 1]
    assert len(batches) == session.status().window + 1 >= 6
    assert all(len(numbers) == 4 for numbers, _, _ in batches)
    assert len(singles) == 120 - 4
    held = [sum(len(c[0]) for c in oracle.calls if c[2] == w) for w in range(1, oracle.window)]
    assert max(held) <= oracle.config.max_keyframes


@pytest.mark.parametrize("interval", [1, 3])
def test_odometry_never_jumps_and_the_map_takes_the_correction(interval):
    poses = loop(300)
    drift = make_pose(turn([0, 4e-4, 2e-4]), [0.001, 0.0, 0.0005])
    session, results = run(Oracle(poses, jitter=2e-3, drift=drift), 300, keyframe_interval=interval)
    assert results[-1].window >= (10 if interval == 1 else 3)
    unit = scale_to_truth(results, poses)
    odom = np.stack([r.pose_odom for r in results])
    steps = invert(odom[:-1]) @ odom[1:]
    lengths = np.linalg.norm(steps[:, :3, 3], axis=-1) / unit
    angles = rotation_angle(steps)
    switch = np.array([a.window != b.window for a, b in pairwise(results)])
    # A frame's own motion is 0.04 m; each pose carries noise of its own, everywhere alike.
    assert lengths[switch].max() < 1.2 * lengths[~switch].max()
    assert angles[switch].max() < 1.2 * angles[~switch].max()
    corrections = {}
    for r in results:
        M = r.pose_map @ invert(r.pose_odom)
        np.testing.assert_allclose(M, corrections.setdefault(r.window, M), atol=1e-9)
        np.testing.assert_allclose(M[:3, :3] @ M[:3, :3].T, np.eye(3), atol=1e-9)
    np.testing.assert_allclose(session.map_from_odom, corrections[results[-1].window], atol=1e-9)
    assert len({M.tobytes() for M in corrections.values()}) > 1


def test_windows_drift_no_more_than_one_long_window_would():
    poses = loop(400)
    drift = make_pose(turn([0, 5e-4, 1e-4]), [0.0, 0.0005, 0.001])
    _, windows = run(Oracle(poses, jitter=1e-3, drift=drift), 400)
    long = replace(CONFIG, max_keyframes=2000)
    _, single = run(Oracle(poses, jitter=1e-3, drift=drift, config=long), 400)
    assert windows[-1].window >= 15 and single[-1].window == 0

    def ate(results):
        truth = relative_to_first(poses)[:, :3, 3] * scale_to_truth(results, poses)
        got = np.stack([r.pose_map[:3, 3] for r in results])
        return np.sqrt(np.mean(np.sum((got - truth) ** 2, -1))) / scale_to_truth(results, poses)

    assert ate(windows) < 1.5 * ate(single), (ate(windows), ate(single))


def test_one_scale_for_the_whole_map():
    """Noisy depth, an unrelated unit a window: lengths must not wander over 20 windows."""
    poses = loop(400)

    def noisy(number, window, T, depth, confidence):
        noise = np.random.default_rng(number + 1000 * window).lognormal(0, 0.05, depth.shape)
        return T, depth * noise, confidence

    _, results = run(Oracle(poses, jitter=1e-3, err=noisy), 400)
    unit = [np.median(r.depth / room_depth(poses[r.index])) for r in results]
    assert results[-1].window >= 15
    assert np.ptp(unit) / unit[0] < 0.02


@pytest.mark.parametrize("which", range(4))
def test_an_outlier_among_the_shared_keyframes_does_not_move_the_map(which):
    poses = loop(60)
    oracle = Oracle(poses, jitter=1e-4)
    session, results = run(oracle, 10)
    capacity = session.status().capacity
    outlier, first = capacity - 4 + which, oracle.window

    def err(number, window, T, depth, confidence):
        if (number, window) != (outlier, first + 1):
            return T, depth, confidence
        T = T @ make_pose(turn([0.3, 0.2, 0.0]), [0.8, 0.3, -0.5])
        return T, 1.7 * depth, confidence

    oracle._err = err
    results += run(oracle, capacity, session, 10)[1]
    assert results[-1].window == 1 and session.status().alignment_inliers == 0.75
    unit = scale_to_truth(results, poses)
    assert position_errors(results, _scaled(poses, unit)).max() / unit < 0.01 * 2 * ROOM.max()
    odom = np.stack([r.pose_odom[:3, 3] for r in results]) / unit
    assert np.linalg.norm(np.diff(odom, axis=0), axis=-1).max() < 1.2 * 0.04


def _scaled(poses, unit):
    scaled = poses.copy()
    scaled[:, :3, 3] *= unit
    return scaled


def test_a_switch_waits_for_the_decision_of_pending_frames():
    poses = loop(100)
    oracle = Oracle(poses)
    session, _ = run(oracle, 10, keyframe_mode="manual", pending_limit=5)
    start, capacity = session.status().frames, session.status().capacity
    session.commit()
    while session.status().kept < capacity - 1:
        run(oracle, 1, session, session.status().frames)
        session.commit()
    window = session.status().window
    start = session.status().frames
    run(oracle, 3, session, start)
    assert session.pending == 3 and session.status().window == window
    session.rollback()
    assert session.commit() == [start, start + 1]
    assert session.status().kept == capacity + 1 <= oracle.config.max_keyframes
    _, (result,) = run(oracle, 1, session, start + 3)
    assert result.window == window + 1 and result.pending
    assert session.state is SessionState.TRACKING


def test_a_failing_switch_is_repeated_and_leaves_no_trace():
    class Fails(Oracle):
        broken = False

        def step(self, images, mode="keyframe", *, depth=True):
            if self.broken and self.window > self.broken_from:
                raise LingbotMapError("planned")
            return super().step(images, mode, depth=depth)

    poses = loop(60)
    oracle = Fails(poses)
    session, results = run(oracle, 20)
    while session.status().kept < session.status().capacity:
        results += run(oracle, 1, session, session.status().frames)[1]
    start, before = session.status().frames, str(session.status())
    oracle.broken, oracle.broken_from = True, oracle.window
    for _ in range(3):
        with pytest.raises(LingbotMapError):
            session.step(numbered(start), 0)
        assert str(session.status()) == before
    # Without its caches the window cannot go on, whatever kind the next frame is of.
    session.update_keyframes(interval=5)
    oracle.broken = False
    results += run(oracle, 60 - start, session, start)[1]
    unit = scale_to_truth(results, poses)
    assert [r.index for r in results] == list(range(60))
    assert position_errors(results, _scaled(poses, unit)).max() < 1e-3
