# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Parts of the node alone: stamps, odometry, placement, worker, latched topics."""

import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nav_msgs.msg import Odometry
from node_harness import wait_until

from lingbot_map_ros.errors import CheckpointError
from lingbot_map_ros.geometry.poses import make_pose, quaternion_to_matrix, rotation_angle
from lingbot_map_ros.ros.frames import BODY_FROM_OPTICAL, PoseError, base_pose
from lingbot_map_ros.ros.input import Input
from lingbot_map_ros.ros.mailbox import Mailbox, MailboxClosedError
from lingbot_map_ros.ros.metric import MetricScale
from lingbot_map_ros.ros.odom_buffer import KEEP, OdomBuffer, odom_complaints
from lingbot_map_ros.ros.parameters import Parameters
from lingbot_map_ros.ros.placement import Placement
from lingbot_map_ros.ros.rates import Rate, Tally
from lingbot_map_ros.ros.stamps import (
    AHEAD_FRAMES,
    RESTART_FRAMES,
    RESUME_FRAMES,
    STEADY_FRAMES,
    StampGuard,
    Verdict,
)
from lingbot_map_ros.ros.watchdog import explain_age
from lingbot_map_ros.ros.worker import NotReadyError, Worker, WorkerState
from lingbot_map_ros.streaming.results import FrameResult

SECOND = 1_000_000_000


def pose(x=0.0, y=0.0, z=0.0, q=(0.0, 0.0, 0.0, 1.0)):
    return make_pose(quaternion_to_matrix(np.array(q)), [x, y, z])


def judged(guard, *seconds, now=1):
    """Verdicts on stamps at these seconds, of images that all come at the second ``now``."""
    return [guard.judge(int(at * SECOND), now * SECOND) for at in seconds]


@given(st.lists(st.integers(0, 100)))
def test_accepted_stamps_rise_or_are_those_of_a_row_in_order(seconds):
    last, row = -1, []
    for at, verdict in zip(seconds, judged(StampGuard(), *seconds)):
        if verdict not in (Verdict.DUPLICATE, Verdict.AHEAD, Verdict.MISSING):
            row = [*row, at][-RESUME_FRAMES:]
        if verdict is Verdict.ACCEPT:
            in_order = len(row) == RESUME_FRAMES and row == sorted(set(row))
            assert at > last or in_order
            last = at


def test_a_clock_that_stands_at_zero_doubts_no_stamp_and_leaves_no_trace():
    """As one for which no /clock has come yet."""
    guard = StampGuard()
    verdicts = judged(guard, *range(1000, 1020), 1050, 1051, now=0)
    assert verdicts == [Verdict.ACCEPT] * 22
    for second in range(1052, 1065):
        assert judged(guard, second, now=second) == [Verdict.ACCEPT]
    assert judged(guard, 9000, now=1065) == [Verdict.AHEAD]


def test_stamps_are_named_by_what_is_wrong_with_them():
    verdicts = judged(StampGuard(), 5, 5, 4, -1, 0, 6, 7206, 7)
    assert [v.value for v in verdicts] == [
        "accepted",
        "duplicate_stamp",
        "old_stamp",
        "negative_stamp",
        "no_stamp",
        "accepted",
        "future_stamp",
        "accepted",
    ]


def test_good_stamps_after_images_without_any_are_not_doubted():
    guard = StampGuard()
    verdicts = [v for second in range(30) for v in judged(guard, 0, now=5000 + second)]
    assert verdicts == [Verdict.ACCEPT] + [Verdict.MISSING] * 29
    assert judged(guard, 5030, 0, 5031, now=5031) == [
        *(Verdict.ACCEPT, Verdict.MISSING, Verdict.ACCEPT)
    ]


def test_stray_stamps_far_ahead_cost_only_themselves():
    guard = StampGuard()
    verdicts = judged(guard, 0, 1, 5000, 2, 3, 9000, 8000, 4, 5, 7000, 5, 7001, 5, 7002, 6)
    wrong = {2: "future_stamp", 5: "future_stamp", 6: "future_stamp", 9: "future_stamp"}
    wrong |= {10: "duplicate_stamp", 11: "future_stamp", 12: "duplicate_stamp", 13: "future_stamp"}
    assert [v.value for v in verdicts] == [wrong.get(i, "accepted") for i in range(15)]
    assert judged(StampGuard(doubts=False), 0, 1, 5000) == [Verdict.ACCEPT] * 3


