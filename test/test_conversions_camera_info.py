# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""CameraInfo to calibrations: what is used, what is refused."""

import numpy as np
import pytest
from rclpy.serialization import serialize_message
from rosbags.typesys import Stores, get_typestore
from sensor_msgs.msg import CameraInfo

from lingbot_map_ros.ros.camera_info import camera_model
from lingbot_map_ros.streaming.camera_model import CameraModelError

K = [420.0, 0.0, 331.0, 0.0, 424.0, 229.0, 0.0, 0.0, 1.0]


def info(**changes):
    msg = CameraInfo(width=640, height=480, distortion_model="plumb_bob", k=K)
    msg.d = [-0.3, 0.1, 0.001, -0.001, 0.0]
    for name, value in changes.items():
        target = msg.roi if name in ("x_offset", "y_offset", "roi_width", "roi_height") else msg
        setattr(target, name.removeprefix("roi_"), value)
    return msg


def test_a_calibration():
    camera = camera_model(info(), 480, 640)
    assert (camera.width, camera.height, camera.model) == (640, 480, "plumb_bob")
    np.testing.assert_array_equal(camera.K.reshape(-1), K)
    assert camera.D == (-0.3, 0.1, 0.001, -0.001, 0.0)


def test_equal_messages_give_the_same_object_and_others_another():
    assert camera_model(info(), 480, 640) is camera_model(info(), 480, 640)
    assert camera_model(info(d=[0.1] * 5), 480, 640) is not camera_model(info(), 480, 640)


def test_messages_of_rosbags():
    store = get_typestore(Stores.ROS2_HUMBLE)
    msg = store.deserialize_cdr(serialize_message(info()), "sensor_msgs/msg/CameraInfo")
    assert camera_model(msg, 480, 640) == camera_model(info(), 480, 640)
    ros1 = get_typestore(Stores.ROS1_NOETIC).types["sensor_msgs/msg/CameraInfo"]
    fields = {name: getattr(msg, name.lower() if len(name) == 1 else name) for name in vars(msg)}
    upper = {name.upper() if len(name) == 1 else name: value for name, value in fields.items()}
    assert camera_model(ros1(**upper), 480, 640) == camera_model(info(), 480, 640)


def test_binning_and_region_of_interest():
    """The same ray, through the sensor and through the smaller image of it."""
    camera = camera_model(
        info(
            d=[],
            distortion_model="",
            binning_x=2,
            binning_y=4,
            x_offset=40,
            y_offset=20,
            roi_width=400,
            roi_height=320,
        ),
        80,
        200,
    )
    ray = np.array([0.1, -0.05, 1.0])
    pixel = (np.array(K).reshape(3, 3) @ ray)[:2]
    np.testing.assert_allclose((camera.K @ ray)[:2], (pixel - (40, 20)) / (2, 4))


@pytest.mark.parametrize("model", ["plumb_bob", "", "something new"])
def test_no_distortion_whatever_the_model(model):
    camera = camera_model(info(d=[0.0] * 5, distortion_model=model), 480, 640)
    assert (camera.D, camera.model) == ((), "none")


def test_equidistant_and_rational():
    camera = camera_model(info(d=[0.1, 0.0, 0.0, 0.01], distortion_model="equidistant"), 480, 640)
    assert camera.model == "equidistant"
    camera = camera_model(info(d=[0.1] * 8, distortion_model="rational_polynomial"), 480, 640)
    assert len(camera.D) == 8


@pytest.mark.parametrize(
    ("changes", "size"),
    [
        ({"k": [0.0] * 9}, (480, 640)),
        ({"k": [float("nan")] * 9}, (480, 640)),
        ({"k": [4.2, 0.0, 3.2, 0.0, 4.2, 2.4, 0.0, 0.0, 1.0]}, (480, 640)),
        ({"k": [1e30, 0.0, 320.0, 0.0, 1e30, 240.0, 0.0, 0.0, 1.0]}, (480, 640)),
        ({"d": [1e6] * 5}, (480, 640)),
        ({"d": [-1e3, 0.0, 0.0, 0.0], "distortion_model": "equidistant"}, (480, 640)),
        ({"d": [float("nan")] * 5}, (480, 640)),
        ({"d": [0.1, 0.1]}, (480, 640)),
        ({"distortion_model": "omnidirectional"}, (480, 640)),
        ({"width": 0, "height": 0}, (480, 640)),
        ({}, (240, 320)),
        ({"binning_x": 2, "binning_y": 2}, (480, 640)),
        ({"x_offset": 600, "roi_width": 100, "roi_height": 480}, (480, 100)),
    ],
)
def test_garbage(changes, size):
    with pytest.raises(CameraModelError):
        camera_model(info(**changes), *size)
