# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A session as its users see it: results, manual decisions, limits, reset."""

import numpy as np
import pytest
import torch
from streams import PERIOD, feed, fingerprints, image, tiny_model, tiny_session

from lingbot_map_ros.errors import ConfigurationError, InputError, RollbackError
from lingbot_map_ros.streaming.results import Decision, SessionState


def test_the_scale_frames_come_together_and_then_one_a_call():
    session = tiny_session()
    assert session.state is SessionState.INITIALISING
    assert session.step(image(0), 0) == [] and session.step(image(1), PERIOD) == []
    assert session.status().gathered == 2 and session.status().needed == 3
    first = session.step(image(2), 2 * PERIOD)
    assert [r.index for r in first] == [0, 1, 2]
    assert [r.stamp_ns for r in first] == [0, PERIOD, 2 * PERIOD]
    assert session.state is SessionState.TRACKING
    np.testing.assert_allclose(first[0].pose_map, np.eye(4), atol=1e-12)
    (fourth,) = session.step(image(3), 3 * PERIOD)
    assert fourth.index == 3 and fourth.keyframe and not fourth.pending
    assert fourth.depth.shape == fourth.confidence.shape == fourth.image.shape[:2] == (70, 112)
    assert fourth.depth.dtype == np.float32 and fourth.image.dtype == np.uint8
    assert fourth.covariance_scale == 1.0
    assert set(fourth.timings) == {"preprocess", "model"}
    R = fourth.pose_map[:3, :3]
    np.testing.assert_allclose(R @ R.T, np.eye(3), atol=1e-9)


def test_bad_images_are_refused_and_change_nothing():
    session, twin = tiny_session(), tiny_session()
    feed(session, range(4))
    feed(twin, range(4))
    before = str(session.status())
    good = np.zeros((70, 112, 3), np.uint8)
    for bad, what in (
        (np.zeros((70, 112, 4), np.uint8), "alpha"),
        (np.zeros((70, 112), np.uint8), "grey"),
        (np.zeros((70, 112, 3), np.float32), "scale floats"),
        (np.zeros((3, 70, 112), np.uint8), r"\[H, W, 3\]"),
        (good[None], r"\[H, W, 3\]"),
        (np.zeros((0, 0, 3), np.uint8), "uint8 RGB"),
        (np.zeros((71, 112, 3), np.uint8), "reset the session"),
        (good.tolist(), "numpy array.*not list"),
        (torch.from_numpy(good), "numpy array.*not Tensor"),
        (good.tobytes(), "numpy array.*not bytes"),
        (None, "numpy array.*not NoneType"),
    ):
        with pytest.raises(InputError, match=what):
            session.step(bad, 0)
    for stamp in (None, 0.5, "0"):
        with pytest.raises(InputError, match="stamp_ns must be an integer"):
            session.step(image(4), stamp)
    with pytest.raises(InputError, match="does not fit 64 bits"):
        session.step(image(4), 2**70)
    assert str(session.status()) == before
    assert fingerprints(feed(session, [4, 5])) == fingerprints(feed(twin, [4, 5]))


def test_an_image_too_narrow_for_the_network_is_refused_and_does_not_fix_the_size():
    session = tiny_session()
    with pytest.raises(InputError):
        session.step(np.zeros((4, 1000, 3), np.uint8), 0)
    assert len(feed(session, range(3))) == 3


def test_reset_is_a_fresh_session_of_the_next_epoch_and_may_change_the_size():
    session = tiny_session(keyframe_mode="manual")
    feed(session, range(8))
    session.set_deferred(False)
    session.reset()
    assert session.epoch == 1 and session.pending == 0 and session.deferred
    assert session.drain_decisions() == []
    fresh = tiny_session(keyframe_mode="manual")
    again = feed(session, range(2, 9))
    assert fingerprints(again) == fingerprints(feed(fresh, range(2, 9)))
    assert [r.epoch for r in again] == [1] * 7 and again[0].index == 0
    session.reset()
    wide = np.random.default_rng(0).integers(0, 255, (60, 120, 3), np.uint8)
    assert [len(session.step(wide, i)) for i in range(4)] == [0, 0, 3, 1]


@pytest.mark.parametrize("configured", ["interval", "manual"])
def test_a_reset_may_keep_what_was_deferred(configured):
    session = tiny_session(keyframe_mode=configured)
    session.set_deferred(configured == "interval")
    feed(session, range(5))
    session.reset(keep_mode=True)
    assert session.deferred == (configured == "interval") and session.pending == 0
    kept = fingerprints(feed(session, range(5)))
    fresh = tiny_session(keyframe_mode="manual" if session.deferred else "interval")
    assert kept == fingerprints(feed(fresh, range(5)))
    session.reset()
    assert session.deferred == (configured == "manual")


def test_two_resets_and_an_unused_session_are_alike():
    session = tiny_session()
    session.reset()
    session.step(image(0), 0)
    session.reset()
    assert fingerprints(feed(session, range(5))) == fingerprints(feed(tiny_session(), range(5)))


def test_a_rolled_back_frame_leaves_no_trace():
    session, twin = tiny_session(), tiny_session()
    for s in (session, twin):
        feed(s, range(9))
        assert s.set_deferred(True) == []
    (dropped,) = feed(session, [15])
    assert dropped.pending and session.pending == 1
    assert session.rollback() == dropped.index == 9
    assert session.drain_decisions() == [Decision(9, False)]
    assert session.drain_decisions() == []
    (mine,), (other,) = feed(session, [9]), feed(twin, [9])
    assert fingerprints([mine]) == fingerprints([other])
    assert mine.index == 10 and other.index == 9  # numbers are never given twice
    with pytest.raises(RollbackError):
        feed_nothing = tiny_session()
        feed_nothing.rollback()