def test_how_far_ahead_a_stamp_lies_is_told():
    guard = StampGuard()
    judged(guard, 1, 2, now=10)
    judged(guard, 7000, now=12)
    assert guard.ahead_ns == (7000 - 2 - 2) * SECOND


def test_a_first_stamp_that_is_no_time_yet_costs_nothing():
    assert judged(StampGuard(), 0.5, *range(5000, 5020)) == [Verdict.ACCEPT] * 21


def test_a_time_that_was_set_forward_is_believed_when_enough_images_say_so():
    verdicts = judged(StampGuard(), 0, 1, *range(5000, 5000 + AHEAD_FRAMES), 5010, 2)
    doubted = [Verdict.AHEAD] * (AHEAD_FRAMES - 1)
    assert verdicts == [*[Verdict.ACCEPT] * 2, *doubted, *[Verdict.ACCEPT] * 2, Verdict.OLD]


def test_few_images_played_fast_are_not_doubted_for_ever():
    guard = StampGuard()
    verdicts = judged(guard, 0, 1, *range(15, 15 * 20, 15))
    assert verdicts[2:4] == [Verdict.AHEAD] * (AHEAD_FRAMES - 1)
    assert set(verdicts[4:]) == {Verdict.ACCEPT}
    assert set(judged(guard, *range(286, 286 + STEADY_FRAMES))) == {Verdict.ACCEPT}
    assert judged(guard, 9999) == [Verdict.AHEAD]


def test_gaps_that_the_clock_has_seen_cost_no_image():
    guard = StampGuard()
    assert judged(guard, 0, 1, now=1) == [Verdict.ACCEPT] * 2
    assert judged(guard, 7201, 7202, now=7202) == [Verdict.ACCEPT] * 2
    # Taken late, after the node was busy: both sides of a pause, one right after the other.
    assert judged(guard, 7203, 7204, 7230, 7231, 7260, now=7260) == [Verdict.ACCEPT] * 5
    assert judged(guard, 9999, now=1) == [Verdict.AHEAD]  # a clock that went back tells nothing
    guard.forget()
    assert judged(guard, 9999, now=1) == [Verdict.ACCEPT]


def test_a_source_has_restarted_when_many_in_order_are_far_behind():
    guard = StampGuard()
    judged(guard, 98, 99, 100)
    verdicts = judged(guard, *range(1, RESTART_FRAMES + 1))
    assert verdicts == [Verdict.OLD] * (RESTART_FRAMES - 1) + [Verdict.RESTART]
    assert guard.behind_ns == 99 * SECOND
    guard = StampGuard()
    judged(guard, *(100 + s / 10 for s in range(3)))
    shuffled = judged(guard, *list(range(8, 0, -1)) * 5)
    late = judged(guard, *(100 - s / 100 for s in range(50, 0, -1)))
    assert {*shuffled, *late} == {Verdict.OLD}


@pytest.mark.parametrize("doubts", [True, False])
@pytest.mark.parametrize("strays", [[105.0], [101.5], [109.0, 109.1]])
def test_what_goes_on_from_before_a_stray_stamp_is_taken_on(doubts, strays):
    guard = StampGuard(doubts=doubts)
    judged(guard, *(99.6 + s / 10 for s in range(5)), *strays)
    verdicts = judged(guard, *(100.1 + s / 10 for s in range(20)))
    old = RESUME_FRAMES - 1
    assert verdicts == [Verdict.OLD] * old + [Verdict.ACCEPT] * (20 - old)
    assert judged(guard, 107, *(102.1 + s / 10 for s in range(3)))[-1] is Verdict.ACCEPT


def test_a_stray_stamp_that_was_taken_on_from_makes_no_later_one_believable():
    guard = StampGuard()
    for now in range(20):
        judged(guard, 14 if now == 5 else now, now=now)
    assert judged(guard, 35, 20, now=20) == [Verdict.AHEAD, Verdict.ACCEPT]


def test_a_source_has_restarted_soon_where_nothing_tells_what_was_before_a_stray_stamp():
    for first in ([9000], [8, 9]):
        verdicts = judged(StampGuard(), *first, *range(1, 4))
        assert verdicts[len(first) :] == [Verdict.OLD] * (RESUME_FRAMES - 1) + [Verdict.RESTART]
    late = judged(StampGuard(), 1.0, *(0.5 + s / 100 for s in range(20)))
    assert set(late[1:]) == {Verdict.OLD}


