# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Odometry that is needed and does not come, or not in time: who says so, and how."""

import time
from types import SimpleNamespace

import pytest
from diagnostic_msgs.msg import DiagnosticStatus
from nav_msgs.msg import Odometry
from node_harness import (
    LOSSLESS,
    SCALE_FRAMES,
    Camera,
    Client,
    NodeProcess,
    feed,
    qos_profile_sensor_data,
    wait_until,
)

from lingbot_map_ros.ros.odom_buffer import OdomBuffer
from lingbot_map_ros.ros.parameters import Parameters
from lingbot_map_ros.ros.watchdog import Watchdog


@pytest.fixture
def client():
    client = Client("robot_side")
    yield client
    client.close()


@pytest.fixture
def node():
    process = NodeProcess(
        "odom:=wheels", scale_source="odometry", tf_mode="map", stall_timeout=0.5, **LOSSLESS
    )
    yield process
    code, _ = process.stop()
    assert code == 0, process.log
    assert "Traceback" not in process.log


def test_odometry_that_does_not_come_is_explained_once_until_it_does(client, node):
    other = client.publisher(Odometry, "/base/odometry", qos_profile_sensor_data)
    poses = client.record(Odometry, "~/odometry")
    camera = Camera(client)
    camera.connect()
    camera.gathering = SCALE_FRAMES - 1
    time.sleep(0.5)
    feed(camera, poses, 2)
    time.sleep(0.6)  # the timeout
    feed(camera, poses, 1)
    status = client.wait_for(lambda s: "no odometry" in s.message, "a warning")
    assert status.level == DiagnosticStatus.WARN
    assert status.figures["state"] == "tracking"
    assert status.figures["scale"] == "model units: no odometry matched an image yet"
    for words in (
        "no odometry on /wheels and no odom -> base_link in TF",
        "nobody publishes it",
        f"Topics of this type: {other.topic_name}; remap with odom:={other.topic_name}",
    ):
        assert words in status.message
    feed(camera, poses, 3)
    assert node.log.count("no odometry on /wheels") == 1

    wheels = client.publisher(Odometry, "/wheels", qos_profile_sensor_data)

    def heard():
        feed(camera, poses, 1)
        msg = Odometry()
        msg.header.stamp = poses[-1].header.stamp
        wheels.publish(msg)
        time.sleep(0.1)
        return "the odometry is there" in node.log

    wait_until(heard, 20)
    for _ in range(3):
        assert heard()
    status = client.wait_for(lambda s: "no odometry" not in s.message, "the end of the warning")
    assert status.level == DiagnosticStatus.OK
    assert status.figures["scale"] == "model units: the robot moved 0.0 m of the 1 m needed"


def make_watchdog(odom, publishers=(), message_age=0.0):
    """A watchdog over stand-ins at the time of 100 s, and the warnings that it gives."""
    said = []
    node = SimpleNamespace(
        get_clock=lambda: SimpleNamespace(now=lambda: SimpleNamespace(nanoseconds=100 * 10**9)),
        get_logger=lambda: SimpleNamespace(warning=said.append, info=said.append),
        get_publishers_info_by_topic=lambda topic: list(publishers),
    )
    source = SimpleNamespace(
        started=True,
        topic="/image",
        images=SimpleNamespace(age=0.0, total=0),
        refused_for=0.0,
        refusal="",
        odom=odom,
        odom_topic="/odom",
        odom_qos=qos_profile_sensor_data,
        odom_messages=SimpleNamespace(age=message_age, total=0),
    )
    return Watchdog(node, source, SimpleNamespace(busy_for=0.0)), said


def stream(missing_for, unsettled_for=0.0):
    scale = "model units: the robot moved 0.4 m of the 1 m needed"
    return SimpleNamespace(
        frame_age_s=0.5,
        odometry_missing_for=missing_for,
        unsettled_for=unsettled_for,
        scale=scale,
    )


@pytest.mark.parametrize("tf_mode", ["odom", "map"])
def test_odometry_that_does_not_settle_the_scale_is_said_once(tf_mode):
    watchdog, said = make_watchdog(OdomBuffer())
    parameters = Parameters(scale_source="odometry", tf_mode=tf_mode)
    for seconds in (0.0, 29.9, 30.0, 31.0, 500.0):
        watchdog.check(parameters, stream(0.0, seconds))
        assert len(said) == (seconds >= 30.0)
    text = "poses, depth and map are in model units: the robot moved 0.4 m of the 1 m needed"
    assert said[0].endswith(f"{text}; map -> odom is not broadcast" if tf_mode == "map" else text)
    for seconds in (0.0, 29.0, 30.0):
        watchdog.check(parameters, stream(0.0, seconds))
    assert len(said) == 2


@pytest.mark.parametrize(
    ("stamps", "words"),
    [
        ((60,), "the newest is 39.5 s behind the newest image"),
        ((130,), "the newest is 30.5 s ahead of the newest image"),
        ((), "none holds a pose"),
    ],
)
def test_odometry_that_comes_but_matches_nothing_is_explained(stamps, words):
    odom = OdomBuffer()
    for stamp in stamps:
        msg = Odometry()
        msg.header.stamp.sec = stamp
        odom.add(msg)
    watchdog, said = make_watchdog(odom)
    parameters = Parameters(scale_source="odometry")
    watchdog.check(parameters, None)
    watchdog.check(parameters, stream(9.9))
    assert not said
    watchdog.check(parameters, stream(10.0))
    watchdog.check(parameters, stream(11.0))
    assert len(said) == 1 and words in said[0] and "TF" not in said[0]
    assert words in watchdog.odometry_silence
    watchdog.check(parameters, stream(0.0))
    assert len(said) == 2 and not watchdog.odometry_silence


def test_publishers_of_the_odometry_that_are_not_heard_are_named():
    info = SimpleNamespace(
        node_namespace="/",
        node_name="base",
        topic_type="nav_msgs/msg/Odometry",
        qos_profile=qos_profile_sensor_data,
    )
    watchdog, said = make_watchdog(OdomBuffer(), [info], message_age=20.0)
    watchdog.check(Parameters(scale_source="odometry"), stream(10.0))
    assert "it has 1 publisher: /base (nav_msgs/msg/Odometry, BEST_EFFORT, VOLATILE)" in said[0]
    assert "QoS and type match. Does it send anything" in said[0]
    info.topic_type = "geometry_msgs/msg/PoseStamped"
    watchdog, said = make_watchdog(OdomBuffer(), [info], message_age=20.0)
    watchdog.check(Parameters(scale_source="odometry"), stream(10.0))
    assert "None of them sends nav_msgs/msg/Odometry: remap odom." in said[0]
