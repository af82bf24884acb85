# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Counters of the stream, shared by callbacks, worker and diagnostics."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque

WINDOW_S = 5.0
"""Time over which rates are taken."""


class Rate:
    """Events a second over the last `WINDOW_S` seconds. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._times: deque[float] = deque()
        self._start = self._last = time.monotonic()
        self.total = 0

    def tick(self) -> None:
        """Count an event now."""
        now = time.monotonic()
        with self._lock:
            self.total += 1
            self._last = now
            self._times.append(now)
            self._trim(now)

    def per_second(self) -> float:
        """Rate now; decays to 0 when events stop."""
        now = time.monotonic()
        with self._lock:
            self._trim(now)
            span = min(WINDOW_S, now - self._start)
            return len(self._times) / span if span > 0 else 0.0

    @property
    def age(self) -> float:
        """Seconds since the last event, or since the start before the first."""
        with self._lock:
            return time.monotonic() - self._last

    def _trim(self, now: float) -> None:
        while self._times and now - self._times[0] > WINDOW_S:
            self._times.popleft()


class Tally:
    """Counts by reason. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def add(self, reason: str, count: int = 1) -> None:
        """Count ``reason``."""
        with self._lock:
            self._counts[reason] += count

    def counts(self) -> dict[str, int]:
        """Return the counts so far, by reason."""
        with self._lock:
            return dict(self._counts)
