# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Topics, TF, diagnostics and parameters of a running node, seen from another process."""

import math
import re
import time

import numpy as np
from diagnostic_msgs.msg import DiagnosticStatus
from geometry_msgs.msg import PoseArray, PoseStamped, TransformStamped
from nav_msgs.msg import Path
from node_harness import (
    LATCHED,
    SCALE_FRAMES,
    SIZE,
    feed,
    image_message,
    stamp_of,
    wait_until,
)
from node_messages import as_matrix, cloud, floats, matrix
from sensor_msgs.msg import CameraInfo, Image, PointCloud2
from tf2_msgs.msg import TFMessage

pytest_plugins = ["node_fixtures"]


def test_diagnostics_wait_for_images(client, camera):
    assert client.wait_for_state("waiting for images").level == DiagnosticStatus.OK


def test_every_topic_of_a_frame_carries_its_stamp(client, camera, fresh):
    topics = {
        "~/pose": (PoseStamped, "map"),
        "~/depth/image": (Image, "camera"),
        "~/depth/camera_info": (CameraInfo, "camera"),
        "~/depth/confidence": (Image, "camera"),
        "~/points": (PointCloud2, "camera"),
    }
    seen = {name: client.record(kind, name) for name, (kind, _) in topics.items()}
    time.sleep(0.5)
    sent = len(camera.sent)
    results = feed(camera, fresh, 5)
    stamps = camera.sent[sent:]
    assert [stamp_of(m) for m in results] == stamps[: len(results)]
    for name, messages in seen.items():
        wait_until(lambda m=messages: len(m) >= 5, 10, name)
        assert [stamp_of(m) for m in messages[:5]] == stamps[:5], name
        assert {m.header.frame_id for m in messages} == {topics[name][1]}

    first = results[0]
    assert (first.header.frame_id, first.child_frame_id) == ("odom", "base_link")
    assert np.allclose(matrix(first.pose.pose), np.eye(4), atol=1e-6)
    assert np.allclose(np.diag(first.pose.covariance.reshape(6, 6)), 0.01)
    assert np.allclose(np.diag(first.twist.covariance.reshape(6, 6)), 9999.0)
    assert not np.allclose(matrix(results[4].pose.pose), np.eye(4), atol=1e-3)
    assert np.allclose(matrix(results[4].pose.pose), matrix(seen["~/pose"][4].pose), atol=1e-6)

    depth, info = seen["~/depth/image"][4], seen["~/depth/camera_info"][4]
    assert (depth.encoding, depth.height, depth.width) == ("32FC1", 84, 112)
    assert (info.height, info.width) == (84, 112)
    assert (floats(seen["~/depth/confidence"][4]) >= 1.0).all()
    xyz, rgb = cloud(seen["~/points"][4])
    K = np.array(info.k).reshape(3, 3)
    pixels = xyz @ K.T
    pixels = pixels[:, :2] / pixels[:, 2:]
    where = np.rint(pixels).astype(int)
    assert np.abs(pixels - where).max() < 0.01
    assert (where % 2 == 0).all()
    assert np.allclose(floats(depth)[where[:, 1], where[:, 0]], xyz[:, 2], rtol=1e-5)
    assert rgb.std() > 20


def test_map_path_and_keyframes_grow_and_reach_late_subscribers(client, camera, fresh):
    feed(camera, fresh, 5)
    for name, kind, count in (
        ("~/map", PointCloud2, lambda m: m.width),
        ("~/path", Path, lambda m: len(m.poses)),
        ("~/keyframes", PoseArray, lambda m: len(m.poses)),
    ):
        # joined after the last image
        messages = client.record(kind, name, LATCHED)
        wait_until(lambda m=messages, c=count: m and c(m[-1]) >= 5, 10, name)
        assert messages[-1].header.frame_id == "map"
    path = client.record(Path, "~/path", LATCHED)
    wait_until(lambda: path, 10)
    last = fresh[-1]
    assert np.allclose(matrix(path[-1].poses[-1].pose), matrix(last.pose.pose), atol=1e-6)
    assert stamp_of(path[-1].poses[-1]) == stamp_of(last)


def test_the_map_is_repeated_while_idle_and_while_paused(client, camera, fresh):
    feed(camera, fresh, 4)
    messages = client.record(PointCloud2, "~/map", LATCHED)
    wait_until(lambda: len(messages) >= 3, 10)
    assert client.call("pause", True).success
    seen = len(messages)
    wait_until(lambda: len(messages) >= seen + 3, 10)
    assert client.call("pause", False).success
    xyz, rgb = cloud(messages[-1])
    assert np.isfinite(xyz).all()
    assert rgb.std() > 20


