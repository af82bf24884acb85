# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the library logs through Python's logging, into the node's log and /rosout."""

from __future__ import annotations

import logging

from rclpy.node import Node

ROOT = "lingbot_map_ros"


class LogBridge(logging.Handler):
    """Handler that hands the package's records to a node's logger until it is closed."""

    def __init__(self, node: Node) -> None:
        super().__init__(logging.INFO)
        self._node = node
        root = logging.getLogger(ROOT)
        self._level = root.level
        root.setLevel(min(root.level or logging.INFO, logging.INFO))
        root.propagate = False
        root.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Pass a record on, unless ROS is gone; rclpy wants one call site a severity."""
        if not self._node.context.ok():
            return
        logger = self._node.get_logger()
        text = self.format(record)
        if record.levelno >= logging.ERROR:
            logger.error(text)
        elif record.levelno >= logging.WARNING:
            logger.warning(text)
        else:
            logger.info(text)

    def close(self) -> None:
        """Detach from the package's logger."""
        root = logging.getLogger(ROOT)
        root.removeHandler(self)
        root.setLevel(self._level)
        root.propagate = True
        super().close()
