# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The queue between callbacks and worker: order, bounds, counters, commands, threads."""

import threading
import time
from concurrent.futures import CancelledError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingbot_map_ros.errors import ConfigurationError
from lingbot_map_ros.ros.mailbox import Command, Mailbox, MailboxClosedError, RateLimiter


def test_latest_keeps_the_newest_frame():
    box = Mailbox("latest")
    assert all(box.put(frame, frame) for frame in range(5))
    assert box.waiting == 1
    assert box.get(0) == 4
    assert box.get(0) is None
    assert (box.received, box.dropped) == (5, {"overwritten": 4})


def test_all_keeps_order_and_is_bounded():
    box = Mailbox("all", capacity=3)
    assert [box.put(frame, frame) for frame in range(5)] == [True, True, True, False, False]
    assert [box.get(0) for _ in range(4)] == [0, 1, 2, None]
    assert box.dropped == {"queue_full": 2}


def test_commands_take_effect_between_the_frames_around_them():
    box = Mailbox("all")
    log = []
    box.put("a", 0)
    future = box.submit(lambda: log.append("command") or "done")
    box.put("b", 1)
    for _ in range(3):
        item = box.get(0)
        if isinstance(item, Command):
            assert not future.done()
            item.run()
        else:
            log.append(item)
    assert log == ["a", "command", "b"]
    assert future.result(0) == "done"


def test_an_overwritten_frame_leaves_commands_in_place():
    box = Mailbox("latest")
    box.put("old", 0)
    box.submit(lambda: None)
    box.put("new", 1)
    assert isinstance(box.get(0), Command)
    assert box.get(0) == "new"


def test_a_failing_command_answers_and_does_not_kill_the_worker():
    box = Mailbox()
    future = box.submit(lambda: 1 / 0)
    box.get(0).run()
    with pytest.raises(ZeroDivisionError):
        future.result(0)


def test_a_cancelled_command_does_not_run():
    box = Mailbox()
    future = box.submit(lambda: pytest.fail("ran"))
    assert future.cancel()
    box.get(0).run()
    with pytest.raises(CancelledError):
        future.result(0)


def test_commands_are_never_dropped_by_frames():
    box = Mailbox("all", capacity=1)
    futures = [box.submit(lambda n=n: n) for n in range(10)]
    box.put("frame", 0)
    assert not box.put("late", 1)
    while (item := box.get(0)) is not None:
        if isinstance(item, Command):
            item.run()
    assert [future.result(0) for future in futures] == list(range(10))


def test_close_fails_commands_wakes_the_worker_and_counts():
    box = Mailbox("all")
    box.put("a", 0)
    future, cancelled = box.submit(lambda: None), box.submit(lambda: None)
    cancelled.cancel()
    box.close()
    box.close()
    with pytest.raises(MailboxClosedError):
        future.result(0)
    with pytest.raises(MailboxClosedError):
        box.submit(lambda: None).result(0)
    with pytest.raises(MailboxClosedError):
        box.get(0)
    assert not box.put("b", 1)
    assert box.dropped == {"closed": 2}


def test_close_wakes_a_waiting_worker():
    box = Mailbox()
    ended = threading.Event()

    def work():
        with pytest.raises(MailboxClosedError):
            box.get()
        ended.set()

    worker = threading.Thread(target=work)
    worker.start()
    time.sleep(0.05)
    assert not ended.is_set()
    box.close()
    assert ended.wait(5)
    worker.join(5)


def test_clear_drops_frames_under_a_reason_and_keeps_commands():
    box = Mailbox("all")
    box.put("a", 0)
    box.put("b", 1)
    box.submit(lambda: None)
    assert box.clear("paused") == 2
    assert box.dropped == {"paused": 2}
    assert isinstance(box.get(0), Command)


def test_callbacks_of_a_future_may_use_the_mailbox():
    box = Mailbox()
    box.submit(lambda: None).add_done_callback(lambda _: box.put("late", 0))
    box.close()
    assert box.dropped == {"closed": 1}


@pytest.mark.parametrize("policy", ["latest", "all"])
def test_every_frame_is_delivered_or_counted(policy):
    box = Mailbox(policy, capacity=16)
    delivered, answered = [], []

    def produce(base):
        for n in range(500):
            box.put(base + n, n)
            if n % 50 == 0:
                answered.append(box.submit(lambda: True))

    def work():
        while True:
            try:
                item = box.get()
            except MailboxClosedError:
                return
            if isinstance(item, Command):
                item.run()
            else:
                delivered.append(item)

    threads = [threading.Thread(target=produce, args=(1000 * k,)) for k in range(4)]
    worker = threading.Thread(target=work)
    worker.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert box.submit(lambda: "drained").result(10) == "drained"
    box.close()
    worker.join(10)
    assert all(future.result(0) for future in answered) and len(answered) == 40
    assert box.received == 2000 == len(delivered) + sum(box.dropped.values())
    for k in range(4):
        mine = [item for item in delivered if item // 1000 == k]
        assert mine == sorted(set(mine)), "the frames of a producer stay in order"


def test_rate_limit_counts_what_it_drops():
    box = Mailbox("all", max_rate_hz=10.0)
    kept = [n for n in range(30) if box.put(n, n * 33_333_333)]
    assert len(kept) == 10
    assert box.dropped == {"rate_limited": 20}


@given(
    jitter=st.lists(st.integers(-8_000_000, 8_000_000), min_size=300, max_size=300),
    rate=st.sampled_from([4.0, 7.5, 10.0, 15.0, 29.0]),
)
def test_the_average_rate_is_kept_despite_jitter(jitter, rate):
    limiter = RateLimiter(rate)
    stamps = [n * 33_333_333 + j for n, j in enumerate(jitter)]
    kept = sum(limiter.admit(stamp) for stamp in stamps)
    assert kept == pytest.approx(10.0 * rate, rel=0.05, abs=2)


def test_the_limit_survives_gaps_and_clock_jumps():
    limiter = RateLimiter(10.0)
    second = 1_000_000_000
    assert limiter.admit(100 * second)
    assert not limiter.admit(100 * second + second // 20)
    assert limiter.admit(200 * second), "after a gap at once, without a burst"
    assert not limiter.admit(200 * second + second // 20)
    assert limiter.admit(5 * second), "a bag that loops starts afresh"
    assert not limiter.admit(5 * second + second // 20)
    assert limiter.admit(5 * second + second // 10)
    assert all(RateLimiter(0.0).admit(stamp) for stamp in (0, 0, 1))


@pytest.mark.parametrize("rate", [-1.0, float("nan"), float("inf")])
def test_impossible_rates(rate):
    with pytest.raises(ConfigurationError):
        RateLimiter(rate)


def test_impossible_mailboxes():
    with pytest.raises(ConfigurationError):
        Mailbox("oldest")
    with pytest.raises(ConfigurationError):
        Mailbox("all", capacity=0)
