# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Messages that grow, against the whole message, serialized at once."""

import pytest
from geometry_msgs.msg import Point, Pose, PoseArray, PoseStamped
from nav_msgs.msg import Path
from rclpy.serialization import deserialize_message, serialize_message
from std_msgs.msg import Header

from lingbot_map_ros.ros import growing_message
from lingbot_map_ros.ros.growing_message import GrowingMessage
from lingbot_map_ros.ros.publishers import to_time


def pose_of(number):
    return Pose(position=Point(x=float(number), y=0.5 * number, z=-1.0))


def path(header, poses):
    return Path(header=header, poses=poses)


def array(header, poses):
    return PoseArray(header=header, poses=poses)


@pytest.mark.parametrize("kind", [path, array])
@pytest.mark.parametrize("frame", ["m", "map", "world", "robot_7/map", "a_much_longer_name"])
@pytest.mark.parametrize("limit", [1, 4, 100])
def test_it_is_read_as_the_whole_message(kind, frame, limit):
    growing, every = GrowingMessage(kind, limit), []
    for count in (0, 1, 3, 0, 7):
        numbers = range(len(every), len(every) + count)
        new = [pose_of(number) for number in numbers]
        if kind is path:
            new = [
                PoseStamped(header=Header(stamp=to_time(n), frame_id=frame), pose=pose)
                for n, pose in zip(numbers, new)
            ]
        growing.extend(new)
        every += new
        header = Header(stamp=to_time(5), frame_id=frame)
        whole = kind(header, every[-limit:])
        data = growing.serialize(header)
        assert len(data) == len(serialize_message(whole))  # padding may hold anything
        assert deserialize_message(data, type(whole)) == whole
        assert len(growing) == len(whole.poses)


def test_an_element_is_serialized_once(monkeypatch):
    elements = []

    def count(message):
        elements.append(len(message.poses))
        return serialize_message(message)

    monkeypatch.setattr(growing_message, "serialize_message", count)
    growing = GrowingMessage(array, 5000)
    growing.extend([pose_of(number) for number in range(5000)])
    elements.clear()
    for number in range(10):
        growing.extend([pose_of(number)])
        growing.serialize(Header(frame_id="map"))
    assert max(elements) <= 2
