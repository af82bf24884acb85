# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What notices that no image or odometry comes, that none gets through or is of the time."""

from __future__ import annotations

from nav_msgs.msg import Odometry
from rclpy.node import Node

from lingbot_map_ros.ros.input import Input
from lingbot_map_ros.ros.odom_buffer import MAX_GAP_NS
from lingbot_map_ros.ros.parameters import Parameters
from lingbot_map_ros.ros.report import StreamSnapshot
from lingbot_map_ros.ros.silence import IMAGE, ODOMETRY, explain_silence
from lingbot_map_ros.ros.worker import Worker

FAR_S = 3600.0
"""Age of a frame that no delay explains."""
_UNITS = ((365.25 * 86400, "years"), (86400, "days"), (3600, "hours"))


class Watchdog:
    """Looks at input and worker; says each trouble once, and when it is over."""

    def __init__(self, node: Node, source: Input, worker: Worker) -> None:
        self._node = node
        self._source = source
        self._worker = worker
        self.silence = ""
        """Why no image may come; empty while they do."""
        self.odometry_silence = ""
        """Why no odometry may match the frames; empty while some does, or none is needed."""
        self.stall = ""
        """Where the worker is stuck; empty while it is not."""
        self._age_said = self._refusal_said = False

    def check(self, parameters: Parameters, stream: StreamSnapshot | None) -> None:
        """Look once; call it a few times a second, with what the worker said last."""
        if stream is not None:
            self._check_age(stream.frame_age_s)
            self._check_odometry(parameters, stream)
        self._check_silence(parameters.no_input_timeout)
        self._check_stall(parameters.stall_timeout)
        self._check_refusals(parameters.stall_timeout)

    def _check_silence(self, timeout: float) -> None:
        source = self._source
        if not source.started or source.images.age < timeout:
            if self.silence and source.started:
                self._node.get_logger().info(f"images come in on {source.topic}")
            self.silence = ""
        elif not self.silence:
            self.silence = explain_silence(
                self._node, source.topic, source.message_type, source.qos, IMAGE
            )
            self._node.get_logger().warning(
                f"no image on {source.topic} for {source.images.age:.0f} s: {self.silence}"
            )

    def _check_odometry(self, parameters: Parameters, stream: StreamSnapshot) -> None:
        source, missing_for = self._source, stream.odometry_missing_for
        if missing_for < parameters.stall_timeout:
            if self.odometry_silence and source.started:
                self._node.get_logger().info("the odometry is there, or no longer needed")
            self.odometry_silence = ""
        elif not self.odometry_silence:
            if source.odom_messages.age < parameters.stall_timeout:
                reason = self._explain_mismatch(stream.frame_age_s)
            else:
                reason = explain_silence(
                    self._node, source.odom_topic, Odometry, source.odom_qos, ODOMETRY
                )
            transform = f"{parameters.odom_frame} -> {parameters.base_frame}"
            no_tf = f" and no {transform} in TF" if parameters.tf_mode == "map" else ""
            self.odometry_silence = (
                f"no odometry on {source.odom_topic}{no_tf} matches the images: {reason}"
            )
            self._node.get_logger().warning(f"for {missing_for:.0f} s {self.odometry_silence}")

    def _explain_mismatch(self, frame_age_s: float | None) -> str:
        newest = self._source.odom.newest
        if newest is None or frame_age_s is None:
            return "messages come, but none holds a pose (NaN, or no quaternion)"
        behind = (self._node.get_clock().now().nanoseconds - newest) / 1e9 - frame_age_s
        return (
            f"messages come, but not around the images' stamps: the newest is {abs(behind):.1f} s "
            f"{'behind' if behind > 0 else 'ahead of'} the newest image; both must be stamped by "
            f"one clock, and two messages be at most {MAX_GAP_NS / 1e9:g} s apart"
        )

    def _check_age(self, age: float | None) -> None:
        if self._age_said or age is None or abs(age) < FAR_S:
            return
        self._age_said = True
        self._node.get_logger().warning(explain_age(self._node, age))

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

    def _check_refusals(self, timeout: float) -> None:
        refused = self._source.refused_for
        if refused >= timeout and not self._refusal_said:
            self._node.get_logger().error(
                f"every image on {self._source.topic} for {refused:.0f} s is skipped: "
                f"{self._source.refusal}"
            )
        self._refusal_said = refused >= timeout


def explain_age(node: Node, age_s: float) -> str:
    """Say why the newest image may be so far from now, and what to change."""
    if node.get_parameter("use_sim_time").value and not node.get_clock().now().nanoseconds:
        lacking = "nothing has come on" if node.count_publishers("/clock") else "nobody publishes"
        return (
            f"use_sim_time is true, but {lacking} /clock: TF and ages have no time; play the bag "
            "with --clock (and not paused), start the simulation, or set use_sim_time: false"
        )
    unit, name = next((u for u in _UNITS if abs(age_s) >= u[0]), _UNITS[-1])
    way = "behind" if age_s > 0 else "ahead of"
    return (
        f"the images are {abs(age_s) / unit:.1f} {name} {way} the clock, so TF of now and of the "
        "images do not meet: for a recording set use_sim_time: true and play it with /clock; a "
        "camera must stamp its images by this machine's clock"
    )
