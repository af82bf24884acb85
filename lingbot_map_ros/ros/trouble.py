# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What is wrong for a while, and why: always up to date, and logged when it has changed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

REVIEW_S = 1.0
"""Time after which a cause is looked for again: that asks the ROS graph."""
REPEAT_S = 5.0
"""Time before a cause that has changed is logged."""


@dataclass(frozen=True)
class Cause:
    """Why something is wrong."""

    text: str
    kind: str = ""
    """What tells it from another cause where figures in the text go up and down; else empty."""

    @property
    def identity(self) -> str:
        """Equal for causes that need not be told apart in a log."""
        return self.kind or self.text


class Trouble:
    """Keeps the cause of one trouble up to date; tells when it begins and when it has changed."""

    def __init__(self) -> None:
        self.text = ""
        """The cause; empty while nothing is wrong."""
        self._said = ""
        self._began_at = self._found_at = self._said_at = float("-inf")

    @property
    def lasts(self) -> float:
        """Seconds since it began; 0 while nothing is wrong."""
        return time.monotonic() - self._began_at if self.text else 0.0

    def go_on(self, find: Callable[[], Cause]) -> str:
        """Take note that it is wrong now, as ``find`` explains; returns what to log, or nothing."""
        now = time.monotonic()
        if self.text and now - self._found_at < REVIEW_S:
            return ""
        begins, cause = not self.text, find()
        if begins:
            self._began_at = now
        self.text, self._found_at = cause.text, now
        changed = cause.identity != self._said and now - self._said_at >= REPEAT_S
        if not begins and not changed:
            return ""
        self._said, self._said_at = cause.identity, now
        return cause.text

    def end(self) -> bool:
        """Take note that it is not wrong now; returns whether it was before."""
        was, self.text = bool(self.text), ""
        return was
