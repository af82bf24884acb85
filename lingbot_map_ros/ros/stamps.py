# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Which image stamps may follow each other."""

from __future__ import annotations

import enum
import time
from collections import deque

RESUME_FRAMES = 3
"""So many images in a row, in order among themselves but behind, tell a stray stamp before them."""
RESTART_FRAMES = 10
"""So many that go on from nothing that came before are a source that restarted."""
RESTART_NS = 1_000_000_000
"""Images less than this behind are late, not restarted."""
AHEAD_NS = 10_000_000_000
"""Images further ahead of the time than this are doubted."""
AHEAD_FRAMES = 3
"""So many of them in a row, in order among themselves, are a time that was set forward."""
STEADY_FRAMES = 10
"""After a time that was set forward so many others in a row make later ones doubtful again."""
STRAGGLER_S = 1.0
"""Time after a jump in which images from before it may still come in."""


class Verdict(enum.Enum):
    """What to do with an image; the value names the reason it is skipped for."""

    ACCEPT = "accepted"
    DUPLICATE = "duplicate_stamp"
    OLD = "old_stamp"
    AHEAD = "future_stamp"
    STRAGGLER = "before_time_jump"
    NEGATIVE = "negative_stamp"
    MISSING = "no_stamp"
    RESTART = "restart"


WHY = {
    Verdict.DUPLICATE: "the stamps repeat",
    Verdict.OLD: "the stamps lie behind that of an earlier image",
    Verdict.AHEAD: "the stamps lie far ahead of the time",
    Verdict.STRAGGLER: "the stamps are of before the time jumped",
    Verdict.NEGATIVE: "the stamps are negative",
    Verdict.MISSING: "the images carry no stamp (0): the camera's driver must stamp them",
}
"""What is wrong with images that are skipped."""


class LeapGuard:
    """Tells a stray stamp, far in the future, from a time that has gone on.

    One stray stamp that were believed would make every true one after it an old one. A stamp is
    doubted that lies ahead of a clock, less what the most punctual image so far was behind it.
    Where several in a row leapt, as in a recording of few images played fast, none is doubted until
    they go on without leaps; nor is the second image, for a first stamp is often no time yet.
    """

    def __init__(self) -> None:
        self._lag: int | None = None
        self._steady = STEADY_FRAMES - 1
        self._ahead: int | None = None
        self._ahead_count = 0
        self.ahead_ns = 0
        """How far ahead the last stamp lay."""

    def admits(self, stamp_ns: int, now_ns: int) -> bool:
        """Whether the stamp of an image that came at ``now_ns`` of any one clock may be true."""
        lag = now_ns - stamp_ns
        self.ahead_ns = 0 if self._lag is None else self._lag - lag
        if self.ahead_ns <= AHEAD_NS:
            self._steady += self._lag is not None
            self._ahead, self._ahead_count = None, 0
            self._lag = lag if self._lag is None else min(lag, self._lag)
            return True
        if stamp_ns != self._ahead:
            in_order = self._ahead is not None and stamp_ns > self._ahead
            self._ahead, self._ahead_count = stamp_ns, self._ahead_count + 1 if in_order else 1
        if self._steady >= STEADY_FRAMES and self._ahead_count < AHEAD_FRAMES:
            return False
        self._lag, self._steady = lag, 0
        return True


class _Row:
    """The newest stamps that were taken, and those in order that came behind them since."""

    def __init__(self) -> None:
        self.taken: deque[int] = deque(maxlen=RESUME_FRAMES)
        self.behind: deque[int] = deque(maxlen=RESTART_FRAMES)

    def judge_behind(self, stamp_ns: int) -> Verdict:
        """Judge a stamp that lies behind the last one taken."""
        taken, behind = self.taken, self.behind
        if behind and stamp_ns == behind[-1]:
            return Verdict.OLD
        if behind and stamp_ns < behind[-1]:
            behind.clear()
        behind.append(stamp_ns)
        if len(behind) < RESUME_FRAMES:
            return Verdict.OLD
        known = len(taken) == RESUME_FRAMES
        if known and behind[-RESUME_FRAMES] > taken[0]:
            taken.extend(list(behind)[-RESUME_FRAMES:])
            behind.clear()
            return Verdict.ACCEPT
        far = taken[-1] - stamp_ns >= RESTART_NS
        restarted = far and (not known or len(behind) == RESTART_FRAMES)
        return Verdict.RESTART if restarted else Verdict.OLD


class StampGuard:
    """Lets stamps through that go forward, and notices a source that started again.

    Images that come in order, but behind the last one, go on from before a stray stamp, or two, if
    they are later than what was taken before those; they are taken on. Otherwise the source
    restarted, which is believed as soon where so little was taken that nothing tells. Images that
    come twice count once.

    For one thread at a time, except for `forget`.

    Parameters
    ----------
    doubts
        Whether a stray stamp far in the future is skipped; see `LeapGuard`.
    """

    def __init__(self, *, doubts: bool = True) -> None:
        self._doubts = doubts
        self._row = _Row()
        self._leap = LeapGuard()
        self._barrier: int | None = None
        self._barrier_until = 0.0
        self.behind_ns = 0
        """How far the source went back that restarted last."""

    @property
    def ahead_ns(self) -> int:
        """How far ahead of the time the last stamp lay."""
        return self._leap.ahead_ns

    def forget(self, time_jumped: bool = False) -> None:
        """Accept any stamp next; after a jump in time, none that continues the time before it."""
        taken, self._row = self._row.taken, _Row()
        if time_jumped and taken:
            self._barrier, self._barrier_until = taken[-1], time.monotonic() + STRAGGLER_S
        self._leap = LeapGuard()

    def judge(self, stamp_ns: int, now_ns: int) -> Verdict:
        """Judge the stamp of an image that comes at ``now_ns``; an accepted one is the last.

        A clock that stands at 0, as one for which no ``/clock`` has come, doubts nothing.
        """
        if stamp_ns < 0:
            return Verdict.NEGATIVE
        # a simulation may begin at 0, and goes on from there
        if stamp_ns == 0 and self._row.taken:
            return Verdict.MISSING
        if self._barrier is not None:
            if time.monotonic() > self._barrier_until:
                self._barrier = None
            elif stamp_ns >= self._barrier:
                return Verdict.STRAGGLER
        if self._doubts and now_ns and not self._leap.admits(stamp_ns, now_ns):
            return Verdict.AHEAD
        # `forget` may put another one in its place meanwhile
        row = self._row
        if not row.taken or stamp_ns > row.taken[-1]:
            row.taken.append(stamp_ns)
            row.behind.clear()
            return Verdict.ACCEPT
        if stamp_ns == row.taken[-1]:
            return Verdict.DUPLICATE
        verdict = row.judge_behind(stamp_ns)
        if verdict is Verdict.RESTART:
            self.behind_ns = row.taken[-1] - row.behind[0]
        if verdict is Verdict.ACCEPT:
            self._leap = LeapGuard()  # it took the stray one for punctual
        return verdict
