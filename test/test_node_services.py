# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Services of a running node, and images that are odd, seen from another process."""

import dataclasses
import threading
import time

import numpy as np
from node_harness import (
    LATCHED,
    SCALE_FRAMES,
    SIZE,
    feed,
    image_message,
    stamp_of,
    view,
    wait_until,
)
from node_messages import matrix
from rcl_interfaces.msg import ParameterType
from rcl_interfaces.srv import GetParameters
from sensor_msgs.msg import Image, PointCloud2

from lingbot_map_ros.ros.conversions import SUPPORTED_ENCODINGS
from lingbot_map_ros.ros.parameters import Parameters
from lingbot_map_ros.ros.size_guard import CHANGED_FRAMES
from lingbot_map_ros.ros.stamps import RESTART_FRAMES, RESUME_FRAMES

pytest_plugins = ["node_fixtures"]


def test_pause_drops_images_until_it_ends(client, camera, fresh):
    feed(camera, fresh, 4)
    assert client.call("pause", True).success
    seen = len(fresh)
    for _ in range(3):
        camera.send()
        time.sleep(0.1)
    client.wait_for_state("paused")
    client.wait_for(lambda s: int(s.figures.get("skipped: paused", 0)) >= 3, "skipped images")
    assert len(fresh) == seen
    assert client.call("pause", False).success
    feed(camera, fresh, 1)


def test_all_parameters_can_be_read_at_once(client):
    """As `ros2 param dump` does: a parameter without a value would make the answer empty."""
    names = [field.name for field in dataclasses.fields(Parameters)]
    values = client.ask(GetParameters, "get_parameters", GetParameters.Request(names=names)).values
    assert len(values) == len(names)
    assert ParameterType.PARAMETER_NOT_SET not in [value.type for value in values]


def test_reset_begins_a_new_epoch_with_an_empty_map(client, camera, fresh):
    messages = client.record(PointCloud2, "~/map", LATCHED)
    feed(camera, fresh, 5)
    wait_until(lambda: messages and messages[-1].width > 0, 10)
    epoch = int(client.status().figures["epoch"])
    answer = client.call("reset")
    assert answer.success
    assert str(epoch + 1) in answer.message
    wait_until(lambda: messages[-1].width == 0, 5, "empty map")
    client.wait_for_figures({"epoch": str(epoch + 1)})
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


def test_saves_within_a_second_have_names_of_their_own(client, camera, fresh, directory):
    feed(camera, fresh, 3)
    answers = [client.call_async("save_map") for _ in range(4)]
    wait_until(lambda: all(answer.done() for answer in answers), 20)
    files = {answer.result().message.split(": ")[0] for answer in answers}
    assert len(files) == 4 and files <= {str(path) for path in directory.iterdir()}


def test_a_save_that_fails_says_why_and_leaves_no_file(client, camera, fresh, directory):
    answer = client.call("save_map")
    assert not answer.success
    assert "empty" in answer.message
    feed(camera, fresh, 4)
    before = sorted(directory.iterdir())
    blocked = directory / "blocked"
    assert client.set_parameter("output_directory", str(blocked)).successful
    blocked.write_text("a file where a directory should be")
    answer = client.call("save_map")
    assert not answer.success
    assert "blocked" in answer.message
    blocked.unlink()
    assert client.set_parameter("output_directory", str(directory)).successful
    assert sorted(directory.iterdir()) == before
    feed(camera, fresh, 1)


def test_a_new_output_directory_holds_at_once_or_is_refused(
    client, camera, fresh, directory, tmp_path
):
    feed(camera, fresh, 4)
    for name in ("first", "second"):
        folder = tmp_path / name / "maps"
        assert client.set_parameter("output_directory", str(folder)).successful
        assert not folder.exists()
        assert str(folder) in client.call("save_map").message
    file = tmp_path / "file"
    file.write_text("no folder")
    answer = client.set_parameter("output_directory", str(file / "maps"))
    assert not answer.successful and "Not a directory" in answer.reason
    assert str(folder) in client.call("save_trajectory").message
    assert client.set_parameter("output_directory", str(directory)).successful


def test_services_refuse_what_cannot_take_effect(client, camera, fresh):
    answer = client.call("execute_deferred_eviction")
    assert not answer.success
    assert "initialising" in answer.message
    feed(camera, fresh, 4)
    for name in ("execute_deferred_eviction", "rollback_last_frame"):
        answer = client.call(name)
        assert not answer.success
        assert "nothing is pending" in answer.message


