# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Faults in a running node, one after the other: what it says, and that it goes on."""

import resource
import signal
import time

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticStatus
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from nav_msgs.msg import Odometry
from node_harness import (
    LOSSLESS,
    SCALE_FRAMES,
    Camera,
    Client,
    NodeProcess,
    Orders,
    feed,
    image_message,
    stamp_of,
    view,
    wait_until,
)

from lingbot_map_ros.ros.size_guard import CHANGED_FRAMES

pytest_plugins = ["node_fixtures"]
FAULTY = True
PARAMETERS = {
    "stall_timeout": 2.0,
    "no_input_timeout": 4.0,
    "lost_after": 3,
    "keyframe_interval": 2,
    "points_stride": 1,
}


def poses(messages):
    return [str(msg.pose.pose) for msg in messages]


def send_views(camera, odometry, numbers):
    """Send views; the odometry of them."""
    stamps = [camera.send(image_message(view(number))) for number in numbers]
    camera.gathering = 0
    wait_until(lambda: odometry and stamp_of(odometry[-1]) == stamps[-1], 30, "the last result")
    return [msg for msg in list(odometry) if stamp_of(msg) >= stamps[0]]


@pytest.fixture(scope="module")
def reference(camera, odometry):
    """Poses of a fresh node's first ten images."""
    return poses(send_views(camera, odometry, range(10)))


def assert_like_new(client, camera, odometry, reference):
    """After a reset the node answers, bit for bit, as when it was fresh."""
    assert client.call("reset").success
    camera.gathering = SCALE_FRAMES - 1
    assert poses(send_views(camera, odometry, range(10))) == reference


