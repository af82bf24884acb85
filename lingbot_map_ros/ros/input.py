# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Subscriptions of the node: images, calibration and odometry; callbacks only store."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nav_msgs.msg import Odometry
from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
from rclpy.node import Node
from rclpy.qos import (
    HistoryPolicy,
    QoSProfile,
    ReliabilityPolicy,
    qos_profile_sensor_data,
    qos_profile_system_default,
)
from sensor_msgs.msg import CameraInfo, CompressedImage, Image

from lingbot_map_ros.ros.camera_info import image_size
from lingbot_map_ros.ros.mailbox import Mailbox
from lingbot_map_ros.ros.odom_buffer import OdomBuffer, odom_complaints
from lingbot_map_ros.ros.parameters import Parameters
from lingbot_map_ros.ros.rates import Rate, Tally
from lingbot_map_ros.ros.stamps import AHEAD_FRAMES, WHY, StampGuard, Verdict

QUEUE_CAPACITY = 64
"""Images that wait in the node with ``drop_policy: all``; the others stay with DDS."""


@dataclass(frozen=True)
class ImageFrame:
    """An image as it came in; decoded by the worker."""

    msg: Any
    stamp_ns: int
    compressed: bool
    received: float
    """``time.monotonic()`` of its arrival."""


class _GatedGroup(MutuallyExclusiveCallbackGroup):
    """Callback group that takes nothing while its gate is shut; DDS holds what comes."""

    def __init__(self, is_open: Callable[[], bool]) -> None:
        super().__init__()
        self._is_open = is_open

    def can_execute(self, entity: Any) -> bool:
        return self._is_open() and super().can_execute(entity)


