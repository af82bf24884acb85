# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Real bags for the tests of the reader, of `replay` and of `play_bag`, written by rosbags."""

from pathlib import Path

import cv2
import numpy as np
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin, Writer
from rosbags.typesys import Stores, get_typestore

STORE = get_typestore(Stores.ROS2_HUMBLE)
START_NS = 1_700_000_000_000_000_000
PERIOD_NS = 100_000_000
TYPES = STORE.types


def picture(index: int, height: int = 48, width: int = 64) -> np.ndarray:
    """A smooth RGB image [height, width, 3] that names its index by its colours."""
    y, x = np.mgrid[:height, :width]
    channels = (x * 255 // width, y * 255 // height, np.full_like(x, index * 7 % 256))
    return np.stack(channels, -1).astype(np.uint8)


def header(stamp_ns: int, frame_id: str = "camera"):
    time = TYPES["builtin_interfaces/msg/Time"](stamp_ns // 10**9, stamp_ns % 10**9)
    return TYPES["std_msgs/msg/Header"](time, frame_id)


def image_message(index: int, stamp_ns: int, image: np.ndarray | None = None):
    image = picture(index) if image is None else image
    height, width = image.shape[:2]
    return TYPES["sensor_msgs/msg/Image"](
        header(stamp_ns), height, width, "rgb8", 0, width * 3, image.reshape(-1)
    )


def compressed_message(index: int, stamp_ns: int, form: str = "png"):
    data = cv2.imencode(f".{form}", picture(index)[..., ::-1])[1].reshape(-1)
    return TYPES["sensor_msgs/msg/CompressedImage"](header(stamp_ns), form, data)


def camera_info_message(stamp_ns: int, height: int = 48, width: int = 64):
    f = 0.8 * width
    K = np.array([f, 0, width / 2, 0, f, height / 2, 0, 0, 1.0])
    P = np.array([f, 0, width / 2, 0, 0, f, height / 2, 0, 0, 0, 1.0, 0])
    region = TYPES["sensor_msgs/msg/RegionOfInterest"](0, 0, 0, 0, False)
    return TYPES["sensor_msgs/msg/CameraInfo"](
        header(stamp_ns), height, width, "plumb_bob", np.zeros(5), K, np.eye(3).reshape(-1), P,
        0, 0, region,
    )  # fmt: skip


def pose_message(position, quaternion=(0.0, 0.0, 0.0, 1.0)):
    point = TYPES["geometry_msgs/msg/Point"](*map(float, position))
    return TYPES["geometry_msgs/msg/Pose"](
        point, TYPES["geometry_msgs/msg/Quaternion"](*map(float, quaternion))
    )


def odometry_message(stamp_ns: int, position, quaternion=(0.0, 0.0, 0.0, 1.0)):
    vector = TYPES["geometry_msgs/msg/Vector3"]
    twist = TYPES["geometry_msgs/msg/Twist"](vector(0.0, 0.0, 0.0), vector(0.0, 0.0, 0.0))
    covariance = np.zeros(36)
    return TYPES["nav_msgs/msg/Odometry"](
        header(stamp_ns, "odom"),
        "base_link",
        TYPES["geometry_msgs/msg/PoseWithCovariance"](
            pose_message(position, quaternion), covariance
        ),
        TYPES["geometry_msgs/msg/TwistWithCovariance"](twist, covariance),
    )


def pose_stamped_message(stamp_ns: int, position):
    return TYPES["geometry_msgs/msg/PoseStamped"](header(stamp_ns, "map"), pose_message(position))


def static_transform_message(parent: str, child: str, translation, quaternion):
    transform = TYPES["geometry_msgs/msg/Transform"](
        TYPES["geometry_msgs/msg/Vector3"](*map(float, translation)),
        TYPES["geometry_msgs/msg/Quaternion"](*map(float, quaternion)),
    )
    stamped = TYPES["geometry_msgs/msg/TransformStamped"](
        header(START_NS, parent), child, transform
    )
    return TYPES["tf2_msgs/msg/TFMessage"]([stamped])


def write_messages(path: Path, messages, storage: str = "mcap", compression: str = "none") -> Path:
    """Write (topic, stamp_ns, message) tuples; compression is none, message, file or storage."""
    writer = Writer(path, version=9, storage_plugin=StoragePlugin[storage.upper()])
    writer.set_compression(CompressionMode[compression.upper()], CompressionFormat.ZSTD)
    connections = {}
    with writer:
        for topic, stamp, message in messages:
            kind = message.__msgtype__
            if topic not in connections:
                connections[topic] = writer.add_connection(topic, kind, typestore=STORE)
            writer.write(connections[topic], stamp, STORE.serialize_cdr(message, kind))
    return path


def camera_messages(count: int, form: str = "raw", topic: str = "/camera/image_raw"):
    """Images at 10 Hz with a camera_info before each, as a camera driver sends them."""
    for index in range(count):
        stamp = START_NS + index * PERIOD_NS
        yield "/camera/camera_info", stamp, camera_info_message(stamp)
        if form == "raw":
            yield topic, stamp, image_message(index, stamp)
        else:
            yield topic, stamp, compressed_message(index, stamp, form)


def storage_file(bag: Path) -> Path:
    """The one storage file of a bag directory."""
    (file,) = (path for path in bag.iterdir() if path.name != "metadata.yaml")
    return file


def cut(file: Path, share: float) -> int:
    """Cut the file to a share of its length; the number of bytes left."""
    data = file.read_bytes()
    left = int(len(data) * share)
    file.write_bytes(data[:left])
    return left