FAULTS = {
    "out of memory in a block": "CUDA out of memory",
    "out of memory in the depth head": "CUDA out of memory",
    "fault in the camera head": "planned fault",
    "fault while publishing": "planned fault",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_costs_its_frame_is_said_and_leaves_nothing(
    client, camera, odometry, reference, orders, node, fault
):
    before = node.footprint()
    skipped = int(client.status().figures.get("skipped: error", 0))
    orders.give(fault)
    for _ in range(4):
        camera.send()
    status = client.wait_for_state(f"tracking; last error: {FAULTS[fault]}")
    assert status.level == DiagnosticStatus.WARN
    failed = str(skipped + 4)
    client.wait_for_figures({"skipped: error": failed})
    orders.give("")
    feed(camera, odometry, 2)
    client.wait_for_figures({"state": "tracking", "last error": "", "skipped: error": failed})
    assert_like_new(client, camera, odometry, reference)
    assert node.running
    node.assert_grew_no_further_than(before)


PARTS = (
    "aggregator.patch_embed",
    *(f"aggregator.{kind}_blocks.{i}" for i in range(4) for kind in ("frame", "global")),
    "camera_head",
    "depth_head",
)


def test_every_block_and_head_may_fail_in_a_keyframe_and_between(
    client, camera, odometry, reference, orders, node
):
    assert_like_new(client, camera, odometry, reference)
    before = node.footprint()
    for part in PARTS:
        for times in (1, 2):  # every second frame is a keyframe
            orders.give(f"out of memory in: {part}")
            seen = len(odometry)
            camera.send()
            said = f"in: {part} now"
            wait_until(lambda said=said, n=times: node.log.count(said) == n, 10, part)
            orders.give("")
            feed(camera, odometry, 1)
            assert len(odometry) == seen + 1
    client.wait_for_figures({"state": "tracking", "last error": ""})
    assert_like_new(client, camera, odometry, reference)
    node.assert_grew_no_further_than(before)


def test_a_fault_in_the_report_does_not_end_the_worker(
    client, camera, odometry, reference, orders, node
):
    orders.give("fault in the snapshot")
    feed(camera, odometry, 3)
    assert "a report of the worker failed" in node.log
    orders.give("")
    feed(camera, odometry, 1)
    client.wait_for_state("tracking")
    assert_like_new(client, camera, odometry, reference)


def test_when_every_frame_fails_the_state_is_an_error(client, camera, odometry, reference, orders):
    orders.give("fault in the camera head")
    end = time.monotonic() + 4.0
    while time.monotonic() < end:
        camera.send()
        time.sleep(0.2)
    status = client.wait_for_state("error: no result for")
    assert status.level == DiagnosticStatus.ERROR and "planned fault" in status.message
    orders.give("")
    feed(camera, odometry, 1)
    assert client.wait_for(lambda s: s.message == "tracking", "rest").level == DiagnosticStatus.OK
    assert_like_new(client, camera, odometry, reference)


def test_output_that_is_no_pose_is_withheld_and_found_again(
    client, camera, odometry, reference, orders
):
    orders.give("no finite pose")
    seen = len(odometry)
    for _ in range(2):
        camera.send()
    status = client.wait_for_state("lost: ")
    assert "not finite" in status.message and status.level == DiagnosticStatus.WARN
    assert len(odometry) == seen
    orders.give("")
    (found,) = feed(camera, odometry, 1)
    usual = send_views(camera, odometry, range(10, 12))[0]
    assert found.pose.covariance[0] > 10 * 0.01 and usual.pose.covariance[0] > 0.01
    assert_like_new(client, camera, odometry, reference)


def test_a_camera_that_goes_and_comes_back(client, camera, odometry, reference, node):
    client.wait_for_state("waiting: no image on /image", 10)
    assert "no image on /image for" in node.log
    camera.stamp_ns += int(PARAMETERS["no_input_timeout"] * 1e9)
    feed(camera, odometry, 2)
    client.wait_for_state("tracking")
    assert "images come in on /image" in node.log
    assert_like_new(client, camera, odometry, reference)


def test_black_and_frozen_and_wild_images_do_not_stop_the_stream(
    client, camera, odometry, reference
):
    noise = np.random.default_rng(0)
    for shape in ("black", "frozen", "wild"):
        for _ in range(6):
            pixels = {
                "black": np.zeros((96, 128, 3), np.uint8),
                "frozen": view(3),
                "wild": noise.integers(0, 256, (96, 128, 3), np.uint8),
            }[shape]
            camera.send(image_message(pixels))
        feed(camera, odometry, 2)
        client.wait_for_state("tracking")
    assert_like_new(client, camera, odometry, reference)


def test_sizes_stamps_and_broken_images_leave_nothing(client, camera, odometry, reference, node):
    feed(camera, odometry, 2)
    before, figures = node.footprint(), client.status().figures
    for size in ((72, 128), (96, 128)):
        seen = len(odometry)
        for number in range(CHANGED_FRAMES - 1 + SCALE_FRAMES):
            camera.send(image_message(view(number, size)))
        wait_until(lambda seen=seen: len(odometry) == seen + SCALE_FRAMES, 20, str(size))
        assert f"to {size[1]}x{size[0]}: a new session begins" in node.log
    seen = len(odometry)
    camera.send(step_ns=-500_000_000)
    camera.send(step_ns=500_000_000)
    broken = image_message(view(0))
    broken.data = broken.data[:100]
    camera.send(broken)
    camera.send(image_message(np.full((96, 128), np.nan, np.float32), "32FC1"))
    camera.send(image_message(view(0), "no_encoding"))
    epoch = client.status().figures["epoch"]
    for _ in range(CHANGED_FRAMES):  # of a size that the network cannot take
        camera.send(image_message(view(0, (10, 640))))
    feed(camera, odometry, 1)
    skipped = {"old_stamp": 1, "duplicate_stamp": 1, "bad_image": 4}
    skipped["other_size"] = 3 * (CHANGED_FRAMES - 1)
    sums = {f"skipped: {k}": int(figures.get(f"skipped: {k}", 0)) + n for k, n in skipped.items()}
    now = client.wait_for_figures({key: str(total) for key, total in sums.items()})
    assert now.figures["epoch"] == epoch
    assert len(odometry) == seen + 1
    assert_like_new(client, camera, odometry, reference)
    node.assert_grew_no_further_than(before)


def test_a_full_disk_is_said_and_leaves_no_file(
    client, camera, odometry, reference, node, directory
):
    for file in directory.iterdir():
        file.unlink()
    room = 1 << 17
    assert len(node.log) < room // 2  # the log is a file too
    old = resource.prlimit(node.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(node.pid, resource.RLIMIT_FSIZE, (room, old[1]))
    answer = client.call("save_map")
    resource.prlimit(node.pid, resource.RLIMIT_FSIZE, old)
    assert not answer.success and "File too large" in answer.message
    assert list(directory.iterdir()) == []
    assert client.call("save_map").success
    assert_like_new(client, camera, odometry, reference)


def change(client, transition):
    service = client.node.create_client(ChangeState, client.name("~/change_state"))
    assert service.wait_for_service(10)
    answer = service.call_async(ChangeState.Request(transition=Transition(id=transition)))
    wait_until(answer.done, 20, "answer of change_state")
    assert answer.result().success


def test_a_worker_that_ends_is_an_error_and_the_node_starts_again_until_sigterm(tmp_path):
    client = Client("worker_client", prefix="/worker_map")
    orders = Orders(tmp_path / "fault")
    names = ("__node:=worker_map", "image:=worker_image")
    node = NodeProcess(*names, program=orders.program, **LOSSLESS)
    try:
        camera = Camera(client, "/worker_image")
        camera.connect()
        odometry = client.record(Odometry, "~/odometry")
        camera.gathering = SCALE_FRAMES - 1
        feed(camera, odometry, 2)

        orders.give("fault that ends the worker")
        camera.send()
        status = client.wait_for_state("error: RuntimeError: planned fault")
        assert status.level == DiagnosticStatus.ERROR
        assert status.figures["lifecycle"] == "unconfigured"
        assert node.log.count("the worker has ended") == 1

        orders.give("")
        for transition in (Transition.TRANSITION_CONFIGURE, Transition.TRANSITION_ACTIVATE):
            change(client, transition)
        client.wait_for_state("waiting")
        camera.connect()
        camera.gathering = SCALE_FRAMES - 1
        feed(camera, odometry, 2)

        orders.give("slow step")
        camera.send()
        time.sleep(1.0)
        code, seconds = node.stop(signal.SIGTERM)
        assert code == 0 and seconds < 4.0
    finally:
        node.stop(signal.SIGKILL)
        client.close()