class Input:
    """Feeds the mailbox, and keeps the newest camera_info.

    Parameters
    ----------
    node, parameters, mailbox
        Where the subscriptions live, how they are made, and where images go.
    on_restart
        Called when stamps say that the source started again without a jump of the ROS clock.
    """

    def __init__(
        self,
        node: Node,
        parameters: Parameters,
        mailbox: Mailbox[ImageFrame],
        on_restart: Callable[[str], None],
    ) -> None:
        self.camera_info: Any = None
        self.odom = OdomBuffer()
        self.odom_topic = node.resolve_topic_name("odom")
        self.odom_qos = QoSProfile(depth=100, reliability=ReliabilityPolicy.BEST_EFFORT)
        self.odom_messages = Rate()
        self.images = Rate()
        self.skipped = Tally()
        self.paused = False
        # What has to lose nothing believes every stamp: a replay may run far ahead of its clock.
        self.stamps = StampGuard(doubts=parameters.drop_policy != "all")
        self.message_type: Any = CompressedImage if _compressed(parameters) else Image
        self.refusal = ""
        """Why the newest image was skipped for its stamp; empty if it was not."""
        self._refused_since = 0.0
        self.topic = node.resolve_topic_name("image") + (
            "/compressed" if _compressed(parameters) else ""
        )
        self.qos = image_qos(parameters)
        self._node = node
        self._parameters = parameters
        self._mailbox = mailbox
        self._on_restart = on_restart
        self._subscriptions: list[Any] = []
        self._odom_came = False
        self._camera_info_subscription: Any = None
        if parameters.use_camera_info:
            # Already while the model loads: it tells the size of the images.
            self._camera_info_subscription = node.create_subscription(
                CameraInfo,
                "camera_info",
                self._on_camera_info,
                qos_profile_sensor_data,
                callback_group=MutuallyExclusiveCallbackGroup(),
            )

    def start(self) -> None:
        """Subscribe; safe to repeat."""
        if self._subscriptions:
            return
        lossless = self._parameters.drop_policy == "all"
        if lossless and self._parameters.image_qos != "reliable":
            self._node.get_logger().warning(
                "drop_policy: all keeps every image that arrives, but images can get lost on the "
                "way; set image_qos: reliable"
            )
        group = (
            _GatedGroup(lambda: self._mailbox.waiting < QUEUE_CAPACITY)
            if lossless
            else MutuallyExclusiveCallbackGroup()
        )
        subscribe = self._node.create_subscription
        self._subscriptions = [
            subscribe(self.message_type, self.topic, self._on_image, self.qos, callback_group=group)
        ]
        self.images, self.odom_messages = Rate(), Rate()
        self._subscriptions.append(
            subscribe(
                Odometry,
                self.odom_topic,
                self._on_odom,
                self.odom_qos,
                callback_group=MutuallyExclusiveCallbackGroup(),
            )
        )

    def stop(self) -> None:
        """Unsubscribe from images and odometry; safe to repeat."""
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)
        self._subscriptions = []
        self.refusal = ""

    def destroy(self) -> None:
        """Unsubscribe from everything; safe to repeat."""
        self.stop()
        if self._camera_info_subscription is not None:
            self._node.destroy_subscription(self._camera_info_subscription)
            self._camera_info_subscription = None

    @property
    def started(self) -> bool:
        """Whether images are subscribed to."""
        return bool(self._subscriptions)

    def forget(self, time_jumped: bool = False) -> None:
        """Take the next image whatever its stamp; after a jump in time, drop the odometry too."""
        self.stamps.forget(time_jumped)
        if time_jumped:
            self.odom.clear()

    @property
    def refused_for(self) -> float:
        """Seconds, up to the newest image, in which every one was skipped for its stamp."""
        since = time.monotonic() - self._refused_since
        return max(0.0, since - self.images.age) if self.refusal else 0.0

    def _on_image(self, msg: Any) -> None:
        self.images.tick()
        stamp_ns = msg.header.stamp.sec * 1_000_000_000 + msg.header.stamp.nanosec
        if self.paused:
            self.refusal = ""
            self.skipped.add("paused")
            return
        now_ns = self._node.get_clock().now().nanoseconds
        verdict = self.stamps.judge(stamp_ns, now_ns)
        if verdict is Verdict.RESTART:
            self._on_restart(
                f"stamps went back by {self.stamps.behind_ns / 1e9:.1f} s and stay there"
            )
            verdict = self.stamps.judge(stamp_ns, now_ns)
        if verdict is Verdict.ACCEPT:
            self.refusal = ""
        else:
            if not self.refusal:
                self._refused_since = time.monotonic()
            self.refusal = WHY.get(verdict, verdict.value)
            self.skipped.add(verdict.value)
            if verdict is Verdict.MISSING:
                self._node.get_logger().warning(
                    f"images on {self.topic} are skipped: {self.refusal}",
                    throttle_duration_sec=10.0,
                )
            elif verdict is Verdict.AHEAD:
                self._node.get_logger().warning(
                    f"an image is skipped: its stamp lies {self.stamps.ahead_ns / 1e9:.1f} s ahead "
                    f"of the time; {AHEAD_FRAMES} such in a row are believed",
                    throttle_duration_sec=10.0,
                )
            return
        frame = ImageFrame(
            msg, stamp_ns, self.message_type is CompressedImage, received=time.monotonic()
        )
        self._mailbox.put(frame, stamp_ns)

    @property
    def image_size(self) -> tuple[int, int] | None:
        """Height and width of the images as far as camera_info tells."""
        return None if self.camera_info is None else image_size(self.camera_info)

    def _on_camera_info(self, msg: Any) -> None:
        self.camera_info = msg

    def _on_odom(self, msg: Any) -> None:
        self.odom_messages.tick()
        if not self._odom_came:
            self._odom_came = True
            for complaint in odom_complaints(msg, self._parameters):
                self._node.get_logger().warning(complaint)
        if not self.odom.add(msg):
            self.skipped.add("invalid_odom")


def _compressed(parameters: Parameters) -> bool:
    return parameters.image_transport == "compressed"


def image_qos(parameters: Parameters) -> QoSProfile:
    """QoS of the image subscription by ``image_qos`` and ``drop_policy``."""
    if parameters.image_qos == "system_default" and parameters.drop_policy == "latest":
        return qos_profile_system_default
    reliability = {
        "sensor_data": ReliabilityPolicy.BEST_EFFORT,
        "reliable": ReliabilityPolicy.RELIABLE,
        "system_default": ReliabilityPolicy.SYSTEM_DEFAULT,
    }[parameters.image_qos]
    if parameters.drop_policy == "all":
        return QoSProfile(history=HistoryPolicy.KEEP_ALL, reliability=reliability)
    return QoSProfile(history=HistoryPolicy.KEEP_LAST, depth=5, reliability=reliability)
