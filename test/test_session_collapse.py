# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Outputs that cannot be true: withheld, rolled back, and how the stream finds back."""

import numpy as np
import pytest
import torch
from oracle import HEIGHT, WIDTH, Oracle, loop, numbered, turn
from streams import PERIOD, feed, fingerprints, image, tiny_session

from lingbot_map_ros.errors import ConfigurationError
from lingbot_map_ros.geometry.poses import make_pose
from lingbot_map_ros.streaming.frame import contrast
from lingbot_map_ros.streaming.guard import BLANK_CONTRAST, SEEN_CONTRAST
from lingbot_map_ros.streaming.results import Decision, SessionState
from lingbot_map_ros.streaming.session import SessionConfig, StreamingSession

POSES = loop(300, step=0.02)


def shifted(metres=0.0, radians=0.0, depth=1.0, confidence=1.0):
    """Error of an output: a jump, a turn, another unit of depth, another confidence."""

    def err(T, d, c):
        T = T @ make_pose(turn([0, radians, 0]), [metres, 0, 0])
        return T, d * depth, 1 + (c - 1) * confidence

    return err


FAULTS = {
    "not a number": lambda T, d, c: (T * np.nan, d, c),
    "depth not a number": lambda T, d, c: (T, np.where(d > np.median(d), np.nan, d), c),
    "infinite confidence": lambda T, d, c: (T, d, c * np.inf),
    "jump": shifted(metres=60.0),
    "turn": shifted(radians=2.0),
    "scale": shifted(depth=40.0),
    "confidence": shifted(confidence=1e-3),
}


class Erring(Oracle):
    """Errs on the frames of `bad`, but not in windows opened after `healed_from`."""

    def __init__(self, fault=None, bad=(), healed_from=10**9, poses=POSES, **options):
        def err(number, window, T, depth, confidence):
            if number in bad and window < healed_from:
                return fault(T, depth, confidence)
            return T, depth, confidence

        super().__init__(poses, err=err, **options)


def run(session, numbers):
    return [r for n in numbers for r in session.step(numbered(n), n * PERIOD)]


def session_of(oracle, **settings):
    return StreamingSession(oracle, SessionConfig(**settings))


