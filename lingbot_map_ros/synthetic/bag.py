# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Synthetic sequences as ROS 2 bags: images, camera info, ground truth, odometry, transforms.

``main`` is the program ``make_demo_bag``.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence as Arguments
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ExportError, LingbotMapError
from ..geometry.poses import matrix_to_quaternion
from .bag_messages import START_NS, Messages
from .camera import LENSES, Camera, lens
from .sequence import HELD_OUT, Sequence, make_sequence
from .trajectory import KINDS

STORAGES = ("mcap", "sqlite3")
IMAGE, CAMERA_INFO = "/camera/image_raw", "/camera/camera_info"

Array = NDArray[np.float64]


def write_bag(
    path: Path,
    truth: Path | None = None,
    frames: int = 120,
    *,
    seed: int = HELD_OUT,
    kind: str = "drive",
    difficulty: float = 1.0,
    size: tuple[int, int] = (640, 480),
    storage: str = "mcap",
    compressed: bool = False,
    tf: bool = False,
    camera: Camera | None = None,
) -> Sequence:
    """Render a sequence and write it; the arguments are those of ``write_sequence`` besides.

    ``truth`` gets the camera poses (optical axes in the world) as a TUM trajectory.
    """
    sequence = make_sequence(seed, frames, *size, kind, difficulty, camera=camera)
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
    messages = Messages(store.types, sequence, mount)
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
    parser.add_argument(
        "--difficulty",
        type=float,
        default=1.0,
        help="0 slow and clear, 1 fast and noisy (%(default)s)",
    )
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
            difficulty=options.difficulty,
            size=options.size,
            storage=options.storage,
            compressed=options.compressed,
            tf=options.tf,
            camera=None if options.lens == "pinhole" else lens(options.lens, *options.size),
        )
    except LingbotMapError as error:
        sys.stderr.write(f"make_demo_bag: {error}\n")
        return 1
    return 0
