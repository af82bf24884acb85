# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Metres from odometry, map -> odom over somebody's odometry, and where the camera sits.

The same weights see the same images in this process, so that every number of the node can be told
in advance.
"""

import itertools
import math
import time
from types import SimpleNamespace

import numpy as np
import pytest
from geometry_msgs.msg import PoseStamped, TransformStamped
from nav_msgs.msg import Odometry, Path
from node_harness import (
    LATCHED,
    Camera,
    Client,
    NodeProcess,
    image_message,
    qos_profile_sensor_data,
    stamp_of,
    view,
    wait_until,
)
from node_messages import as_matrix, matrix
from sensor_msgs.msg import Image
from tf2_msgs.msg import TFMessage

from lingbot_map_ros.geometry.poses import invert, make_pose
from lingbot_map_ros.models.checkpoint import load_model
from lingbot_map_ros.ros.frames import (
    BODY_FROM_OPTICAL,
    Axes,
    position_and_quaternion,
)
from lingbot_map_ros.streaming.session import SessionConfig, StreamingSession

FRAMES = 40
METRES = 2.5
"""Metres a unit of the model, by the scripted odometry."""
MOUNT = make_pose(np.eye(3), [0.3, -0.1, 0.5]) @ BODY_FROM_OPTICAL
"""Pose of the camera in the base."""
ODOM_FROM_MAP = make_pose(
    np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]), [4.0, -2.0, 0.25]
)
"""Somebody's odometry began elsewhere than the map."""


@pytest.fixture(scope="module")
def expected():
    """What the model says of the images, in its own units, by their number; most are trusted."""
    session = StreamingSession(load_model("random:tiny"), SessionConfig(keyframe_interval=10))
    results = {r.stamp_ns: r for i in range(FRAMES) for r in session.step(view(i), i)}
    assert len(results) > 0.9 * FRAMES
    return results


@pytest.fixture(scope="module")
def cameras(expected):
    """Camera poses in the map, in metres."""
    axes = Axes.of_first_pose(expected[0].pose_odom, METRES)
    return {index: axes.camera_pose(result.pose_odom) for index, result in expected.items()}


@pytest.fixture(scope="module")
def client():
    client = Client("odometry_side")
    yield client
    client.close()


@pytest.fixture(scope="module")
def node():
    process = NodeProcess(
        drop_policy="all",
        image_qos="reliable",
        scale_source="odometry",
        tf_mode="map",
        keyframe_interval=10,
        dtype="float32",  # as in this process
    )
    yield process
    code, _ = process.stop()
    assert code == 0, process.log
    assert "Traceback" not in process.log


@pytest.fixture(scope="module")
def run(client, node, cameras):
    """Stream all images with the odometry of each; returns what came out."""
    tree = client.publisher(TFMessage, "/tf_static", LATCHED)
    mast = make_pose(np.eye(3), [0.3, -0.1, 0.0])
    tree.publish(
        TFMessage(
            transforms=[
                transform("base_link", "mast", mast),
                transform("mast", "camera", invert(mast) @ MOUNT),
            ]
        )
    )
    run = SimpleNamespace(
        odometry=client.record(Odometry, "~/odometry"),
        pose=client.record(PoseStamped, "~/pose"),
        depth=client.record(Image, "~/depth/image"),
        tf=client.record(TFMessage, "/tf"),
        metric_from=None,
    )
    wheels = client.publisher(Odometry, "/odom", qos_profile_sensor_data)
    camera = Camera(client)
    camera.connect()
    wait_until(wheels.get_subscription_count, 20)
    time.sleep(0.5)
    run.before = client.status().figures["scale"]
    for index in range(FRAMES):
        stamp = camera.send(image_message(view(index)))
        if index >= 2 and index in cameras:
            wait_until(lambda at=stamp: run.depth and stamp_of(run.depth[-1]) == at, 20, "result")
            if run.metric_from is None and run.tf:
                run.metric_from = index
        if index not in cameras:
            continue
        msg = Odometry(child_frame_id="base_link")
        msg.header.frame_id = "odom"
        msg.header.stamp.sec, msg.header.stamp.nanosec = divmod(stamp, 1_000_000_000)
        fill(msg.pose.pose, ODOM_FROM_MAP @ cameras[index] @ invert(MOUNT))
        wheels.publish(msg)
        time.sleep(0.03)
    run.stamps = camera.sent
    return run


