#!/usr/bin/env python3
# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the node adds to the model: image in to pose out, minus the model's own time.

Starts the node in a process of its own, sends it 640x480 images over DDS, each after the answer to
the last, and takes the time from ``publish`` to the pose's callback. The model's time is what the
node's diagnostics say of it::

    python scripts/benchmark_node.py --frames 200
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from nav_msgs.msg import Odometry
from rclpy.executors import SingleThreadedExecutor
from rclpy.qos import QoSProfile, qos_profile_sensor_data
from sensor_msgs.msg import Image

HEIGHT, WIDTH = 480, 640
STAGE = "time: "


class Bench:
    """Sends images and takes the times of the answers."""

    def __init__(self) -> None:
        self.node = rclpy.create_node("benchmark_node")
        self.publisher = self.node.create_publisher(Image, "image", qos_profile_sensor_data)
        self.answered = threading.Event()
        self.stamp_ns = time.time_ns()
        self.stages: defaultdict[str, list[float]] = defaultdict(list)
        self.subscriptions = [
            self.node.create_subscription(
                Odometry, "lingbot_map/odometry", self._on_pose, QoSProfile(depth=10)
            ),
            self.node.create_subscription(
                DiagnosticArray, "/diagnostics", self._on_diagnostics, QoSProfile(depth=10)
            ),
        ]
        executor = SingleThreadedExecutor()
        executor.add_node(self.node)
        threading.Thread(target=executor.spin, daemon=True).start()

    def send(self, msg: Image, timeout: float) -> float | None:
        """Seconds from publishing to the pose; None when none came."""
        self.stamp_ns += 33_000_000
        msg.header.stamp.sec, msg.header.stamp.nanosec = divmod(self.stamp_ns, 1_000_000_000)
        self.answered.clear()
        began = time.perf_counter()
        self.publisher.publish(msg)
        return time.perf_counter() - began if self.answered.wait(timeout) else None

    def _on_pose(self, msg: Odometry) -> None:
        stamp = msg.header.stamp
        if stamp.sec * 1_000_000_000 + stamp.nanosec == self.stamp_ns:
            self.answered.set()

    def _on_diagnostics(self, msg: DiagnosticArray) -> None:
        for status in msg.status:
            for value in status.values:
                if value.key.startswith(STAGE):
                    name = value.key.removeprefix(STAGE).removesuffix(" (ms)")
                    self.stages[name].append(float(value.value))


def make_images(count: int) -> list[Image]:
    """Views of a slow pan over a textured plane."""
    v, u = np.mgrid[:HEIGHT, :WIDTH].astype(np.float32)
    messages = []
    for index in range(count):
        waves = (np.sin((u + 4 * index) / 17), np.cos(v / 23 + u / 31), np.sin((u + v) / 29))
        pixels = np.stack([127.5 + 100 * wave for wave in waves], -1).astype(np.uint8)
        msg = Image(height=HEIGHT, width=WIDTH, encoding="rgb8", step=3 * WIDTH)
        msg.header.frame_id = "camera"
        msg.data.frombytes(pixels.tobytes())
        messages.append(msg)
    return messages


def main() -> None:
    """Run the benchmark and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", default="random:tiny")
    parser.add_argument("--frames", type=int, default=200)
    parser.add_argument("--period", type=float, default=0.033, help="seconds between images")
    options = parser.parse_args()
    profile = str(Path(__file__).parents[1] / "config" / "fastdds_profile.xml")
    os.environ.setdefault("FASTDDS_DEFAULT_PROFILES_FILE", profile)
    command = [sys.executable, "-m", "lingbot_map_ros.ros.node", "--ros-args"]
    command += ["-p", f"checkpoint:={options.checkpoint}", "--log-level", "error"]
    node = subprocess.Popen(command)
    rclpy.init()
    try:
        latencies, stages = measure(options.frames, options.period)
    finally:
        node.terminate()
        node.wait()
    rclpy.try_shutdown()
    whole = statistics.median(latencies) * 1e3
    p95 = statistics.quantiles(latencies, n=20)[-1] * 1e3
    print(f"image {WIDTH}x{HEIGHT} in to pose out: median {whole:.2f} ms, 95% {p95:.2f} ms")
    print("within the node: " + ", ".join(f"{name} {ms:.2f} ms" for name, ms in stages.items()))
    print(f"the node adds {whole - stages['model']:.2f} ms to the model's own time")


def measure(frames: int, period: float) -> tuple[list[float], dict[str, float]]:
    """Latencies in seconds, and the median time of each stage within the node in ms."""
    bench = Bench()
    while not bench.publisher.get_subscription_count():
        time.sleep(0.1)
    time.sleep(1.0)
    images = make_images(30)
    latencies: list[float] = []
    for index in range(frames + 40):
        latency = bench.send(images[index % len(images)], timeout=5.0 if index >= 10 else 0.3)
        if index >= 40 and latency is not None:
            latencies.append(latency)
        if index == 40:
            bench.stages.clear()
        time.sleep(period)
    return latencies, {name: statistics.median(times) for name, times in bench.stages.items()}


if __name__ == "__main__":
    main()
