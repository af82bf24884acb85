# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The map and the path, on a thread of their own: fed, published when due, saved when asked."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from sensor_msgs.msg import PointCloud2

from lingbot_map_ros.errors import ExportError
from lingbot_map_ros.geometry.sim3 import IDENTITY, Sim3
from lingbot_map_ros.mapping.export import write_tum
from lingbot_map_ros.mapping.mapper import Mapper, MapperOptions
from lingbot_map_ros.ros.frames import BODY_FROM_OPTICAL, Axes, Matrix, base_pose
from lingbot_map_ros.ros.ordered_thread import OrderedThread
from lingbot_map_ros.ros.output_folder import unused_path
from lingbot_map_ros.ros.parameters import Parameters
from lingbot_map_ros.ros.placement import Placement
from lingbot_map_ros.ros.publishers import Publishers
from lingbot_map_ros.ros.report import MapSnapshot
from lingbot_map_ros.streaming.results import Decision, FrameResult
from lingbot_map_ros.wording import counted

QUEUE_CAPACITY = 16
"""Results that wait for the map, at about 2 MB each; then the worker waits too."""
END_S = 5.0
"""Longest that `MapKeeper.close` waits."""


@dataclass(frozen=True, eq=False)
class _View:
    """How the map lies in ROS axes and units at the time of a call."""

    axes: Axes | None
    metric: bool
    mount: Matrix
    """Pose [4, 4] of the camera in the base."""

    @property
    def world(self) -> Sim3:
        """From the map's world to that of ROS."""
        if self.axes is None:
            return IDENTITY
        T = self.axes.ros_from_model
        return Sim3(self.axes.scale, T[:3, :3], self.axes.scale * T[:3, 3])

    @property
    def units(self) -> str:
        return "metres" if self.metric else "model units"

    def base_poses(self, poses: NDArray[np.float64]) -> list[Matrix]:
        """Poses of the base, of poses [N, 4, 4] of the camera in the map."""
        if self.axes is None:
            return []
        return [base_pose(self.axes.camera_pose(pose), self.mount) for pose in poses]


