# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Arrays to messages and back, through real serialisation and readers that are not ours."""

import struct
import subprocess
import sys

import numpy as np
import pytest
from rclpy.serialization import deserialize_message, serialize_message
from sensor_msgs.msg import CameraInfo, PointCloud2
from std_msgs.msg import Header
from work import counted

from lingbot_map_ros.errors import InputError
from lingbot_map_ros.ros.camera_info import camera_model
from lingbot_map_ros.ros.conversions import image_to_rgb
from lingbot_map_ros.ros.messages import (
    camera_info_message,
    depth_message,
    image_message,
    point_cloud_message,
)

HEADER = Header(frame_id="camera")


def sent(msg):
    return deserialize_message(serialize_message(msg), type(msg))


def test_rgb_comes_back():
    rgb = np.random.default_rng(0).integers(0, 256, (7, 5, 3), dtype=np.uint8)
    msg = sent(image_message(rgb, "rgb8", HEADER))
    assert (msg.header.frame_id, msg.step) == ("camera", 15)
    np.testing.assert_array_equal(image_to_rgb(msg), rgb)
    turned = image_message(rgb[::-1, :, ::-1], "bgr8", HEADER)
    np.testing.assert_array_equal(image_to_rgb(turned), rgb[::-1])


def test_depth_by_rep_118():
    depth = np.array([[1.5, 0.0, -1.0], [np.nan, np.inf, 2.0]], np.float32)
    valid = np.array([[True, True, True], [True, True, False]])
    msg = sent(depth_message(depth, HEADER, scale=2.0, valid=valid))
    assert (msg.encoding, msg.height, msg.width, msg.step) == ("32FC1", 2, 3, 12)
    got = np.frombuffer(msg.data, "<f4").reshape(2, 3)
    np.testing.assert_array_equal(got, [[3.0, np.nan, np.nan], [np.nan] * 3])
    everything = np.frombuffer(depth_message(depth, HEADER).data, "<f4")
    np.testing.assert_array_equal(everything, [1.5, *[np.nan] * 4, 2.0])


@pytest.mark.parametrize(
    ("pixels", "encoding"),
    [
        (np.zeros((2, 2), np.float64), "32FC1"),
        (np.zeros((2, 2), np.uint8), "rgb8"),
        (np.zeros((2, 2, 3), np.uint8), "mono8"),
        (np.zeros((2, 2, 3), np.uint8), "64FC1"),
    ],
)
def test_pixels_that_do_not_fit(pixels, encoding):
    with pytest.raises(InputError):
        image_message(pixels, encoding, HEADER)


def test_camera_info_describes_the_image():
    K = np.array([[300.0, 0, 259], [0, 301, 196], [0, 0, 1]])
    msg = sent(camera_info_message(K, 392, 518, HEADER))
    camera = camera_model(msg, 392, 518)
    np.testing.assert_array_equal(camera.K, K)
    assert camera.D == ()
    np.testing.assert_array_equal(np.array(msg.p).reshape(3, 4), np.c_[K, np.zeros(3)])
    assert isinstance(msg, CameraInfo)


def test_clouds():
    xyz = np.array([[1, 2, 3], [4, 5, np.nan]], np.float32)
    rgb = np.array([[255, 128, 1], [0, 0, 200]], np.uint8)
    msg = sent(point_cloud_message(xyz, rgb, HEADER))
    assert [(f.name, f.offset, f.datatype) for f in msg.fields] == [
        ("x", 0, 7),
        ("y", 4, 7),
        ("z", 8, 7),
        ("rgb", 12, 7),
    ]
    assert (msg.height, msg.width, msg.point_step, msg.row_step) == (1, 2, 16, 32)
    assert not msg.is_dense
    first, second = struct.iter_unpack("<3fI", msg.data.tobytes())
    assert first == (1.0, 2.0, 3.0, 0xFF8001)
    assert second[:2] == (4.0, 5.0) and second[3] == 200
    assert point_cloud_message(xyz[:1], rgb[:1], HEADER).is_dense
    empty = sent(point_cloud_message(xyz[:0], rgb[:0], HEADER))
    assert (empty.width, len(empty.data)) == (0, 0)


def test_a_cloud_of_a_million_points_is_filled_fast():
    """The slow ways look at every point or byte by itself."""
    xyz = np.zeros((1_000_000, 3), np.float32)
    rgb = np.zeros((1_000_000, 3), np.uint8)
    msg, calls = counted(point_cloud_message, xyz, rgb, HEADER)
    assert calls < 1000
    assert isinstance(msg, PointCloud2) and len(msg.data) == 16_000_000


def test_points_and_colours_that_do_not_fit():
    with pytest.raises(InputError):
        point_cloud_message(np.zeros((2, 3), np.float32), np.zeros((3, 3), np.uint8), HEADER)
    with pytest.raises(InputError):
        point_cloud_message(np.zeros((2, 4), np.float32), np.zeros((2, 4), np.uint8), HEADER)


def test_importing_needs_no_ros():
    code = (
        "import sys; sys.modules['rclpy'] = sys.modules['sensor_msgs'] = None; "
        "import lingbot_map_ros.ros.messages, lingbot_map_ros.ros.frames, "
        "lingbot_map_ros.ros.mailbox, lingbot_map_ros.ros.camera_info"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