@pytest.mark.parametrize(
    ("first", "skipped"),
    [(1, RESTART_FRAMES - 1), (97.5, RESUME_FRAMES - 1), (5000, AHEAD_FRAMES - 1)],
)
def test_images_that_all_come_twice_break_no_row(first, skipped):
    guard = StampGuard()
    judged(guard, *(at for at in [*range(90, 98), 105] for _ in range(2)))
    verdicts = judged(guard, *(first + i // 2 / 10 for i in range(2 * RESTART_FRAMES)))
    taken = Verdict.RESTART if first == 1 else Verdict.ACCEPT
    assert verdicts.index(taken) == 2 * skipped
    assert Verdict.DUPLICATE not in verdicts[: 2 * skipped]


def test_after_a_time_jump_images_from_before_it_are_stragglers(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    guard = StampGuard()
    judged(guard, 100)
    guard.forget(time_jumped=True)
    assert judged(guard, 101, 2) == [Verdict.STRAGGLER, Verdict.ACCEPT]
    now[0] = 2.0
    assert judged(guard, 101, now=99) == [Verdict.ACCEPT]


def odometry(seconds, x, q=(0.0, 0.0, 0.0, 1.0)):
    msg = Odometry()
    msg.header.stamp.sec, msg.header.stamp.nanosec = divmod(int(seconds * SECOND), SECOND)
    msg.pose.pose.position.x = x
    to = msg.pose.pose.orientation
    to.x, to.y, to.z, to.w = q
    return msg


def test_odometry_is_interpolated_between_neighbours_only():
    buffer = OdomBuffer()
    half = np.sqrt(0.5)
    buffer.add(odometry(1.0, 1.0))
    buffer.add(odometry(1.1, 2.0, (0.0, 0.0, half, half)))
    buffer.add(odometry(9.0, 5.0))
    middle = buffer.at(int(1.05 * SECOND))
    assert middle[0, 3] == pytest.approx(1.5)
    assert rotation_angle(middle) == pytest.approx(np.pi / 4)
    assert buffer.at(SECOND)[0, 3] == 1.0
    for outside in (0.5, 5.0, 10.0):
        assert buffer.at(int(outside * SECOND)) is None
    assert buffer.newest == 9 * SECOND
    buffer.clear()
    assert buffer.at(SECOND) is None


def test_odometry_out_of_order_is_sorted_and_nonsense_refused():
    buffer = OdomBuffer()
    for seconds in (1.0, 1.2, 1.1, 1.1):
        assert buffer.add(odometry(seconds, seconds))
    assert buffer.at(int(1.15 * SECOND))[0, 3] == pytest.approx(1.15)
    assert not buffer.add(odometry(1.3, float("nan")))
    assert not buffer.add(odometry(1.3, 1.0, (0.0, 0.0, 0.0, 0.0)))
    for index in range(3 * KEEP):
        buffer.add(odometry(2.0 + index * 0.01, 0.0))
    assert len(buffer._stamps) <= KEEP


def result(pose_odom, pose_map=None, index=0):
    return FrameResult(
        epoch=0,
        index=index,
        stamp_ns=index,
        pose_map=pose_odom if pose_map is None else pose_map,
        pose_odom=pose_odom,
        intrinsics=np.eye(3),
        depth=None,
        confidence=None,
        image=np.zeros((2, 2, 3), np.uint8),
        keyframe=True,
        pending=False,
    )


def test_the_time_without_odometry_counts_frames_only(monkeypatch):
    """A break with the odometry that follows it, as in a pause, is none without odometry."""
    now, known = [0.0], set()
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    scale = MetricScale("odometry", 1.0, lambda ns: np.eye(4) if ns in known else None)

    def observe(stamp, at):
        now[0] = at
        scale.observe([result(np.eye(4), index=stamp)], np.eye(4))
        return scale.unmatched_for

    assert [observe(stamp, stamp / 2) for stamp in (1, 2, 3, 4)] == [0.0, 0.5, 1.0, 1.5]
    assert observe(5, 60.0) == 2.5, "of a break a second counts"
    known.add(5)
    assert observe(6, 61.0) == 0.0
    assert observe(7, 62.0) == 1.0
    scale.reset()
    assert scale.unmatched_for == 0.0


def test_the_time_in_which_odometry_settles_no_scale_is_counted(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    scale = MetricScale("odometry", 1.0, lambda ns: np.eye(4) if ns != 3 * SECOND else None)

    def observe(scale, second, **fields):
        now[0] = second
        scale.observe([replace(result(np.eye(4), index=second * SECOND), **fields)], np.eye(4))
        return scale.unsettled_for

    assert [observe(scale, second) for second in range(1, 6)] == [0.0, 1.0, 1.0, 2.0, 3.0]
    assert observe(scale.configured("none", 1.0), 6) == 0.0
    assert scale.configured("odometry", 7.0) is scale, "that has no effect"
    scale.reset()
    assert scale.unsettled_for == 0.0
    scale = MetricScale("odometry", 1.0, lambda ns: pose(x=ns / SECOND))
    moving = [observe(scale, second, pose_odom=pose(x=second / 2)) for second in range(1, 30)]
    assert scale.known and max(moving) > 10 and moving[-1] == 0.0


@pytest.mark.parametrize(
    ("differs", "said"),
    [
        (0.0, "1.9 m per unit"),
        (0.061, "1.9 m per unit (parts of the path differ by up to 6 %)"),
    ],
)
def test_what_parts_of_the_path_differ_by_is_said_with_the_scale(differs, said):
    scale = MetricScale("fixed", 1.9, lambda ns: None)
    scale._estimator.differs = differs
    assert scale.label == said


def test_the_first_camera_is_the_origin_and_looks_along_x():
    placement = Placement()
    tilted = pose(1.0, 2.0, 3.0, (0.1, 0.2, 0.3, 0.9))
    first = placement.place(result(tilted), BODY_FROM_OPTICAL, "camera")
    assert np.allclose(first.map_from_base, np.eye(4))
    ahead = tilted @ pose(z=2.0)
    second = placement.place(result(ahead), BODY_FROM_OPTICAL, "camera")
    assert np.allclose(second.odom_from_base, pose(x=2.0))


def test_a_new_scale_moves_the_map_and_not_the_odometry():
    placement = Placement()
    mount = pose(0.2, 0.0, 0.4) @ BODY_FROM_OPTICAL
    placement.place(result(pose()), mount, "camera")
    before = placement.place(result(pose(z=1.0)), mount, "camera")
    placement.set_scale(2.0, metric=True)
    same = placement.place(result(pose(z=1.0)), mount, "camera")
    assert np.allclose(same.odom_from_base, before.odom_from_base)
    assert np.allclose(same.map_from_base @ mount @ pose(), base_camera(2.0))
    after = placement.place(result(pose(z=1.5)), mount, "camera")
    step = after.odom_from_base[:3, 3] - same.odom_from_base[:3, 3]
    assert np.allclose(step, [1.0, 0.0, 0.0])
    assert np.allclose(after.map_from_odom @ after.odom_from_base, after.map_from_base)
    assert np.allclose(np.linalg.det(after.map_from_odom[:3, :3]), 1.0)


def base_camera(x):
    return base_pose(pose(x=x) @ BODY_FROM_OPTICAL, pose())


def test_a_pose_that_is_not_rigid_is_refused():
    placement = Placement()
    with pytest.raises(PoseError):
        placement.map_from_base(result(pose()), BODY_FROM_OPTICAL)
    placement.place(result(pose()), BODY_FROM_OPTICAL, "camera")
    with pytest.raises(PoseError):
        placement.place(result(pose() * 2), BODY_FROM_OPTICAL, "camera")


@pytest.mark.parametrize(
    ("sim_time", "clocks", "now", "age", "text"),
    [
        (False, 0, 1.7e9, 3.2 * 365.25 * 86400, "3.2 years behind the clock"),
        (False, 0, 1.7e9, 2.5 * 86400, "2.5 days behind"),
        (False, 1, 1.7e9, -7200.0, "2.0 hours ahead of"),
        (True, 0, 0, -1.7e9, "nobody publishes /clock"),
        (True, 1, 0, -1.7e9, "nothing has come on /clock"),
        (True, 1, 1.7e9, 5400.0, "1.5 hours behind"),
        (True, 0, 1.7e9, 5400.0, "1.5 hours behind"),  # the publisher has gone
    ],
)
def test_an_age_that_no_delay_explains_is_explained(sim_time, clocks, now, age, text):
    clock = SimpleNamespace(now=lambda: SimpleNamespace(nanoseconds=int(now * SECOND)))
    node = SimpleNamespace(
        get_parameter=lambda name: SimpleNamespace(value=sim_time),
        count_publishers=lambda topic: clocks,
        get_clock=lambda: clock,
    )
    assert text in explain_age(node, age)


class _Processor:
    """Fails on odd numbers."""

    def __init__(self):
        self.done, self.errors, self.closed = [], [], False

    def process(self, frame):
        if frame % 2:
            raise RuntimeError(f"odd {frame}")
        self.done.append(frame)

    def fail(self, error):
        self.errors.append(str(error))

    def close(self):
        self.closed = True


def test_a_worker_loads_works_in_order_survives_errors_and_closes():
    mailbox = Mailbox("all")
    processor, gate = _Processor(), threading.Event()

    def load():
        gate.wait(10)
        return processor

    worker = Worker(mailbox, load, lambda: None)
    with pytest.raises(NotReadyError, match="still loading"):
        worker.submit(lambda: "too early")
    gate.set()
    wait_until(lambda: worker.state is WorkerState.READY, 5)
    for number in range(4):
        mailbox.put(number, number)
    answer = worker.submit(lambda: f"after {processor.done}")
    assert answer.result(5) == "after [0, 2]"
    assert processor.errors == ["odd 1", "odd 3"]
    assert worker.stop(5)
    assert processor.closed
    with pytest.raises(MailboxClosedError):
        worker.submit(lambda: "too late").result(1)


def test_a_worker_that_cannot_load_says_why():
    def load():
        raise CheckpointError("no such file: model.pt")

    worker = Worker(Mailbox(), load, lambda: None)
    wait_until(lambda: worker.state is WorkerState.FAILED, 5)
    with pytest.raises(NotReadyError, match=r"model\.pt"):
        worker.submit(lambda: "never")


def test_a_busy_worker_tells_for_how_long_and_where():
    mailbox, gate = Mailbox(), threading.Event()
    worker = Worker(mailbox, _Processor, lambda: None)
    wait_until(lambda: worker.state is WorkerState.READY, 5)

    def a_long_computation():
        gate.wait(10)
        return "done"

    answer = worker.submit(a_long_computation)
    wait_until(lambda: worker.busy_for > 0.05, 5)
    assert "a_long_computation" in worker.stack()
    assert not worker.stop(0.05)
    gate.set()
    assert answer.result(5) == "done"
    assert worker.stop(5)


def test_rates_and_tallies_count():
    rate, tally = Rate(), Tally()
    for _ in range(5):
        rate.tick()
        tally.add("reason")
    assert rate.total == 5
    assert rate.per_second() > 1
    assert rate.age < 1
    assert tally.counts() == {"reason": 5}


@pytest.mark.parametrize(
    ("child", "world", "used", "said"),
    [
        ("base_link", "odom", {"tf_mode": "map"}, []),
        ("/base_link", "/odom", {"tf_mode": "map"}, []),
        ("", "", {"tf_mode": "map"}, []),
        ("base_link", "wheels", {"scale_source": "odometry"}, []),
        ("base_footprint", "wheels", {}, []),
        ("base_footprint", "odom", {"scale_source": "odometry"}, ["set base_frame"]),
        ("base_footprint", "wheels", {"tf_mode": "map"}, ["set base_frame", "set odom_frame"]),
    ],
)
def test_odometry_of_other_frames_is_named_where_it_is_used(child, world, used, said):
    msg = Odometry(child_frame_id=child)
    msg.header.frame_id = world
    complaints = odom_complaints(msg, Parameters(**used))
    assert len(complaints) == len(said)
    assert all(words in complaint for words, complaint in zip(said, complaints, strict=True))


@pytest.mark.parametrize("end", ["silence", "pause", "stop"])
def test_what_was_skipped_before_images_stopped_is_not_every_image_since(monkeypatch, end):
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    clock = SimpleNamespace(now=lambda: SimpleNamespace(nanoseconds=0))
    node = SimpleNamespace(resolve_topic_name=lambda name: name, get_clock=lambda: clock)
    source = Input(node, Parameters(use_camera_info=False), Mailbox(), on_restart=None)

    def receive(*stamps):
        for sec in stamps:
            stamp = SimpleNamespace(sec=sec, nanosec=0)
            source._on_image(SimpleNamespace(header=SimpleNamespace(stamp=stamp)))

    receive(5, 5)
    now[0] = 3.0
    receive(5)
    assert source.refused_for == 3.0
    now[0] = 60.0
    if end == "pause":
        source.paused = True
        receive(6)
    elif end == "stop":
        source.stop()
        source.images.tick()
    assert source.refused_for == (3.0 if end == "silence" else 0.0)
