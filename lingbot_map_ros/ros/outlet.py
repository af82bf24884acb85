# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Topics that cost nothing unless somebody listens."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from rclpy._rclpy_pybind11 import RCLError
from rclpy.lifecycle import LifecycleNode
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy


class Outlet:
    """A lifecycle publisher that knows whether it is wanted, and survives a full transport."""

    def __init__(self, node: LifecycleNode, message_type: Any, topic: str, qos: QoSProfile) -> None:
        self._node = node
        self._publisher = node.create_lifecycle_publisher(message_type, topic, qos)
        self.topic: str = self._publisher.topic_name
        self.failed = 0
        """Messages that the middleware did not take."""

    @property
    def subscribers(self) -> int:
        """How many subscribe now."""
        try:
            return int(self._publisher.get_subscription_count())
        except RCLError:
            return 0

    def publish(self, msg: Any) -> None:
        """Publish ``msg``; a message that the middleware does not take is counted and dropped."""
        try:
            self._publisher.publish(msg)
        except RCLError as error:
            if not self._node.context.ok():
                return
            self.failed += 1
            self._node.get_logger().warning(
                f"a message of {self.topic} was not taken ({error}): a subscriber is too slow for "
                "messages of this size. Use the Fast DDS profile of this package in its process "
                "too, or publish less (points_stride, map_voxel_size)",
                throttle_duration_sec=10.0,
            )

    def destroy(self) -> None:
        """Take the topic away."""
        self._node.destroy_lifecycle_publisher(self._publisher)


class LatchedOutlet(Outlet):
    """A topic of state: sent at a rate, on change, and whenever a subscriber joins.

    Parameters
    ----------
    period
        Seconds between messages; called each time, None or infinity for no repetition.
    always
        Repeat the message also when nothing changed.
    """

    def __init__(
        self,
        node: LifecycleNode,
        message_type: Any,
        topic: str,
        period: Callable[[], float],
        *,
        always: bool,
    ) -> None:
        qos = QoSProfile(
            depth=1,
            reliability=ReliabilityPolicy.RELIABLE,
            durability=DurabilityPolicy.TRANSIENT_LOCAL,
        )
        super().__init__(node, message_type, topic, qos)
        self._period = period
        self._always = always
        self._lock = threading.Lock()
        self._known_subscribers = 0
        self._changed = False
        self._joined = False
        self._sent_at = float("-inf")

    @property
    def wanted(self) -> bool:
        """Whether somebody has, or will get, a message of this topic."""
        return self.latched or self.subscribers > 0

    @property
    def latched(self) -> bool:
        """Whether a message was sent, so that late subscribers get it."""
        return self._sent_at != float("-inf")

    @property
    def changed(self) -> bool:
        """Whether the state is another than that of the last message."""
        return self._changed

    def change(self) -> None:
        """Take note that the state is another now."""
        with self._lock:
            self._changed = True

    def due(self) -> bool:
        """Whether a message should be made now. Call it regularly: it notices who joins."""
        count = self.subscribers
        with self._lock:
            self._joined |= count > self._known_subscribers
            self._known_subscribers = count
            if not count:
                return False
            waited = time.monotonic() - self._sent_at >= self._period()
            return self._joined or (waited and (self._changed or self._always))

    def publish(self, msg: Any) -> None:
        """Publish the state as it is now."""
        with self._lock:
            self._changed = self._joined = False
            self._sent_at = time.monotonic()
        super().publish(msg)
