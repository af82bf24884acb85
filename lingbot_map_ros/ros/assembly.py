# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The parts of a configured node: made by configure, taken apart by cleanup."""

from __future__ import annotations

import contextlib
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING

from rclpy.lifecycle import LifecycleNode

from lingbot_map_ros.errors import LingbotMapError
from lingbot_map_ros.ros.camera_mount import CameraMount
from lingbot_map_ros.ros.frames import Matrix
from lingbot_map_ros.ros.input import QUEUE_CAPACITY, ImageFrame, Input
from lingbot_map_ros.ros.mailbox import Call, Mailbox
from lingbot_map_ros.ros.parameters import Parameters
from lingbot_map_ros.ros.publishers import Publishers
from lingbot_map_ros.ros.report import InputSnapshot, NodeSnapshot, StreamSnapshot
from lingbot_map_ros.ros.services import Services
from lingbot_map_ros.ros.tf import TransformBroadcaster
from lingbot_map_ros.ros.tf_lookup import make_lookup
from lingbot_map_ros.ros.watchdog import Watchdog
from lingbot_map_ros.ros.worker import Worker, WorkerState
from lingbot_map_ros.wording import counted

if TYPE_CHECKING:
    from lingbot_map_ros.ros.pipeline import Pipeline

FLUSH_S = 5.0
"""Longest that deactivate waits for the images that are already there."""


