# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Bounded, thread-safe mailbox between the callbacks and the worker that owns the model.

Frames and commands share one queue, so that a command takes effect exactly between the frames
that came before and after it. Callbacks only store; nothing here knows ROS.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from lingbot_map_ros.errors import ConfigurationError, LingbotMapError

FrameT = TypeVar("FrameT")
Policy = Literal["latest", "all"]
Call = Callable[[], "str | Future[str]"]
"""What a command does; its answer, or a future of it."""

OVERWRITTEN = "overwritten"
QUEUE_FULL = "queue_full"
RATE_LIMITED = "rate_limited"
CLOSED = "closed"


class MailboxClosedError(LingbotMapError):
    """The mailbox was closed: the worker ends, and no further command can take effect."""


@dataclass(frozen=True)
class Command:
    """A call for the worker; ``run`` carries it out and answers its future.

    A call may return a future: the answer is that one's, when it comes.
    """

    call: Callable[[], Any]
    future: Future[Any] = field(default_factory=Future)

    def run(self) -> None:
        """Carry the call out; its result or its exception goes to the future, never up."""
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            result = self.call()
        except Exception as error:
            self.future.set_exception(error)
        else:
            if isinstance(result, Future):
                result.add_done_callback(self._answer)
            else:
                self.future.set_result(result)

    def _answer(self, done: Future[Any]) -> None:
        if (error := done.exception()) is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(done.result())


class RateLimiter:
    """Thins a stream to at most ``max_rate_hz`` on average, by stamps; 0 lets all pass.

    Due times lie on a grid rather than one period after the last frame: a 30 Hz camera with
    jitter, limited to 10 Hz, gives 10 Hz and not 7.5.
    """

    def __init__(self, max_rate_hz: float) -> None:
        if not 0.0 <= max_rate_hz < float("inf"):
            raise ConfigurationError(f"max_rate_hz must be 0 or positive, not {max_rate_hz}")
        self._period_ns = round(1e9 / max_rate_hz) if max_rate_hz > 0 else 0
        self._last: int | None = None
        self._due = 0

    def admit(self, stamp_ns: int) -> bool:
        """Whether the frame of this stamp passes. A stamp that went backwards starts afresh."""
        if not self._period_ns:
            return True
        restart = self._last is None or stamp_ns < self._last
        if not restart and stamp_ns < self._due:
            return False
        self._last = stamp_ns
        late = restart or stamp_ns >= self._due + self._period_ns
        self._due = (stamp_ns if late else self._due) + self._period_ns
        return True


class Mailbox(Generic[FrameT]):
    """Queue of frames and commands with one consumer and any number of producers.

    Parameters
    ----------
    policy
        ``latest``: a new frame replaces the waiting one. ``all``: frames wait in order, up to
        ``capacity``; a frame that finds the mailbox full is dropped.
    capacity
        Frames that may wait under ``all``; under ``latest`` it is one. Commands are not counted.
    max_rate_hz
        Frames beyond this rate (by their stamps) are dropped; 0 for no limit.

    """

    def __init__(
        self, policy: Policy = "latest", capacity: int = 1000, max_rate_hz: float = 0.0
    ) -> None:
        if policy not in ("latest", "all"):
            raise ConfigurationError(f"drop_policy must be latest or all, not '{policy}'")
        if capacity < 1:
            raise ConfigurationError(f"the mailbox needs a capacity of at least 1, not {capacity}")
        self._policy = policy
        self._capacity = 1 if policy == "latest" else capacity
        self._limiter = RateLimiter(max_rate_hz)
        self._changed = threading.Condition()
        self._queue: deque[FrameT | Command] = deque()
        self._frames = 0
        self._closed = False
        self._received = 0
        self._dropped: Counter[str] = Counter()

    def put(self, frame: FrameT, stamp_ns: int) -> bool:
        """Store a frame; False when it was dropped. Never waits, never raises."""
        with self._changed:
            self._received += 1
            if self._closed:
                self._dropped[CLOSED] += 1
                return False
            if not self._limiter.admit(stamp_ns):
                self._dropped[RATE_LIMITED] += 1
                return False
            if self._policy == "latest":
                self._drop_frames(OVERWRITTEN)
            elif self._frames >= self._capacity:
                self._dropped[QUEUE_FULL] += 1
                return False
            self._queue.append(frame)
            self._frames += 1
            self._changed.notify_all()
            return True

    def submit(self, call: Callable[[], Any]) -> Future[Any]:
        """Queue a call for the worker; the future is answered after it took effect.

        After ``close`` the future fails at once with MailboxClosedError.
        """
        command = Command(call)
        with self._changed:
            if not self._closed:
                self._queue.append(command)
                self._changed.notify_all()
                return command.future
        command.future.set_exception(MailboxClosedError("the node is shutting down"))
        return command.future

    def get(self, timeout: float | None = None) -> FrameT | Command | None:
        """Take the oldest item; None when nothing came within ``timeout`` seconds.

        Raises MailboxClosedError once the mailbox is closed.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._closed or bool(self._queue), timeout)
            if self._closed:
                raise MailboxClosedError("the mailbox is closed")
            if not self._queue:
                return None
            item = self._queue.popleft()
            if not isinstance(item, Command):
                self._frames -= 1
            return item

    def clear(self, reason: str) -> int:
        """Drop the waiting frames, counted under ``reason``; commands stay. Returns how many."""
        with self._changed:
            return self._drop_frames(reason)

    def close(self) -> None:
        """Drop what waits, fail the waiting commands and wake everybody. May be repeated."""
        with self._changed:
            self._closed = True
            self._drop_frames(CLOSED)
            commands = [item for item in self._queue if isinstance(item, Command)]
            self._queue.clear()
            self._changed.notify_all()
        # Outside the lock: a future's callbacks may use the mailbox.
        for command in commands:
            if command.future.set_running_or_notify_cancel():
                command.future.set_exception(MailboxClosedError("the node is shutting down"))

    @property
    def received(self) -> int:
        """Frames offered so far, dropped ones included."""
        with self._changed:
            return self._received

    @property
    def waiting(self) -> int:
        """Frames that wait for the worker."""
        with self._changed:
            return self._frames

    @property
    def dropped(self) -> dict[str, int]:
        """Frames dropped so far, by reason."""
        with self._changed:
            return dict(self._dropped)

    def _drop_frames(self, reason: str) -> int:
        count = self._frames
        if count:
            self._queue = deque(item for item in self._queue if isinstance(item, Command))
            self._frames = 0
            self._dropped[reason] += count
        return count
