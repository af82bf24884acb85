# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The thread behind the map: order, a bounded queue, faults and the end."""

import threading

import pytest
from node_harness import wait_until

from lingbot_map_ros.ros.mailbox import Mailbox, MailboxClosedError
from lingbot_map_ros.ros.ordered_thread import OrderedThread


@pytest.fixture
def thread():
    thread = OrderedThread("the thread", capacity=3)
    yield thread
    thread.close(5)


def fail():
    raise ValueError("planned")


def test_calls_take_effect_in_order_and_are_answered_after_it(thread):
    done = []
    for number in range(50):
        thread.do(done.append, number)
    assert thread.ask(lambda: len(done)).result(5) == 50
    assert done == list(range(50))


def test_who_calls_waits_while_the_queue_is_full_and_nothing_is_lost(thread):
    gate, done = threading.Event(), []
    thread.do(gate.wait, 10)

    def call():
        for number in range(10):
            thread.do(done.append, number)

    caller = threading.Thread(target=call)
    caller.start()
    wait_until(lambda: thread.waiting == 3, 5)
    caller.join(0.2)
    assert caller.is_alive() and thread.waiting == 3 and not done
    gate.set()
    caller.join(5)
    assert not caller.is_alive()
    thread.ask(lambda: None).result(5)
    assert done == list(range(10))


def test_a_fault_is_said_counted_and_ends_nothing(thread, caplog):
    for _ in range(3):
        thread.do(fail)
    with pytest.raises(ValueError, match="planned"):
        thread.ask(fail).result(5)
    assert (thread.error, thread.failed) == ("planned", 3)
    assert len(caplog.records) == 1 and "the thread failed: planned" in caplog.text
    thread.do(int)
    assert thread.ask(lambda: "goes on").result(5) == "goes on"
    assert (thread.error, thread.failed) == ("", 3)


def test_the_end_drops_what_waits_wakes_who_waits_and_says_when_it_is_late(thread):
    gate, woken = threading.Event(), []
    thread.do(gate.wait, 10)
    wait_until(lambda: thread.waiting == 0, 5)
    late = [thread.ask(lambda: "never") for _ in range(3)]

    def call():
        try:
            thread.do(int)
        except MailboxClosedError as error:
            woken.append(str(error))

    caller = threading.Thread(target=call)
    caller.start()
    assert not thread.close(0.1)
    caller.join(5)
    assert woken == ["the thread has ended"]
    for future in late:
        with pytest.raises(MailboxClosedError):
            future.result(0)
    gate.set()
    assert thread.close(5)
    assert (thread.error, thread.failed) == ("", 0)


def test_a_command_whose_call_gives_a_future_is_answered_by_that_one(thread):
    mailbox, gate = Mailbox("all"), threading.Event()
    answers = [mailbox.submit(lambda: thread.ask(lambda: str(gate.wait(5))))]
    answers.append(mailbox.submit(lambda: thread.ask(fail)))
    for _ in answers:
        mailbox.get(0).run()
    assert not any(answer.done() for answer in answers)
    gate.set()
    assert answers[0].result(5) == "True"
    with pytest.raises(ValueError, match="planned"):
        answers[1].result(5)