def test_commit_keeps_and_the_decision_changes_what_later_frames_see():
    kept, dropped = tiny_session(), tiny_session()
    for s in (kept, dropped):
        feed(s, range(6))
        s.set_deferred(True)
        feed(s, [6, 7])
    assert kept.commit() == [6, 7] and kept.commit() == []
    assert kept.drain_decisions() == [Decision(6, True), Decision(7, True)]
    assert dropped.rollback() == 7 and dropped.rollback() == 6
    with pytest.raises(RollbackError):
        dropped.rollback()
    assert kept.status().kept == 8 and dropped.status().kept == 6
    assert fingerprints(feed(kept, [8])) != fingerprints(feed(dropped, [8]))


def test_leaving_the_manual_mode_commits_what_is_pending():
    session = tiny_session()
    feed(session, range(5))
    session.set_deferred(True)
    feed(session, [5, 6])
    assert session.set_deferred(False) == [5, 6]
    assert not session.deferred and session.pending == 0
    (result,) = feed(session, [7])
    assert result.keyframe and not result.pending


def test_a_change_of_mode_commits_too_and_a_bad_one_changes_nothing():
    session = tiny_session(keyframe_mode="manual")
    feed(session, range(5))
    with pytest.raises(ConfigurationError):
        session.update_keyframes(mode="motion", motion_px=-1.0)
    assert session.deferred and session.pending == 2
    assert session.update_keyframes(interval=2) == [] and session.pending == 2
    assert session.update_keyframes(mode="interval") == [3, 4]
    assert [r.keyframe for r in feed(session, range(5, 9))] == [False, True, False, True]


def test_commit_oldest_keeps_the_newer_pending_frames_revocable(caplog):
    session = tiny_session(room=4, keyframe_mode="manual")  # the newcomer takes one
    feed(session, range(6))
    assert session.pending == 3
    results = feed(session, [6, 7])
    assert [r.pending for r in results] == [True, True]
    assert session.pending == 3 and session.status().policy_applied == 2
    assert session.drain_decisions() == [Decision(3, True), Decision(4, True)]
    assert [session.rollback() for _ in range(3)] == [7, 6, 5]
    assert len([m for m in caplog.messages if "pending_limit" in m]) == 1


def test_rollback_newest_drops_the_newcomer_without_a_trace():
    session = tiny_session(room=4, keyframe_mode="manual", pending_policy="rollback_newest")
    feed(session, range(6))
    (dropped,) = feed(session, [12])
    assert not dropped.keyframe and not dropped.pending and session.pending == 3
    assert session.drain_decisions() == []
    twin = tiny_session(room=4, keyframe_mode="manual")
    feed(twin, range(6))
    session.commit()
    twin.commit()
    assert [r.depth.tobytes() for r in feed(session, [6])] == [
        r.depth.tobytes() for r in feed(twin, [6])
    ]


def test_an_undecided_backlog_does_not_stop_the_stream():
    session = tiny_session(room=4, keyframe_mode="manual")
    results = feed(session, range(60))
    assert len(results) == 60 and results[-1].window >= 4
    decided = [d.index for d in session.drain_decisions()]
    assert decided == list(range(3, 3 + len(decided))) and len(decided) >= 54


@pytest.mark.parametrize(
    "settings",
    [
        {"num_scale_frames": 4},
        {"num_scale_frames": 0},
        {"max_keyframes": 3},
        {"max_keyframes": 13},
        {"overlap_keyframes": 12},
        {"overlap_keyframes": 0},
        {"pending_limit": 0},
        {"pending_limit": 7},
        {"pending_policy": "keep"},
        {"keyframe_mode": "often"},
        {"keyframe_interval": 0},
        {"keyframe_motion_px": float("nan")},
        {"keyframe_max_gap": 0},
        {"depth_every": 0},
        {"depth_every": 2, "keyframe_mode": "motion"},
        {"lost_after": 0},
    ],
)
def test_settings_that_cannot_work_are_refused(settings):
    with pytest.raises(ConfigurationError):
        tiny_session(**settings)


def test_depth_every_leaves_out_the_depth_of_frames_that_are_not_kept():
    session = tiny_session(depth_every=5, keyframe_interval=3, overlap_keyframes=3)
    results = feed(session, range(60))
    assert all(r.depth is not None for r in results if r.keyframe)
    assert any(r.depth is None for r in results)
    assert all((r.depth is None) == (r.confidence is None) for r in results)
    assert results[-1].window > 1 and results[-1].segment == 0
    assert len(results) == 60


def test_a_calibrated_camera_gives_its_own_intrinsics():
    from lingbot_map_ros.streaming.camera_model import CameraModel

    K = np.array([[100.0, 0, 55.5], [0, 100.0, 34.5], [0, 0, 1]])
    session = tiny_session()
    session.camera = CameraModel(112, 70, K)
    results = feed(session, range(4))
    for result in results:
        np.testing.assert_allclose(result.intrinsics[[0, 1], [0, 1]], 100.0)


def test_status_counts_and_model_agree():
    model = tiny_model()
    session = tiny_session(model=model)
    feed(session, range(8))
    status = session.status()
    assert (status.frames, status.kept, status.pending) == (8, model.num_frames, 0)
    assert status.capacity <= model.config.max_keyframes and np.isnan(status.alignment_error)
    session.set_deferred(True)
    feed(session, [8])
    assert session.pending == model.num_pending == 1
    assert session.status().kept + 1 == model.num_frames
