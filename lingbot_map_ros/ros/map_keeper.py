# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The map and the path: fed with results, published when due, saved when asked."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from geometry_msgs.msg import PoseStamped
from numpy.typing import NDArray
from sensor_msgs.msg import PointCloud2

from lingbot_map_ros.errors import ExportError
from lingbot_map_ros.geometry.sim3 import IDENTITY, Sim3
from lingbot_map_ros.mapping.export import write_tum
from lingbot_map_ros.mapping.mapper import Mapper, MapperOptions
from lingbot_map_ros.ros.frames import BODY_FROM_OPTICAL, Axes, Matrix, base_pose
from lingbot_map_ros.ros.parameters import Parameters
from lingbot_map_ros.ros.placement import Placement
from lingbot_map_ros.ros.publishers import Publishers
from lingbot_map_ros.streaming.results import Decision, FrameResult


class MapKeeper:
    """Owns the mapper of the present epoch.

    Parameters
    ----------
    parameters : Parameters
        Output settings.
    publishers, placement
        Where the map goes, and how it lies in ROS axes and metres.
    now_ns
        The node's clock, for messages that belong to no frame.
    """

    def __init__(
        self,
        parameters: Parameters,
        publishers: Publishers,
        placement: Placement,
        now_ns: Callable[[], int],
    ) -> None:
        self._parameters = parameters
        self._publishers = publishers
        self._placement = placement
        self._now_ns = now_ns
        self._mount: Matrix = BODY_FROM_OPTICAL
        self._mapper = Mapper(_options(parameters))
        self._map: PointCloud2 | None = None
        self._path_poses: dict[int, PoseStamped] = {}
        self._path_axes: Axes | None = None

    @property
    def point_count(self) -> int:
        """Points of the map."""
        return len(self._mapper.voxel_map)

    def set_parameters(self, parameters: Parameters) -> None:
        """Take settings over; voxel size and limits hold from the next reset on."""
        self._parameters = parameters
        wanted = _options(parameters)
        self._mapper.options = replace(
            self._mapper.options, confidence_min=wanted.confidence_min, stride=wanted.stride
        )

    def reset(self) -> None:
        """Begin an empty map, and replace what late subscribers would get of the old one."""
        self._mapper = Mapper(_options(self._parameters))
        self._map, self._path_poses = None, {}
        topics = self._publishers
        if topics.map.latched:
            self.publish_map()
        if topics.path.latched or topics.keyframes.latched:
            self.publish_path()

    def add(self, result: FrameResult, base_from_camera: Matrix) -> None:
        """Take a result in."""
        self._mount = base_from_camera
        self._mapper.add(result)
        if result.keyframe and not result.pending:
            self.changed()

    def decide(self, decision: Decision) -> None:
        """Settle a pending frame."""
        self._mapper.decide(decision.index, decision.kept)
        if decision.kept:
            self.changed()

    def publish_due(self) -> str:
        """Publish what is due of map, path and keyframes."""
        topics = self._publishers
        if topics.map.due():
            self.publish_map()
        if topics.path.due() or topics.keyframes.due():
            self.publish_path()
        return "published"

    def publish_map(self) -> None:
        """Publish the map as it is; an unchanged one is not made again."""
        topics = self._publishers
        if self._map is None or topics.map.changed:
            self._map = topics.map_message(*self._mapper.points(self._world()))
        topics.publish_map(self._map, self._now_ns())

    def publish_path(self) -> None:
        """Publish path and keyframes as they are; poses that went out before are not made again."""
        axes = self._placement.axes
        if axes is not self._path_axes:
            self._path_axes, self._path_poses = axes, {}
        stamps, poses = self._mapper.trajectory.path()
        topics, known = self._publishers, self._path_poses
        self._path_poses = {
            stamp: known.get(stamp) or topics.path_pose(stamp, self._base_poses(T[None])[0])
            for stamp, T in zip(stamps.tolist(), poses, strict=True)
        }
        topics.publish_path(list(self._path_poses.values()), self._now_ns())

    def save_map(self) -> str:
        """Write the map as PLY; ExportError with the reason if that fails."""
        if not self.point_count:
            raise ExportError("the map is empty: no keyframe with confident depth came yet")
        path = self._file("map", "ply")
        count = self._mapper.write_map(path, self._world())
        return f"{path}: {count} points in {self._parameters.map_frame}, {self._units()}"

    def save_trajectory(self) -> str:
        """Write the poses of the base as TUM; ExportError with the reason if that fails."""
        stamps, poses = self._mapper.trajectory.poses()
        if not len(stamps):
            raise ExportError("the trajectory is empty: no pose came yet")
        path = self._file("trajectory", "tum")
        count = write_tum(path, stamps, np.array(self._base_poses(poses)))
        names = f"{self._parameters.base_frame} in {self._parameters.map_frame}"
        return f"{path}: {count} poses of {names}, {self._units()}"

    def changed(self) -> None:
        """Take note that map and path are others now."""
        for topic in (self._publishers.map, self._publishers.path, self._publishers.keyframes):
            topic.change()

    def _base_poses(self, poses: NDArray[np.float64]) -> list[Matrix]:
        axes = self._placement.axes
        if axes is None:
            return []
        return [base_pose(axes.camera_pose(pose), self._mount) for pose in poses]

    def _world(self) -> Sim3:
        axes = self._placement.axes
        if axes is None:
            return IDENTITY
        T = axes.ros_from_model
        return Sim3(axes.scale, T[:3, :3], axes.scale * T[:3, 3])

    def _file(self, name: str, suffix: str) -> Path:
        stamp = time.strftime("%Y%m%d_%H%M%S")
        directory = Path(self._parameters.output_directory).expanduser()
        return directory / f"{name}_{stamp}.{suffix}"

    def _units(self) -> str:
        return "metres" if self._placement.metric else "model units"


def _options(parameters: Parameters) -> MapperOptions:
    return MapperOptions(
        voxel_size=parameters.map_voxel_size,
        max_points=parameters.map_max_points,
        confidence_min=parameters.depth_confidence_min,
        stride=parameters.points_stride,
        path_max_length=parameters.path_max_length,
    )
