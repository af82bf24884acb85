#!/usr/bin/env python3
# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Feed a session, or the whole node, for a long time and judge whether it could go on for ever.

Passes if every frame was answered, the resident memory at the end is at most 1.02 times that after
a tenth of the frames (three samples each, and their medians), and the 99th percentile of the step
time over the last tenth is at most 1.1 times that over the second tenth. On a CPU the step time is
CPU time (of the thread, or of all threads of the node) by that of a fixed calculation at the same
time, so that other programs on the machine, which slow both down, do not count; on a GPU it is wall
time. Both tenths are cut into blocks and the median of the blocks' percentiles is taken, so that
neither does a single hiccup.
Prints a JSON report; the exit code is 1 if it does not pass::

    python scripts/soak.py --frames 20000
    python scripts/soak.py --target node --frames 5000
"""

from __future__ import annotations

import lingbot_map_ros.passive_threads  # noqa: F401 (before PyTorch)

# isort: split

import argparse
import json
import logging
import sys
import time

from soak_record import PERIOD_NS, SAMPLES, Record, panorama, resident_bytes, view


def soak_session(arguments: argparse.Namespace) -> dict[str, object]:
    """Feed a session in this process; returns the report."""
    import torch

    from lingbot_map_ros.models.checkpoint import load_model
    from lingbot_map_ros.streaming.session import SessionConfig, StreamingSession

    model = load_model(arguments.checkpoint, device=arguments.device, dtype=arguments.dtype)
    session = StreamingSession(
        model,
        SessionConfig(
            keyframe_mode=arguments.keyframe_mode, keyframe_interval=arguments.keyframe_interval
        ),
    )
    canvas, record, answered = panorama(), Record(arguments.frames, resident_bytes), 0
    on_gpu = model.device.type == "cuda"
    on_device: list[float] = []
    for i in range(arguments.frames):
        image = view(canvas, i)
        wall, cpu = time.perf_counter(), time.thread_time()
        answered += len(session.step(image, i * PERIOD_NS))
        sampled = record.add(i, time.perf_counter() - wall, time.thread_time() - cpu)
        if on_gpu and sampled:
            on_device.append(round(torch.cuda.memory_allocated() / 1e6, 1))
    status = session.status()
    return {
        **record.report(answered, by_wall_time=on_gpu),
        "device_mb": on_device,
        "withheld": status.withheld,
        "windows": status.window + 1,
        "segments": status.segment + 1,
    }


def main() -> int:
    """Run the soak; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", default="session", choices=("session", "node"))
    parser.add_argument("--frames", type=int, default=20_000)
    parser.add_argument("--checkpoint", default="random:tiny")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--keyframe-mode", default="interval", choices=("interval", "motion"))
    parser.add_argument("--keyframe-interval", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.frames < SAMPLES:
        parser.error(f"--frames must be at least {SAMPLES}")
    logging.basicConfig(level=logging.WARNING)
    if arguments.target == "node":
        from soak_node import soak_node

        report = soak_node(arguments)
    else:
        report = soak_session(arguments)
    print(json.dumps(report, indent=2))
    return 0 if report["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
