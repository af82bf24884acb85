#!/usr/bin/env python3
# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Feed a session for a long time and judge whether it could go on for ever.

Passes if the resident memory at the end is at most 1.02 times that after a tenth of the frames, and
the 99th percentile of the step time over the last tenth at most 1.1 times that over the second
tenth. Prints a JSON report; the exit code is 1 if it does not pass.
"""

import argparse
import json
import logging
import os
import sys
import time
from pathlib import Path

import cv2
import numpy as np
import torch

from lingbot_map_ros.models.checkpoint import load_model
from lingbot_map_ros.streaming.session import SessionConfig, StreamingSession

HEIGHT, WIDTH = 240, 320
PERIOD_NS = 100_000_000
MEMORY_GROWTH, TIME_GROWTH = 1.02, 1.1
REPORTS = 20


def main() -> int:
    """Run the soak; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=20_000)
    parser.add_argument("--checkpoint", default="random:tiny")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--keyframe-mode", default="interval", choices=("interval", "motion"))
    parser.add_argument("--keyframe-interval", type=int, default=1)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING)
    model = load_model(arguments.checkpoint, device=arguments.device, dtype=arguments.dtype)
    session = StreamingSession(
        model,
        SessionConfig(
            keyframe_mode=arguments.keyframe_mode, keyframe_interval=arguments.keyframe_interval
        ),
    )
    report = soak(session, arguments.frames, model.device)
    print(json.dumps(report, indent=2))
    return 0 if report["passed"] else 1


def soak(session: StreamingSession, frames: int, device: torch.device) -> dict[str, object]:
    """Feed `frames` images; returns the report."""
    canvas = panorama()
    times = np.empty(frames, np.float32)
    resident: list[int] = []
    on_device: list[int] = []
    handed_out = 0
    every = max(frames // REPORTS, 1)
    for i in range(frames):
        image = view(canvas, i)
        began = time.perf_counter()
        handed_out += len(session.step(image, i * PERIOD_NS))
        times[i] = time.perf_counter() - began
        if i % every == every - 1:
            resident.append(resident_bytes())
            on_device.append(torch.cuda.memory_allocated() if device.type == "cuda" else 0)
    tenth = frames // 10
    p99_early = float(np.percentile(times[tenth : 2 * tenth], 99))
    p99_late = float(np.percentile(times[-tenth:], 99))
    early = max(len(resident) // 10 - 1, 0)
    memory, step = resident[-1] / resident[early], p99_late / p99_early
    status = session.status()
    return {
        "frames": frames,
        "handed_out": handed_out,
        "withheld": status.withheld,
        "windows": status.window + 1,
        "segments": status.segment + 1,
        "frames_per_second": frames / float(times.sum()),
        "p99_ms": [1e3 * p99_early, 1e3 * p99_late],
        "resident_mb": [round(r / 1e6, 1) for r in resident],
        "device_mb": [round(b / 1e6, 1) for b in on_device],
        "memory_growth": memory,
        "time_growth": step,
        "passed": memory <= MEMORY_GROWTH and step <= TIME_GROWTH and handed_out == frames,
    }


def panorama() -> np.ndarray:
    """Texture wide enough to pan over."""
    noise = np.random.default_rng(0).integers(0, 255, (HEIGHT // 8, WIDTH, 3), np.uint8)
    return cv2.resize(noise, (8 * WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC)


def view(canvas: np.ndarray, index: int) -> np.ndarray:
    """Image of a camera that pans forth and back."""
    travel = canvas.shape[1] - WIDTH
    phase = (4 * index) % (2 * travel)
    left = phase if phase < travel else 2 * travel - phase
    return canvas[:, left : left + WIDTH]


def resident_bytes() -> int:
    """Resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    sys.exit(main())
