# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A session under faults: at any place of any call, among any history, and what is left of them."""

import gc
from contextlib import ExitStack, contextmanager, suppress

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from injection import PlannedError, failing_function, failing_operation
from streams import (
    PERIOD,
    feed,
    fingerprints,
    image,
    inside,
    session_of,
    tiny_model,
    tiny_session,
)

from lingbot_map_ros.errors import LingbotMapError
from lingbot_map_ros.streaming import stepper
from lingbot_map_ros.streaming.camera_model import CameraModel
from lingbot_map_ros.streaming.handout import WithheldError
from lingbot_map_ros.streaming.results import SessionState

PLANNED = (PlannedError, torch.OutOfMemoryError)
KINDS = {"function": failing_function, "operation": failing_operation}
STRIDES = {"function": 89, "operation": 211}
CAMERAS = (
    None,
    CameraModel(112, 70, np.array([[100.0, 0, 56], [0, 100.0, 35], [0, 0, 1]])),
    CameraModel(
        112,
        70,
        np.array([[90.0, 0, 50], [0, 92.0, 38], [0, 0, 1]]),
        (-0.2, 0.03, 0, 0),
        "plumb_bob",
    ),
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", ["interval", "motion", "manual"])
def test_a_fault_at_any_place_of_a_step_leaves_no_trace(mode, kind):
    """Every so many places of a step; the places move on from image to image."""
    session, twin = session_of(mode), session_of(mode)
    feed(session, range(3))
    feed(twin, range(3))
    hits = 0
    for i in range(3, 14):
        with KINDS[kind]() as counted:
            expected = fingerprints(feed(twin, [i]))
        for at in range(1 + 7 * i % 89, counted.passed, STRIDES[kind]):
            before = inside(session)
            try:
                with KINDS[kind](at=at) as places:
                    results = feed(session, [i])
                break  # what earlier tries have left to reuse has shortened the way
            except PLANNED:
                hits += 1
                # A window that was being opened is opened once more.
                assert inside(session) == before or session._state.stale, places.where
        else:
            results = feed(session, [i])
        assert fingerprints(results) == expected
    assert hits > 30 and session.status().window >= 1


CALLS = {
    "commit": lambda session: session.commit(),
    "rollback": lambda session: session.rollback(),
    "leave manual mode": lambda session: session.set_deferred(False),
    "change the mode": lambda session: session.update_keyframes(mode="motion"),
    "reset": lambda session: session.reset(),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_fault_at_any_place_of_a_decision_leaves_no_trace(call):
    session, twin = session_of("manual"), session_of("manual")
    for each in (session, twin):
        feed(each, range(6))
    with failing_function() as counted:
        CALLS[call](twin)
    for at in range(1, counted.passed + 1):
        before = inside(session)
        with pytest.raises(PlannedError), failing_function(at=at) as places:
            CALLS[call](session)
        if call != "reset":  # half a reset is repeated
            assert inside(session) == before, places.where
    CALLS[call](session)
    assert session.pending == twin.pending
    assert session.drain_decisions() == twin.drain_decisions()
    assert fingerprints(feed(session, range(6, 12))) == fingerprints(feed(twin, range(6, 12)))


@contextmanager
def output(session, bend):
    """The camera head says something else."""
    hook = session._model.camera_head.register_forward_hook(lambda module, args, out: bend(out))
    try:
        yield
    finally:
        hook.remove()


def nonsense(out):
    """Poses that are none."""
    return out * float("nan")


frames = st.tuples(
    st.sampled_from(["step"] * 6 + ["nonsense", "black", "frozen"]),
    # Where the step fails before it is repeated; the places are counted in thousandths.
    st.lists(st.tuples(st.sampled_from(sorted(KINDS)), st.integers(0, 999)), max_size=2),
)
commands = st.one_of(
    st.just(("commit", None)),
    st.just(("rollback", None)),
    st.tuples(st.just("defer"), st.booleans()),
    st.tuples(st.just("mode"), st.sampled_from(["interval", "motion", "manual"])),
    st.tuples(st.just("interval"), st.integers(1, 3)),
    st.tuples(st.just("gap"), st.integers(1, 4)),
    st.tuples(st.just("camera"), st.integers(0, len(CAMERAS) - 1)),
    st.just(("reset", None)),
)

STEPS = ("step", "nonsense", "black", "frozen")


def take(session, name, value, number, fault=None):
    """Carry an operation out, with a fault if given; what came of it."""
    with ExitStack() as stack:
        if name == "nonsense":
            stack.enter_context(output(session, nonsense))
        if fault is not None:
            kind, at = fault
            stack.enter_context(KINDS[kind](at=at))
        if name in ("step", "nonsense"):
            return fingerprints(feed(session, [number]))
        if name == "frozen":
            return fingerprints(session.step(image(0), number * PERIOD))
        if name == "black":
            return fingerprints(session.step(np.zeros((70, 112, 3), np.uint8), number * PERIOD))
        if name == "commit":
            return session.commit()
        if name == "rollback":
            return session.rollback() if session.pending else None
        if name == "defer":
            return session.set_deferred(value)
        if name == "mode":
            return session.update_keyframes(mode=value)
        if name == "interval":
            return session.update_keyframes(interval=value)
        if name == "gap":
            return session.update_keyframes(max_gap=value)
        if name == "camera":
            session.camera = CAMERAS[value]
            return None
        return session.reset()


def check(session, waiting):
    """What holds after every operation."""
    state, model = session._state, session._model
    assert session.pending == len(state.pending) <= session._limits.pending
    if state.open and not state.stale:
        assert model.num_frames == state.kept + session.pending <= session._limits.max_keyframes
        assert model.num_pending == session.pending
    assert [entry.observation.frame.index for entry in state.pending] == waiting


@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(
    st.lists(st.one_of(frames, frames, frames, commands), min_size=10, max_size=40),
    st.sampled_from(["interval", "motion", "manual"]),
    st.sampled_from(["commit_oldest", "rollback_newest"]),
)
def test_faults_anywhere_in_any_history_change_nothing(sequence, mode, policy):
    """Against a twin that lives through the same without the faults."""
    session, twin = session_of(mode, policy), session_of(mode, policy)
    waiting = []  # indices of pending frames, by what the results and decisions say
    for number, (name, value) in enumerate([("step", [])] * 3 + sequence):
        with failing_function() as counted:
            expected = take(twin, name, value, number)
        for kind, at in value if name in STEPS else ():
            with suppress(PlannedError, torch.OutOfMemoryError):
                outcome = take(
                    session, name, value, number, (kind, 1 + at * counted.passed // 1000)
                )
                break  # the place was not reached
        else:
            outcome = take(session, name, value, number)
        assert outcome == expected, (number, name)
        decisions = session.drain_decisions()
        assert decisions == twin.drain_decisions()
        if name in STEPS:
            waiting += [session.status().frames - 1] * bool(outcome and outcome[-1][8])
        waiting = [] if name == "reset" else waiting
        for decision in decisions:
            waiting.remove(decision.index)
        check(session, waiting)
        assert str(session.status()) == str(twin.status())


def live_tensors():
    gc.collect()
    return sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())


def test_many_faults_leave_nothing_behind():
    session = session_of("motion")
    feed(session, range(8))
    counts = []
    for _ in range(2):
        for at in range(10, 900, 40):
            with suppress(torch.OutOfMemoryError), failing_operation(at):
                feed(session, [8])
        counts.append(live_tensors())
    assert counts[0] == counts[1]
    session.reset()
    fresh = session_of("motion")
    assert fingerprints(feed(session, range(12))) == fingerprints(feed(fresh, range(12)))


IMAGES = {
    "black": np.zeros((70, 112, 3), np.uint8),
    "white": np.full((70, 112, 3), 255, np.uint8),
    "noise": np.random.default_rng(0).integers(0, 256, (70, 112, 3), np.uint8),
    "frozen": image(7),
    "half black": np.where(np.arange(112)[:, None] < 56, 0, image(7)).astype(np.uint8),
}


@pytest.mark.parametrize(
    ("bad", "mode"), list(zip(IMAGES, ["interval", "motion", "manual", "motion", "interval"]))
)
def test_whatever_the_camera_shows_the_stream_goes_on(bad, mode):
    """Also when the stream begins with it."""
    session, fresh = session_of(mode), session_of(mode)
    first = [session.step(IMAGES[bad], i * PERIOD) for i in range(5)]
    blank = bad in ("black", "white")
    assert [len(results) for results in first] == ([0] * 5 if blank else [0, 0, 3, 1, 1])
    feed(session, range(5, 30))
    for i in range(30, 50):
        for result in session.step(IMAGES[bad], i * PERIOD):
            assert np.isfinite(result.pose_map).all() and np.isfinite(result.depth).all()
    results = feed(session, range(50, 60))
    assert results and session.state is SessionState.TRACKING
    session.reset()
    assert fingerprints(feed(session, range(12))) == fingerprints(feed(fresh, range(12)))


def test_a_stream_starts_from_the_first_images_that_show_something():
    """Black frames while the exposure settles leave no trace, among the scale frames neither."""
    session, fresh = session_of("interval"), session_of("interval")
    for i in range(4):
        assert not session.step(IMAGES["black"], i * PERIOD)
    assert session.state is SessionState.LOST and "blank" in session.status().last_reason
    feed(session, [4])
    assert not session.step(IMAGES["white"], 5 * PERIOD)
    poses = [r.pose_map for r in feed(session, range(6, 12))]
    expected = [r.pose_map for r in feed(fresh, [4, *range(6, 12)])]
    assert len(poses) == 7 and np.array_equal(poses, expected)
    assert session.state is SessionState.TRACKING and session.status().segment == 0


def test_a_new_segment_starts_from_no_blank_image_either(monkeypatch):
    """In a dark room a blank image is believed, until a segment is to start from it."""
    session = session_of("interval")
    for i in range(6):
        session.step(image(i) // 32, i * PERIOD)
    assert session.state is SessionState.TRACKING

    def refuse(state, observation, *, anchoring):
        raise WithheldError("the lens is covered")

    with monkeypatch.context() as patched:
        patched.setattr(stepper, "judge", refuse)
        for i in range(6, 14):
            assert not session.step(IMAGES["black"], i * PERIOD)
    status = session.status()
    assert status.segment == 1 and status.gathered == 0 and "blank" in status.last_reason
    assert feed(session, range(14, 20)) and session.state is SessionState.TRACKING


def test_rollback_newest_does_not_lock_a_short_window():
    """With no room for late decisions the last place of the window must still be given."""
    session = tiny_session(
        model=tiny_model(4, image_size=56),
        max_keyframes=7,
        overlap_keyframes=2,
        keyframe_mode="manual",
        pending_policy="rollback_newest",
    )
    for i in range(30):
        feed(session, [i])
        session.commit()
        assert session._model.num_frames <= 7
    assert session.status().window >= 4 and session.status().policy_applied == 0


@pytest.mark.parametrize("policy", ["commit_oldest", "rollback_newest"])
@pytest.mark.parametrize("room", [2, 6])
@pytest.mark.parametrize("decide_every", [1, 3, 1000])
def test_no_window_is_ever_overfilled_or_locked(policy, room, decide_every):
    session = tiny_session(
        model=tiny_model(room, image_size=56),
        max_keyframes=8,
        overlap_keyframes=3,
        keyframe_mode="manual",
        pending_policy=policy,
    )
    kept = 0
    for i in range(32):
        assert feed(session, [i]) or i < 2
        assert session._model.num_frames <= 8
        if i % decide_every == 0:
            kept += len(session.commit())
        kept += sum(decision.kept for decision in session.drain_decisions())
    if policy == "commit_oldest" or decide_every < 1000:
        assert session.status().window >= 2 and kept >= 10


def test_a_calibration_holds_for_the_frames_that_were_prepared_with_it():
    session = tiny_session()
    feed(session, [0, 1])
    session.camera = CAMERAS[1]
    before, between, after = feed(session, [2])
    assert after.intrinsics[0, 0] == 100.0
    assert before.intrinsics[0, 0] != 100.0 and between.intrinsics[0, 0] != 100.0


def test_a_calibration_of_another_size_is_refused_frame_by_frame():
    session, twin = tiny_session(), tiny_session()
    feed(session, range(5))
    feed(twin, range(5))
    session.camera = CameraModel(113, 70, CAMERAS[1].K)
    for _ in range(3):
        with pytest.raises(LingbotMapError):
            feed(session, [5])
    session.camera = None
    assert fingerprints(feed(session, range(5, 9))) == fingerprints(feed(twin, range(5, 9)))


def test_a_lost_stream_says_that_it_waits_for_decisions():
    session = session_of("manual", room=8)
    feed(session, range(5))
    with output(session, nonsense):
        feed(session, range(5, 7))
        assert "decision" not in session.status().last_reason
        feed(session, range(7, 10))
    assert session.state is SessionState.LOST and session.pending == 2
    assert "waits for the decision of the pending frames" in session.status().last_reason
    session.rollback()
    session.commit()
    assert feed(session, [10]) and session.state is SessionState.TRACKING
