# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Poses that a bag holds besides its images: odometry, ground truth, static transforms."""

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lingbot_map_ros.errors import SourceError
from lingbot_map_ros.geometry.poses import (
    invert,
    make_pose,
    matrix_to_quaternion,
    quaternion_to_matrix,
)
from lingbot_map_ros.replay.bag import Bag, decode

ODOMETRY = "nav_msgs/msg/Odometry"
POSE_TYPES = (
    ODOMETRY,
    "geometry_msgs/msg/PoseStamped",
    "geometry_msgs/msg/PoseWithCovarianceStamped",
    "geometry_msgs/msg/TransformStamped",
)
_STATIC = "/tf_static"
_MAX_GAP_NS = 500_000_000


@dataclass(frozen=True, eq=False)
class PoseLog:
    """Poses of a frame over time: stamps [N] ascending in nanoseconds, poses [N, 4, 4] in metres.

    ``frame_id`` is the frame that moves, empty where the messages do not say.
    """

    stamps: NDArray[np.int64]
    poses: NDArray[np.float64]
    frame_id: str

    def at(self, stamp_ns: int) -> NDArray[np.float64] | None:
        """Pose [4, 4] at a stamp, interpolated; None outside or in a gap of over half a second."""
        after = int(np.searchsorted(self.stamps, stamp_ns))
        if after < len(self.stamps) and self.stamps[after] == stamp_ns:
            return self.poses[after]
        if after in (0, len(self.stamps)):
            return None
        gap = int(self.stamps[after] - self.stamps[after - 1])
        if gap > _MAX_GAP_NS:
            return None
        share = (stamp_ns - int(self.stamps[after - 1])) / gap
        first, second = self.poses[after - 1], self.poses[after]
        q = matrix_to_quaternion(np.stack((first[:3, :3], second[:3, :3])))
        # Neighbours are close, so the normalised mean is as good as a slerp.
        q[1] *= 1.0 if q[0] @ q[1] >= 0 else -1.0
        t = (1 - share) * first[:3, 3] + share * second[:3, 3]
        return make_pose(quaternion_to_matrix((1 - share) * q[0] + share * q[1]), t)


def read_poses(bag: Bag, topic: str, msgtypes: tuple[str, ...] = POSE_TYPES) -> PoseLog:
    """Read all poses of a topic; messages that are damaged or no pose (NaN) are left out.

    Raises
    ------
    SourceError
        If the topic is not there, is of none of the types or holds no pose.
    """
    found = bag.topics.get(topic)
    if found is None or found.msgtype not in msgtypes:
        known = ", ".join(t.name for t in bag.of_type(*msgtypes)) or "none"
        reason = "is not in the bag" if found is None else f"is {found.msgtype}"
        names = ", ".join(msgtype.rpartition("/")[2] for msgtype in msgtypes)
        raise SourceError(f"{topic} {reason}; topics of type {names}: {known}")
    rows: dict[int, NDArray[np.float64]] = {}
    frame_id = ""
    for record in bag.messages([topic]):
        try:
            message = decode(record)
        except SourceError as error:
            bag.damage.append(str(error))
            continue
        pose = _pose_of(message)
        if np.isfinite(pose).all():
            rows[_stamp(message)] = pose
            frame_id = getattr(message, "child_frame_id", "")
    if not rows:
        raise SourceError(f"{topic} holds no usable pose")
    stamps = np.array(sorted(rows), np.int64)
    return PoseLog(stamps, np.stack([rows[stamp] for stamp in stamps.tolist()]), frame_id)


def static_transform(bag: Bag, parent: str, child: str) -> NDArray[np.float64] | None:
    """Pose [4, 4] of ``child`` in ``parent`` from ``/tf_static``; None where it does not say."""
    if parent == child:
        return np.eye(4)
    edges: dict[str, dict[str, NDArray[np.float64]]] = {}
    for record in bag.messages([_STATIC]):
        try:
            transforms = decode(record).transforms
        except SourceError as error:
            bag.damage.append(str(error))
            continue
        for transform in transforms:
            T = _pose_of(transform)
            a, b = transform.header.frame_id.lstrip("/"), transform.child_frame_id.lstrip("/")
            edges.setdefault(a, {})[b] = T
            edges.setdefault(b, {})[a] = invert(T)
    reached = {parent: np.eye(4)}
    queue = deque([parent])
    while queue:
        frame = queue.popleft()
        for neighbour, T in edges.get(frame, {}).items():
            if neighbour not in reached:
                reached[neighbour] = reached[frame] @ T
                queue.append(neighbour)
    return reached.get(child)


def _pose_of(message: Any) -> NDArray[np.float64]:
    """Pose [4, 4] of any of the types above; NaN for a quaternion of length zero."""
    if hasattr(message, "transform"):
        p, q = message.transform.translation, message.transform.rotation
    else:
        pose = message.pose.pose if hasattr(message.pose, "pose") else message.pose
        p, q = pose.position, pose.orientation
    R = quaternion_to_matrix(np.array([q.x, q.y, q.z, q.w]))
    return make_pose(R, np.array([p.x, p.y, p.z]))


def _stamp(message: Any) -> int:
    return int(message.header.stamp.sec) * 10**9 + int(message.header.stamp.nanosec)
