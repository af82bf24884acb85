# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What comes in: QoS, compressed images, calibration, namespaces, clock, silence."""

import time

import cv2
import numpy as np
import pytest
from geometry_msgs.msg import PoseStamped
from nav_msgs.msg import Odometry
from node_harness import (
    SCALE_FRAMES,
    SIZE,
    Camera,
    Client,
    NodeProcess,
    feed,
    qos_profile_sensor_data,
    stamp_of,
    view,
    wait_until,
)
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import CameraInfo, CompressedImage, PointCloud2
from tf2_msgs.msg import TFMessage

from lingbot_map_ros.models.config import GCTConfig
from lingbot_map_ros.ros.stamps import RESTART_FRAMES
from lingbot_map_ros.streaming.camera_model import CameraModel
from lingbot_map_ros.streaming.preprocessing import Preprocessor


@pytest.fixture(scope="module")
def client():
    client = Client("camera_side", prefix="/robot/lingbot_map")
    yield client
    client.close()


@pytest.fixture(scope="module")
def compressed_node():
    """In a namespace, with other names, compressed images, by the ROS clock, without TF."""
    process = NodeProcess(
        "image:=front/image",
        "camera_info:=front/camera_info",
        namespace="/robot",
        image_transport="compressed",
        use_sim_time=True,
        no_input_timeout=2.0,
        tf_mode="none",
        map_frame="robot/map",
        camera_frame="robot/eye",
    )
    yield process
    code, _ = process.stop()
    assert code == 0, process.log
    assert "Traceback" not in process.log


@pytest.fixture(scope="module")
def clock(client, compressed_node):
    return client.publisher(Clock, "/clock", qos_profile_sensor_data)


@pytest.fixture(scope="module")
def odometry(client):
    return client.record(Odometry, "~/odometry")


class CompressedCamera(Camera):
    """Sends the same pictures as PNG."""

    def __init__(self, client, topic):
        super().__init__(client, topic, qos_profile_sensor_data, CompressedImage)

    def send(self, msg=None, step_ns=100_000_000):
        if msg is None:
            data = cv2.imencode(".png", view(len(self.sent))[..., ::-1])[1]
            msg = CompressedImage(format="png")
            msg.data.frombytes(data.tobytes())
        return super().send(msg, step_ns)


@pytest.fixture(scope="module")
def camera(client, compressed_node):
    return CompressedCamera(client, "/robot/front/image/compressed")


def paced(camera, results, count):
    """Feed a node that takes the newest image only: gathered images get time to be taken."""
    start = len(results)
    while len(results) < start + count:
        seen = len(results)
        camera.send()
        if camera.gathering:
            camera.gathering -= 1
            time.sleep(0.3)
        else:
            wait_until(lambda n=seen: len(results) > n, 20, "a result")
            time.sleep(0.05)
    return results[start:]


def test_silence_is_explained_with_topic_publishers_and_qos(client, compressed_node):
    status = client.wait_for_state("waiting: no image on /robot/front/image/compressed")
    assert "nobody publishes it" in status.message
    assert "no image on /robot/front/image/compressed" in compressed_node.log


def test_compressed_images_in_a_namespace_and_without_tf(client, camera, odometry, compressed_node):
    camera.connect()
    poses = client.record(PoseStamped, "~/pose")
    transforms = client.record(TFMessage, "/tf")
    time.sleep(0.5)
    camera.gathering = SCALE_FRAMES - 1
    results = paced(camera, odometry, 4)
    assert "images come in on /robot/front/image/compressed" in compressed_node.log
    assert results[-1].header.frame_id == "odom"
    wait_until(lambda: len(poses) >= 4, 10)
    assert poses[-1].header.frame_id == "robot/map"
    assert not transforms
    assert {s.name for m in client.diagnostics for s in m.status} == {"robot/lingbot_map: stream"}


def test_corrupt_compressed_images_are_counted_and_skipped(client, camera, odometry):
    before = int(client.status().figures.get("skipped: bad_image", 0))
    for data in (b"", b"not an image", cv2.imencode(".jpg", view(0))[1].tobytes()[:200]):
        msg = CompressedImage(format="jpeg")
        msg.data.frombytes(data)
        camera.send(msg)
        time.sleep(0.3)
    client.wait_for_figures({"skipped: bad_image": str(before + 3)})
    paced(camera, odometry, 1)


def at(seconds):
    msg = Clock()
    msg.clock.sec = seconds
    return msg


def test_a_bag_that_loops_begins_a_new_epoch(client, camera, odometry, clock, compressed_node):
    time_now = at(1000)
    ticking = client.repeat(clock, time_now)
    wait_until(lambda: client.call("reset").success, 40, "the model is loaded")
    camera.gathering = SCALE_FRAMES - 1
    paced(camera, odometry, 4)
    wait_until(lambda: paced(camera, odometry, 1) and clock_arrived(client), 20, "the clock")
    epoch = int(client.status().figures["epoch"])
    straggler = camera.stamp_ns + 50_000_000
    time_now.clock.sec = 500
    wait_until(lambda: "time went backwards (the ROS clock" in compressed_node.log, 20)
    resume = camera.stamp_ns - 500_000_000_000
    camera.stamp_ns = straggler
    camera.send()
    time.sleep(0.3)
    camera.stamp_ns = resume
    camera.gathering = SCALE_FRAMES - 1
    results = paced(camera, odometry, 3)
    ticking.cancel()
    assert stamp_of(results[0]) < straggler - 400_000_000_000
    client.wait_for_figures({"epoch": str(epoch + 1), "skipped: before_time_jump": "1"})
    assert compressed_node.log.count("a new session begins") == 1


