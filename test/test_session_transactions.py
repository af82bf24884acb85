# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A session is a transaction log: against a fresh one that only saw what stayed."""

from contextlib import contextmanager

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from streams import PERIOD, feed, fingerprints, image, tiny_model

from lingbot_map_ros.errors import RollbackError
from lingbot_map_ros.streaming import stepper, windows
from lingbot_map_ros.streaming.session import SessionConfig, StreamingSession


class PlannedError(Exception):
    """Thrown by the test."""


@contextmanager
def failing(model, place):
    """Let the next pass through a place of the model or of the session fail."""

    def fail(*_args, **_kwargs):
        raise PlannedError(place)

    kind, _, number = place.partition(":")
    if kind == "result":  # after the model has taken the frame
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stepper, "observe", fail)
            patch.setattr(windows, "observe", fail)
            yield
        return
    module = {
        "embed": model.aggregator.patch_embed,
        "frame": model.aggregator.frame_blocks[int(number or 0)],
        "global": model.aggregator.global_blocks[int(number or 0)],
        "camera": model.camera_head.trunk_norm,
        "depth": model.depth_head.scratch.output_conv2,
    }[kind]
    hook = module.register_forward_hook(fail)
    try:
        yield
    finally:
        hook.remove()


PLACES = [
    "embed",
    "camera",
    "depth",
    "result",
    *(f"{kind}:{i}" for kind in ("frame", "global") for i in range(4)),
]


def session_of(mode, interval=2, lost_after=10):
    # Small windows, so that short sequences cross several.
    return StreamingSession(
        tiny_model(room=4, image_size=56),
        SessionConfig(
            max_keyframes=7,
            overlap_keyframes=2,
            keyframe_mode=mode,
            keyframe_interval=interval,
            keyframe_motion_px=12.0,
            keyframe_max_gap=3,
            lost_after=lost_after,
        ),
    )


@pytest.mark.parametrize(
    ("mode", "place"),
    [("interval", place) for place in PLACES]
    + [(mode, place) for mode in ("motion", "manual") for place in ("global:2", "depth", "result")],
)
def test_a_failing_step_leaves_the_session_as_it_was(mode, place):
    """At every image number in turn: gathering, first batch, keyframe, skip, window switch."""
    session, twin = session_of(mode), session_of(mode)
    hits = 0
    for i in range(14):
        before = str(session.status())
        try:
            with failing(session._model, place):
                session.step(image(i + 3), i * PERIOD)
        except PlannedError:
            hits += 1
            assert str(session.status()) == before
        else:
            # Nothing ran that could fail: only an image gathered. Take it back.
            assert i < 2
            session.reset()
            feed(session, range(i))
        assert fingerprints(feed(session, [i])) == fingerprints(feed(twin, [i])), i
    assert hits == 12 and session.status().window >= 1


operations = st.lists(
    st.one_of(
        st.just(("step", None)),
        st.just(("step", None)),
        st.sampled_from(PLACES).map(lambda place: ("fail", place)),
        st.just(("commit", None)),
        st.just(("rollback", None)),
        st.booleans().map(lambda value: ("defer", value)),
        st.sampled_from([("reset", None), ("step", None), ("step", None)]),
    ),
    min_size=5,
    max_size=30,
)


def replay(log, mode):
    fresh = session_of(mode)
    for name, value in log:
        if name == "step":
            feed(fresh, [value])
        elif name == "defer":
            fresh.set_deferred(value)
        else:
            fresh.commit()
    return fresh


@settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(operations, st.sampled_from(["interval", "motion", "manual"]))
def test_any_history_equals_that_of_the_frames_that_stayed(sequence, mode):
    session = session_of(mode)
    log, waiting = [], []  # what a fresh session must be told; positions of pending frames in it
    for number, (name, value) in enumerate(sequence):
        if name == "step":
            pending = session.pending
            results = feed(session, [number])
            log.append(("step", number))
            if session.pending and results:
                waiting.append(len(log) - 1)
                waiting = waiting[-session.pending :]
            else:
                waiting = []
            assert session.pending in (pending, pending + 1, 0)
        elif name == "fail":
            with failing(session._model, value):
                try:
                    feed(session, [number + 7])
                except PlannedError:
                    continue
            log.append(("step", number + 7))  # an image that only gathered
        elif name == "commit":
            assert len(session.commit()) == len(waiting)
            log.append(("commit", None))
            waiting = []
        elif name == "rollback":
            if waiting:
                session.rollback()
                log.pop(waiting.pop())
            else:
                with pytest.raises(RollbackError):
                    session.rollback()
        elif name == "defer":
            session.set_deferred(value)
            log.append(("defer", value))
            waiting = waiting if value else []
        else:
            session.reset()
            log, waiting = [], []
        assert session.pending == len(waiting) == session._model.num_pending
    fresh = replay(log, mode)
    assert session.pending == fresh.pending
    probes = range(100, 106)
    assert fingerprints(feed(session, probes)) == fingerprints(feed(fresh, probes))
    assert session.status().kept == fresh.status().kept
