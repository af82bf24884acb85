# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What notices that no image, odometry or scale comes, that none gets through or is of the time."""

from __future__ import annotations

from nav_msgs.msg import Odometry
from rclpy.node import Node

from lingbot_map_ros.ros.input import Input
from lingbot_map_ros.ros.odom_buffer import MAX_GAP_NS
from lingbot_map_ros.ros.parameters import Parameters
from lingbot_map_ros.ros.report import StreamSnapshot
from lingbot_map_ros.ros.silence import explain_silence
from lingbot_map_ros.ros.trouble import Cause, Trouble
from lingbot_map_ros.ros.worker import Worker
from lingbot_map_ros.wording import counted

FAR_S = 3600.0
"""Age of a frame that no delay explains."""
UNSETTLED_S = 30.0
"""Time of odometry after which a scale that has not settled is worth a word."""
_UNITS = ((365.25 * 86400, "years"), (86400, "days"), (3600, "hours"))


class Watchdog:
    """Looks at input, scale and worker; says each trouble when it begins, changes and is over."""

    def __init__(self, node: Node, source: Input, worker: Worker) -> None:
        self._node = node
        self._source = source
        self._worker = worker
        self._images, self._odometry = Trouble(), Trouble()
        self.stall = ""
        """Where the worker is stuck; empty while it is not."""
        self._age_said = self._refusal_said = self._scale_said = False

    @property
    def silence(self) -> str:
        """Since when no image comes, and why that may be; empty while they do."""
        cause = self._images.text
        return f"{_describe_silence(self._source)}: {cause}" if cause else ""

    @property
    def odometry_silence(self) -> str:
        """Why no odometry may match the frames; empty while some does, or none is needed."""
        return self._odometry.text

    def check(self, parameters: Parameters, stream: StreamSnapshot | None) -> None:
        """Look once; call it a few times a second, with what the worker said last."""
        if stream is not None:
            self._check_age(stream.frame_age_s)
            self._check_odometry(parameters, stream)
            self._check_scale(parameters, stream)
        self._check_silence(parameters.no_input_timeout)
        self._check_stall(parameters.stall_timeout)
        self._check_refusals(parameters.stall_timeout)

    def _check_silence(self, timeout: float) -> None:
        source, logger = self._source, self._node.get_logger()
        if not source.started or source.images.age < timeout:
            # or the input was only started anew, or given more time
            heard = source.images.total and source.images.age < self._images.lasts
            if self._images.end() and source.started and heard:
                logger.info(f"images come in on {source.topic}")
        elif news := self._images.go_on(self._explain_silence):
            logger.warning(f"{_describe_silence(source)}: {news}")

    def _explain_silence(self) -> Cause:
        source = self._source
        heard = source.images.total > 0
        return Cause(
            explain_silence(self._node, source.topic, source.message_type, source.qos, heard=heard)
        )

    def _check_odometry(self, parameters: Parameters, stream: StreamSnapshot) -> None:
        missing_for, logger = stream.odometry_missing_for, self._node.get_logger()
        if missing_for < parameters.stall_timeout:
            if self._odometry.end() and self._source.started:
                logger.info("the odometry is there, or no longer needed")
        elif news := self._odometry.go_on(lambda: self._explain_odometry(parameters, stream)):
            logger.warning(f"for {missing_for:.0f} s {news}")

    def _explain_odometry(self, parameters: Parameters, stream: StreamSnapshot) -> Cause:
        source = self._source
        if source.odom_messages.age < parameters.stall_timeout:
            cause = self._explain_mismatch(stream.frame_age_s)
        else:
            heard = source.odom_messages.total > 0
            cause = Cause(
                explain_silence(
                    self._node, source.odom_topic, Odometry, source.odom_qos, heard=heard
                )
            )
        transform = f"{parameters.odom_frame} -> {parameters.base_frame}"
        no_tf = f" and no {transform} in TF" if parameters.tf_mode == "map" else ""
        text = f"no odometry on {source.odom_topic}{no_tf} matches the images: {cause.text}"
        return Cause(text, cause.kind)

    def _check_scale(self, parameters: Parameters, stream: StreamSnapshot) -> None:
        unsettled = stream.unsettled_for >= UNSETTLED_S
        if unsettled and not self._scale_said:
            transform = f"{parameters.map_frame} -> {parameters.odom_frame}"
            no_tf = f"; {transform} is not broadcast" if parameters.tf_mode == "map" else ""
            self._node.get_logger().warning(
                f"{stream.unsettled_for:.0f} s of odometry have not settled the scale. Until it "
                f"has, poses, depth and map are in {stream.scale}{no_tf}"
            )
        self._scale_said = unsettled

    def _explain_mismatch(self, frame_age_s: float | None) -> Cause:
        newest = self._source.odom.newest
        if newest is None or frame_age_s is None:
            return Cause("messages come, but none holds a pose (NaN, or no quaternion)")
        behind = (self._node.get_clock().now().nanoseconds - newest) / 1e9 - frame_age_s
        return Cause(
            f"messages come, but not around the images' stamps: the newest is {abs(behind):.1f} s "
            f"{'behind' if behind > 0 else 'ahead of'} the newest image; both must be stamped by "
            f"one clock, and two messages be at most {MAX_GAP_NS / 1e9:g} s apart",
            kind="other stamps",
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


def _describe_silence(source: Input) -> str:
    """Say on which topic no image comes, since when, and after how many."""
    images = source.images
    after = f", after {counted(images.total, 'image')}" if images.total else ""
    return f"no image on {source.topic} for {images.age:.0f} s{after}"
