# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""One of something is no plural, in what a user reads."""

import subprocess
import sys

import pytest
from bag_factory import camera_messages, write_messages
from nav_msgs.msg import Odometry
from sensor_msgs.msg import CameraInfo, CompressedImage, Image

from lingbot_map_ros.errors import InputError
from lingbot_map_ros.models.config import GCTConfig
from lingbot_map_ros.models.gct_stream import GCTStream
from lingbot_map_ros.replay import cli
from lingbot_map_ros.ros.camera_info import camera_model
from lingbot_map_ros.ros.camera_mount import CameraMount
from lingbot_map_ros.ros.conversions import compressed_to_rgb, image_to_rgb
from lingbot_map_ros.ros.decisions import Decisions
from lingbot_map_ros.ros.odom_buffer import odom_complaints
from lingbot_map_ros.ros.parameters import Parameters
from lingbot_map_ros.ros.report import (
    InputSnapshot,
    NodeSnapshot,
    StreamSnapshot,
    make_report,
)
from lingbot_map_ros.ros.tf_lookup import NoLookup
from lingbot_map_ros.ros.worker import WorkerState
from lingbot_map_ros.streaming.results import SessionState
from lingbot_map_ros.streaming.session import StreamingSession
from lingbot_map_ros.wording import counted, first_few, shortened


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 images"), (1, "1 image"), (2, "2 images"), (1000, "1000 images")]
)
def test_a_number_of_images(number, text):
    assert counted(number, "image") == text


def test_the_first_few_of_many_names():
    assert first_few("abcde") == "a, b, c, d, e"
    assert first_few("abcdefg") == "a, b, c, d, e and 2 more"


LENS = [20.0, 0.0, 10.0, 0.0, 20.0, 10.0, 0.0, 0.0, 1.0]
LONG = "m" * 5000
BRIEF = 600
"""Longest sentence about a message."""


def test_a_long_name_is_cut_and_a_short_one_is_not():
    assert shortened("camera") == "camera"
    assert shortened(LONG) == "m" * 80 + "... (5000 characters)"


def test_names_from_messages_do_not_fill_the_log(caplog):
    image = Image(height=20, width=20, encoding=LONG)
    with pytest.raises(InputError) as encoding:
        image_to_rgb(image)
    with pytest.raises(InputError) as compressed:
        compressed_to_rgb(CompressedImage(format=LONG, data=b"no image"))
    with pytest.raises(InputError) as distortion:
        camera_model(
            CameraInfo(height=20, width=20, k=LENS, d=[0.1], distortion_model=LONG), 20, 20
        )
    odometry = Odometry(child_frame_id=LONG)
    odometry.header.frame_id = LONG
    robot = Parameters(tf_mode="map", scale_source="odometry")
    complaints = odom_complaints(odometry, robot)
    assert len(complaints) == 2
    CameraMount(Parameters(), NoLookup(), lambda *_: None).base_from_camera(LONG, 0)
    for text in (*map(str, (encoding.value, compressed.value, distortion.value)), *complaints):
        assert "mmm... (5000 characters)" in text and len(text) < BRIEF
    assert "mmm... (5000 characters)" in caplog.text and len(caplog.text) < BRIEF


def test_a_recording_of_one_image(tmp_path, capsys):
    bag = write_messages(tmp_path / "bag", camera_messages(1))
    options = ["--bag", bag, "--output", tmp_path / "out", "--checkpoint", "random:tiny"]
    assert cli.main(list(map(str, options))) == 1
    shown = capsys.readouterr()
    assert "1 image" not in shown.out + shown.err
    assert "too few images at the end to start a stream: 1 of 3" in shown.err
    player = [sys.executable, "-m", "lingbot_map_ros.replay.play_bag", bag, "--wait", "0"]
    played = subprocess.run(player, capture_output=True, text=True, timeout=60)
    assert played.stdout == "played 2 messages, 1 image\n", played.stderr


@pytest.mark.parametrize(("lost", "text"), [(1, "1 frame withheld"), (2, "2 frames withheld")])
def test_a_stream_that_is_lost(lost, text):
    session = StreamingSession(GCTStream(GCTConfig.preset("tiny")))
    status = vars(session.status()) | {"state": SessionState.LOST, "lost_frames": lost}
    stream = StreamSnapshot(type(session.status())(**status), "cpu", "none", None, 0, "")
    source = InputSnapshot("/image", False, 0.0, 0.0, 0, 0, 0, {}, {}, 0)
    node = NodeSnapshot("active", worker=WorkerState.READY, stream=stream, input=source)
    assert make_report(node).message.endswith(f"({text})")


def test_one_frame_that_is_kept():
    class Session:
        def set_deferred(self, deferred):
            return [7]

        def drain_decisions(self):
            return []

    answer = Decisions(Session(), None).set_deferred(False)
    assert answer == "keyframes are chosen automatically; 1 pending frame kept"
