# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The part of ``soak.py`` that drives the node: a process of its own, fed over DDS.

Each image goes out after the answer to the last. A map, a path and a cloud are subscribed to, and
services are called on the way, so that everything that a robot uses takes part.
"""

from __future__ import annotations

import lingbot_map_ros.passive_threads  # noqa: F401 (before PyTorch)

# isort: split

import argparse
import subprocess
import sys
import tempfile
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from nav_msgs.msg import Odometry
from nav_msgs.msg import Path as PathMessage
from rclpy.executors import SingleThreadedExecutor
from rclpy.qos import QoSProfile
from sensor_msgs.msg import Image, PointCloud2
from soak_record import HEIGHT, PERIOD_NS, WIDTH, Record, panorama, resident_bytes, view
from std_srvs.srv import SetBool, Trigger

NODE = "soak_map"
PARAMETERS = {
    "drop_policy": "all",
    "image_qos": "reliable",
    "depth_confidence_min": 0.0,
    # Full before a tenth of the frames has passed: what grows on purpose must not hide a leak.
    "map_max_points": 20_000,
    "path_max_length": 200,
}
SERVICES_EVERY = 50
BUSIEST = 6
FIGURES = ("map points", "time: preprocess (ms)", "time: model (ms)", "time: publish (ms)")
START_S, ANSWER_S = 120.0, 60.0


class Robot:
    """Publishes images and hears the answers."""

    def __init__(self) -> None:
        self.node = rclpy.create_node("soak")
        self.image = self.node.create_publisher(Image, "image", QoSProfile(depth=10))
        self.stamp_ns = 0
        self.answered = 0
        self._gathering = True
        self._heard = threading.Event()
        self._subscribe(Odometry, "odometry", self._on_pose)
        self.figures: dict[str, str] = {}
        """The node's own figures, by its diagnostics."""
        self.node.create_subscription(DiagnosticArray, "/diagnostics", self._on_diagnostics, 10)
        for kind, topic in ((PointCloud2, "map"), (PathMessage, "path"), (PointCloud2, "points")):
            self._subscribe(kind, topic, lambda msg: None)
        self._triggers: list[Any] = [
            self.node.create_client(Trigger, f"{NODE}/{name}")
            for name in ("execute_deferred_eviction", "rollback_last_frame", "save_map")
        ]
        self._defer: Any = self.node.create_client(SetBool, f"{NODE}/defer_eviction")
        self._executor = SingleThreadedExecutor()
        self._executor.add_node(self.node)
        self._thread = threading.Thread(target=self._executor.spin, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Leave the graph."""
        self._executor.shutdown()
        self._thread.join()

    def send(self, pixels: np.ndarray) -> None:
        """Publish an image and wait for its pose; the first images of a stream get none."""
        self.stamp_ns += PERIOD_NS
        msg = Image(height=HEIGHT, width=WIDTH, encoding="rgb8", step=3 * WIDTH)
        msg.header.frame_id = "camera"
        msg.header.stamp.sec, msg.header.stamp.nanosec = divmod(self.stamp_ns, 1_000_000_000)
        msg.data.frombytes(pixels.tobytes())
        self._heard.clear()
        self.image.publish(msg)
        self._heard.wait(0.5 if self._gathering else ANSWER_S)

    def use_services(self, turn: int) -> None:
        """Call a service, another one each time, and wait for its answer."""
        self._call(self._defer, SetBool.Request(data=turn % 4 != 3))
        self._call(self._triggers[turn % len(self._triggers)], Trigger.Request())

    def _call(self, client: Any, request: Any) -> None:
        answer = client.call_async(request)
        done = threading.Event()
        answer.add_done_callback(lambda _: done.set())
        if not done.wait(ANSWER_S):
            raise TimeoutError(f"{client.srv_name} does not answer")

    def _subscribe(self, kind: Any, topic: str, callback: Any) -> None:
        self.node.create_subscription(kind, f"{NODE}/{topic}", callback, QoSProfile(depth=50))

    def _on_diagnostics(self, msg: DiagnosticArray) -> None:
        self.figures = {value.key: value.value for value in msg.status[0].values}

    def _on_pose(self, msg: Odometry) -> None:
        self.answered += 1
        self._gathering = False
        stamp = msg.header.stamp
        if stamp.sec * 1_000_000_000 + stamp.nanosec == self.stamp_ns:
            self._heard.set()


def thread_seconds(pid: int) -> dict[str, float]:
    """Time that each thread of a process has run so far, by number and name."""
    seconds = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            name = f"{task.name} {(task / 'comm').read_text().strip()}"
            seconds[name] = int((task / "schedstat").read_text().split()[0]) / 1e9
        except FileNotFoundError:
            continue
    return seconds


def cpu_seconds(pid: int) -> float:
    """Time that all threads of a process have run so far."""
    return sum(thread_seconds(pid).values())


def counts(pid: int) -> dict[str, int]:
    """Threads and open file descriptors of a process."""
    process = Path("/proc", str(pid))
    return {
        "threads": len(list((process / "task").iterdir())),
        "file_descriptors": len(list((process / "fd").iterdir())),
    }


def soak_node(arguments: argparse.Namespace) -> dict[str, object]:
    """Start the node, feed it, end it; returns the report."""
    parameters = {
        **PARAMETERS,
        "checkpoint": arguments.checkpoint,
        "device": arguments.device,
        "dtype": arguments.dtype,
        "keyframe_mode": arguments.keyframe_mode,
        "keyframe_interval": arguments.keyframe_interval,
    }
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "lingbot_map_ros.ros.node", "--ros-args"]
        command += ["-r", f"__node:={NODE}", "--log-level", "error"]
        for name, value in {**parameters, "output_directory": directory}.items():
            command += ["-p", f"{name}:={value}"]
        node = subprocess.Popen(command)
        rclpy.init()
        robot = Robot()
        try:
            return _feed(robot, node.pid, arguments.frames, Path(directory))
        finally:
            robot.close()
            node.terminate()
            node.wait(30)
            rclpy.try_shutdown()


def _feed(robot: Robot, pid: int, frames: int, directory: Path) -> dict[str, object]:
    end = time.monotonic() + START_S
    while not robot.image.get_subscription_count():
        if time.monotonic() > end:
            raise TimeoutError("the node does not subscribe to images")
        time.sleep(0.1)
    time.sleep(1.0)  # The other side learns of the publisher later than this one of it.
    canvas, record = panorama(), Record(frames, lambda: resident_bytes(pid))
    early: dict[str, int] = {}
    threads, course = [thread_seconds(pid)], []
    for i in range(frames):
        wall, cpu = time.perf_counter(), cpu_seconds(pid)
        robot.send(view(canvas, i))
        if record.add(i, time.perf_counter() - wall, cpu_seconds(pid) - cpu):
            threads.append(thread_seconds(pid))
            course.append({name: robot.figures.get(name, "") for name in FIGURES})
        if i == frames // 10:
            early = counts(pid)
        if i % SERVICES_EVERY == SERVICES_EVERY - 1:
            robot.use_services(i // SERVICES_EVERY)
            for file in directory.iterdir():
                file.unlink()
    report = record.report(robot.answered)
    late = counts(pid)
    kept = all(late[name] <= early[name] for name in late)
    return {
        **report,
        "early": early,
        "late": late,
        "cpu_ms_by_thread": _by_thread(threads, frames / len(course)),
        "figures": course,
        "passed": bool(report["passed"]) and kept,
    }


def _by_thread(samples: list[dict[str, float]], frames: float) -> dict[str, list[float]]:
    """Milliseconds a frame of the busiest threads, sample by sample."""
    last = samples[-1]
    busiest = sorted(last, key=lambda name: -last[name])[:BUSIEST]
    return {
        name: [
            round(1e3 * (b.get(name, 0.0) - a.get(name, 0.0)) / frames, 2)
            for a, b in pairwise(samples)
        ]
        for name in busiest
    }
