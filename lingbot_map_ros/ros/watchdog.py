# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What notices that no image comes, or that none gets through."""

from __future__ import annotations

from rclpy.node import Node

from lingbot_map_ros.ros.input import Input
from lingbot_map_ros.ros.parameters import Parameters
from lingbot_map_ros.ros.silence import explain_silence
from lingbot_map_ros.ros.worker import Worker


class Watchdog:
    """Looks at input and worker; says each trouble once, and when it is over."""

    def __init__(self, node: Node, source: Input, worker: Worker) -> None:
        self._node = node
        self._source = source
        self._worker = worker
        self.silence = ""
        """Why no image may come; empty while they do."""
        self.stall = ""
        """Where the worker is stuck; empty while it is not."""

    def check(self, parameters: Parameters) -> None:
        """Look once; call it a few times a second."""
        self._check_silence(parameters.no_input_timeout)
        self._check_stall(parameters.stall_timeout)

    def _check_silence(self, timeout: float) -> None:
        source = self._source
        if not source.started or source.images.age < timeout:
            if self.silence and source.started:
                self._node.get_logger().info(f"images come in on {source.topic}")
            self.silence = ""
        elif not self.silence:
            self.silence = explain_silence(
                self._node, source.topic, source.message_type, source.qos
            )
            self._node.get_logger().warning(
                f"no image on {source.topic} for {source.images.age:.0f} s: {self.silence}"
            )

    def _check_stall(self, timeout: float) -> None:
        busy = self._worker.busy_for
        if busy < timeout or self._source.images.age >= timeout:
            if self.stall and busy < timeout:
                self._node.get_logger().info("the worker goes on")
                self.stall = ""
            return
        stack = self._worker.stack()
        if not self.stall:
            self._node.get_logger().error(
                f"no result for {busy:.0f} s while images arrive; the worker is at:\n{stack}"
            )
        self.stall = stack
