# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The one thread that owns model, session and map: it loads them, then works the mailbox off."""

from __future__ import annotations

import enum
import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, Protocol, TypeVar

from lingbot_map_ros.errors import LingbotMapError
from lingbot_map_ros.ros.mailbox import Call, Command, Mailbox, MailboxClosedError

logger = logging.getLogger(__name__)

FrameT = TypeVar("FrameT", contravariant=True)


class NotReadyError(LingbotMapError):
    """A command that the worker cannot take in its present state."""


class WorkerState(enum.Enum):
    """Where the worker stands."""

    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"
    """It could not load, or a fault of its own has ended it."""
    STOPPED = "stopped"


class Processor(Protocol[FrameT]):
    """What the worker runs once it is loaded."""

    def process(self, frame: FrameT) -> None:
        """Process one frame; whatever it raises is reported through ``fail``."""

    def fail(self, error: Exception) -> None:
        """Take note that a frame failed; the stream is as before it."""

    def close(self) -> None:
        """Give everything back; nothing is called afterwards."""


class Worker(Generic[FrameT]):
    """Runs ``load`` and then its processor on a thread of its own.

    Parameters
    ----------
    mailbox
        Where frames and commands come from.
    load
        Makes the processor; may take minutes, cannot be interrupted.
    on_change
        Called on the worker's thread after loading (or failing to) and after every item.
    """

    def __init__(
        self,
        mailbox: Mailbox[FrameT],
        load: Callable[[], Processor[FrameT]],
        on_change: Callable[[], None],
    ) -> None:
        self._mailbox = mailbox
        self._load = load
        self._on_change = on_change
        self.state = WorkerState.LOADING
        self.error = ""
        """Why loading failed, or what ended the worker."""
        self._busy_since: float | None = None
        # a load cannot be interrupted: a process that must end does not wait for it
        self._thread = threading.Thread(target=self._run, name="lingbot_map_worker", daemon=True)
        self._thread.start()

    def submit(self, call: Call) -> Future[str]:
        """Queue a command behind the frames that are already there.

        Raises
        ------
        NotReadyError
            The model is still loading, failed to load, or was given back.
        """
        if self.state is WorkerState.LOADING:
            raise NotReadyError(
                "the model is still loading; try again when /diagnostics no longer says loading"
            )
        if self.state is WorkerState.FAILED:
            raise NotReadyError(f"the model is not loaded: {self.error}")
        return self._mailbox.submit(call)

    def stop(self, timeout: float) -> bool:
        """End the thread; False when it is still busy after ``timeout`` seconds."""
        self._mailbox.close()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def busy_for(self) -> float:
        """Seconds that the present frame or command has taken; 0 when idle or loading."""
        since = self._busy_since
        return time.monotonic() - since if since is not None else 0.0

    def stack(self) -> str:
        """Where the thread is now, as a traceback."""
        frame = sys._current_frames().get(self._thread.ident or 0)
        return "".join(traceback.format_stack(frame)) if frame else "the worker has ended"

    def _run(self) -> None:
        try:
            processor = self._load()
        except Exception as error:
            self._fail(error)
            return
        self.state = WorkerState.READY
        self._notify()
        try:
            self._work(processor)
        except MailboxClosedError:
            self.state = WorkerState.STOPPED
        except Exception as error:
            # Nobody must wait for a thread that has ended.
            logger.exception("the worker has ended")
            self._busy_since = None
            self._mailbox.close()
            self._fail(error)
        finally:
            processor.close()

    def _work(self, processor: Processor[FrameT]) -> None:
        while True:
            item = self._mailbox.get()
            if item is None:
                continue
            self._busy_since = time.monotonic()
            if isinstance(item, Command):
                item.run()
            else:
                try:
                    processor.process(item)
                except Exception as error:
                    processor.fail(error)
            self._busy_since = None
            self._notify()

    def _notify(self) -> None:
        try:
            self._on_change()
        except Exception:
            logger.exception("a report of the worker failed")

    def _fail(self, error: Exception) -> None:
        known = isinstance(error, LingbotMapError)
        self.error = str(error) if known else f"{type(error).__name__}: {error}"
        if not known:
            logger.debug("the worker failed", exc_info=error)
        self.state = WorkerState.FAILED
        self._notify()
