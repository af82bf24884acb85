# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A worker whose own parts fail: it goes on, or everybody who waits for it is told."""

import threading

import pytest

from lingbot_map_ros.errors import LingbotMapError
from lingbot_map_ros.ros.mailbox import Mailbox
from lingbot_map_ros.ros.worker import NotReadyError, Worker, WorkerState


class Processor:
    """Fails on the frame 0, and cannot even take note of it."""

    def __init__(self):
        self.processed, self.closed = [], threading.Event()

    def process(self, frame):
        if frame == 0:
            raise ValueError("the frame")
        self.processed.append(frame)

    def fail(self, error):
        raise RuntimeError("the note")

    def close(self):
        self.closed.set()


def test_a_report_that_fails_does_not_end_the_worker():
    processor, mailbox = Processor(), Mailbox("all")

    def report():
        raise RuntimeError("the report")

    worker = Worker(mailbox, lambda: processor, report)
    mailbox.put(1, 1)
    while worker.state is WorkerState.LOADING:
        pass
    assert worker.submit(lambda: "done").result(5) == "done"
    assert worker.state is WorkerState.READY and processor.processed == [1]
    assert worker.stop(5)
    assert worker.state is WorkerState.STOPPED and processor.closed.is_set()


def test_a_worker_that_ends_answers_everybody_and_says_why():
    processor, mailbox, started = Processor(), Mailbox("all"), threading.Event()
    worker = Worker(mailbox, lambda: processor, lambda: None)
    while worker.state is WorkerState.LOADING:
        pass
    worker.submit(lambda: str(started.wait(5)))
    mailbox.put(0, 0)
    late = worker.submit(lambda: "never")
    started.set()
    with pytest.raises(LingbotMapError):
        late.result(5)
    assert processor.closed.wait(5)
    assert worker.state is WorkerState.FAILED and worker.error == "RuntimeError: the note"
    with pytest.raises(NotReadyError, match="the note"):
        worker.submit(lambda: "no")
    assert worker.busy_for == 0.0 and worker.stop(5)
