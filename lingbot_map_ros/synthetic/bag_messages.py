# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The ROS 2 messages of a synthetic sequence, built with the types of a rosbags type store.

Frames: ``world`` (ground truth) and ``odom`` (the same, from the first pose on), ``base_link`` (x
forward, z up) and ``camera_optical``.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..geometry.poses import matrix_to_quaternion
from .sequence import Sequence

START_NS = 1_700_000_000_000_000_000
BASE, CAMERA = "base_link", "camera_optical"
MOUNT_AHEAD = 0.1  # metres from the axis of the robot to the camera

Array = NDArray[np.float64]


class Messages:
    """Builds the messages of frame k of a sequence.

    ``types`` are the message classes of a type store; ``mount`` is the pose [4,4] of the camera
    (optical axes) in ``base_link``, None the one that puts the first base_link level on the floor.
    """

    def __init__(self, types: dict[str, Any], sequence: Sequence, mount: Array | None) -> None:
        self._types, self._sequence = types, sequence
        self.mount = _level_mount(sequence.poses[0]) if mount is None else mount
        self.base = sequence.poses @ np.linalg.inv(self.mount)
        self.odom = np.linalg.inv(self.base[0]) @ self.base

    def stamp_ns(self, k: int) -> int:
        """Stamp in nanoseconds."""
        return START_NS + int(self._sequence.stamps_ns[k])

    def _make(self, name: str, **fields: Any) -> Any:
        return self._types[name](**fields)

    def _header(self, k: int, frame: str) -> Any:
        seconds, nanoseconds = divmod(self.stamp_ns(k), 1_000_000_000)
        stamp = self._make("builtin_interfaces/msg/Time", sec=seconds, nanosec=nanoseconds)
        return self._make("std_msgs/msg/Header", stamp=stamp, frame_id=frame)

    def image(self, k: int) -> Any:
        """Raw rgb8 image."""
        image = self._sequence.images[k]
        return self._make(
            "sensor_msgs/msg/Image",
            header=self._header(k, CAMERA),
            height=image.shape[0],
            width=image.shape[1],
            encoding="rgb8",
            is_bigendian=0,
            step=3 * image.shape[1],
            data=image.reshape(-1),
        )

    def jpeg(self, k: int) -> Any:
        """The same image as a JPEG file."""
        file = io.BytesIO()
        Image.fromarray(self._sequence.images[k]).save(file, "JPEG", quality=90)
        return self._make(
            "sensor_msgs/msg/CompressedImage",
            header=self._header(k, CAMERA),
            format="rgb8; jpeg compressed bgr8",
            data=np.frombuffer(file.getvalue(), np.uint8),
        )

    def camera_info(self, k: int) -> Any:
        """Calibration, with the distortion that the image has."""
        camera = self._sequence.camera
        model = "plumb_bob" if camera.model == "pinhole" else camera.model
        projection = np.hstack([camera.intrinsics, np.zeros((3, 1))])
        region = self._make(
            "sensor_msgs/msg/RegionOfInterest",
            x_offset=0,
            y_offset=0,
            height=0,
            width=0,
            do_rectify=False,
        )
        return self._make(
            "sensor_msgs/msg/CameraInfo",
            header=self._header(k, CAMERA),
            height=camera.height,
            width=camera.width,
            distortion_model=model,
            d=np.array(camera.distortion or (0.0,) * 5),
            k=camera.intrinsics.flatten(),
            r=np.eye(3).flatten(),
            p=projection.flatten(),
            binning_x=0,
            binning_y=0,
            roi=region,
        )

    def odometry(self, k: int, frame: str) -> Any:
        """Pose of the base; the twist is not known, which its variance says."""
        pose = (self.base if frame == "world" else self.odom)[k]
        zero = self._make("geometry_msgs/msg/Vector3", x=0.0, y=0.0, z=0.0)
        return self._make(
            "nav_msgs/msg/Odometry",
            header=self._header(k, frame),
            child_frame_id=BASE,
            pose=self._make(
                "geometry_msgs/msg/PoseWithCovariance",
                pose=self._make(
                    "geometry_msgs/msg/Pose",
                    position=self._vector("geometry_msgs/msg/Point", pose),
                    orientation=self._quaternion(pose),
                ),
                covariance=1e-6 * np.eye(6).flatten(),
            ),
            twist=self._make(
                "geometry_msgs/msg/TwistWithCovariance",
                twist=self._make("geometry_msgs/msg/Twist", linear=zero, angular=zero),
                covariance=9999.0 * np.eye(6).flatten(),
            ),
        )

    def mount_transform(self) -> Any:
        """Transform from base_link to the camera, for /tf_static."""
        return self._transform(0, BASE, CAMERA, self.mount)

    def odom_transform(self, k: int) -> Any:
        """Transform from odom to base_link, for /tf."""
        return self._transform(k, "odom", BASE, self.odom[k])

    def _transform(self, k: int, parent: str, child: str, pose: Array) -> Any:
        stamped = self._make(
            "geometry_msgs/msg/TransformStamped",
            header=self._header(k, parent),
            child_frame_id=child,
            transform=self._make(
                "geometry_msgs/msg/Transform",
                translation=self._vector("geometry_msgs/msg/Vector3", pose),
                rotation=self._quaternion(pose),
            ),
        )
        return self._make("tf2_msgs/msg/TFMessage", transforms=[stamped])

    def _vector(self, name: str, pose: Array) -> Any:
        x, y, z = pose[:3, 3].tolist()
        return self._make(name, x=x, y=y, z=z)

    def _quaternion(self, pose: Array) -> Any:
        x, y, z, w = np.asarray(matrix_to_quaternion(pose[:3, :3])).tolist()
        return self._make("geometry_msgs/msg/Quaternion", x=x, y=y, z=z, w=w)


def _level_mount(pose: Array) -> Array:
    """The camera in a base that stands level on the floor, a little behind it."""
    ahead = pose[:2, 2] / np.linalg.norm(pose[:2, 2])
    base = np.eye(4)
    base[:2, 0], base[:2, 1] = ahead, (-ahead[1], ahead[0])
    base[:2, 3] = pose[:2, 3] - MOUNT_AHEAD * ahead
    return np.linalg.inv(base) @ pose
