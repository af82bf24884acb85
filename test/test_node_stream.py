# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""One running node and a client in another process: topics, services, TF, diagnostics."""

import math
import threading
import time

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticStatus
from geometry_msgs.msg import PoseArray, PoseStamped, TransformStamped
from nav_msgs.msg import Odometry, Path
from node_harness import (
    LATCHED,
    SIZE,
    Camera,
    Client,
    NodeProcess,
    feed,
    image_message,
    stamp_of,
    view,
    wait_until,
)
from sensor_msgs.msg import CameraInfo, Image, PointCloud2
from tf2_msgs.msg import TFMessage

from lingbot_map_ros.ros.conversions import SUPPORTED_ENCODINGS
from lingbot_map_ros.ros.frames import pose_matrix
from lingbot_map_ros.ros.stamps import RESTART_FRAMES

SCALE_FRAMES = 3
"""Of the tiny model."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("maps")


@pytest.fixture(scope="module")
def client():
    client = Client()
    yield client
    client.close()


@pytest.fixture(scope="module")
def node(client, directory):
    process = NodeProcess(
        output_directory=directory,
        map_rate_hz=5.0,
        pending_limit=4,
        stall_timeout=60.0,
        drop_policy="all",
        image_qos="reliable",
    )
    yield process
    code, seconds = process.stop()
    assert code == 0, process.log
    assert "Traceback" not in process.log
    print(f"SIGINT obeyed in {seconds:.2f} s")


@pytest.fixture(scope="module")
def camera(node, client):
    camera = Camera(client)
    camera.connect()
    return camera


@pytest.fixture(scope="module")
def odometry(client, camera):
    return client.record(Odometry, "~/odometry")


@pytest.fixture
def fresh(client, odometry, camera):
    """Begin a session of its own; returns the list of odometry messages."""
    assert client.call("reset").success
    camera.gathering = SCALE_FRAMES - 1
    return odometry


def matrix(pose):
    p, q = pose.position, pose.orientation
    return pose_matrix([p.x, p.y, p.z], [q.x, q.y, q.z, q.w])


def floats(msg):
    return np.frombuffer(msg.data, np.float32).reshape(msg.height, msg.width)


def cloud(msg):
    points = np.frombuffer(msg.data, np.float32).reshape(-1, 4)
    packed = points[:, 3].copy().view(np.uint32)
    return points[:, :3], np.stack([packed >> 16 & 255, packed >> 8 & 255, packed & 255], -1)


def test_diagnostics_tell_of_loading_then_waiting(client, camera):
    assert client.wait_for_state("waiting").level == DiagnosticStatus.OK
    messages = [s.message for msg in client.diagnostics for s in msg.status]
    assert "loading" in messages


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
    flat = [t for m in transforms for t in m.transforms]
    pairs = {(t.header.frame_id, t.child_frame_id) for t in flat}
    assert pairs == {("map", "odom"), ("odom", "base_link")}
    to_base = {stamp_of(t): as_matrix(t) for t in flat if t.child_frame_id == "base_link"}
    to_odom = [t for t in flat if t.child_frame_id == "odom"]
    for pose in poses[-2:]:
        assert np.allclose(as_matrix(to_odom[-1]) @ to_base[stamp_of(pose)], matrix(pose.pose))
    stamps = [stamp_of(t) for t in to_odom]
    assert stamps == sorted(set(stamps))
    ahead = stamps[-1] - client.node.get_clock().now().nanoseconds
    assert -1e9 < ahead < 0.15e9
    for T in to_base.values():
        assert np.allclose(T[:3, :3] @ T[:3, :3].T, np.eye(3), atol=1e-9)
        assert math.isclose(np.linalg.det(T[:3, :3]), 1.0, abs_tol=1e-9)


def as_matrix(stamped):
    t, r = stamped.transform.translation, stamped.transform.rotation
    return pose_matrix([t.x, t.y, t.z], [r.x, r.y, r.z, r.w])


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
    client.node.destroy_publisher(other)


def test_diagnostics_count_and_name_the_state(client, camera, fresh):
    camera.send()
    camera.gathering = SCALE_FRAMES - 2
    status = client.wait_for_state("initialising 1 of 3")
    assert status.figures["pending frames"] == "0"
    feed(camera, fresh, 4)
    status = client.wait_for_state("tracking")
    assert status.level == DiagnosticStatus.OK
    figures = status.figures
    assert figures["state"] == "tracking"
    assert int(figures["frames"]) >= 4
    assert float(figures["rate in (Hz)"]) > 0
    assert float(figures["rate out (Hz)"]) > 0
    assert figures["cache fill"].endswith(" of 25") or " of " in figures["cache fill"]
    assert figures["scale"] == "model units"
    assert int(figures["map points"]) > 0


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


def test_pause_drops_images_until_it_ends(client, camera, fresh):
    feed(camera, fresh, 4)
    assert client.call("pause", True).success
    seen = len(fresh)
    for _ in range(3):
        camera.send()
        time.sleep(0.1)
    status = client.wait_for_state("paused")
    assert int(status.figures["skipped: paused"]) >= 3
    assert len(fresh) == seen
    assert client.call("pause", False).success
    feed(camera, fresh, 1)


def test_reset_begins_a_new_epoch_with_an_empty_map(client, camera, fresh):
    messages = client.record(PointCloud2, "~/map", LATCHED)
    feed(camera, fresh, 5)
    wait_until(lambda: messages and messages[-1].width > 0, 10)
    epoch = int(client.status().figures["epoch"])
    answer = client.call("reset")
    assert answer.success
    assert str(epoch + 1) in answer.message
    wait_until(lambda: messages[-1].width == 0, 5, "empty map")
    assert int(client.status().figures["epoch"]) == epoch + 1
    camera.gathering = SCALE_FRAMES - 1
    results = feed(camera, fresh, 3)
    assert np.allclose(matrix(results[0].pose.pose), np.eye(4), atol=1e-6)


def test_save_writes_map_and_trajectory_and_says_what(client, camera, fresh, directory):
    feed(camera, fresh, 5)
    answer = client.call("save_map")
    assert answer.success, answer.message
    path = next(iter(directory.glob("map_*.ply")))
    assert str(path) in answer.message
    header = path.read_bytes()[:300].split(b"end_header")[0].decode()
    count = int(header.split("element vertex ")[1].split()[0])
    assert f"{count} points" in answer.message
    answer = client.call("save_trajectory")
    assert answer.success, answer.message
    rows = np.loadtxt(next(iter(directory.glob("trajectory_*.tum"))))
    assert rows.shape == (5, 8)
    p = fresh[-1].pose.pose.position
    assert np.allclose(rows[-1, 1:4], [p.x, p.y, p.z], atol=1e-6)


def test_a_save_that_fails_says_why_and_leaves_no_file(client, camera, fresh, directory):
    answer = client.call("save_map")
    assert not answer.success
    assert "empty" in answer.message
    feed(camera, fresh, 4)
    before = sorted(directory.iterdir())
    blocked = directory / "blocked"
    blocked.write_text("a file where a directory should be")
    set_parameter(client, "output_directory", str(blocked))
    time.sleep(0.5)
    answer = client.call("save_map")
    assert not answer.success
    assert "blocked" in answer.message
    blocked.unlink()
    set_parameter(client, "output_directory", str(directory))
    assert sorted(directory.iterdir()) == before
    feed(camera, fresh, 1)


def set_parameter(client, name, value):
    from rcl_interfaces.srv import SetParameters
    from rclpy.parameter import Parameter

    service = client.node.create_client(SetParameters, client.name("~/set_parameters"))
    assert service.wait_for_service(10)
    parameter = Parameter(name, value=value).to_parameter_msg()
    future = service.call_async(SetParameters.Request(parameters=[parameter]))
    wait_until(future.done, 10)
    client.node.destroy_client(service)
    return future.result().results[0]


def test_parameters_change_what_comes_out_or_are_refused(client, camera, fresh):
    points = client.record(PointCloud2, "~/points")
    feed(camera, fresh, 4)
    wait_until(lambda: len(points) >= 4, 10)
    many = points[-1].width
    assert set_parameter(client, "points_stride", 8).successful
    time.sleep(0.5)
    feed(camera, fresh, 1)
    wait_until(lambda: points[-1].width < many / 8, 10)
    assert set_parameter(client, "points_stride", 2).successful
    for name, value, reason in (
        ("points_stride", 0, "out of range"),
        ("keyframe_mode", "sometimes", "one of interval, motion, manual"),
        ("checkpoint", "random:small", "read-only once the node is configured"),
        ("scale", 0.0, "out of range"),
    ):
        result = set_parameter(client, name, value)
        assert not result.successful
        assert reason in result.reason


def test_services_refuse_what_cannot_take_effect(client, camera, fresh):
    answer = client.call("execute_deferred_eviction")
    assert not answer.success
    assert "initialising" in answer.message
    feed(camera, fresh, 4)
    for name in ("execute_deferred_eviction", "rollback_last_frame"):
        answer = client.call(name)
        assert not answer.success
        assert "nothing is pending" in answer.message


def send_views(camera, results, indices):
    """Send the views in turn, each after the answer to the last; returns the last pose."""
    for index in indices:
        seen = len(results)
        camera.send(image_message(view(index)))
        if index >= SCALE_FRAMES - 1:
            wait_until(lambda n=seen: len(results) > n, 10, f"result of view {index}")
    wait_until(lambda: stamp_of(results[-1]) == camera.sent[-1], 10)
    return matrix(results[-1].pose.pose)


def test_commit_and_rollback_decide_what_later_frames_see(client, camera, fresh):
    def begin():
        assert client.call("reset").success
        send_views(camera, fresh, range(5))
        assert client.call("defer_eviction", True).success

    begin()
    baseline = send_views(camera, fresh, [30])

    begin()
    send_views(camera, fresh, [20, 21])
    assert client.status().figures["pending frames"] == "2"
    assert client.call("rollback_last_frame").success
    assert "0 still pending" in client.call("rollback_last_frame").message
    rolled_back = send_views(camera, fresh, [30])

    begin()
    send_views(camera, fresh, [20, 21])
    assert "2 pending frames kept" in client.call("execute_deferred_eviction").message
    committed = send_views(camera, fresh, [30])
    left = client.call("defer_eviction", False)
    assert left.success
    assert "1 pending frames kept" in left.message

    assert np.array_equal(rolled_back, baseline)
    assert not np.allclose(committed, baseline, atol=1e-4)


def test_every_encoding_comes_through(client, camera, odometry, node):
    poses = {}
    for encoding in SUPPORTED_ENCODINGS:
        assert client.call("reset").success
        for index in range(SCALE_FRAMES):
            seen = len(odometry)
            camera.send(encoded(view(index), encoding))
        wait_until(lambda n=seen: len(odometry) >= n + SCALE_FRAMES, 10, encoding)
        poses[encoding] = matrix(odometry[-1].pose.pose)
    for same in ("bgr8", "rgba8", "bgra8", "8UC3", "8UC4", "rgb16", "bgr16"):
        assert np.allclose(poses[same], poses["rgb8"], atol=1e-6), same
    assert np.allclose(poses["mono16"], poses["mono8"], atol=1e-6)
    camera.send(image_message(view(0), "yuv9000"))
    wait_until(lambda: "image encoding 'yuv9000' is not supported" in node.log, 10)
    assert "rgb8" in node.log.split("yuv9000")[1]
    client.wait_for_state("tracking; last error")


def encoded(rgb, encoding):
    """The picture in any encoding; Bayer and YUV get bytes that are right in size only."""
    name = encoding.lower()
    gray = rgb.mean(-1).astype(np.uint8)
    wide = name.endswith("16") or name == "16uc1"
    if name.startswith(("rgb", "bgr")) or name in ("8uc3", "8uc4"):
        pixels = rgb if name.startswith("rgb") else rgb[..., ::-1]
        if "a" in name or name == "8uc4":
            pixels = np.concatenate([pixels, np.full_like(pixels[..., :1], 255)], -1)
    elif name in ("nv12", "nv21"):
        pixels = np.concatenate([gray, np.full((SIZE[0] // 2, SIZE[1]), 128, np.uint8)])
    elif name in ("yuv422", "uyvy", "yuv422_yuy2", "yuyv"):
        chroma = np.full_like(gray, 128)
        order = (chroma, gray) if name in ("yuv422", "uyvy") else (gray, chroma)
        pixels = np.stack(order, -1)
    else:
        pixels = gray
    if wide:
        pixels = pixels.astype(np.uint16) * 256
    msg = image_message(np.ascontiguousarray(pixels), encoding)
    msg.height = SIZE[0]
    return msg


def test_garbage_is_counted_and_survived(client, camera, fresh):
    feed(camera, fresh, 4)
    seen = len(fresh)
    empty = Image(height=SIZE[0], width=SIZE[1], encoding="rgb8", step=SIZE[1] * 3)
    short = image_message(view(0))
    short.data = short.data[:100]
    narrow = image_message(view(0))
    narrow.step = 1
    nothing = Image(encoding="rgb8")
    for msg in (empty, short, narrow, nothing):
        camera.send(msg)
        time.sleep(0.15)
    status = client.status()
    assert int(status.figures["skipped: bad_image"]) >= 4
    assert len(fresh) == seen
    feed(camera, fresh, 1)


def test_a_size_change_begins_a_clean_session(client, camera, fresh, node):
    feed(camera, fresh, 4)
    epoch = int(client.status().figures["epoch"])
    seen = len(fresh)
    for index in range(4):
        camera.send(image_message(view(index, (72, 128))))
        time.sleep(0.15)
    wait_until(lambda: len(fresh) >= seen + 3, 10)
    assert np.allclose(matrix(fresh[seen].pose.pose), np.eye(4), atol=1e-6)
    assert "image size changed from 128x96 to 128x72" in node.log
    assert int(client.status().figures["epoch"]) == epoch + 1


def test_old_and_duplicate_stamps_are_dropped_and_counted(client, camera, fresh):
    feed(camera, fresh, 4)
    before = client.status().figures
    seen = len(fresh)
    camera.send(step_ns=-500_000_000)
    camera.send(step_ns=500_000_000)
    time.sleep(0.3)
    after = client.status().figures
    for reason in ("old_stamp", "duplicate_stamp"):
        key = f"skipped: {reason}"
        assert int(after[key]) == int(before.get(key, 0)) + 1
    assert len(fresh) == seen
    assert after["epoch"] == before["epoch"]
    feed(camera, fresh, 1)


def test_a_source_that_starts_again_without_a_clock_is_followed(client, camera, fresh, node):
    feed(camera, fresh, 4)
    epoch = int(client.status().figures["epoch"])
    camera.stamp_ns -= 60_000_000_000
    # the first of these are taken for late ones
    camera.gathering = RESTART_FRAMES - 1 + SCALE_FRAMES - 1
    feed(camera, fresh, 3)
    assert int(client.status().figures["epoch"]) == epoch + 1
    assert node.log.count("time went backwards") == 1


def test_a_storm_of_services_while_streaming(client, camera, fresh):
    """Every call is answered, and the stream is whole afterwards."""
    answers = []

    def storm(name, data):
        for _ in range(8):
            answers.append(client.call(name, data, timeout=60))

    calls = (
        ("reset", None),
        ("pause", True),
        ("pause", False),
        ("defer_eviction", True),
        ("execute_deferred_eviction", None),
        ("rollback_last_frame", None),
    )
    threads = [threading.Thread(target=storm, args=call) for call in calls]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        camera.send()
        time.sleep(0.03)
    assert len(answers) == 8 * len(calls)
    assert all(answer.message for answer in answers)
    assert client.call("pause", False).success
    assert client.call("defer_eviction", False).success
    assert client.call("reset").success
    camera.gathering = SCALE_FRAMES - 1
    results = feed(camera, fresh, 3)
    assert np.allclose(matrix(results[-3].pose.pose), np.eye(4), atol=1e-6)
