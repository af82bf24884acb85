# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Where the camera sits, without tf2_ros: from /tf_static, and said where it moves."""

import numpy as np
import pytest
from geometry_msgs.msg import TransformStamped
from tf2_msgs.msg import TFMessage

from lingbot_map_ros.ros.camera_mount import CameraMount
from lingbot_map_ros.ros.parameters import Parameters
from lingbot_map_ros.ros.tf_lookup import StaticLookup


class _FakeNode:
    """Enough of a node for a subscription."""

    def __init__(self):
        self.callbacks = {}

    def create_subscription(self, kind, topic, callback, qos, **_):
        self.callbacks[topic] = callback
        return topic

    def destroy_subscription(self, topic):
        del self.callbacks[topic]


def transform(parent, child, x=0.0, w=1.0):
    msg = TransformStamped(child_frame_id=child)
    msg.header.frame_id = parent
    msg.transform.translation.x = x
    msg.transform.rotation.w = w
    return msg


def send(node, topic, *transforms):
    node.callbacks[topic](TFMessage(transforms=transforms))


def test_static_transforms_are_chained_both_ways():
    node = _FakeNode()
    lookup = StaticLookup(node)
    for parent, child, x in (("base", "mast", 1.0), ("/mast", "cam", 2.0), ("base", "gps", -1.0)):
        send(node, "/tf_static", transform(parent, child, x))
    assert lookup.lookup("base", "cam", 0)[0, 3] == 3.0
    assert lookup.lookup("cam", "base", 0)[0, 3] == -3.0
    assert lookup.lookup("gps", "cam", 0)[0, 3] == 4.0
    assert np.array_equal(lookup.lookup("cam", "cam", 0), np.eye(4))
    assert lookup.lookup("base", "moon", 0) is None
    send(node, "/tf_static", transform("cam", "base"), transform("base", "mast", w=0.0))
    assert lookup.lookup("base", "cam", 0) is not None
    lookup.destroy()
    assert not node.callbacks


def test_what_moves_between_two_frames_is_named_where_it_cannot_be_followed():
    node = _FakeNode()
    lookup = StaticLookup(node)
    send(node, "/tf_static", transform("base", "mast"), transform("head", "cam"))
    send(node, "/tf", transform("/odom", "base"), transform("mast", "head"))
    assert lookup.unseen("base", "cam") == lookup.unseen("cam", "base") == "head"
    assert lookup.unseen("base", "mast") == lookup.unseen("base", "moon") == ""
    send(node, "/tf", transform("cam", "odom"))  # a loop
    assert lookup.unseen("moon", "cam") == ""


def mounted(node, **parameters):
    """Make a mount that knows /tf_static alone; what it announces goes to the list."""
    announced = []
    wanted = Parameters(base_frame="base", **parameters)
    mount = CameraMount(wanted, StaticLookup(node), lambda T, frame: announced.append(frame))
    return mount, announced


def test_of_frames_with_ever_new_names_the_newest_are_remembered():
    node = _FakeNode()
    lookup = StaticLookup(node)
    for i in range(3000):
        send(node, "/tf", transform("world", f"person_{i}"))
    assert len(lookup._moving) == 1000
    assert lookup.unseen("world", "person_2999") == "person_2999"


@pytest.mark.parametrize("given", [(), (1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0)])
def test_a_moving_mount_that_cannot_be_followed_is_said_once(caplog, given):
    node = _FakeNode()
    mount, announced = mounted(node, base_to_camera=given)
    send(node, "/tf", transform("base", "head"), transform("head", "cam"))
    for stamp in range(3):
        pose = mount.base_from_camera("cam", stamp)
    assert pose[0, 3] == (given[0] if given else 0.0)
    (record,) = caplog.records
    assert "between 'base' and the camera 'cam' the frame 'cam' moves by /tf" in record.getMessage()
    assert not announced  # it has its place in the tree


def test_a_mount_that_begins_to_move_later_is_said_too(caplog):
    node = _FakeNode()
    mount, announced = mounted(node)
    mount.base_from_camera("cam", 0)
    assert announced == ["cam"] and "TF has no transform" in caplog.text
    # the announcement comes back
    send(node, "/tf_static", transform("base", "cam"))
    mount.base_from_camera("cam", 1)
    assert "moves by /tf" not in caplog.text
    send(node, "/tf", transform("base", "cam"))
    for stamp in range(3):
        mount.base_from_camera("cam", stamp)
    assert caplog.text.count("moves by /tf") == 1


@pytest.mark.parametrize(
    ("source", "way_on"),
    [("none", "Set scale_source (fixed or odometry), or"), ("odometry", "Wait until the odometry")],
)
def test_metres_that_are_taken_for_model_units_are_said_once(caplog, source, way_on):
    mount, _ = mounted(_FakeNode(), base_to_camera=(0.3, 0.0, 0.4, 0.0, 0.0, 0.0, 1.0))
    for stamp in range(3):
        mount.warn_of_units(mount.base_from_camera("cam", stamp), "cam", source)
    (record,) = caplog.records
    assert "the camera sits 0.50 m from 'base'" in record.getMessage()
    assert f"{way_on}" in record.getMessage() and "base_frame: cam" in record.getMessage()


@pytest.mark.parametrize("x", [0.0, 0.01])
def test_a_camera_at_the_base_needs_no_metres(caplog, x):
    mount, _ = mounted(_FakeNode(), base_to_camera=(x, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0))
    mount.warn_of_units(mount.base_from_camera("cam", 0), "cam", "none")
    assert not caplog.records