def clock_arrived(client):
    """Without one the time is 0, and every image is of the future."""
    return abs(float(client.status().figures.get("frame age (s)", "inf"))) < 100


CAMERAS = {
    "plumb_bob": ([-0.25, 0.08, 0.001, -0.001, 0.0], 100.0),
    "equidistant": ([-0.02, 0.01, -0.003, 0.0005], 70.0),
    "rational_polynomial": ([-0.2, 0.05, 0.0, 0.0, 0.01, 0.05, 0.01, 0.0], 100.0),
}


def calibration(model):
    distortion, focal = CAMERAS[model]
    K = np.array([[focal, 0.0, 62.0], [0.0, focal, 49.0], [0.0, 0.0, 1.0]])
    return CameraModel(SIZE[1], SIZE[0], K, tuple(distortion), model)


@pytest.mark.parametrize("model", CAMERAS)
def test_distorted_cameras_come_out_undistorted(client, camera, odometry, model):
    expected = calibration(model)
    info = CameraInfo(height=SIZE[0], width=SIZE[1], distortion_model=model)
    info.k = expected.K.ravel()
    info.d = list(expected.D)
    publisher = client.publisher(CameraInfo, "/robot/front/camera_info")
    infos = client.record(CameraInfo, "~/depth/camera_info")
    points = client.record(PointCloud2, "~/points")
    sending = client.repeat(publisher, info)
    assert client.call("reset").success
    camera.gathering = SCALE_FRAMES - 1
    tiny = Preprocessor(*SIZE, GCTConfig.preset("tiny"), camera=expected)
    assert tiny.undistorts

    def calibrated():
        paced(camera, odometry, 4)
        wait_until(lambda: infos and points and stamp_of(points[-1]) == camera.sent[-1], 10)
        return np.allclose(np.array(infos[-1].k).reshape(3, 3), tiny.intrinsics)

    wait_until(calibrated, 20)
    sending.cancel()
    client.node.destroy_publisher(publisher)
    K = np.array(infos[-1].k).reshape(3, 3)
    cloud = np.frombuffer(points[-1].data, np.float32).reshape(-1, 4)
    pixels = cloud[:, :3] @ K.T
    where = np.rint(pixels[:, :2] / pixels[:, 2:]).astype(int)
    assert np.abs(pixels[:, :2] / pixels[:, 2:] - where).max() < 0.01
    packed = cloud[:, 3].copy().view(np.uint32)
    rgb = np.stack([packed >> 16 & 255, packed >> 8 & 255, packed & 255], -1)
    straight = tiny(view(len(camera.sent) - 1)).permute(1, 2, 0).numpy() * 255
    assert np.abs(straight[where[:, 1], where[:, 0]] - rgb).max() <= 1.0


def test_a_calibration_of_nan_is_said_and_not_used(client, camera, odometry, compressed_node):
    info = CameraInfo(height=SIZE[0], width=SIZE[1], distortion_model="plumb_bob")
    info.k = np.full(9, np.nan)
    publisher = client.publisher(CameraInfo, "/robot/front/camera_info")
    wait_until(lambda: publisher.get_subscription_count(), 10)

    def said():
        publisher.publish(info)
        paced(camera, odometry, 1)
        return "camera_info is not used" in compressed_node.log

    wait_until(said, 10)
    paced(camera, odometry, 1)
    client.node.destroy_publisher(publisher)


def test_a_reliable_subscription_explains_a_best_effort_publisher():
    client = Client("strict_camera", prefix="/strict")
    node = NodeProcess("__node:=strict", image_qos="reliable", no_input_timeout=1.0)
    try:
        camera = Camera(client, qos=qos_profile_sensor_data)
        client.wait_for_state("waiting")
        wait_until(lambda: "set image_qos: sensor_data" in node.log, 20)
        assert "BEST_EFFORT" in node.log
        # At first nobody may publish it yet, which is said too.
        said = [line for line in node.log.splitlines() if "no image on /image" in line]
        assert len(said) <= 2 and "set image_qos: sensor_data" in said[-1]
        other = Camera(client)
        other.connect()
        results = client.record(Odometry, "~/odometry")
        other.gathering = SCALE_FRAMES - 1
        paced(other, results, 3)
        assert not camera.publisher.get_subscription_count()
    finally:
        code, _ = node.stop()
        client.close()
    assert code == 0


def test_stray_stamps_cost_only_their_images_and_nothing_but_such_is_an_error():
    client = Client("stray_camera", prefix="/doubting")
    node = NodeProcess("__node:=doubting", image_qos="reliable", stall_timeout=2.0)
    try:
        camera = Camera(client)
        camera.connect()
        results = client.record(Odometry, "~/odometry")
        wait_until(lambda: camera.send() and not time.sleep(0.3) and results, 60, "a result")
        feed(camera, results, 12)
        before = client.status().figures
        camera.send(step_ns=10_000_000_000_000)
        camera.stamp_ns -= 10_000_000_000_000
        feed(camera, results, RESTART_FRAMES + 1)
        now = client.wait_for_figures({"skipped: future_stamp": "1"}).figures
        assert now["epoch"] == before["epoch"] and "skipped: old_stamp" not in now
        assert node.log.count("s ahead of the time;") == 1
        wait_until(lambda: camera.send(step_ns=0) and "is skipped: the stamps" in node.log, 20)
        client.wait_for_state("error: every image for")
        feed(camera, results, 2)
        client.wait_for_state("tracking")
        assert node.log.count("is skipped: the stamps repeat") == 1
    finally:
        code, _ = node.stop()
        client.close()
    assert code == 0
