# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Holds a player back by the answers to its images."""

import importlib
import struct
import time
from collections.abc import Iterable
from typing import Any

from rclpy.executors import Executor
from rclpy.node import Node
from rclpy.qos import QoSProfile

from lingbot_map_ros.errors import ConfigurationError
from lingbot_map_ros.ros.pacing import Flight

_NOT_YET_KNOWN = "_NODE_NAME_UNKNOWN_"
"""What DDS calls the node of an endpoint that was discovered before its node."""
_IMPATIENT_S = 0.1
"""Seconds without an answer, once none came in time, after which an image is given up."""


class Answers:
    """Messages on a topic that carry the stamps of images that were sent.

    Parameters
    ----------
    node, executor
        Where they are heard.
    topic
        Its name, resolved by the node; empty where nobody waits for answers.
    timeout
        Seconds without any answer after which the oldest image is given up; then, until one comes,
        the others follow at once. A node does not answer images that show nothing, however many.
    """

    def __init__(self, node: Node, executor: Executor, topic: str, timeout: float) -> None:
        self.flight = Flight()
        self.topic = node.resolve_topic_name(topic) if topic else ""
        self.heard = False
        """Whether they are subscribed to."""
        self._node = node
        self._executor = executor
        self._timeout = self._patience = timeout

    def subscribe(self) -> bool:
        """Subscribe as soon as a publisher tells the type; whether nothing is missing."""
        if self.heard or not self.topic:
            return True
        found = self._node.get_publishers_info_by_topic(self.topic)
        if not found:
            return False
        qos = QoSProfile(depth=1000, reliability=found[0].qos_profile.reliability)
        self._node.create_subscription(
            message_class(found[0].topic_type), self.topic, self._on_answer, qos, raw=True
        )
        self.heard = True
        return True

    def come_from_reader_of(self, topic: str) -> bool:
        """Whether a node that publishes the answers subscribes to ``topic`` (a full name)."""
        answering = _nodes_of(self._node.get_publishers_info_by_topic(self.topic))
        return bool(answering & _nodes_of(self._node.get_subscriptions_info_by_topic(topic)))

    def send(self, image: bytes) -> None:
        """Take note of an image that goes out."""
        if self.heard:
            self.flight.send(header_stamp(image))

    def wait(self, most: int) -> bool:
        """Wait until at most so many images are in flight; gives up one when nothing happens.

        Returns at once, with False, where that is so already.
        """
        deadline, before = time.monotonic() + self._patience, len(self.flight)
        if before <= most:
            return False
        while len(self.flight) > most:
            left = deadline - time.monotonic()
            if left <= 0:
                given_up = self.flight.give_up()
                if self._patience == self._timeout:
                    self._node.get_logger().warning(
                        f"no answer to the image of {given_up * 1e-9:.3f} on {self.topic} within "
                        f"{self._timeout:g} s; going on, without waiting until one comes"
                    )
                self._patience = min(_IMPATIENT_S, self._timeout)
            else:
                self._executor.spin_once(timeout_sec=min(left, 0.1))
            # An answer renews the patience; after a time-out the rest of a round is not waited for.
            if left > 0 and len(self.flight) != before:
                deadline = time.monotonic() + self._timeout
            before = len(self.flight)
        return True

    def _on_answer(self, data: bytes) -> None:
        self._patience = self._timeout
        self.flight.answer(header_stamp(data))


def _nodes_of(endpoints: Iterable[Any]) -> set[tuple[str, str]]:
    return {(e.node_namespace, e.node_name) for e in endpoints if e.node_name != _NOT_YET_KNOWN}


def header_stamp(data: bytes) -> int:
    """Read the stamp in nanoseconds of a serialized message that begins with a header."""
    order = "<" if data[1] & 1 else ">"
    sec, nanosec = struct.unpack_from(f"{order}iI", data, 4)
    return sec * 10**9 + nanosec


def message_class(msgtype: str) -> Any:
    """Import the Python class of ``package/msg/Name``.

    Raises
    ------
    ConfigurationError
        If the package of the message is not installed.
    """
    package, _, name = msgtype.partition("/msg/")
    try:
        return getattr(importlib.import_module(f"{package}.msg"), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(f"the message type {msgtype} is not installed") from error
