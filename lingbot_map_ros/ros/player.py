# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Publishes recorded messages with ``/clock``: in their own time, or as fast as they are answered.

Messages go out as the serialized bytes they were recorded as, which costs next to nothing.
"""

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from builtin_interfaces.msg import Time
from rclpy.duration import Duration
from rclpy.executors import SingleThreadedExecutor
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy
from rosgraph_msgs.msg import Clock

from lingbot_map_ros.errors import ConfigurationError
from lingbot_map_ros.integers import require_integers
from lingbot_map_ros.ros.answers import Answers, message_class
from lingbot_map_ros.ros.audience import Audience
from lingbot_map_ros.ros.timeline import Timeline

CLOCK_PERIOD_S = 0.01
_FULL_RETRY_S = 0.005
_FLUSH_S = 10.0
_LINGER_S = 0.5
# Serialization header and stamp; what is shorter was damaged in the bag.
_SMALLEST_MESSAGE = 12


class Recorded(Protocol):
    """A message of a bag."""

    @property
    def topic(self) -> str:
        """Name of the topic."""

    @property
    def stamp_ns(self) -> int:
        """Time of recording."""

    @property
    def data(self) -> bytes:
        """Serialized message."""


@dataclass(frozen=True)
class PlayOptions:
    """How to play.

    ``rate`` is the speed (2 = twice as fast, 0 = as fast as possible). With ``pace_by`` at most
    ``pace_window`` images are on their way: the next is held back until one of them was answered on
    that topic by a message of the same stamp, or until nothing was for ``pace_timeout`` seconds.
    A stream's first answer needs as many images as it has scale frames.
    """

    rate: float = 1.0
    reliable: bool = True
    pace_by: str = ""
    pace_timeout: float = 10.0
    pace_window: int = 8
    wait: float = 10.0

    def __post_init__(self) -> None:
        require_integers(self)


@dataclass
class PlayReport:
    """What went out: messages, images among them, and images that were never answered."""

    messages: int = 0
    images: int = 0
    unanswered: int = 0
    skipped_topics: list[str] = field(default_factory=list)


class BagPlayer:
    """Publishers for the topics of a bag, on a node of the caller.

    Parameters
    ----------
    node : rclpy.node.Node
        Not spun by anybody else; remappings of the node apply to the topics.
    topics : mapping of str to str
        Type (``package/msg/Name``) of each topic. Types that are not installed are left out and
        named in the report.
    image_topics : collection of str
        The topics that the wait for subscribers is about, and ``pace_by``. Of several only those
        count for that which the node that answers reads.
    options : PlayOptions
    """

    def __init__(
        self,
        node: Node,
        topics: Mapping[str, str],
        image_topics: Collection[str],
        options: PlayOptions,
    ) -> None:
        self.report = PlayReport()
        self._node = node
        self._options = options
        self._images = set(image_topics)
        self._executor = SingleThreadedExecutor(context=node.context)
        self._executor.add_node(node)
        self._answers = Answers(node, self._executor, options.pace_by, options.pace_timeout)
        self._clock = node.create_publisher(Clock, "/clock", 10)
        self._publishers: dict[str, Publisher] = {}
        for topic, msgtype in topics.items():
            try:
                kind = message_class(msgtype)
            except ConfigurationError as error:
                node.get_logger().warning(f"{topic} is not played: {error}")
                self.report.skipped_topics.append(topic)
                continue
            self._publishers[topic] = node.create_publisher(kind, topic, self._qos(topic))
        images = [self._publishers[t] for t in sorted(self._images) if t in self._publishers]
        self._audience = Audience(
            node, self._executor, self._answers, images, self._publishers.values()
        )

    def wait_for_subscribers(self) -> bool:
        """Wait up to ``options.wait`` seconds for a reader of an image topic; see `Audience`."""
        return self._audience.wait(self._options.wait)

    def play(self, messages: Iterable[Recorded]) -> None:
        """Publish one round and return when all of it has gone out; call again for a loop."""
        timeline = Timeline(self._options.rate)
        for message in messages:
            publisher = self._publishers.get(message.topic)
            if publisher is None or len(message.data) < _SMALLEST_MESSAGE:
                continue
            is_image = message.topic in self._images
            paced = is_image and self._answers.heard and self._audience.answers(publisher)
            if paced and self._answers.wait(self._options.pace_window - 1):
                timeline.forgive_delay(message.stamp_ns)
            self._idle_until(timeline, message.stamp_ns)
            self._publish(publisher, message.data)
            self.report.messages += 1
            self.report.images += is_image
            if paced:
                self._answers.send(message.data)
        self._answers.wait(0)
        self.report.unanswered = self._answers.flight.unanswered

    def flush(self) -> None:
        """Let what is on its way arrive; call it at the end.

        Reliable readers confirm what they got; the others are given a moment, because a writer that
        goes takes with it what its readers have not fetched.
        """
        for publisher in self._publishers.values():
            publisher.wait_for_all_acked(Duration(seconds=_FLUSH_S))
        if not self._options.reliable and self.report.messages:
            time.sleep(_LINGER_S)

    def _qos(self, topic: str) -> QoSProfile:
        latched = topic.endswith("/tf_static")
        reliable = self._options.reliable or latched
        return QoSProfile(
            # Keep-all makes a full reader hold the player up instead of losing messages.
            history=HistoryPolicy.KEEP_ALL if reliable else HistoryPolicy.KEEP_LAST,
            depth=10,
            reliability=ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT,
            durability=DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE,
        )

    def _idle_until(self, timeline: Timeline, stamp_ns: int) -> None:
        """Tick ``/clock`` until a message is due, the last time with the message's own stamp."""
        while (left := timeline.seconds_until(stamp_ns)) > 0:
            self._tick(timeline.now(stamp_ns))
            until = time.monotonic() + min(left, CLOCK_PERIOD_S)
            while (rest := until - time.monotonic()) > 0:
                self._executor.spin_once(timeout_sec=rest)
        self._executor.spin_once(timeout_sec=0)
        self._tick(stamp_ns)

    def _tick(self, stamp_ns: int) -> None:
        sec, nanosec = divmod(stamp_ns, 10**9)
        self._clock.publish(Clock(clock=Time(sec=sec, nanosec=nanosec)))

    def _publish(self, publisher: Publisher, data: bytes) -> None:
        """Publish; a writer that is full (a slow reliable reader) is waited for."""
        deadline = time.monotonic() + _FLUSH_S
        while True:
            try:
                publisher.publish(data)
                return
            except rclpy_implementation.RCLError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_FULL_RETRY_S)
