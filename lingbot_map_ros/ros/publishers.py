# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The topics of the node; a message is made only when somebody subscribes to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from builtin_interfaces.msg import Time
from geometry_msgs.msg import Pose, PoseArray, PoseStamped
from nav_msgs.msg import Odometry, Path
from numpy.typing import NDArray
from rclpy.lifecycle import LifecycleNode
from rclpy.qos import QoSProfile
from sensor_msgs.msg import CameraInfo, Image, PointCloud2
from std_msgs.msg import Header

from lingbot_map_ros.geometry.projection import unproject
from lingbot_map_ros.ros.frames import Matrix, position_and_quaternion
from lingbot_map_ros.ros.growing_message import GrowingMessage
from lingbot_map_ros.ros.messages import (
    camera_info_message,
    depth_message,
    image_message,
    point_cloud_message,
)
from lingbot_map_ros.ros.outlet import LatchedOutlet, Outlet
from lingbot_map_ros.ros.parameters import Parameters
from lingbot_map_ros.ros.placement import PlacedFrame

PATH_PERIOD_S = 0.5
UNKNOWN_TWIST = 9999.0
_POSES = QoSProfile(depth=50)
_IMAGES = QoSProfile(depth=10)


class Publishers:
    """Every topic that goes out, except for TF and diagnostics."""

    def __init__(self, node: LifecycleNode, parameters: Parameters) -> None:
        self.parameters = parameters
        """Values of the output group; may be replaced while running."""
        self._odometry = Outlet(node, Odometry, "~/odometry", _POSES)
        self._pose = Outlet(node, PoseStamped, "~/pose", _POSES)
        self._depth = Outlet(node, Image, "~/depth/image", _IMAGES)
        self._depth_info = Outlet(node, CameraInfo, "~/depth/camera_info", _IMAGES)
        self._confidence = Outlet(node, Image, "~/depth/confidence", _IMAGES)
        self._points = Outlet(node, PointCloud2, "~/points", _IMAGES)
        self.path = LatchedOutlet(node, Path, "~/path", lambda: PATH_PERIOD_S, always=False)
        self.keyframes = LatchedOutlet(
            node, PoseArray, "~/keyframes", lambda: PATH_PERIOD_S, always=False
        )
        self.map = LatchedOutlet(node, PointCloud2, "~/map", self._map_period, always=True)
        self._all = (
            *(self._odometry, self._pose, self._depth, self._depth_info, self._confidence),
            *(self._points, self.path, self.keyframes, self.map),
        )
        self.clear_path()

    @property
    def failed(self) -> int:
        """Messages that the middleware did not take."""
        return sum(outlet.failed for outlet in self._all)

    def destroy(self) -> None:
        """Take all topics away."""
        for outlet in self._all:
            outlet.destroy()

    def publish_poses(self, frame: PlacedFrame) -> None:
        """Publish the poses of one frame that somebody wants."""
        stamp = to_time(frame.result.stamp_ns)
        if self._odometry.subscribers:
            self._odometry.publish(self._odometry_message(frame, stamp))
        if self._pose.subscribers:
            msg = PoseStamped(header=Header(stamp=stamp, frame_id=self.parameters.map_frame))
            msg.pose = to_pose(frame.map_from_base)
            self._pose.publish(msg)

    def publish_depth(self, frame: PlacedFrame) -> None:
        """Publish depth, confidence and points of one frame, where it has them, if wanted."""
        if frame.result.depth is not None:
            header = Header(stamp=to_time(frame.result.stamp_ns), frame_id=frame.camera_frame)
            self._publish_depth(frame, frame.result.depth, header)

    def clear_path(self) -> None:
        """Forget the poses of the path; `path_max_length` is read anew."""
        limit = self.parameters.path_max_length
        self._path_poses = GrowingMessage(lambda h, poses: Path(header=h, poses=poses), limit)
        self._keyframe_poses = GrowingMessage(
            lambda h, poses: PoseArray(header=h, poses=poses), limit
        )

    def extend_path(self, stamps_ns: Iterable[int], map_from_base: Iterable[Matrix]) -> None:
        """Append the base's poses at new keyframes to what `publish_path` publishes."""
        frame = self.parameters.map_frame
        poses = [
            PoseStamped(header=Header(stamp=to_time(stamp), frame_id=frame), pose=to_pose(T))
            for stamp, T in zip(stamps_ns, map_from_base, strict=True)
        ]
        self._path_poses.extend(poses)
        self._keyframe_poses.extend([pose.pose for pose in poses])

    def publish_path(self, now_ns: int) -> None:
        """Publish the base's poses at the keyframes, as path and as array, where wanted."""
        header = Header(stamp=to_time(now_ns), frame_id=self.parameters.map_frame)
        if self.keyframes.wanted:
            self.keyframes.publish(self._keyframe_poses.serialize(header))
        if self.path.wanted:
            self.path.publish(self._path_poses.serialize(header))

    def map_message(self, xyz: NDArray[np.float32], rgb: NDArray[np.uint8]) -> PointCloud2:
        """Cloud of points [N, 3] in the map frame with colours [N, 3]."""
        return point_cloud_message(xyz, rgb, Header(frame_id=self.parameters.map_frame))

    def publish_map(self, cloud: PointCloud2, now_ns: int) -> None:
        """Publish the map."""
        cloud.header.stamp = to_time(now_ns)
        self.map.publish(cloud)

    def _publish_depth(
        self, frame: PlacedFrame, depth: NDArray[np.float32], header: Header
    ) -> None:
        confidence = frame.result.confidence
        confident = None if confidence is None else confidence >= self._confidence_min
        if self._depth.subscribers:
            self._depth.publish(depth_message(depth, header, frame.scale, confident))
        if self._depth_info.subscribers:
            height, width = depth.shape
            self._depth_info.publish(
                camera_info_message(frame.result.intrinsics, height, width, header)
            )
        if confidence is not None and self._confidence.subscribers:
            self._confidence.publish(image_message(confidence, "32FC1", header))
        if self._points.subscribers:
            self._points.publish(self._points_message(frame, depth, confident, header))

    def _points_message(
        self,
        frame: PlacedFrame,
        depth: NDArray[np.float32],
        confident: NDArray[np.bool_] | None,
        header: Header,
    ) -> PointCloud2:
        stride = self.parameters.points_stride
        valid = np.isfinite(depth) & (depth > 0)
        if confident is not None:
            valid &= confident
        some = valid[::stride, ::stride]
        xyz = unproject(depth, frame.result.intrinsics, stride)[some] * frame.scale
        rgb = frame.result.image[::stride, ::stride][some]
        return point_cloud_message(xyz.astype(np.float32, copy=False), rgb, header)

    def _odometry_message(self, frame: PlacedFrame, stamp: Time) -> Odometry:
        parameters = self.parameters
        msg = Odometry(header=Header(stamp=stamp, frame_id=parameters.odom_frame))
        msg.child_frame_id = parameters.base_frame
        msg.pose.pose = to_pose(frame.odom_from_base)
        factor = max(frame.result.covariance_scale, 1.0)
        position = parameters.covariance_position * factor
        rotation = parameters.covariance_rotation * factor
        msg.pose.covariance = _diagonal([position] * 3 + [rotation] * 3)
        msg.twist.covariance = _diagonal([UNKNOWN_TWIST] * 6)
        return msg

    @property
    def _confidence_min(self) -> float:
        return self.parameters.depth_confidence_min

    def _map_period(self) -> float:
        rate = self.parameters.map_rate_hz
        return 1.0 / rate if rate > 0 else float("inf")


def to_time(stamp_ns: int) -> Time:
    """``builtin_interfaces/Time`` of nanoseconds."""
    seconds, nanoseconds = divmod(stamp_ns, 1_000_000_000)
    return Time(sec=seconds, nanosec=nanoseconds)


def to_pose(T: Matrix) -> Pose:
    """``geometry_msgs/Pose`` of a rigid matrix [4, 4]."""
    position, quaternion = position_and_quaternion(T)
    pose = Pose()
    pose.position.x, pose.position.y, pose.position.z = position
    q = pose.orientation
    q.x, q.y, q.z, q.w = quaternion
    return pose


def _diagonal(values: list[float]) -> Any:
    return np.diag(np.array(values, np.float64)).ravel()
