# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Which frames stay, in each mode, and that all modes use the model's one mechanism."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracle import Oracle, loop, numbered
from streams import PERIOD, feed, tiny_session

from lingbot_map_ros.errors import ConfigurationError
from lingbot_map_ros.streaming.keyframes import Intent, KeyframeRule
from lingbot_map_ros.streaming.session import SessionConfig, StreamingSession


def run(session, numbers):
    return [r for n in numbers for r in session.step(numbered(n), n * PERIOD)]


@given(st.integers(1, 9), st.integers(1, 40))
def test_a_fixed_interval_counts_from_the_scale_frames(interval, frames):
    rule, skipped, kept = KeyframeRule(interval=interval), 0, []
    for i in range(frames):
        keep = rule.intent(first=i == 0, skipped=skipped) is Intent.KEEP
        skipped = 0 if keep else skipped + 1
        kept.append(keep)
    assert kept == [i % interval == 0 for i in range(frames)]


@pytest.mark.parametrize(
    "wrong",
    [
        {"mode": "auto"},
        {"interval": 0},
        {"max_gap": 0},
        {"motion_px": 0.0},
        {"motion_px": float("inf")},
    ],
)
def test_rules_out_of_range_are_refused(wrong):
    with pytest.raises(ConfigurationError):
        KeyframeRule(**wrong)


def test_the_interval_holds_across_windows():
    session = tiny_session(keyframe_interval=3)
    results = feed(session, range(60))
    kept = [r.index for r in results if r.keyframe]
    assert results[-1].window >= 2
    assert kept == [0, 1, 2, *range(3, 60, 3)]


def test_interval_keyframes_are_kept_or_skipped_and_never_pending():
    oracle = Oracle(loop(30))
    run(StreamingSession(oracle, SessionConfig(keyframe_interval=2)), range(30))
    modes = [mode for numbers, mode, _ in oracle.calls if len(numbers) == 1]
    assert set(modes) == {"keyframe", "skip"}
    assert modes[:4] == ["keyframe", "skip", "keyframe", "skip"]


def test_motion_keeps_what_moved_and_what_waited_long():
    walk = loop(100, step=0.03)
    stand = np.repeat(walk[29:30], 30, axis=0)
    oracle = Oracle(np.concatenate((walk[:30], stand, walk[30:60])))
    session = StreamingSession(
        oracle,
        SessionConfig(keyframe_mode="motion", keyframe_motion_px=2.5, keyframe_max_gap=12),
    )
    results = run(session, range(90))
    kept = np.array([r.keyframe for r in results])
    assert not any(r.pending for r in results) and session.drain_decisions() == []
    assert kept[4] and 4 < kept[5:30].sum() < 20
    standing = np.flatnonzero(kept[32:60])
    assert len(standing) == 2 and np.diff(standing)[0] == 12
    assert kept[62:].sum() > 4
    assert oracle.num_pending == 0
    assert session.status().kept == oracle.num_frames


def test_a_motion_threshold_may_change_while_streaming():
    oracle = Oracle(loop(60))
    session = StreamingSession(oracle, SessionConfig(keyframe_mode="motion", keyframe_max_gap=50))
    run(session, range(20))
    session.update_keyframes(motion_px=0.01)
    assert all(r.keyframe for r in run(session, range(20, 30)))
    session.update_keyframes(motion_px=1e6)
    assert not any(r.keyframe for r in run(session, range(30, 40)))
    session.update_keyframes(mode="interval", interval=1)
    assert all(r.keyframe for r in run(session, range(40, 45)))


def test_interval_and_deferred_keyframes_see_different_windows_once_the_window_is_full():
    """An interval keyframe sees W window frames, a deferred one W + 1 (contract 4.2)."""
    plain, deferred = tiny_session(), tiny_session(keyframe_mode="manual")
    same = []
    for i in range(10):
        a = feed(plain, [i])
        b = feed(deferred, [i])
        deferred.commit()
        same.append([x.depth.tobytes() for x in a] == [x.depth.tobytes() for x in b])
    # 3 scale frames and a window of 4: frame 7 is the first that evicts.
    assert same == [True] * 7 + [False] * 3