def fill(pose, T):
    (p, q), to = position_and_quaternion(T), pose
    to.position.x, to.position.y, to.position.z = p
    to.orientation.x, to.orientation.y, to.orientation.z, to.orientation.w = q


def transform(parent, child, T):
    msg = TransformStamped(child_frame_id=child)
    msg.header.frame_id = parent
    (p, q), to = position_and_quaternion(T), msg.transform
    to.translation.x, to.translation.y, to.translation.z = p
    to.rotation.x, to.rotation.y, to.rotation.z, to.rotation.w = q
    return msg


def near(T, expected, tolerance=0.03):
    """Rotation equal, position within a share of its length (of 1 m at least)."""
    size = max(np.linalg.norm(expected[:3, 3]), 1.0)
    offset = np.linalg.norm(T[:3, 3] - expected[:3, 3])
    return np.allclose(T[:3, :3], expected[:3, :3], atol=1e-5) and offset < tolerance * size


def test_the_scale_settles_within_three_percent(client, node, run):
    assert run.before == "model units: no odometry matched an image yet"
    known = client.wait_for(lambda s: s.figures["scale"].endswith("m per unit"), "a scale")
    text = known.figures["scale"]
    assert math.isclose(float(text.split()[0]), METRES, rel_tol=0.03)
    assert 10 < run.metric_from < FRAMES - 10
    assert node.log.count(f"the odometry gives the scale: {text}") == 1
    assert node.log.count("the camera sits 0.59 m from 'base_link' and the scale is unknown") == 1


def test_poses_are_in_model_units_first_and_in_metres_then(run, cameras):
    poses = {stamp_of(m): matrix(m.pose) for m in run.pose}
    for index in cameras:
        factor = 1.0 if index >= run.metric_from else 1.0 / METRES
        camera = make_pose(cameras[index][:3, :3], cameras[index][:3, 3] * factor)
        assert near(poses[run.stamps[index]], camera @ invert(MOUNT)), index


def test_the_path_is_in_metres_from_its_beginning(client, run, cameras):
    path = client.record(Path, "~/path", LATCHED)
    wait_until(lambda: path, 10)
    assert len(path[-1].poses) >= 5
    for pose in path[-1].poses:
        camera = cameras[run.stamps.index(stamp_of(pose))]
        assert near(matrix(pose.pose), camera @ invert(MOUNT))


def test_depth_turns_to_metres(run, expected):
    for index in (5, max(expected)):
        factor = METRES if index >= run.metric_from else 1.0
        msg = next(m for m in run.depth if stamp_of(m) == run.stamps[index])
        depth = np.frombuffer(msg.data, np.float32).reshape(msg.height, msg.width)
        assert np.allclose(depth, expected[index].depth * factor, rtol=0.03)


def test_odometry_does_not_jump_when_the_scale_comes(run, cameras):
    odom = {stamp_of(m): matrix(m.pose.pose) @ MOUNT for m in run.odometry}
    for before, index in itertools.pairwise(cameras):
        factor = 1.0 if index >= run.metric_from else 1.0 / METRES
        step = odom[run.stamps[index]][:3, 3] - odom[run.stamps[before]][:3, 3]
        wanted = (cameras[index][:3, 3] - cameras[before][:3, 3]) * factor
        assert np.linalg.norm(step - wanted) < 0.03 * np.linalg.norm(wanted) + 1e-5, index


def test_only_map_to_odom_is_broadcast_and_only_in_metres(run):
    flat = [t for m in run.tf for t in m.transforms]
    assert {(t.header.frame_id, t.child_frame_id) for t in flat} == {("map", "odom")}
    for T in map(as_matrix, flat):
        assert near(T, invert(ODOM_FROM_MAP), 0.05)


def test_a_scale_that_odometry_does_not_use_changes_nothing(client, run):
    settled = client.status().figures["scale"]
    assert client.set_parameter("scale", 4.0).successful
    assert client.call("save_trajectory").message.endswith("metres")
    assert client.status().figures["scale"] == settled
    seen = len(run.tf)
    wait_until(lambda: len(run.tf) > seen, 10, "map -> odom, which goes on")


def test_map_to_odom_of_another_scale_is_not_broadcast(client, run):
    assert client.set_parameter("scale", 4.0).successful
    assert client.set_parameter("scale_source", "fixed").successful
    client.wait_for_figures({"scale": "4 m per unit"})

    def is_silent():
        seen = len(run.tf)
        time.sleep(0.5)  # ten times the period
        return len(run.tf) == seen

    wait_until(is_silent, 20, "the end of map -> odom")
