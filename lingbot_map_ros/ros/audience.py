# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Who reads the images of a player, and who is missing."""

import time
from collections.abc import Collection

from rclpy.executors import Executor
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import ReliabilityPolicy

from lingbot_map_ros.ros.answers import Answers

_SETTLE_S = 0.3


class Audience:
    """Readers of the topics that a player publishes.

    Parameters
    ----------
    node, executor
        The player's.
    answers
        What is expected from the readers of images; of several image topics only those count that
        a node reads which answers.
    images, publishers
        Publishers of images, and all there are.
    """

    def __init__(
        self,
        node: Node,
        executor: Executor,
        answers: Answers,
        images: Collection[Publisher],
        publishers: Collection[Publisher],
    ) -> None:
        self._node = node
        self._executor = executor
        self._answers = answers
        self._images = images
        self._publishers = publishers

    def wait(self, seconds: float) -> bool:
        """Wait for a reader of images, and for answers; False if nobody reads in time.

        Says who is missing, and why where that can be seen.
        """
        deadline = time.monotonic() + seconds
        waiting_said = False
        while True:
            found = not self._images or any(map(self._is_read, self._images))
            if found and self._answers.subscribe():
                self._settle()
                return True
            if time.monotonic() >= deadline:
                break
            if not waiting_said:
                names = ", ".join(p.topic_name for p in self._images)
                self._node.get_logger().info(f"waiting for a subscriber of {names}")
                waiting_said = True
            self._executor.spin_once(timeout_sec=0.05)
        for publisher in self._images:
            if not self._is_read(publisher):
                self._node.get_logger().warning(self._explain_absence(publisher))
        if not self._answers.subscribe():
            self._node.get_logger().warning(
                f"nobody publishes {self._answers.topic}; images are not paced by it"
            )
        return found

    def answers(self, publisher: Publisher) -> bool:
        """Whether answers to these images are to be expected, now or from a node that still loads.

        Nobody answers another camera's images, or the same ones as JPEG, that only a viewer reads,
        or nobody while somebody reads the others.
        """
        for is_read in (self._is_read, Publisher.get_subscription_count):
            if any(map(is_read, self._images)):
                return bool(is_read(publisher))
        return True

    def _is_read(self, publisher: Publisher) -> bool:
        """Whether somebody subscribes; to one of several answered topics, one who answers."""
        if self._answers.topic and len(self._images) > 1:
            return self._answers.come_from_reader_of(publisher.topic_name)
        return bool(publisher.get_subscription_count())

    def _settle(self) -> None:
        """Wait until no more readers turn up: those of one node are found one after the other."""
        readers, since = -1, time.monotonic()
        while time.monotonic() < since + _SETTLE_S:
            found = sum(p.get_subscription_count() for p in self._publishers)
            if found != readers:
                readers, since = found, time.monotonic()
            self._executor.spin_once(timeout_sec=0.02)

    def _explain_absence(self, publisher: Publisher) -> str:
        name = publisher.topic_name
        if publisher.get_subscription_count():
            return f"the node that publishes {self._answers.topic} does not subscribe to {name}"
        best_effort = publisher.qos_profile.reliability is ReliabilityPolicy.BEST_EFFORT
        if best_effort and self._node.count_subscribers(name):
            return f"the subscribers of {name} want reliable messages: play with reliable QoS"
        return f"nobody subscribes to {name} (a wrong name, namespace or ROS_DOMAIN_ID?)"