def test_tf_is_rigid_and_joins_map_odom_base(client, camera, fresh):
    poses = client.record(PoseStamped, "~/pose")
    transforms = client.record(TFMessage, "/tf")
    time.sleep(0.5)
    feed(camera, fresh, 5)
    wait_until(lambda: len(poses) >= 5, 10)

    def sent(child):
        return [t for m in list(transforms) for t in m.transforms if t.child_frame_id == child]

    # poses go out before transforms
    wait_until(lambda: {*map(stamp_of, poses)} <= {*map(stamp_of, sent("base_link"))}, 10)
    flat = [t for m in transforms for t in m.transforms]
    pairs = {(t.header.frame_id, t.child_frame_id) for t in flat}
    assert pairs == {("map", "odom"), ("odom", "base_link")}
    to_base = {stamp_of(t): as_matrix(t) for t in flat if t.child_frame_id == "base_link"}
    to_odom = sent("odom")
    for pose in poses[-2:]:
        assert np.allclose(as_matrix(to_odom[-1]) @ to_base[stamp_of(pose)], matrix(pose.pose))
    stamps = [stamp_of(t) for t in to_odom]
    assert stamps == sorted(set(stamps))
    ahead = stamps[-1] - client.node.get_clock().now().nanoseconds
    assert -1e9 < ahead < 0.15e9
    for T in to_base.values():
        assert np.allclose(T[:3, :3] @ T[:3, :3].T, np.eye(3), atol=1e-9)
        assert math.isclose(np.linalg.det(T[:3, :3]), 1.0, abs_tol=1e-9)


def test_an_assumed_camera_is_placed_on_tf_static(client, camera, fresh):
    feed(camera, fresh, 3)
    static = client.record(TFMessage, "/tf_static", LATCHED)
    wait_until(lambda: static, 10)
    placed = [t for m in static for t in m.transforms if t.child_frame_id == "camera"]
    # optical z is forward: x of the base
    assert np.allclose(as_matrix(placed[0])[:3, 2], [1, 0, 0], atol=1e-9)


def test_another_broadcaster_of_our_frame_is_warned_about(client, camera, fresh, node):
    other = client.publisher(TFMessage, "/tf", 10)
    transform = TransformStamped(child_frame_id="odom")
    transform.header.frame_id = "world"
    transform.transform.rotation.w = 1.0
    wait_until(lambda: other.get_subscription_count() >= 1, 10)

    def warned():
        other.publish(TFMessage(transforms=[transform]))
        return "somebody else broadcasts 'world' -> 'odom'" in node.log

    wait_until(warned, 10)
    transform.child_frame_id = "base_link"
    for _ in range(5):
        other.publish(TFMessage(transforms=[transform]))
        time.sleep(0.05)
    client.node.destroy_publisher(other)
    assert node.log.count("somebody else broadcasts") == 1


def test_images_of_another_time_are_said_once(client, camera, fresh, node):
    feed(camera, fresh, 4)
    time.sleep(0.5)
    feed(camera, fresh, 1)
    assert len(re.findall(r"the images are \d\d\.\d years behind the clock", node.log)) == 1
    assert "use_sim_time: true" in node.log


def test_diagnostics_count_and_name_the_state(client, camera, fresh):
    camera.send()
    camera.gathering = SCALE_FRAMES - 2
    status = client.wait_for_state("initialising 1 of 3")
    assert status.figures["pending frames"] == "0"
    feed(camera, fresh, 4)
    status = client.wait_for(
        lambda s: s.message == "tracking" and int(s.figures["map points"]) > 0, "a map"
    )
    assert status.level == DiagnosticStatus.OK
    figures = status.figures
    assert figures["state"] == "tracking"
    assert int(figures["frames"]) >= 4
    assert float(figures["rate in (Hz)"]) > 0
    assert float(figures["rate out (Hz)"]) > 0
    assert re.fullmatch(r"\d+ of \d+, next window from \d+ on", figures["cache fill"])
    assert figures["scale"] == "model units"
    assert float(figures["time: map (ms)"]) > 0


def test_withheld_frames_are_lost_and_found_again(client, camera, fresh):
    # the guard judges by the last steps, and needs some
    feed(camera, fresh, 20)
    seen = len(fresh)
    black = image_message(np.zeros((*SIZE, 3), np.uint8))
    for _ in range(3):
        camera.send(black)
        time.sleep(0.1)
    status = client.wait_for_state("lost")
    assert status.level == DiagnosticStatus.WARN
    assert len(fresh) == seen
    feed(camera, fresh, 1)
    assert fresh[-1].pose.covariance[0] > 0.02
    client.wait_for_state("tracking")


def test_parameters_change_what_comes_out_or_are_refused(client, camera, fresh):
    points = client.record(PointCloud2, "~/points")
    feed(camera, fresh, 4)
    wait_until(lambda: len(points) >= 4, 10)
    many = points[-1].width
    assert client.set_parameter("points_stride", 8).successful
    time.sleep(0.5)
    feed(camera, fresh, 1)
    wait_until(lambda: points[-1].width < many / 8, 10)
    assert client.set_parameter("points_stride", 2).successful
    for name, value, reason in (
        ("points_stride", 0, "out of range"),
        ("keyframe_mode", "sometimes", "one of interval, motion, manual"),
        ("checkpoint", "random:small", "read-only once the node is configured"),
        ("scale", 0.0, "out of range"),
    ):
        result = client.set_parameter(name, value)
        assert not result.successful
        assert reason in result.reason
