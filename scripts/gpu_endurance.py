#!/usr/bin/env python3
# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the memory plan is worth on a GPU, and whether a stream could go on for ever.

``--cap`` limits the memory of a process each, all at the same time: the plan refuses before it
allocates, naming settings that fit, or the stream runs without ever being out of memory, and the
plan is held against the peak. ``--frames`` streams through many windows: memory must be flat, and a
late frame as fast as an early one. Weights are random, and the images a pan over a pattern::

    python scripts/gpu_endurance.py --cap 6 8 12 16 24 --output caps.json
    python scripts/gpu_endurance.py --frames 10000 --seconds 400 --output endless.json
    python scripts/gpu_endurance.py --markdown caps.json
    python scripts/gpu_endurance.py --preset tiny --cap 0.02 --cap-frames 40 --frames 120
"""

import lingbot_map_ros.passive_threads  # noqa: F401 (before PyTorch)

# isort: split

import argparse
import json
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gpu.endurance_runs import make_weights, run_capped, run_endless
from gpu.endurance_tables import endurance_tables
from gpu.records import Record, machine, run_child

RUNS = {"weights": make_weights, "capped": run_capped, "endless": run_endless}
PLAN_ERROR, TIME_GROWTH, MEMORY_GROWTH = 0.05, 1.03, 1.01
START_UP = 240
"""Seconds that a child may need beside its stream."""


def parse() -> argparse.Namespace:
    """Options of the test and of its child processes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cap", type=float, nargs="*", default=[], help="GB (10^9 bytes) each")
    parser.add_argument("--cap-frames", type=int, default=500)
    parser.add_argument("--frames", type=int, default=0, help="of the stream without an end")
    parser.add_argument(
        "--seconds", type=float, default=300, help="limit of each stream, once compiled"
    )
    parser.add_argument("--preset", default="vitl")
    parser.add_argument("--window", type=int, help="of the endless stream; the model's own")
    parser.add_argument("--pending-limit", type=int, default=16, help="of the session")
    parser.add_argument("--kernel", default="")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction)
    parser.add_argument("--weights", type=Path, help="checkpoint; made and kept there if missing")
    parser.add_argument("--output", type=Path, default=Path("endurance.json"))
    parser.add_argument("--markdown", type=Path, help="print the tables of this report, and end")
    for name, kind in (("--child", str), ("--result", Path), ("--capped", float)):
        parser.add_argument(name, type=kind, help=argparse.SUPPRESS)
    return parser.parse_args()


def judge_cap(run: dict[str, Any], frames: int) -> dict[str, Any]:
    """Whether a capped run went on to its end, and how far its plan was from the peak."""
    peak = run.get("peak", {}).get("max_allocated")
    ratio = round(peak / run["planned_gib"], 4) if peak and "planned_gib" in run else None
    whole = run.get("frames") == frames and not run.get("errors")
    advised = not run.get("refused") or run["refused"]["advice"] >= 2
    near = ratio is None or abs(ratio - 1) <= PLAN_ERROR
    return {"peak_over_plan": ratio, "ran": whole, "passed": whole and advised and near}


def judge_endless(run: dict[str, Any], frames: int) -> dict[str, Any]:
    """Whether memory was flat and the last frames were as fast as the first."""
    held = [sample["max_allocated"] for sample in run.get("memory", []) if sample]
    memory = round(held[-1] / held[0], 4) if held else None
    time = run.get("late_over_early")
    return {
        "memory_growth": memory,
        "whole": run.get("frames") == frames,
        "passed": not run.get("errors")
        and (memory is None or memory <= MEMORY_GROWTH)
        and (time is not None and time <= TIME_GROWTH),
    }


def main() -> int:
    """Run what was asked for; returns 0 if all passed."""
    options = parse()
    if options.markdown:
        print(endurance_tables(json.loads(options.markdown.read_text())))
        return 0
    if options.child:
        record = Record(options.result)
        record.put("machine", machine())
        RUNS[options.child](options, record)
        return 0
    report: dict[str, Any] = {"preset": options.preset, "caps": {}}
    with tempfile.TemporaryDirectory() as folder:
        weights = options.weights or Path(folder) / "weights.safetensors"
        common = [*sys.argv[1:], f"--weights={weights}"]

        def child(kind: str, name: str, *extra: object) -> dict[str, Any]:
            result = Path(folder) / f"{name}.json"
            command = [__file__, *common, "--child", kind, "--result", result, *extra]
            return run_child(command, result, options.seconds + START_UP)

        report["weights"] = child("weights", "weights")
        with ThreadPoolExecutor(max_workers=max(len(options.cap), 1)) as pool:
            started = {c: pool.submit(child, "capped", f"{c}", "--capped", c) for c in options.cap}
        for cap, future in started.items():
            run = future.result()
            report["caps"][f"{cap:g}"] = {**run, **judge_cap(run, options.cap_frames)}
        options.output.write_text(json.dumps(report, indent=2) + "\n")
        if options.frames:
            run = child("endless", "endless")
            report["endless"] = {**run, **judge_endless(run, options.frames)}
    options.output.write_text(json.dumps(report, indent=2) + "\n")
    print(endurance_tables(report))
    runs = [*report["caps"].values(), *([report["endless"]] if options.frames else [])]
    return 0 if all(run["passed"] for run in runs) else 1


if __name__ == "__main__":
    sys.exit(main())
