# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The node: a lifecycle around the parts, and the program ``map_node``."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import rclpy
from rcl_interfaces.msg import SetParametersResult
from rclpy._rclpy_pybind11 import RCLError
from rclpy.clock import Clock, ClockType, JumpThreshold, TimeJump
from rclpy.duration import Duration
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn

from lingbot_map_ros.errors import ConfigurationError
from lingbot_map_ros.interrupts import InterruptNote
from lingbot_map_ros.ros.assembly import Assembly
from lingbot_map_ros.ros.command_line import names_explained, other_arguments, reason
from lingbot_map_ros.ros.diagnostics import Diagnostics, Report
from lingbot_map_ros.ros.loading import require_torch
from lingbot_map_ros.ros.log_bridge import LogBridge
from lingbot_map_ros.ros.output_folder import require_writable
from lingbot_map_ros.ros.parameter_files import unused_files
from lingbot_map_ros.ros.parameter_server import ParameterServer, type_hint, unknown_changes
from lingbot_map_ros.ros.parameters import Parameters
from lingbot_map_ros.ros.report import NodeSnapshot, make_report
from lingbot_map_ros.ros.worker import WorkerState
from lingbot_map_ros.wording import shortened

TICK_S = 0.2
REBROADCAST_S = 0.05
CLEANUP_S = 10.0
"""Longest that cleanup waits for the worker to give the model back."""
SHUTDOWN_S = 0.5
"""Longest that the end of the process waits for the worker."""
SMALLEST_JUMP_NS = -1_000_000
USAGE = """usage: map_node [--ros-args [-p NAME:=VALUE] [--params-file FILE] [-r image:=TOPIC]]

Turns a camera topic into poses, depth and a map. config/map.yaml lists every parameter.
"""