@pytest.mark.parametrize("mode", ["interval", "motion", "manual"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_frame_is_withheld_and_leaves_no_trace(fault, mode):
    oracle, good = Erring(FAULTS[fault], {30, 31}), Oracle(POSES)
    session = session_of(oracle, keyframe_mode=mode)
    twin = session_of(good, keyframe_mode=mode)
    results = run(session, range(30))
    run(twin, range(30))
    kept, pending = session.status().kept, session.pending
    assert len(results) == 30 and session.state is SessionState.TRACKING
    assert run(session, [30, 31]) == []
    assert session.state is SessionState.LOST
    status = session.status()
    assert (status.kept, session.pending) == (kept, pending)
    assert (oracle.num_frames, oracle.num_pending) == (good.num_frames, good.num_pending)
    assert status.withheld == status.lost_frames == 2 and status.last_reason
    mine, other = run(session, range(32, 45)), run(twin, range(32, 45))
    assert session.state is SessionState.TRACKING and session.status().lost_frames == 0
    np.testing.assert_array_equal([r.pose_map for r in mine], [r.pose_map for r in other])
    assert [r.keyframe for r in mine] == [r.keyframe for r in other]
    raised = [r.covariance_scale for r in mine]
    assert raised[0] == 100.0 and raised == sorted(raised, reverse=True) and raised[-1] == 1.0
    assert {r.segment for r in mine} == {0}


def test_a_real_network_is_rolled_back_bit_for_bit_on_a_keyframe():
    """The window was full: the keyframe had evicted a page when it was found to be false."""
    session, twin = tiny_session(), tiny_session()
    feed(session, range(9))
    feed(twin, range(9))
    head = session._model.camera_head.pose_branch.fc2
    healthy = head.bias.detach().clone()
    head.bias.data[:] = float("nan")
    assert feed(session, [9, 10]) == []
    head.bias.data[:] = healthy
    after, expected = feed(session, range(11, 16)), feed(twin, range(11, 16))
    assert [f[1:9] for f in fingerprints(after)] == [f[1:9] for f in fingerprints(expected)]
    assert [r.index for r in after] == [11, 12, 13, 14, 15]


def test_a_camera_that_starts_moving_or_hurries_is_believed():
    still = np.repeat(POSES[:1], 80, axis=0)
    oracle = Oracle(np.concatenate((still, loop(40, step=0.3))), jitter=1e-5)
    session = session_of(oracle)
    assert len(run(session, range(120))) == 120
    assert session.status().withheld == 0


def test_somebody_in_front_of_the_camera_is_believed():
    oracle = Erring(shifted(depth=0.3), set(range(40, 60)))
    session = session_of(oracle)
    assert len(run(session, range(80))) == 80


def test_a_gap_in_the_stamps_widens_the_bounds():
    far = Oracle(np.concatenate((POSES[:40], POSES[200:240])))
    session = session_of(far)
    run(session, range(40))
    later = 40 * PERIOD + 30_000_000_000  # the camera was away for 30 s
    results = [r for n in range(40, 60) for r in session.step(numbered(n), later + n * PERIOD)]
    assert len(results) == 20 and session.status().withheld == 0


def test_the_random_network_is_not_withheld():
    session = tiny_session()
    assert len(feed(session, range(150))) == 150
    assert session.status().withheld == 0 and session.status().window > 8


def test_a_collapsed_window_is_left_and_the_map_goes_on():
    """The caches are poisoned: only a window from the last good keyframes sees clearly again."""
    oracle = Erring(shifted(metres=500.0), set(range(30, 300)))
    session = session_of(oracle, lost_after=5)
    run(session, range(30))
    before = session.status().window
    windows = oracle.window
    oracle._err = lambda number, window, T, depth, confidence: (
        shifted(metres=500.0)(T, depth, confidence)
        if number >= 30 and window == windows
        else (T, depth, confidence)
    )
    assert run(session, range(30, 35)) == []
    results = run(session, range(35, 60))
    assert len(results) == 25
    assert results[0].segment == 0 and results[0].window == before + 1
    assert results[0].covariance_scale == 100.0 and results[-1].covariance_scale == 1.0
    expected = np.linalg.inv(POSES[0]) @ POSES[35:60]
    unit = np.linalg.norm(results[-1].pose_map[:3, 3]) / np.linalg.norm(expected[-1][:3, 3])
    expected[:, :3, 3] *= unit
    np.testing.assert_allclose([r.pose_map for r in results], expected, atol=1e-3)


def test_lost_after_may_change_while_streaming():
    session = session_of(Erring(shifted(metres=500.0), set(range(20, 300))), lost_after=100)
    run(session, range(25))
    assert session.status().lost_frames == 5 and session.status().segment == 0
    with pytest.raises(ConfigurationError):
        session.update_lost_after(0)
    session.update_lost_after(5)
    run(session, range(25, 30))
    assert session.status().segment == 1


def test_without_shared_views_a_new_segment_begins_where_the_odometry_stood(caplog):
    jump = make_pose(turn([0, 2.5, 0]), [900.0, 0, 0])
    elsewhere = np.concatenate((POSES[:40], POSES[40:] @ jump))
    session = session_of(Oracle(elsewhere), lost_after=4)
    last = run(session, range(40))[-1]
    assert run(session, range(40, 44)) == [] and session.state is SessionState.LOST
    assert session.status().segment == 0
    # The fifth is shown to a window of the last good keyframes, then begins a segment.
    assert run(session, range(44, 47)) == []
    assert session.status().segment == 1 and session.status().gathered == 3
    assert "new map segment" in session.status().last_reason
    assert any("segment 1" in message for message in caplog.messages)
    results = run(session, [47])
    assert [r.index for r in results] == [44, 45, 46, 47]
    assert {r.segment for r in results} == {1} and session.state is SessionState.TRACKING
    assert results[0].covariance_scale == 100.0
    np.testing.assert_allclose(results[0].pose_odom, last.pose_odom, atol=1e-9)
    np.testing.assert_allclose(results[0].pose_map, last.pose_map, atol=1e-9)
    assert len(run(session, range(48, 60))) == 12


def test_a_covered_camera_does_not_end_the_segment():
    session = session_of(Oracle(POSES), lost_after=3)
    run(session, range(30))
    black = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    for i in range(50):
        assert session.step(black, (30 + i) * PERIOD) == []
    assert session.status().segment == 0 and session.status().withheld == 50
    (result,) = session.step(numbered(30), 80 * PERIOD)
    assert result.segment == 0 and result.covariance_scale == 100.0


@pytest.mark.parametrize("level", [0, 255])
def test_a_blank_image_is_withheld_from_the_first_frame_on(level):
    session, twin = tiny_session(), tiny_session()
    needed = session.status().needed
    results = feed(session, range(needed))
    assert len(results) == needed
    blank = np.full_like(image(0), level)
    assert [session.step(blank, n * PERIOD) for n in (needed, needed + 1)] == [[], []]
    status = session.status()
    assert session.state is SessionState.LOST and status.withheld == 2
    assert status.last_reason == "the image is blank"
    after = range(needed + 2, needed + 12)
    results += feed(session, after)
    expected = feed(twin, [*range(needed), *after])
    assert [f[1:9] for f in fingerprints(results)] == [f[1:9] for f in fingerprints(expected)]


def test_where_all_images_have_low_contrast_a_blank_one_is_believed():
    session = tiny_session()
    needed = session.status().needed
    dim = [np.uint8(100) + image(n) // 32 for n in range(needed)]
    assert all(BLANK_CONTRAST < contrast(img) < SEEN_CONTRAST for img in dim)
    assert len([r for n, img in enumerate(dim) for r in session.step(img, n * PERIOD)]) == needed
    assert len(session.step(np.zeros_like(dim[0]), needed * PERIOD)) == 1
    assert session.status().withheld == 0


def test_only_the_bad_scale_frames_are_replaced(caplog):
    session = session_of(Erring(FAULTS["not a number"], {1, 2}))
    assert run(session, range(4)) == []
    assert session.state is SessionState.LOST
    status = session.status()
    assert status.withheld == 2 and status.gathered == 2 and "2 of the" in status.last_reason
    assert run(session, range(4, 5)) == []
    results = run(session, range(5, 6))
    assert [r.index for r in results] == [0, 3, 4, 5] and results[0].segment == 0
    assert session.state is SessionState.TRACKING and session.status().withheld == 2
    assert len([m for m in caplog.messages if "withheld" in m]) == 1
    assert len(run(session, range(6, 40))) == 34


@pytest.mark.parametrize("spoiler", range(4))
def test_a_scale_frame_that_spoils_the_others_does_not_stay(spoiler):
    """Itself it looks fine; whichever frame stands beside it comes out bad."""

    class Spoilt(Oracle):
        def step(self, images, mode="keyframe", *, depth=True):
            prediction = super().step(images, mode, depth=depth)
            numbers = self.calls[-1][0]
            if spoiler in numbers and len(numbers) > 1:
                bad = (numbers.index(spoiler) + 1) % len(numbers)
                prediction.pose_enc[bad] = float("nan")
            return prediction

    session = session_of(Spoilt(POSES))
    results = run(session, range(20))
    assert results and spoiler not in [r.index for r in results]
    assert session.state is SessionState.TRACKING and len(results) >= 20 - 2 * 4


def test_bad_scale_frames_of_a_new_segment_do_not_cost_the_good_ones():
    jump = make_pose(turn([0, 2.5, 0]), [900.0, 0, 0])
    elsewhere = np.concatenate((POSES[:40], POSES[40:] @ jump))
    oracle = Oracle(elsewhere)
    session = session_of(oracle, lost_after=4)
    run(session, range(40))
    run(session, range(40, 45))
    assert session.status().segment == 1 and session.status().gathered == 1
    segment = oracle.window + 1

    def err(number, window, T, depth, confidence):
        bad = window >= segment and number in (45, 46, 49)
        return (T * np.nan if bad else T), depth, confidence

    oracle._err = err
    results = run(session, range(45, 60))
    # The good ones of the first batch get a second trial together, and the oldest no third.
    assert [r.index for r in results] == [47, 48, *range(50, 60)]
    assert {r.segment for r in results} == {1}


def test_the_policy_ends_the_wait_of_a_lost_stream(caplog):
    """Nobody decides: the stream re-anchors nevertheless, and says whose decision it was."""
    for policy, kept in (("commit_oldest", True), ("rollback_newest", False)):
        caplog.clear()
        oracle = Oracle(POSES)
        session = session_of(
            oracle, lost_after=3, keyframe_mode="manual", pending_limit=6, pending_policy=policy
        )
        run(session, range(28))
        session.commit()
        run(session, range(28, 30))
        session.drain_decisions()
        applied = session.status().policy_applied
        window = oracle.window

        def poisoned(number, w, T, depth, confidence, window=window):
            if number >= 30 and w == window:
                return shifted(metres=900.0)(T, depth, confidence)
            return T, depth, confidence

        oracle._err = poisoned
        # Two wait, and each withheld frame takes the place of one that could have waited.
        assert run(session, range(30, 34)) == [] and session.pending == 2
        assert "waits for the decision" in session.status().last_reason
        assert run(session, range(34, 35)) == [] and session.pending == 0
        status = session.status()
        assert status.policy_applied == applied + 1
        assert f"pending_policy '{policy}' has decided about" in status.last_reason
        assert sorted(session.drain_decisions(), key=lambda d: d.index) == [
            Decision(28, kept),
            Decision(29, kept),
        ]
        (result,) = run(session, [35])
        assert oracle.window > window and result.segment == 0 and result.pending
        assert sum("pending_policy" in message for message in caplog.messages) <= 1


def test_re_anchoring_waits_for_the_decision_of_pending_frames():
    session = session_of(
        Erring(shifted(metres=900.0), set(range(30, 300)), healed_from=0),
        lost_after=3,
        keyframe_mode="manual",
        pending_limit=7,
    )
    oracle = session._model
    run(session, range(28))
    session.commit()
    run(session, range(28, 30))
    window = oracle.window
    oracle._err = lambda number, w, T, depth, confidence: (
        shifted(metres=900.0)(T, depth, confidence)
        if number >= 30 and w == window
        else (T, depth, confidence)
    )
    session.drain_decisions()
    assert run(session, range(30, 35)) == []
    assert session.pending == 2 and oracle.window == window
    assert session.rollback() == 29 and session.commit() == [28]
    assert session.drain_decisions() == [Decision(29, False), Decision(28, True)]
    (result,) = run(session, [35])
    assert oracle.window == window + 1 and result.segment == 0 and result.pending


@pytest.mark.parametrize("stamps", [[0] * 40, range(40, 0, -1), [10**18, *range(39)]])
def test_stamps_that_stand_or_run_backwards_do_not_stop_the_stream(stamps):
    session = session_of(Oracle(POSES))
    results = [r for n, stamp in enumerate(stamps) for r in session.step(numbered(n), stamp)]
    assert len(results) == 40 and session.status().withheld == 0


def test_a_frozen_image_is_a_camera_that_stands_still():
    session = tiny_session()
    feed(session, range(20))
    results = feed(session, [20] * 60)
    assert len(results) == 60 and session.status().segment == 0


def test_out_of_memory_on_the_device_leaves_the_session_as_it_was(monkeypatch):
    session, twin = tiny_session(), tiny_session()
    feed(session, range(10))
    feed(twin, range(10))

    def full(*_args, **_kwargs):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory (planned)")

    with monkeypatch.context() as patch, pytest.raises(torch.cuda.OutOfMemoryError):
        patch.setattr(session._model.depth_head, "forward", full)
        feed(session, [10])
    assert fingerprints(feed(session, range(10, 30))) == fingerprints(feed(twin, range(10, 30)))