def send_views(camera, results, indices, size=SIZE):
    """Send the views in turn, each after the answer to the last; returns the last pose."""
    for index in indices:
        seen = len(results)
        camera.send(image_message(view(index, size)))
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
    client.wait_for_figures({"pending frames": "2"})
    assert client.call("rollback_last_frame").success
    assert "0 still pending" in client.call("rollback_last_frame").message
    rolled_back = send_views(camera, fresh, [30])

    begin()
    send_views(camera, fresh, [20, 21])
    assert "2 pending frames kept" in client.call("execute_deferred_eviction").message
    committed = send_views(camera, fresh, [30])
    left = client.call("defer_eviction", False)
    assert left.success
    assert "1 pending frame kept" in left.message

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
    dots = [image_message(view(0, (1, 1)))] * CHANGED_FRAMES
    for msg in (empty, short, narrow, nothing, *dots):
        camera.send(msg)
        time.sleep(0.15)
    client.wait_for(lambda s: int(s.figures.get("skipped: bad_image", 0)) >= 5, "skipped images")
    assert len(fresh) == seen
    feed(camera, fresh, 1)


def test_a_stray_image_of_another_size_costs_only_itself(client, camera, fresh, node):
    feed(camera, fresh, 4)
    before, seen = client.status().figures, len(fresh)
    camera.send(image_message(view(0, (121, 161))))
    feed(camera, fresh, 2)
    skipped = int(before.get("skipped: other_size", 0)) + 1
    client.wait_for_figures({"epoch": before["epoch"], "skipped: other_size": str(skipped)})
    assert len(fresh) == seen + 2
    assert node.log.count("an image is skipped: its size is 161x121 among images of 128x96") == 1


def change_size(camera, size):
    """Send what the node skips before it is sure that the size of the images changed."""
    for _ in range(CHANGED_FRAMES - 1):
        camera.send(image_message(view(0, size)))


def test_a_size_change_begins_a_clean_session(client, camera, fresh, node):
    feed(camera, fresh, 4)
    epoch = int(client.status().figures["epoch"])
    seen = len(fresh)
    change_size(camera, (72, 128))
    for index in range(4):
        camera.send(image_message(view(index, (72, 128))))
        time.sleep(0.15)
    wait_until(lambda: len(fresh) >= seen + 3, 10)
    assert np.allclose(matrix(fresh[seen].pose.pose), np.eye(4), atol=1e-6)
    assert "image size changed from 128x96 to 128x72" in node.log
    client.wait_for_figures({"epoch": str(epoch + 1)})


def test_manual_keyframes_outlast_sessions_that_begin_by_themselves(client, camera, fresh, node):
    feed(camera, fresh, 4)
    assert client.call("defer_eviction", True).success
    for size in ((72, 128), (96, 128)):
        epoch = int(client.status().figures["epoch"])
        change_size(camera, size)
        send_views(camera, fresh, range(SCALE_FRAMES + 1), size)
        client.wait_for_figures(
            {"epoch": str(epoch + 1), "keyframe decision": "manual", "pending frames": "1"}
        )
    assert node.log.count("a new session begins; keyframes stay manual") == 2
    camera.stamp_ns -= 60_000_000_000
    camera.gathering = RESTART_FRAMES - 1 + SCALE_FRAMES - 1
    feed(camera, fresh, 3)
    client.wait_for_figures({"keyframe decision": "manual"})
    assert "keyframe_mode: interval holds again" in client.call("reset").message
    camera.gathering = SCALE_FRAMES - 1
    feed(camera, fresh, 4)
    client.wait_for_figures({"keyframe decision": "automatic", "pending frames": "0"})


def test_old_and_duplicate_stamps_are_dropped_and_counted(client, camera, fresh):
    feed(camera, fresh, 4)
    before = client.status().figures
    seen = len(fresh)
    camera.send(step_ns=-500_000_000)
    camera.send(step_ns=500_000_000)
    keys = ("skipped: old_stamp", "skipped: duplicate_stamp")
    client.wait_for_figures({key: str(int(before.get(key, 0)) + 1) for key in keys})
    assert len(fresh) == seen
    assert client.status().figures["epoch"] == before["epoch"]
    feed(camera, fresh, 1)


def test_the_stream_goes_on_from_before_a_stray_stamp(client, camera, fresh):
    feed(camera, fresh, 4)
    before = client.status().figures
    stamp = camera.stamp_ns
    stray = camera.send(step_ns=6_000_000_000)
    wait_until(lambda: stamp_of(fresh[-1]) == stray, 20)
    camera.stamp_ns = stamp
    for _ in range(RESUME_FRAMES - 1):
        camera.send()
    results = feed(camera, fresh, 2)
    assert stamp_of(results[0]) == stamp + RESUME_FRAMES * 100_000_000
    skipped = int(before.get("skipped: old_stamp", 0)) + RESUME_FRAMES - 1
    client.wait_for_figures({"epoch": before["epoch"], "skipped: old_stamp": str(skipped)})


def test_a_source_that_starts_again_without_a_clock_is_followed(client, camera, fresh, node):
    feed(camera, fresh, 4)
    epoch = int(client.status().figures["epoch"])
    before = node.log.count("time went backwards")
    camera.stamp_ns -= 60_000_000_000
    # the first of these are taken for late ones
    camera.gathering = RESTART_FRAMES - 1 + SCALE_FRAMES - 1
    feed(camera, fresh, 3)
    client.wait_for_figures({"epoch": str(epoch + 1)})
    assert node.log.count("time went backwards") == before + 1


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