class MapKeeper:
    """Owns the mapper of the present epoch, and the thread on which everything happens to it.

    Calls take effect in the order in which they are made. A caller waits only where it says so, or
    while more results wait than `QUEUE_CAPACITY`.

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
        self._mapper = Mapper(mapper_options(parameters))
        self._map: PointCloud2 | None = None
        self._path_axes: Axes | None = None
        self._path_keyframes = 0
        """Keyframes that the published path has."""
        self._milliseconds = 0.0
        self._thread = OrderedThread("the map", QUEUE_CAPACITY)

    def snapshot(self) -> MapSnapshot:
        """Figures for the diagnostics."""
        thread = self._thread
        return MapSnapshot(
            *(len(self._mapper.voxel_map), thread.waiting, thread.error, thread.failed),
            self._milliseconds,
        )

    def close(self) -> bool:
        """Drop map and calls that wait; False when the thread is still busy after `END_S`."""
        ended = self._thread.close(END_S)
        self._mapper, self._map = Mapper(mapper_options(self._parameters)), None
        return ended

    def set_parameters(self, parameters: Parameters) -> None:
        """Take settings over; voxel size and limits hold from the next reset on."""
        self._thread.do(self._set_parameters, parameters)

    def reset(self) -> None:
        """Begin an empty map, and replace what late subscribers would get of the old one; waits."""
        self._thread.ask(self._reset, self._view()).result()

    def add(self, result: FrameResult, base_from_camera: Matrix) -> None:
        """Take a result in."""
        self._mount = base_from_camera
        self._thread.do(self._add, result)

    def decide(self, decision: Decision) -> None:
        """Settle a pending frame."""
        self._thread.do(self._decide, decision)

    def publish_due(self) -> Future[str]:
        """Publish what is due of map, path and keyframes."""
        return self._thread.ask(self._publish_due, self._view())

    def save_map(self) -> Future[str]:
        """Write the map as PLY; the future holds an ExportError with the reason if that fails."""
        return self._thread.ask(self._save_map, self._view())

    def save_trajectory(self) -> Future[str]:
        """Write the poses of the base as TUM; the future holds an ExportError if that fails."""
        return self._thread.ask(self._save_trajectory, self._view())

    def changed(self) -> None:
        """Take note that map and path are others now."""
        self._thread.do(self._changed)

    def _view(self) -> _View:
        return _View(self._placement.axes, self._placement.metric, self._mount)

    # What follows runs on the thread of the map.

    def _set_parameters(self, parameters: Parameters) -> None:
        self._parameters = parameters
        wanted, options = mapper_options(parameters), self._mapper.options
        self._mapper.set_options(
            replace(wanted, voxel_size=options.voxel_size, max_points=options.max_points)
        )
        if wanted.path_max_length != options.path_max_length:
            self._clear_path(self._path_axes)
            self._changed()

    def _reset(self, view: _View) -> None:
        self._mapper = Mapper(mapper_options(self._parameters))
        self._map = None
        self._clear_path(view.axes)
        topics = self._publishers
        if topics.map.latched:
            self._publish_map(view)
        if topics.path.latched or topics.keyframes.latched:
            self._publish_path(view)

    def _add(self, result: FrameResult) -> None:
        began = time.perf_counter()
        self._mapper.add(result)
        if result.keyframe and not result.pending:
            self._milliseconds = (time.perf_counter() - began) * 1e3
            self._changed()

    def _decide(self, decision: Decision) -> None:
        self._mapper.decide(decision.index, decision.kept)
        if decision.kept:
            self._changed()

    def _changed(self) -> None:
        for topic in (self._publishers.map, self._publishers.path, self._publishers.keyframes):
            topic.change()

    def _publish_due(self, view: _View) -> str:
        topics = self._publishers
        if topics.map.due():
            self._publish_map(view)
        if topics.path.due() or topics.keyframes.due():
            self._publish_path(view)
        return "published"

    def _publish_map(self, view: _View) -> None:
        """Publish the map as it is; an unchanged one is not made again."""
        topics = self._publishers
        if self._map is None or topics.map.changed:
            self._map = topics.map_message(*self._mapper.points(view.world))
        topics.publish_map(self._map, self._now_ns())

    def _publish_path(self, view: _View) -> None:
        """Publish path and keyframes as they are; poses that went out before are not made again."""
        if view.axes is not self._path_axes:
            self._clear_path(view.axes)
        trajectory, topics = self._mapper.trajectory, self._publishers
        stamps, poses = trajectory.path(newest=trajectory.num_keyframes - self._path_keyframes)
        if view.axes is not None:
            topics.extend_path(stamps.tolist(), view.base_poses(poses))
            self._path_keyframes = trajectory.num_keyframes
        topics.publish_path(self._now_ns())

    def _clear_path(self, axes: Axes | None) -> None:
        self._path_axes, self._path_keyframes = axes, 0
        self._publishers.clear_path()

    def _save_map(self, view: _View) -> str:
        if not len(self._mapper.voxel_map):
            raise ExportError("the map is empty: no keyframe with confident depth came yet")
        path = unused_path(self._parameters.output_directory, "map", "ply")
        count = self._mapper.write_map(path, view.world)
        return f"{path}: {counted(count, 'point')} in {self._parameters.map_frame}, {view.units}"

    def _save_trajectory(self, view: _View) -> str:
        stamps, poses = self._mapper.trajectory.poses()
        if not len(stamps):
            raise ExportError("the trajectory is empty: no pose came yet")
        path = unused_path(self._parameters.output_directory, "trajectory", "tum")
        count = write_tum(path, stamps, np.array(view.base_poses(poses)))
        names = f"{self._parameters.base_frame} in {self._parameters.map_frame}"
        return f"{path}: {counted(count, 'pose')} of {names}, {view.units}"


def mapper_options(parameters: Parameters) -> MapperOptions:
    """What the output parameters mean for the map."""
    return MapperOptions(
        voxel_size=parameters.map_voxel_size,
        max_points=parameters.map_max_points,
        confidence_min=parameters.depth_confidence_min,
        stride=parameters.points_stride,
        path_max_length=parameters.path_max_length,
    )
