# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The order in which the map hears of what happens, and what it shows of it."""

import threading
from types import SimpleNamespace

import numpy as np
import pytest

from lingbot_map_ros.ros.frames import BODY_FROM_OPTICAL
from lingbot_map_ros.ros.map_keeper import QUEUE_CAPACITY, MapKeeper
from lingbot_map_ros.ros.parameters import Parameters
from lingbot_map_ros.ros.placement import Placement
from lingbot_map_ros.streaming.results import Decision, FrameResult

SIZE = (12, 16)


class Topic:
    """A latched topic that somebody hears."""

    latched = True

    def __init__(self):
        self.changed = False
        self.sent = []

    def change(self):
        self.changed = True

    def due(self):
        return self.changed

    def publish(self, message):
        self.changed = False
        self.sent.append(message)


@pytest.fixture
def topics():
    topics = SimpleNamespace(map=Topic(), path=Topic(), keyframes=Topic())
    topics.map_message = lambda xyz, rgb: xyz
    topics.publish_map = lambda cloud, now_ns: topics.map.publish(cloud)
    topics.made, topics.shown = [], []
    topics.clear_path = topics.shown.clear
    topics.extend_path = lambda stamps, poses: [
        (topics.made.append(stamp), topics.shown.append((stamp, T[0, 3])))
        for stamp, T in zip(stamps, poses, strict=True)
    ]
    topics.publish_path = lambda now_ns: topics.path.publish(list(topics.shown))
    return topics


@pytest.fixture
def placement():
    placement = Placement()
    placement.place(result(0), BODY_FROM_OPTICAL, "camera")
    return placement


@pytest.fixture
def keeper(topics, placement):
    parameters = Parameters(depth_confidence_min=0.0)
    keeper = MapKeeper(parameters, topics, placement, lambda: 0)
    yield keeper
    assert keeper.close()


def result(index, **fields):
    """A frame that looks at a wall one unit away."""
    return FrameResult(
        **{
            "epoch": 0,
            "index": index,
            "stamp_ns": index,
            "pose_map": np.eye(4),
            "pose_odom": np.eye(4),
            "intrinsics": np.array([[20.0, 0, 8], [0, 20, 6], [0, 0, 1]]),
            "depth": np.ones(SIZE, np.float32),
            "confidence": np.ones(SIZE, np.float32),
            "image": np.zeros((*SIZE, 3), np.uint8),
            "keyframe": True,
            "pending": False,
            **fields,
        }
    )


def hold(keeper):
    """Keep the map's thread busy; returns what lets it go on."""
    held, gate = threading.Event(), threading.Event()

    def wait():
        held.set()
        gate.wait(10)

    keeper._thread.do(wait)
    assert held.wait(5)
    return gate


def test_a_scale_that_comes_behind_a_map_that_is_due_is_shown_by_the_next_one(
    keeper, topics, placement
):
    keeper.add(result(0), BODY_FROM_OPTICAL)
    gate = hold(keeper)
    keeper.changed()
    first = keeper.publish_due()
    placement.set_scale(3.0, metric=True)
    keeper.changed()
    gate.set()
    first.result(5)
    assert topics.map.sent[-1][:, 0].max() == pytest.approx(1.0)
    keeper.publish_due().result(5)
    assert topics.map.sent[-1][:, 0].max() == pytest.approx(3.0)
    keeper.publish_due().result(5)
    assert len(topics.map.sent) == 2


def test_a_pose_of_the_path_is_made_once_unless_all_of_them_change(keeper, topics, placement):
    def shown():
        keeper.publish_due().result(5)
        return topics.path.sent[-1]

    def add(index):
        pose = np.eye(4)
        pose[2, 3] = index
        keeper.add(result(index, pose_map=pose), BODY_FROM_OPTICAL)

    for index in range(3):
        add(index)
    assert shown() == [(0, 0), (1, 1), (2, 2)]
    add(3)
    assert shown() == [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert topics.made == [0, 1, 2, 3]
    placement.set_scale(2.0, metric=True)
    keeper.changed()
    assert shown() == [(0, 0), (1, 2), (2, 4), (3, 6)]
    keeper.set_parameters(Parameters(depth_confidence_min=0.0, path_max_length=2))
    assert shown() == [(2, 4), (3, 6)]
    add(4)
    assert shown()[-1] == (4, 8)
    keeper.reset()
    assert topics.path.sent[-1] == []
    add(0)
    assert shown() == [(0, 0)]


def test_decisions_saves_and_a_reset_keep_their_order(keeper, placement, tmp_path):
    keeper.set_parameters(Parameters(depth_confidence_min=0.0, output_directory=str(tmp_path)))
    gate = hold(keeper)
    keeper.add(result(0), BODY_FROM_OPTICAL)
    keeper.add(result(1, pending=True), BODY_FROM_OPTICAL)
    before = keeper.save_trajectory()
    keeper.decide(Decision(1, kept=True))
    after = keeper.save_trajectory()
    assert keeper.snapshot().waiting == 5
    resetting = threading.Thread(target=keeper.reset)
    resetting.start()
    resetting.join(0.2)
    assert resetting.is_alive()
    gate.set()
    resetting.join(5)
    assert not resetting.is_alive()
    assert "1 pose of" in before.result(0) and "2 poses" in after.result(0)
    assert (keeper.snapshot().points, keeper.snapshot().waiting) == (0, 0)


def test_a_full_queue_holds_the_worker_up_and_loses_no_keyframe(keeper, tmp_path):
    keeper.set_parameters(Parameters(depth_confidence_min=0.0, output_directory=str(tmp_path)))
    gate, count = hold(keeper), 2 * QUEUE_CAPACITY

    def work():
        for index in range(count):
            keeper.add(result(index), BODY_FROM_OPTICAL)

    worker = threading.Thread(target=work)
    worker.start()
    worker.join(0.3)
    assert worker.is_alive() and keeper.snapshot().waiting == QUEUE_CAPACITY
    gate.set()
    worker.join(5)
    assert f"{count} poses" in keeper.save_trajectory().result(5)
