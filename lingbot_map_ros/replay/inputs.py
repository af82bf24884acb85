# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""From the options of `replay` to what it reads: frames, odometry, ground truth, camera mount."""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lingbot_map_ros.errors import ConfigurationError, SourceError
from lingbot_map_ros.mapping.export import write_tum
from lingbot_map_ros.replay.bag import Bag
from lingbot_map_ros.replay.bag_poses import ODOMETRY, PoseLog, read_poses, static_transform
from lingbot_map_ros.replay.bag_source import BagSource
from lingbot_map_ros.replay.evaluation import read_tum
from lingbot_map_ros.replay.image_source import FolderSource, VideoSource
from lingbot_map_ros.replay.options import Options
from lingbot_map_ros.replay.source import Source
from lingbot_map_ros.ros.frames import BODY_FROM_OPTICAL, parse_base_to_camera
from lingbot_map_ros.wording import shortened


@dataclass(frozen=True, eq=False)
class Inputs:
    """Everything that is read.

    ``odometry`` holds poses of the base in metres, ``base_from_camera`` [4, 4] is the pose of the
    camera's optical frame in it. The truth is a TUM file, or poses of the optical frame.
    """

    source: Source
    odometry: PoseLog | None
    base_from_camera: NDArray[np.float64]
    truth_file: Path | None
    truth_poses: PoseLog | None

    def write_truth(self, path: Path) -> Path | None:
        """Give the truth as a TUM file, None without one; a topic's is written to ``path``."""
        if self.truth_poses is not None:
            write_tum(path, self.truth_poses.stamps, self.truth_poses.poses)
            return path
        return self.truth_file


def open_inputs(options: Options, bag: Bag | None, stack: ExitStack) -> Inputs:
    """Open what the options name; ``stack`` closes it.

    Raises
    ------
    SourceError, ConfigurationError
        If something is missing, unreadable or ambiguous.
    """
    truth_file = Path(options.ground_truth) if options.ground_truth else None
    truth_topic = ""
    if bag is not None and options.ground_truth in bag.topics:
        truth_file, truth_topic = None, options.ground_truth
    if truth_file is not None:
        _check_truth(truth_file, bag)
    if bag is None:
        source = _open_files(options)
        stack.callback(source.close)
        if options.parameters.scale_source == "odometry":
            raise ConfigurationError("scale_source: odometry needs a bag with an Odometry topic")
        return Inputs(source, None, BODY_FROM_OPTICAL, truth_file, None)
    camera = BagSource(bag, options.topic, options.span, options.parameters.use_camera_info)
    frame = options.parameters.camera_frame or camera.frame_id
    odometry, mount = None, BODY_FROM_OPTICAL
    if options.parameters.scale_source == "odometry":
        topic = options.odom or _only_odometry(bag, truth_topic)
        odometry = read_poses(bag, topic, (ODOMETRY,))
        mount = _mount(options, bag, camera, odometry.frame_id, frame)
    truth = _truth_of_camera(bag, truth_topic, camera, frame) if truth_topic else None
    return Inputs(camera, odometry, mount, truth_file, truth)


def _open_files(options: Options) -> FolderSource | VideoSource:
    if options.images is not None:
        return FolderSource(options.images, options.span)
    if options.video is not None:
        return VideoSource(options.video, options.span)
    raise ConfigurationError("name a recording: --bag, --images or --video")


def _check_truth(path: Path, bag: Bag | None) -> None:
    """Say what is wrong with the ground truth before hours are spent."""
    if not path.is_file():
        topics = "" if bag is None else f" and no topic of the bag ({', '.join(bag.topics)})"
        raise SourceError(f"the ground truth {path} is no file{topics}")
    read_tum(path)


def _only_odometry(bag: Bag, truth: str) -> str:
    """Name the one Odometry topic that is not the ground truth."""
    found = [topic.name for topic in bag.of_type(ODOMETRY) if topic.name != truth]
    if len(found) != 1:
        listed = ", ".join(found) or "none"
        raise SourceError(f"choose the Odometry topic with --odom; the bag's are: {listed}")
    return found[0]


def _mount(
    options: Options, bag: Bag, camera: BagSource, base: str, frame: str
) -> NDArray[np.float64]:
    """Pose [4, 4] of the optical frame in the base: /tf_static, the option, or looking ahead."""
    found = static_transform(bag, base or options.parameters.base_frame, frame)
    given = parse_base_to_camera(options.parameters.base_to_camera)
    if found is None and given is None:
        camera.losses.notes.append(
            f"/tf_static does not say where the camera '{shortened(frame)}' sits on "
            f"'{shortened(base)}' and --base-to-camera is not given: taken to look ahead from the "
            "origin of the base"
        )
    if found is not None:
        return found
    return BODY_FROM_OPTICAL if given is None else given


def _truth_of_camera(bag: Bag, topic: str, camera: BagSource, frame: str) -> PoseLog:
    """Poses of the optical frame from those of whatever frame the topic is about."""
    truth = read_poses(bag, topic)
    mount = static_transform(bag, truth.frame_id, frame) if truth.frame_id else np.eye(4)
    if mount is None:
        camera.losses.notes.append(
            f"{topic} tells where '{shortened(truth.frame_id)}' is and /tf_static does not relate "
            f"it to the camera '{shortened(frame)}': compared as they are"
        )
        return truth
    return PoseLog(truth.stamps, truth.poses @ mount, frame)
