# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Transforms that others publish: through tf2_ros where it is installed, else from /tf_static."""

from __future__ import annotations

import importlib
import logging
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy
from rclpy.time import Time

from lingbot_map_ros.geometry.poses import invert, make_pose, quaternion_to_matrix
from lingbot_map_ros.wording import shortened

logger = logging.getLogger(__name__)

TF_QOS = QoSProfile(depth=100)
_MOVING_FRAMES = 1000
"""So many that move are remembered; those of detected objects may have ever new names."""
STATIC_QOS = QoSProfile(
    history=HistoryPolicy.KEEP_LAST,
    depth=100,
    reliability=ReliabilityPolicy.RELIABLE,
    durability=DurabilityPolicy.TRANSIENT_LOCAL,
)


def transform_to_matrix(transform: Any) -> NDArray[np.float64]:
    """Rigid matrix [4, 4] of a ``geometry_msgs/Transform``."""
    r, t = transform.rotation, transform.translation
    return make_pose(quaternion_to_matrix(np.array([r.x, r.y, r.z, r.w])), [t.x, t.y, t.z])


class TransformLookup(Protocol):
    """What the node asks of TF; may be called from any thread and never waits."""

    def lookup(self, target: str, source: str, stamp_ns: int) -> NDArray[np.float64] | None:
        """Pose [4, 4] of ``source`` in ``target`` at the stamp (0 = latest); None if unknown."""

    def unseen(self, target: str, source: str) -> str:
        """Frame between the two that somebody moves and that is not followed; empty if none."""

    def clear(self) -> None:
        """Forget everything that is not static: time went backwards."""

    def destroy(self) -> None:
        """Stop listening."""


class Tf2Lookup:
    """The real tf2 buffer and listener."""

    def __init__(self, node: Node) -> None:
        self._node = node
        tf2_ros = importlib.import_module("tf2_ros")
        self._error = tf2_ros.TransformException
        self._buffer = tf2_ros.Buffer(node=node)
        self._listener = tf2_ros.TransformListener(self._buffer, node, spin_thread=False)

    def lookup(self, target: str, source: str, stamp_ns: int) -> NDArray[np.float64] | None:
        """See `TransformLookup`."""
        try:
            found = self._buffer.lookup_transform(target, source, Time(nanoseconds=stamp_ns))
        except self._error:
            return None
        return transform_to_matrix(found.transform)

    def unseen(self, target: str, source: str) -> str:
        """See `TransformLookup`; everything is followed."""
        return ""

    def clear(self) -> None:
        """See `TransformLookup`."""
        self._buffer.clear()

    def destroy(self) -> None:
        """See `TransformLookup`."""
        self._listener.unregister()
        # a buffer does not take its service back, and the next one brings its own
        if (service := getattr(self._buffer, "srv", None)) is not None:
            self._node.destroy_service(service)


class StaticLookup:
    """The tree of /tf_static alone: enough for where the camera sits on the robot."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._parents: dict[str, tuple[str, NDArray[np.float64]]] = {}
        self._moving: dict[str, str] = {}
        tf_message = importlib.import_module("tf2_msgs.msg").TFMessage
        group = MutuallyExclusiveCallbackGroup()
        self._subscriptions = [
            node.create_subscription(tf_message, topic, callback, qos, callback_group=group)
            for topic, callback, qos in (
                ("/tf_static", self._store, STATIC_QOS),
                ("/tf", self._note_moving, TF_QOS),
            )
        ]

    def lookup(self, target: str, source: str, stamp_ns: int) -> NDArray[np.float64] | None:
        """See `TransformLookup`; static, so that the stamp does not matter."""
        to_source, to_target = self._ancestors(source), self._ancestors(target)
        for frame, T_frame_source in to_source.items():
            if frame in to_target:
                return invert(to_target[frame]) @ T_frame_source
        return None

    def unseen(self, target: str, source: str) -> str:
        """See `TransformLookup`; that is whatever comes on /tf."""
        to_source, to_target = self._way_up(source), self._way_up(target)
        met = next((frame for frame in to_source if frame in to_target), None)
        if met is None:
            return ""
        way = [*to_source[: to_source.index(met)], *to_target[: to_target.index(met)]]
        return next((frame for frame in way if frame in self._moving), "")

    def clear(self) -> None:
        """See `TransformLookup`; static transforms stay."""

    def destroy(self) -> None:
        """See `TransformLookup`."""
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)

    def _store(self, msg: Any) -> None:
        for stamped in msg.transforms:
            matrix = transform_to_matrix(stamped.transform)
            if not np.isfinite(matrix).all():
                logger.warning(
                    "the static transform %r -> %r is not a rigid transform: ignored",
                    shortened(stamped.header.frame_id),
                    shortened(stamped.child_frame_id),
                )
                continue
            child, parent = _bare(stamped.child_frame_id), _bare(stamped.header.frame_id)
            self._parents = {**self._parents, child: (parent, matrix)}

    def _note_moving(self, msg: Any) -> None:
        for stamped in msg.transforms:
            child, parent = _bare(stamped.child_frame_id), _bare(stamped.header.frame_id)
            if self._moving.get(child) != parent:
                newest = list(self._moving.items())[1 - _MOVING_FRAMES :]
                self._moving = {**dict(newest), child: parent}

    def _way_up(self, frame: str) -> list[str]:
        """``frame`` and its ancestors, moving or static, nearest first."""
        parents = {child: parent for child, (parent, _) in self._parents.items()} | self._moving
        way = [_bare(frame)]
        while (parent := parents.get(way[-1], way[0])) not in way:
            way.append(parent)
        return way

    def _ancestors(self, frame: str) -> dict[str, NDArray[np.float64]]:
        """Pose [4, 4] of ``frame`` in itself and in each of its ancestors, nearest first."""
        parents = self._parents
        frame = _bare(frame)
        found = {frame: np.eye(4)}
        matrix = np.eye(4)
        while frame in parents:
            frame, step = parents[frame]
            if frame in found:
                break
            matrix = step @ matrix
            found[frame] = matrix
        return found


class NoLookup:
    """Where not even the messages of TF are installed."""

    def lookup(self, target: str, source: str, stamp_ns: int) -> NDArray[np.float64] | None:
        """See `TransformLookup`; knows nothing but the identity."""
        return np.eye(4) if target == source else None

    def unseen(self, target: str, source: str) -> str:
        """See `TransformLookup`; nothing is heard of."""
        return ""

    def clear(self) -> None:
        """See `TransformLookup`."""

    def destroy(self) -> None:
        """See `TransformLookup`."""


def make_lookup(node: Node) -> TransformLookup:
    """Return the best lookup that this installation offers, and log which one it is."""
    for kind, about in (
        (Tf2Lookup, "TF comes through tf2_ros"),
        (StaticLookup, "tf2_ros is not installed: /tf_static and the odom topic stand in for it"),
    ):
        try:
            lookup: TransformLookup = kind(node)
        except ImportError:
            continue
        node.get_logger().info(about)
        return lookup
    node.get_logger().warning("neither tf2_ros nor tf2_msgs is installed: no TF comes in or out")
    return NoLookup()


def _bare(frame: str) -> str:
    return frame.lstrip("/")
