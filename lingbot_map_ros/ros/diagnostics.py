# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The node's state on /diagnostics, once a second in every state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
from rclpy.clock import Clock, ClockType
from rclpy.node import Node

PERIOD_S = 1.0


@dataclass(frozen=True)
class Report:
    """What a node says about itself."""

    level: bytes
    """``DiagnosticStatus.OK``, ``WARN``, ``ERROR`` or ``STALE``."""
    message: str
    """One line that begins with the state."""
    hardware: str = ""
    """What it runs on."""
    values: Mapping[str, object] = field(default_factory=dict)
    """Figures by name; None values are left out."""


def to_status(name: str, report: Report) -> DiagnosticStatus:
    """``diagnostic_msgs/DiagnosticStatus`` of a report."""
    return DiagnosticStatus(
        level=report.level,
        name=name,
        message=report.message,
        hardware_id=report.hardware,
        values=[
            KeyValue(key=key, value=_text(value))
            for key, value in report.values.items()
            if value is not None
        ],
    )


class Diagnostics:
    """Publishes ``source()`` at 1 Hz by the steady clock, whatever the ROS clock does."""

    def __init__(self, node: Node, source: Callable[[], Report]) -> None:
        self._node = node
        self._source = source
        # not a lifecycle publisher: it speaks in every state
        self._publisher = node.create_publisher(DiagnosticArray, "/diagnostics", 10)
        self._timer = node.create_timer(
            PERIOD_S,
            self.publish,
            callback_group=MutuallyExclusiveCallbackGroup(),
            clock=Clock(clock_type=ClockType.STEADY_TIME),
        )

    def publish(self) -> None:
        """Publish now."""
        msg = DiagnosticArray()
        msg.header.stamp = self._node.get_clock().now().to_msg()
        name = self._node.get_fully_qualified_name().lstrip("/")
        msg.status = [to_status(f"{name}: stream", self._source())]
        self._publisher.publish(msg)


def _text(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
