# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""When a recorded message is due."""

import time


class Timeline:
    """Maps times of recording to the wall clock; the first message asked about is due at once."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._wall = time.monotonic()
        self._first: int | None = None

    def forgive_delay(self, stamp_ns: int) -> None:
        """Make a message that is late due now; what follows keeps its distance to it."""
        self._wall += max(0.0, -self.seconds_until(stamp_ns))

    def seconds_until(self, stamp_ns: int) -> float:
        """Seconds until a message is due; negative when late, 0 at unlimited speed."""
        if self._first is None:
            self._first, self._wall = stamp_ns, time.monotonic()
        if not self._rate:
            return 0.0
        return self._wall + (stamp_ns - self._first) * 1e-9 / self._rate - time.monotonic()

    def now(self, latest_ns: int) -> int:
        """Return the time of recording that it is now, at most ``latest_ns``."""
        first = latest_ns if self._first is None else self._first
        return min(latest_ns, first + int((time.monotonic() - self._wall) * self._rate * 1e9))
