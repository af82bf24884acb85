# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A thread that carries calls out one after the other, behind whoever makes them."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from lingbot_map_ros.ros.mailbox import Command, MailboxClosedError

logger = logging.getLogger(__name__)

REPEAT_S = 10.0
"""Time before the same fault is logged again."""


class OrderedThread:
    """Runs calls in the order in which they were made; a caller waits while the queue is full.

    A call that fails changes nothing for those behind it: its error goes to its future (`ask`), or
    to `error` and the log (`do`).

    Parameters
    ----------
    name
        Of the thread.
    capacity
        Calls that may wait.
    """

    def __init__(self, name: str, capacity: int) -> None:
        self.error = ""
        """Why the newest call of `do` failed; empty if it did not."""
        self.failed = 0
        """Calls of `do` that failed."""
        self._name = name
        self._capacity = capacity
        self._changed = threading.Condition()
        self._queue: deque[Command] = deque()
        self._closed = False
        self._said = ("", float("-inf"))
        # a process that must end does not wait for it
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Calls that wait."""
        with self._changed:
            return len(self._queue)

    def do(self, call: Callable[..., object], *arguments: Any) -> None:
        """Queue a call whose outcome nobody waits for; MailboxClosedError after `close`."""
        future = self.ask(call, *arguments)
        future.add_done_callback(self._note)

    def ask(self, call: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Queue a call, and answer its future after it took effect.

        Raises MailboxClosedError after `close`.
        """
        command = Command(lambda: call(*arguments))
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._queue) < self._capacity)
            if self._closed:
                raise MailboxClosedError(f"{self._name} has ended")
            self._queue.append(command)
            self._changed.notify_all()
        return command.future

    def close(self, timeout: float) -> bool:
        """Drop what waits and end; False when a call is still running after ``timeout`` seconds."""
        with self._changed:
            self._closed = True
            dropped = list(self._queue)
            self._queue.clear()
            self._changed.notify_all()
        for command in dropped:
            command.future.set_exception(MailboxClosedError(f"{self._name} has ended"))
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or bool(self._queue))
                if self._closed:
                    return
                command = self._queue.popleft()
                self._changed.notify_all()
            command.run()

    def _note(self, future: Future[Any]) -> None:
        error = future.exception()
        if error is None:
            self.error = ""
        elif not isinstance(error, MailboxClosedError):
            self.failed += 1
            self.error = str(error) or type(error).__name__
            text, at = self._said
            if self.error != text or time.monotonic() - at >= REPEAT_S:
                self._said = self.error, time.monotonic()
                logger.error("%s failed: %s", self._name, self.error, exc_info=error)
