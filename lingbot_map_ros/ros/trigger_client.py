# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Calls Trigger services from a program that has no node of its own."""

import time
from collections.abc import Sequence
from typing import Any

import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from std_srvs.srv import Trigger

from lingbot_map_ros.errors import LingbotMapError

_DISCOVERY_S = 10.0
_SETTLE_S = 0.5
"""The service finds its caller a little after the caller has found it, and an answer before that is
lost."""


class ServiceError(LingbotMapError):
    """A service that is not there, does not answer, or refuses."""


def call_triggers(names: Sequence[str], timeout: float) -> list[str]:
    """Call services one after the other; returns the texts of their answers.

    Parameters
    ----------
    names : sequence of str
        Resolved names of ``std_srvs/srv/Trigger`` services.
    timeout : float
        Longest wait in seconds for an answer.

    Raises
    ------
    ServiceError
        With the name of the service and its reason.
    """
    context = rclpy.Context()
    rclpy.init(context=context, signal_handler_options=SignalHandlerOptions.NO)
    try:
        node = rclpy.create_node("trigger_client", context=context)
        executor = SingleThreadedExecutor(context=context)
        executor.add_node(node)
        return [_call(node, executor, name, timeout) for name in names]
    finally:
        rclpy.try_shutdown(context=context)


def _call(node: Node, executor: SingleThreadedExecutor, name: str, timeout: float) -> str:
    client: Any = node.create_client(Trigger, name)
    if not client.wait_for_service(_DISCOVERY_S):
        raise ServiceError(f"there is no service {name}")
    time.sleep(_SETTLE_S)
    answer: Any = client.call_async(Trigger.Request())
    executor.spin_until_future_complete(answer, timeout)
    if not answer.done():
        raise ServiceError(f"the service {name} does not answer within {timeout:g} s")
    response = answer.result()
    if not response.success:
        raise ServiceError(f"{name}: {response.message}")
    return str(response.message)
