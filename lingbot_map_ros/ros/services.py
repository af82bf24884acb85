# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The node's services: commands for the worker, answered once they took effect."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.node import Node
from rclpy.task import Future as Awaitable
from std_srvs.srv import SetBool, Trigger

from lingbot_map_ros.errors import LingbotMapError
from lingbot_map_ros.ros.mailbox import Call

Submit = Callable[[Call], "Future[str]"]
"""Hands a command to the worker; raises LingbotMapError where it cannot take one now."""


class Services:
    """Creates the services on ``node``.

    Parameters
    ----------
    node
        Where they live.
    submit
        See `Submit`; the answer of a command is the text of the response.
    commands
        By service name without ``~/``: a call without arguments (Trigger) or with one boolean
        (SetBool).
    """

    def __init__(
        self,
        node: Node,
        submit: Submit,
        triggers: dict[str, Call],
        switches: dict[str, Callable[[bool], str]],
    ) -> None:
        self._node = node
        self._submit = submit
        # an answer waits for the worker; other callbacks must go on meanwhile
        group = ReentrantCallbackGroup()
        self._services = [
            node.create_service(Trigger, f"~/{name}", self._trigger(call), callback_group=group)
            for name, call in triggers.items()
        ] + [
            node.create_service(SetBool, f"~/{name}", self._switch(call), callback_group=group)
            for name, call in switches.items()
        ]

    def destroy(self) -> None:
        """Take the services away."""
        for service in self._services:
            self._node.destroy_service(service)
        self._services = []

    def _trigger(self, call: Call) -> Callable[..., Any]:
        async def answer(request: Any, response: Any) -> Any:
            return await self._answer(response, call)

        return answer

    def _switch(self, call: Callable[[bool], str]) -> Callable[..., Any]:
        async def answer(request: Any, response: Any) -> Any:
            wanted = bool(request.data)
            return await self._answer(response, lambda: call(wanted))

        return answer

    async def _answer(self, response: Any, call: Call) -> Any:
        try:
            command = self._submit(call)
            await self._awaitable(command)
            response.message = command.result()
            response.success = True
        except LingbotMapError as error:
            response.success, response.message = False, str(error)
        except Exception as error:
            # a client that waits must hear of a fault too
            self._node.get_logger().error(f"a service failed: {error!r}")
            response.success, response.message = False, f"internal error: {error!r}"
        return response

    def _awaitable(self, future: Future[str]) -> Awaitable[None]:
        executor = self._node.executor
        waiting: Awaitable[None] = Awaitable(executor=executor)

        def done(_: Future[str]) -> None:
            waiting.set_result(None)
            # rclpy looks at waiting coroutines only when something wakes its executor
            if executor is not None:
                executor.wake()

        future.add_done_callback(done)
        return waiting