class Assembly:
    """Mailbox, input, worker, topics, TF and services of ``node``, wired together."""

    def __init__(self, node: LifecycleNode, parameters: Parameters) -> None:
        self._node = node
        self.parameters = parameters
        self._handed_over = parameters
        self._pipeline: Pipeline | None = None
        self._stream: StreamSnapshot | None = None
        self._publishing: Future[str] | None = None
        self._mailbox: Mailbox[ImageFrame] = Mailbox(
            "all" if parameters.drop_policy == "all" else "latest",
            QUEUE_CAPACITY + 1,
            parameters.max_rate_hz,
        )
        self.publishers = Publishers(node, parameters)
        self._broadcaster = TransformBroadcaster(node, parameters)
        self._lookup = make_lookup(node)
        self._mount = CameraMount(parameters, self._lookup, self._broadcaster.send_base_to_camera)
        self.source = Input(node, parameters, self._mailbox, self.restart)
        self.worker: Worker[ImageFrame] = Worker(self._mailbox, self._load, self._after_item)
        self._watchdog = Watchdog(node, self.source, self.worker)
        self._services = Services(
            node,
            self._submit,
            triggers={
                "execute_deferred_eviction": lambda: self._loaded.decisions.commit(),
                "rollback_last_frame": lambda: self._loaded.decisions.rollback(),
                "reset": self._reset,
                "save_map": lambda: self._loaded.keeper.save_map(),
                "save_trajectory": lambda: self._loaded.keeper.save_trajectory(),
            },
            switches={
                "defer_eviction": lambda deferred: self._loaded.decisions.set_deferred(deferred),
                "pause": self._pause,
            },
        )

    def take(self, parameters: Parameters) -> None:
        """Take changed parameters over; whatever is asked for later finds them in force."""
        self.parameters = parameters
        self._hand_over()

    def tick(self) -> None:
        """Do what is due while the node is active; call it a few times a second."""
        if self.worker.state is not WorkerState.READY:
            return
        self.source.start()
        self._watchdog.check(self.parameters, self._stream)
        self._hand_over()
        topics = self.publishers
        busy = self._publishing is not None and not self._publishing.done()
        # each is asked, because each notices who joined
        due = [outlet.due() for outlet in (topics.map, topics.path, topics.keyframes)]
        if any(due) and not busy:
            self._publishing = self.worker.submit(lambda: self._loaded.keeper.publish_due())

    def rebroadcast(self) -> None:
        """Send map -> odom again."""
        self._broadcaster.rebroadcast()

    def restart(self, reason: str) -> None:
        """Time went backwards: forget what was timed, and begin a new session."""
        self._mailbox.clear("before_time_jump")
        self.source.forget(time_jumped=True)
        self._lookup.clear()
        if self.worker.state is not WorkerState.READY:
            return
        text = f"time went backwards ({reason})"
        if not self.parameters.reset_on_time_jump:
            self._node.get_logger().warning(f"{text}: the session goes on")
            return
        self._node.get_logger().warning(f"{text}: a new session begins")
        self.worker.submit(lambda: self._loaded.restart())

    def stop_input(self) -> None:
        """Unsubscribe, and let the worker finish what is already there (at most `FLUSH_S`)."""
        self.source.stop()
        if self.worker.state is not WorkerState.READY:
            return
        with contextlib.suppress(FutureTimeoutError, LingbotMapError):
            self.worker.submit(lambda: self._loaded.keeper.publish_due()).result(FLUSH_S)

    def destroy(self, timeout: float) -> bool:
        """Take everything apart; False when the worker is still busy after ``timeout`` seconds."""
        self.source.destroy()
        ended = self.worker.stop(timeout)
        self._services.destroy()
        self._broadcaster.destroy()
        self._lookup.destroy()
        self.publishers.destroy()
        self._pipeline = None
        return ended

    def snapshot(self, lifecycle: str) -> NodeSnapshot:
        """What the diagnostics are made of."""
        pipeline, source = self._pipeline, self.source
        return NodeSnapshot(
            lifecycle=lifecycle,
            worker=self.worker.state,
            stall=self._watchdog.stall,
            stalled_for=self.worker.busy_for,
            stall_timeout=self.parameters.stall_timeout,
            silence=self._watchdog.silence,
            odometry_silence=self._watchdog.odometry_silence,
            stream=self._stream,
            map=pipeline.keeper.snapshot() if pipeline else None,
            input=InputSnapshot(
                topic=source.topic,
                paused=source.paused,
                refused_for=source.refused_for,
                refusal=source.refusal,
                rate_in=source.images.per_second(),
                rate_out=pipeline.results.per_second() if pipeline else 0.0,
                received=source.images.total,
                results=pipeline.results.total if pipeline else 0,
                waiting=self._mailbox.waiting,
                dropped=self._mailbox.dropped,
                skipped={
                    **source.skipped.counts(),
                    **(pipeline.skipped.counts() if pipeline else {}),
                },
                not_sent=self.publishers.failed,
            ),
        )

    @property
    def _loaded(self) -> Pipeline:
        if self._pipeline is None:
            raise LingbotMapError("the model is not loaded")
        return self._pipeline

    def _hand_over(self) -> None:
        """Give the worker the parameters that it does not have yet, as soon as it can take them."""
        wanted = self.parameters
        if wanted is self._handed_over or self.worker.state is not WorkerState.READY:
            return
        self._handed_over = wanted
        with contextlib.suppress(LingbotMapError):  # it has just ended
            taken = self.worker.submit(lambda: self._loaded.set_parameters(wanted))
            taken.add_done_callback(self._say_if_failed)

    def _say_if_failed(self, taken: Future[str]) -> None:
        if not taken.cancelled() and (error := taken.exception()) is not None:
            self._node.get_logger().error(f"parameters were not taken over: {error}")

    def _submit(self, call: Call) -> Future[str]:
        self._hand_over()  # what was set while the model loaded
        return self.worker.submit(call)

    def _load(self) -> Pipeline:
        from lingbot_map_ros.ros.loading import load_session
        from lingbot_map_ros.ros.pipeline import Pipeline

        session, fit = load_session(self.parameters, lambda: self.source.image_size)
        self._pipeline = Pipeline(
            session,
            fit,
            self._handed_over,
            self.source,
            self.publishers,
            self._broadcaster,
            self._mount,
            self._metric_pose,
            lambda: self._node.get_clock().now().nanoseconds,
        )
        return self._pipeline

    def _after_item(self) -> None:
        if self._pipeline is not None and self.worker.state is WorkerState.READY:
            self._stream = self._pipeline.snapshot()
        executor = self._node.executor
        if self.parameters.drop_policy == "all" and executor is not None:
            # there is room again, and a subscription whose gate was shut
            executor.wake()

    def _metric_pose(self, stamp_ns: int) -> Matrix | None:
        pose = self.source.odom.at(stamp_ns)
        if pose is None and self.parameters.tf_mode == "map":
            names = self.parameters.odom_frame, self.parameters.base_frame
            pose = self._lookup.lookup(*names, stamp_ns)
        return pose

    def _reset(self) -> str:
        self.source.forget()
        return self._loaded.reset()

    def _pause(self, paused: bool) -> str:
        self.source.paused = paused
        if not paused:
            return "going on"
        dropped = self._mailbox.clear("paused")
        return f"paused; {counted(dropped, 'waiting image')} dropped"
