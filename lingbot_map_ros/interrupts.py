# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C while a program still imports what it needs."""

import contextlib
import signal
from collections.abc import Iterator


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