class MapNode(LifecycleNode):
    """Streams a camera into poses, depth and a map; see the README for topics and services.

    Raises ConfigurationError for parameters that cannot work.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__("lingbot_map", **kwargs)
        self._assembly: Assembly | None = None
        self._active = False
        self._fault = ""
        self._log_bridge = LogBridge(self)
        self._jump_handle = self.get_clock().create_jump_callback(
            JumpThreshold(
                min_forward=None,
                min_backward=Duration(nanoseconds=SMALLEST_JUMP_NS),
                on_clock_change=False,
            ),
            post_callback=self._on_jump,
        )
        self._server = ParameterServer(self, lambda: self._assembly is not None, self._on_change)
        self._autostart = self._server.values.autostart
        self._diagnostics = Diagnostics(self, self._report)
        # watchdogs and TF go on when the ROS clock stands still
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._tick_timer = self.create_timer(TICK_S, self._tick, clock=steady)
        self._tf_timer = self.create_timer(REBROADCAST_S, self._rebroadcast, clock=steady)

    def set_parameters_atomically(self, parameter_list: list[Any]) -> SetParametersResult:
        """Set parameters together, as the services do; says which name or type is wrong."""
        if unknown := unknown_changes(self, parameter_list):
            return SetParametersResult(successful=False, reason=unknown)
        result = super().set_parameters_atomically(parameter_list)
        if not result.successful:
            result.reason += type_hint(parameter_list)
        return result

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Check the parameters and begin to load the model, which goes on in the background."""
        try:
            require_torch()
            parameters = self._server.read()
            with names_explained():
                self._assembly = Assembly(self, parameters)
        except ConfigurationError as error:
            self._fault = str(error)
            self.get_logger().error(f"cannot be configured: {error}. {self._way_on()}")
            return TransitionCallbackReturn.FAILURE
        self._fault = ""
        try:
            require_writable(parameters.output_directory)
        except ConfigurationError as error:
            # no reason to keep a robot from driving
            self.get_logger().warning(f"maps cannot be saved: {error}")
        return super().on_configure(state)

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Subscribe, as soon as the model is loaded."""
        self._active = True
        result = super().on_activate(state)
        if self._assembly is not None:
            self._assembly.tick()
        return result

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Unsubscribe and finish the images that are already there."""
        self._active = False
        if self._assembly is not None:
            self._assembly.stop_input()
        return super().on_deactivate(state)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Give the model and its memory back."""
        self.take_apart(CLEANUP_S)
        return TransitionCallbackReturn.SUCCESS

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Give everything back for good."""
        self.take_apart(CLEANUP_S)
        return TransitionCallbackReturn.SUCCESS

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Go back to unconfigured after a fault in a transition."""
        self.take_apart(CLEANUP_S)
        return TransitionCallbackReturn.SUCCESS

    def take_apart(self, timeout: float) -> None:
        """Destroy the parts; waits at most ``timeout`` seconds for the worker to end."""
        assembly, self._assembly, self._active = self._assembly, None, False
        if assembly is None or assembly.destroy(timeout):
            return
        # a process that ends waits for nobody, and /rosout is gone by then
        if self.context.ok():
            self.get_logger().warning("the worker is still busy; it ends with what it is doing")

    def destroy_node(self) -> None:
        """Destroy the node and its parts."""
        self.take_apart(SHUTDOWN_S)
        self._jump_handle.unregister()
        self._log_bridge.close()
        super().destroy_node()

    def _tick(self) -> None:
        if self._autostart:
            self._autostart = False
            if self.trigger_configure() == TransitionCallbackReturn.SUCCESS:
                self.trigger_activate()
            return
        assembly = self._assembly
        if assembly is None:
            return
        if assembly.worker.state is WorkerState.FAILED:
            self._fault = assembly.worker.error
            self.get_logger().error(f"the model cannot be used: {self._fault}. {self._way_on()}")
            if self._active:
                self.trigger_deactivate()
            self.trigger_cleanup()
        elif self._active:
            assembly.tick()

    def _way_on(self) -> str:
        """What to do about a node that waits unconfigured."""
        name = self.get_fully_qualified_name()
        return (
            f"The node waits: change what is named here (ros2 param set {name} PARAMETER VALUE), "
            f"then try again with: ros2 lifecycle set {name} configure && "
            f"ros2 lifecycle set {name} activate"
        )

    def _rebroadcast(self) -> None:
        if self._assembly is not None and self._active:
            self._assembly.rebroadcast()

    def _on_jump(self, jump: TimeJump) -> None:
        if self._assembly is not None:
            self._assembly.restart(f"the ROS clock, by {-jump.delta.nanoseconds / 1e9:.2f} s")

    def _on_change(self, parameters: Parameters) -> None:
        if self._assembly is not None:
            self._assembly.take(parameters)

    def _report(self) -> Report:
        lifecycle = self._state_machine.current_state[1]
        if self._fault or self._assembly is None:
            return make_report(NodeSnapshot(lifecycle=lifecycle, fault=self._fault))
        return make_report(self._assembly.snapshot(lifecycle))


def main(args: list[str] | None = None) -> int:
    """Run the node until SIGINT or SIGTERM.

    ``args`` begins with the program, as ``sys.argv`` does. The exit code is 1 when the node cannot
    start and 2 for arguments that are none of ROS's.
    """
    argv = (sys.argv if args is None else args)[1:]
    if {"-h", "--help"} & set(argv):
        sys.stdout.write(USAGE)
        return 0
    try:
        if others := other_arguments(argv):
            sys.stderr.write(
                f"map_node: unknown argument '{shortened(others[0])}': did you forget --ros-args "
                "before it?\n"
            )
            return 2
        require_torch()
        interrupt = InterruptNote()  # rclpy calls the handler that it finds
        rclpy.init(args=args)
    except ConfigurationError as error:
        sys.stderr.write(f"map_node: {error}\n")
        return 1
    except RCLError as error:
        sys.stderr.write(f"map_node: {reason(error)}\n")
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    node: MapNode | None = None
    code = 0
    try:
        executor = SingleThreadedExecutor()
        with names_explained():
            node = MapNode()
        for text in unused_files(argv, node.get_fully_qualified_name()):
            node.get_logger().warning(text)
        executor.add_node(node)
        executor.spin()
    except ConfigurationError as error:
        sys.stderr.write(f"map_node: {error}\n")
        code = 1
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    except RuntimeError:
        # RCLError: a callback may still publish when a signal has already shut the context down
        if rclpy.ok() and not interrupt.came:
            raise
    finally:
        # launch forwards a SIGINT that the terminal has sent already; once is enough
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if node is not None:
            node.destroy_node()
        rclpy.try_shutdown()
    if node is None:
        return code
    # Everything of ROS is gone. What is left is a worker that may be inside a load or a step, which
    # nothing can interrupt, and PyTorch, whose teardown takes longer than a robot should wait.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
