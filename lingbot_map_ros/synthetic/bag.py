# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Synthetic sequences as ROS 2 bags: images, camera info, ground truth, odometry, transforms.

``main`` is the program ``make_demo_bag``.  Frames: ``world`` (ground truth) and ``odom`` (the same,
from the first pose on), ``base_link`` on the floor under the camera (x forward, z up), and
``camera_optical``.
"""

from __future__ import annotations

import argparse
import io
import shutil
import sys
from collections.abc import Sequence as Arguments
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from ..errors import ExportError, LingbotMapError
from ..geometry.poses import matrix_to_quaternion
from .camera import LENSES, Camera, lens
from .sequence import HELD_OUT, Sequence, make_sequence
from .trajectory import KINDS

START_NS = 1_700_000_000_000_000_000
STORAGES = ("mcap", "sqlite3")
IMAGE, CAMERA_INFO = "/camera/image_raw", "/camera/camera_info"
BASE, CAMERA = "base_link", "camera_optical"
MOUNT_AHEAD = 0.1  # metres from the axis of the robot to the camera

Array = NDArray[np.float64]


def write_bag(
    path: Path,
    truth: Path | None = None,
    frames: int = 120,
    *,
    seed: int = HELD_OUT,
    kind: str = "drive",
    size: tuple[int, int] = (640, 480),
    storage: str = "mcap",
    compressed: bool = False,
    tf: bool = False,
    camera: Camera | None = None,
) -> Sequence:
    """Render a sequence and write it; the arguments are those of ``write_sequence`` besides.

    ``truth`` gets the camera poses (optical axes in the world) as a TUM trajectory.
    """
    sequence = make_sequence(seed, frames, *size, kind, camera=camera)
    write_sequence(path, sequence, storage=storage, compressed=compressed, tf=tf)
    if truth is not None:
        rows = _tum_rows(sequence)
        try:
            Path(truth).write_text("\n".join(rows) + "\n")
        except OSError as error:
            raise ExportError(f"cannot write the ground truth {truth}: {error}") from error
    return sequence


def write_sequence(
    path: Path,
    sequence: Sequence,
    *,
    storage: str = "mcap",
    compressed: bool = False,
    tf: bool = False,
    mount: Array | None = None,
) -> None:
    """Write a bag; topics and frames as of this module.

    Parameters
    ----------
    path:
        The folder of the bag; it must not exist.
    storage:
        One of STORAGES.
    compressed, tf:
        Whether to write JPEG images besides the raw ones, and odom to base_link on ``/tf``.
    mount:
        Pose [4,4] of the camera (optical axes) in ``base_link``; by default the one that puts the
        first base_link level on the floor.

    Raises
    ------
    ExportError
        When the bag cannot be written, or rosbags is not installed; nothing is left behind.
    """
    try:
        from rosbags.rosbag2 import StoragePlugin, Writer, WriterError
        from rosbags.typesys import Stores, get_typestore
    except ImportError as error:
        raise ExportError("writing bags needs rosbags: pip install 'rosbags>=0.11'") from error
    path = Path(path)
    if storage not in STORAGES:
        raise ExportError(f"unknown storage {storage!r}; choose one of {', '.join(STORAGES)}")
    if path.exists():
        raise ExportError(f"{path} exists already; remove it or choose another name")
    store = get_typestore(Stores.ROS2_HUMBLE)
    messages = _Messages(store.types, sequence, mount)
    plugin = StoragePlugin.MCAP if storage == "mcap" else StoragePlugin.SQLITE3
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with Writer(path, version=9, storage_plugin=plugin) as writer:
            connections: dict[str, Any] = {}

            def write(topic: str, stamp: int, message: Any, latched: bool = False) -> None:
                kind = message.__msgtype__
                if topic not in connections:
                    qos = _latched_qos() if latched else ()
                    connections[topic] = writer.add_connection(
                        topic, kind, typestore=store, offered_qos_profiles=qos
                    )
                writer.write(connections[topic], stamp, store.serialize_cdr(message, kind))

            write("/tf_static", messages.stamp_ns(0), messages.mount_transform(), latched=True)
            for k in range(len(sequence)):
                stamp = messages.stamp_ns(k)
                write(CAMERA_INFO, stamp, messages.camera_info(k))
                write(IMAGE, stamp, messages.image(k))
                if compressed:
                    write(f"{IMAGE}/compressed", stamp, messages.jpeg(k))
                write("/ground_truth", stamp, messages.odometry(k, "world"))
                write("/odom", stamp, messages.odometry(k, "odom"))
                if tf:
                    write("/tf", stamp, messages.odom_transform(k))
    except (OSError, WriterError) as error:
        shutil.rmtree(path, ignore_errors=True)
        raise ExportError(f"cannot write the bag {path}: {error}") from error


class _Messages:
    """Builds the messages of each frame."""

    def __init__(self, types: dict[str, Any], sequence: Sequence, mount: Array | None) -> None:
        self.types, self.sequence = types, sequence
        self.mount = _level_mount(sequence.poses[0]) if mount is None else mount
        self.base = sequence.poses @ np.linalg.inv(self.mount)
        self.odom = np.linalg.inv(self.base[0]) @ self.base

    def stamp_ns(self, k: int) -> int:
        return START_NS + int(self.sequence.stamps_ns[k])

    def make(self, name: str, **fields: Any) -> Any:
        return self.types[name](**fields)

    def header(self, k: int, frame: str) -> Any:
        seconds, nanoseconds = divmod(self.stamp_ns(k), 1_000_000_000)
        stamp = self.make("builtin_interfaces/msg/Time", sec=seconds, nanosec=nanoseconds)
        return self.make("std_msgs/msg/Header", stamp=stamp, frame_id=frame)

    def image(self, k: int) -> Any:
        image = self.sequence.images[k]
        return self.make(
            "sensor_msgs/msg/Image",
            header=self.header(k, CAMERA),
            height=image.shape[0],
            width=image.shape[1],
            encoding="rgb8",
            is_bigendian=0,
            step=3 * image.shape[1],
            data=image.reshape(-1),
        )

    def jpeg(self, k: int) -> Any:
        file = io.BytesIO()
        Image.fromarray(self.sequence.images[k]).save(file, "JPEG", quality=90)
        return self.make(
            "sensor_msgs/msg/CompressedImage",
            header=self.header(k, CAMERA),
            format="rgb8; jpeg compressed bgr8",
            data=np.frombuffer(file.getvalue(), np.uint8),
        )

    def camera_info(self, k: int) -> Any:
        camera = self.sequence.camera
        model = "plumb_bob" if camera.model == "pinhole" else camera.model
        projection = np.hstack([camera.intrinsics, np.zeros((3, 1))])
        region = self.make(
            "sensor_msgs/msg/RegionOfInterest",
            x_offset=0,
            y_offset=0,
            height=0,
            width=0,
            do_rectify=False,
        )
        return self.make(
            "sensor_msgs/msg/CameraInfo",
            header=self.header(k, CAMERA),
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
        zero = self.make("geometry_msgs/msg/Vector3", x=0.0, y=0.0, z=0.0)
        return self.make(
            "nav_msgs/msg/Odometry",
            header=self.header(k, frame),
            child_frame_id=BASE,
            pose=self.make(
                "geometry_msgs/msg/PoseWithCovariance",
                pose=self.make(
                    "geometry_msgs/msg/Pose",
                    position=self.vector("geometry_msgs/msg/Point", pose),
                    orientation=self.quaternion(pose),
                ),
                covariance=1e-6 * np.eye(6).flatten(),
            ),
            twist=self.make(
                "geometry_msgs/msg/TwistWithCovariance",
                twist=self.make("geometry_msgs/msg/Twist", linear=zero, angular=zero),
                covariance=9999.0 * np.eye(6).flatten(),
            ),
        )

    def mount_transform(self) -> Any:
        return self.transform(0, BASE, CAMERA, self.mount)

    def odom_transform(self, k: int) -> Any:
        return self.transform(k, "odom", BASE, self.odom[k])

    def transform(self, k: int, parent: str, child: str, pose: Array) -> Any:
        stamped = self.make(
            "geometry_msgs/msg/TransformStamped",
            header=self.header(k, parent),
            child_frame_id=child,
            transform=self.make(
                "geometry_msgs/msg/Transform",
                translation=self.vector("geometry_msgs/msg/Vector3", pose),
                rotation=self.quaternion(pose),
            ),
        )
        return self.make("tf2_msgs/msg/TFMessage", transforms=[stamped])

    def vector(self, name: str, pose: Array) -> Any:
        x, y, z = pose[:3, 3].tolist()
        return self.make(name, x=x, y=y, z=z)

    def quaternion(self, pose: Array) -> Any:
        x, y, z, w = np.asarray(matrix_to_quaternion(pose[:3, :3])).tolist()
        return self.make("geometry_msgs/msg/Quaternion", x=x, y=y, z=z, w=w)


def _level_mount(pose: Array) -> Array:
    """The camera in a base that stands level on the floor, a little behind it."""
    ahead = pose[:2, 2] / np.linalg.norm(pose[:2, 2])
    base = np.eye(4)
    base[:2, 0], base[:2, 1] = ahead, (-ahead[1], ahead[0])
    base[:2, 3] = pose[:2, 3] - MOUNT_AHEAD * ahead
    return np.linalg.inv(base) @ pose


def _latched_qos() -> list[Any]:
    from rosbags.interfaces import (
        Qos,
        QosDurability,
        QosHistory,
        QosLiveliness,
        QosReliability,
        QosTime,
    )

    never = QosTime(0, 0)
    return [
        Qos(
            history=QosHistory.KEEP_LAST,
            depth=1,
            reliability=QosReliability.RELIABLE,
            durability=QosDurability.TRANSIENT_LOCAL,
            deadline=never,
            lifespan=never,
            liveliness=QosLiveliness.AUTOMATIC,
            liveliness_lease_duration=never,
            avoid_ros_namespace_conventions=False,
        )
    ]


def _tum_rows(sequence: Sequence) -> list[str]:
    rows = []
    for stamp, pose in zip(sequence.stamps_ns, sequence.poses):
        seconds, nanoseconds = divmod(START_NS + int(stamp), 1_000_000_000)
        values = [*pose[:3, 3], *np.asarray(matrix_to_quaternion(pose[:3, :3]))]
        rows.append(f"{seconds}.{nanoseconds:09d} " + " ".join(f"{v:.9f}" for v in values))
    return rows


def _size(text: str) -> tuple[int, int]:
    width, _, height = text.partition("x")
    try:
        return int(width), int(height)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 640x480") from None


def main(arguments: Arguments[str] | None = None) -> int:
    """Run ``make_demo_bag``; the exit code is 1 when the bag could not be written."""
    parser = argparse.ArgumentParser("make_demo_bag", description="Write a synthetic ROS 2 bag.")
    parser.add_argument("--output", type=Path, required=True, help="folder of the bag")
    parser.add_argument("--seed", type=int, default=HELD_OUT, help="world and path (%(default)s)")
    parser.add_argument("--frames", type=int, default=120, help="length at 10 Hz (%(default)s)")
    parser.add_argument("--kind", choices=KINDS, default="drive", help="motion (%(default)s)")
    parser.add_argument("--size", type=_size, default=(640, 480), help="such as 640x480")
    parser.add_argument("--storage", choices=STORAGES, default="mcap", help="(%(default)s)")
    parser.add_argument("--compressed", action="store_true", help="JPEG images as well")
    parser.add_argument("--tf", action="store_true", help="odom to base_link on /tf as well")
    parser.add_argument("--lens", choices=LENSES, default="pinhole", help="(%(default)s)")
    parser.add_argument("--ground-truth-tum", type=Path, help="file for the camera poses")
    options = parser.parse_args(arguments)
    try:
        write_bag(
            options.output,
            options.ground_truth_tum,
            options.frames,
            seed=options.seed,
            kind=options.kind,
            size=options.size,
            storage=options.storage,
            compressed=options.compressed,
            tf=options.tf,
            camera=None if options.lens == "pinhole" else lens(options.lens, *options.size),
        )
    except LingbotMapError as error:
        print(f"make_demo_bag: {error}", file=sys.stderr)
        return 1
    return 0
