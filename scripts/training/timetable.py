# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""How far a training is: by the clock of this call, and by what earlier calls have spent."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Seconds that the tasks at the end of a call are taken to need until they have been measured.
_GUESSES = {"export": 8.0, "save": 6.0, "evaluate": 10.0}
_MARGIN = 8.0


class Timetable:
    """Times of one call.

    Parameters
    ----------
    start
        When the call began, by ``clock``.
    limit
        Seconds from ``start`` within which everything is over: set-up, training, and the tasks at
        the end.
    spent
        Seconds of training in earlier calls.
    """

    def __init__(
        self,
        start: float,
        limit: float,
        spent: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._start, self._limit, self._clock = start, limit, clock
        self._before = spent
        self._begin = clock()
        self._durations = dict(_GUESSES)

    def begin(self) -> None:
        """Training begins now, after the set-up."""
        self._begin = self._clock()

    @contextmanager
    def task(self, name: str) -> Iterator[None]:
        """Measure a task that will come again at the end of the call."""
        before = self._clock()
        yield
        self._durations[name] = self._clock() - before

    def spent(self) -> float:
        """Seconds of training up to now, over all calls."""
        return self._before + self._clock() - self._begin

    def has_time_for(self, name: str) -> bool:
        """Whether a task fits before the limit."""
        return self._clock() + self._durations[name] <= self._start + self._limit

    def over(self) -> bool:
        """Whether what is left of the call is needed for the tasks at its end."""
        return self._clock() >= self._end()

    def progress(self, total: float | None) -> float:
        """Share of the schedule that is behind, in [0, 1].

        The schedule lasts ``total`` seconds of training over all calls; with None it ends with
        this call.
        """
        if total is None:
            total = self._before + self._end() - self._begin
        return min(self.spent() / total, 1.0) if total > 0 else 1.0

    def _end(self) -> float:
        """When training has to end for the tasks to be done within the limit."""
        return self._start + self._limit - sum(self._durations.values()) - _MARGIN
