#!/usr/bin/env python3
# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the node adds to the model: image in to pose out, minus the model's own time.

Starts the node in a process of its own, sends it 640x480 images over DDS, each after the answer to
the last, and takes the time from ``publish`` to the pose's callback. The model's time of the same
frame is taken within the node and subtracted::

    python scripts/benchmark_node.py --frames 200

On a machine that has other work, put ``chrt -r 1`` before it: waiting for a core is not the node's.
"""

from __future__ import annotations

import lingbot_map_ros.passive_threads  # noqa: F401 (before PyTorch)

# isort: split

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import rclpy
from nav_msgs.msg import Odometry
from rclpy.executors import SingleThreadedExecutor
from rclpy.qos import QoSProfile, qos_profile_sensor_data
from sensor_msgs.msg import Image

HEIGHT, WIDTH = 480, 640
WARM_UP = 40
PROFILE = Path(__file__).parents[1] / "config" / "fastdds_profile.xml"

# The node as it is, with a note of each frame's times: its worker's stages, by stamp.
NODE = """
import json, sys
from lingbot_map_ros.ros import pipeline
from lingbot_map_ros.ros.node import main

process = pipeline.Pipeline.process
notes = open(sys.argv.pop(1), "w")

def noted(self, frame):
    process(self, frame)
    notes.write(json.dumps([frame.stamp_ns, dict(self.timings)]) + "\\n")
    notes.flush()

pipeline.Pipeline.process = noted
sys.exit(main(sys.argv))
"""


class Bench:
    """Sends images and takes the times of the answers."""

    def __init__(self) -> None:
        self.node = rclpy.create_node("benchmark_node")
        self.publisher = self.node.create_publisher(Image, "image", qos_profile_sensor_data)
        self.answered = threading.Event()
        self.stamp_ns = time.time_ns()
        self.subscription = self.node.create_subscription(
            Odometry, "lingbot_map/odometry", self._on_pose, QoSProfile(depth=10)
        )
        self.executor = SingleThreadedExecutor()
        self.executor.add_node(self.node)
        self.thread = threading.Thread(target=self.executor.spin, daemon=True)
        self.thread.start()

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


def measure(frames: int, period: float) -> dict[int, float]:
    """Milliseconds from image in to pose out, by stamp."""
    bench = Bench()
    while not bench.publisher.get_subscription_count():
        time.sleep(0.1)
    time.sleep(1.0)
    images = make_images(30)
    latencies: dict[int, float] = {}
    for index in range(frames + WARM_UP):
        latency = bench.send(images[index % len(images)], timeout=5.0 if index >= 10 else 0.3)
        if index >= WARM_UP and latency is not None:
            latencies[bench.stamp_ns] = latency * 1e3
        time.sleep(period)
    bench.executor.shutdown()
    bench.thread.join()
    return latencies


def main() -> None:
    """Run the benchmark and print the medians."""
    parser = argparse.ArgumentParser(description="What the node adds to the model.")
    parser.add_argument("--checkpoint", default="random:tiny")
    parser.add_argument("--frames", type=int, default=200)
    parser.add_argument("--period", type=float, default=0.033, help="seconds between images")
    options = parser.parse_args()
    os.environ.setdefault("FASTDDS_DEFAULT_PROFILES_FILE", str(PROFILE))
    with tempfile.TemporaryDirectory() as directory:
        notes = Path(directory, "notes")
        command = [sys.executable, "-c", NODE, str(notes), "--ros-args", "--log-level", "error"]
        node = subprocess.Popen([*command, "-p", f"checkpoint:={options.checkpoint}"])
        rclpy.init()
        try:
            latencies = measure(options.frames, options.period)
        finally:
            node.terminate()
            node.wait()
            rclpy.try_shutdown()
        stages = dict(map(json.loads, notes.read_text().splitlines()))
    whole = list(latencies.values())
    added = [ms - stages[stamp]["model"] for stamp, ms in latencies.items()]
    print(f"image {WIDTH}x{HEIGHT} in to pose out: median {statistics.median(whole):.2f} ms")
    for name in stages[max(latencies)]:
        median = statistics.median(stages[stamp].get(name, 0.0) for stamp in latencies)
        print(f"  {name} in the node: {median:.2f} ms")
    shares = statistics.quantiles(added, n=20)
    print(
        f"the node adds: median {statistics.median(added):.2f} ms, "
        f"10% {shares[1]:.2f} ms, 95% {shares[-1]:.2f} ms"
    )


if __name__ == "__main__":
    main()
