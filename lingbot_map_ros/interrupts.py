# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C while a program still imports what it needs, and in the midst of foreign code."""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def quiet_interrupts() -> Iterator[None]:
    """Let SIGINT end the process at once and without a traceback, as it ends one that is no Python.

    Nothing has begun that would have to be ended in order.
    """
    # A program in the background of a script has SIGINT ignored, and keeps it so.
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class InterruptNote:
    """Remembers that SIGINT has come, from when it is made.

    The signal raises KeyboardInterrupt as ever. But where that comes in the midst of compiled code,
    as when rclpy makes a message, this may raise something else in its place.
    """

    def __init__(self) -> None:
        self.came = False
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.came = True
        signal.default_int_handler(number, frame)
