# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the node broadcasts on /tf, and who else broadcasts the same frames."""

from __future__ import annotations

import importlib
import threading
from collections import deque
from typing import Any

import numpy as np
from geometry_msgs.msg import TransformStamped
from numpy.typing import NDArray
from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
from rclpy.lifecycle import LifecycleNode
from rclpy.time import Time

from lingbot_map_ros.geometry.poses import matrix_to_quaternion
from lingbot_map_ros.ros.parameters import Parameters
from lingbot_map_ros.ros.tf_lookup import STATIC_QOS, TF_QOS
from lingbot_map_ros.wording import shortened

_REMEMBERED = 256


def matrix_to_transform(
    T: NDArray[np.float64], parent: str, child: str, stamp_ns: int
) -> TransformStamped:
    """``geometry_msgs/TransformStamped`` of a rigid matrix [4, 4]: pose of child in parent."""
    msg = TransformStamped()
    msg.header.frame_id, msg.child_frame_id = parent, child
    msg.header.stamp = Time(nanoseconds=stamp_ns).to_msg()
    t, r = msg.transform.translation, msg.transform.rotation
    t.x, t.y, t.z = (float(x) for x in T[:3, 3])
    r.x, r.y, r.z, r.w = (float(x) for x in matrix_to_quaternion(T[:3, :3]))
    return msg


class TransformBroadcaster:
    """Broadcasts by ``tf_mode``; silent where tf2_msgs is not installed.

    The worker hands over transforms, a timer of the node calls `rebroadcast`; both are safe from
    their threads.
    """

    def __init__(self, node: LifecycleNode, parameters: Parameters) -> None:
        self._node = node
        self._parameters = parameters
        self._lock = threading.Lock()
        self._map_to_odom: NDArray[np.float64] | None = None
        self._last_map_to_odom_ns = -1
        self._last_odom_to_base_ns = -1
        self._sent: dict[str, deque[int]] = {}
        self._camera_frame = ""
        self._warned = False
        self._subscriptions: list[Any] = []
        self._publisher = None
        self._static_publisher = None
        self._message: Any = None
        if parameters.tf_mode == "none":
            return
        try:
            self._message = importlib.import_module("tf2_msgs.msg").TFMessage
        except ImportError:
            node.get_logger().warning("tf2_msgs is not installed: tf_mode is as good as none")
            return
        self._publisher = node.create_lifecycle_publisher(self._message, "/tf", TF_QOS)
        self._static_publisher = node.create_lifecycle_publisher(
            self._message, "/tf_static", STATIC_QOS
        )
        group = MutuallyExclusiveCallbackGroup()
        for topic, qos in (("/tf", TF_QOS), ("/tf_static", STATIC_QOS)):
            self._subscriptions.append(
                node.create_subscription(
                    self._message, topic, self._watch, qos, callback_group=group
                )
            )

    @property
    def children(self) -> tuple[str, ...]:
        """Child frames that are ours."""
        ours = {
            "odom": (self._parameters.odom_frame, self._parameters.base_frame),
            "map": (self._parameters.odom_frame,),
            "none": (),
        }[self._parameters.tf_mode]
        return (*ours, self._camera_frame) if self._camera_frame else ours

    def send_odom_to_base(self, T: NDArray[np.float64], stamp_ns: int) -> None:
        """Send odom -> base of one frame (``tf_mode: odom`` only), each stamp once."""
        if self._parameters.tf_mode != "odom" or stamp_ns == self._last_odom_to_base_ns:
            return
        self._last_odom_to_base_ns = stamp_ns
        self._send(T, self._parameters.odom_frame, self._parameters.base_frame, stamp_ns)

    def set_map_to_odom(self, T: NDArray[np.float64] | None) -> None:
        """Set what `rebroadcast` sends, and send it at once if it is new; None makes it silent."""
        with self._lock:
            before, self._map_to_odom = self._map_to_odom, T
        if T is not None and not (before is not None and np.array_equal(before, T)):
            self.rebroadcast()

    def rebroadcast(self) -> None:
        """Send map -> odom, stamped now + ``transform_tolerance``."""
        tolerance_ns = round(self._parameters.transform_tolerance * 1e9)
        now_ns = self._node.get_clock().now().nanoseconds
        with self._lock:
            T, stamp_ns = self._map_to_odom, now_ns + tolerance_ns
            # a stopped clock would repeat the stamp, and listeners warn about repeated data
            if T is None or stamp_ns == self._last_map_to_odom_ns:
                return
            self._last_map_to_odom_ns = stamp_ns
            self._send(T, self._parameters.map_frame, self._parameters.odom_frame, stamp_ns)

    def send_base_to_camera(self, T: NDArray[np.float64], camera_frame: str) -> None:
        """Tell /tf_static where an assumed camera sits (``tf_mode: odom``), so the tree is whole.

        Only for a camera that nobody else has placed.
        """
        if self._parameters.tf_mode != "odom" or self._static_publisher is None:
            return
        self._camera_frame = camera_frame
        stamp_ns = self._node.get_clock().now().nanoseconds
        transform = matrix_to_transform(T, self._parameters.base_frame, camera_frame, stamp_ns)
        self._remember(camera_frame, stamp_ns)
        self._static_publisher.publish(self._message(transforms=[transform]))

    def destroy(self) -> None:
        """Give publishers and subscriptions back."""
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)
        for publisher in filter(None, (self._publisher, self._static_publisher)):
            self._node.destroy_lifecycle_publisher(publisher)
        self._subscriptions, self._publisher, self._static_publisher = [], None, None

    def _send(self, T: NDArray[np.float64], parent: str, child: str, stamp_ns: int) -> None:
        if self._publisher is None:
            return
        transform = matrix_to_transform(T, parent, child, stamp_ns)
        self._remember(child, stamp_ns)
        self._publisher.publish(self._message(transforms=[transform]))

    def _remember(self, child: str, stamp_ns: int) -> None:
        self._sent.setdefault(child, deque(maxlen=_REMEMBERED)).append(stamp_ns)

    def _watch(self, msg: Any) -> None:
        """Warn, once, of another publisher of frames that are ours."""
        if self._warned:
            return
        others = [transform for transform in msg.transforms if self._is_another_s(transform)]
        if not others:
            return
        self._warned = True
        what = " and ".join(
            f"{shortened(t.header.frame_id)!r} -> {shortened(t.child_frame_id)!r}" for t in others
        )
        self._node.get_logger().warning(
            f"somebody else broadcasts {what}, which is also ours with tf_mode: "
            f"{self._parameters.tf_mode}; frames will jump between the two. Stop the other one, "
            "or set tf_mode (map: we only add map -> odom; none: nothing), or choose other frame "
            "names"
        )

    def _is_another_s(self, transform: TransformStamped) -> bool:
        """Whether a transform moves a child that is ours and was not sent here."""
        child, stamp = transform.child_frame_id.lstrip("/"), transform.header.stamp
        stamp_ns = stamp.sec * 1_000_000_000 + stamp.nanosec
        return child in self.children and stamp_ns not in self._sent.get(child, ())
