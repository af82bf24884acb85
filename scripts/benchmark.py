#!/usr/bin/env python3
# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Speed, memory and outputs of our network beside the reference implementation.

Both see the same random weights and the same images, under the same timer, in processes of their
own: each frame lies between two synchronisations, on the host's clock and between GPU events. The
reference is imported from the checkout that LINGBOT_REF names and compiled as its own profiler
compiles it; without one, ours is measured alone::

    LINGBOT_REF=/path/to/reference python scripts/benchmark.py --output benchmark.json
    python scripts/benchmark.py --markdown benchmark.json
    python scripts/benchmark.py --preset tiny --frames 24 --size 112x84 --window 4 --scale 3
"""

import lingbot_map_ros.passive_threads  # noqa: F401 (before PyTorch)

# isort: split

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from gpu.benchmark_runs import measure_exact, measure_ours, measure_reference
from gpu.benchmark_tables import benchmark_tables
from gpu.comparison import differences
from gpu.records import Record, machine, run_child
from gpu.reference import obstacle

MEASURES = {"ours": measure_ours, "reference": measure_reference, "exact": measure_exact}


def parse() -> argparse.Namespace:
    """Options of the benchmark and of its child processes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--preset", default="vitl")
    parser.add_argument("--frames", type=int, default=300)
    parser.add_argument("--size", type=_size, default=(504, 378), help="WIDTHxHEIGHT")
    parser.add_argument("--window", type=int, default=64)
    parser.add_argument("--scale", type=int, default=8)
    parser.add_argument("--kernel", default="", help="attention kernel; chosen by measuring if ''")
    parser.add_argument(
        "--compile",
        action=argparse.BooleanOptionalAction,
        help="torch.compile, ours as it is by default and the reference as its profiler",
    )
    parser.add_argument("--reference-fa3", action="store_true", help="the reference with FA3 too")
    parser.add_argument("--reference-bf16", action="store_true", help="its trunk in bf16, as demo")
    parser.add_argument("--skip-reference", action="store_true")
    parser.add_argument("--skip-ours", action="store_true")
    parser.add_argument("--exact", type=int, default=0, help="frames to run in float32 as well")
    parser.add_argument("--weights", type=Path, help="checkpoint; made and kept there if missing")
    parser.add_argument("--seconds", type=float, default=400, help="limit of each child process")
    parser.add_argument("--output", type=Path, default=Path("benchmark.json"))
    parser.add_argument("--markdown", type=Path, help="print the tables of this report, and end")
    for name, kind in (("--child", str), ("--result", Path), ("--outputs", Path)):
        parser.add_argument(name, type=kind, help=argparse.SUPPRESS)
    parser.add_argument("--fa3", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _size(text: str) -> tuple[int, int]:
    width, height = text.split("x")
    return int(width), int(height)


def compare(outputs: dict[str, Path], report: dict[str, Any]) -> None:
    """Differences between the outputs that are there, over all frames and the first 100."""
    found = {name: torch.load(path) for name, path in outputs.items() if path.is_file()}
    pairs = [("ours", other) for other in found if other.startswith("reference")]
    pairs += [(name, "float32") for name in found if name != "float32" and "float32" in found]
    report["differences"] = {}
    for got, want in pairs:
        if got in found and want in found:
            most = min(sum(map(len, found[name][0])) for name in (got, want))
            for frames in dict.fromkeys((min(most, 100), most)):
                label = f"{got} - {want}, {frames} frames"
                report["differences"][label] = differences(found[got], found[want], frames)


def main() -> None:
    """Measure each implementation in a child process, compare, and print the tables."""
    options = parse()
    if options.markdown:
        print(benchmark_tables(json.loads(options.markdown.read_text())))
        return
    if options.child:
        record = Record(options.result)
        record.put("machine", machine())
        MEASURES[options.child](options, record)
        return
    settings = {k: str(v) if isinstance(v, Path) else v for k, v in vars(options).items()}
    report: dict[str, Any] = {"settings": settings}
    with tempfile.TemporaryDirectory() as folder:
        outputs: dict[str, Path] = {}
        weights = options.weights or Path(folder) / "weights.safetensors"

        def measure(name: str, kind: str, *extra: str) -> None:
            print(f"== {name}", flush=True)
            outputs[name] = Path(folder) / f"{name}.pt"
            child = [__file__, "--child", kind, "--outputs", outputs[name], *_passed_on(options)]
            child += ["--weights", weights, "--result", Path(folder) / f"{name}.json", *extra]
            report[name] = run_child(child, Path(folder) / f"{name}.json", options.seconds)
            options.output.write_text(json.dumps(report, indent=2) + "\n")

        if not options.skip_ours:
            measure("ours", "ours")
        reason = "not asked for" if options.skip_reference else obstacle()
        if reason:
            report["reference_skipped"] = reason
        else:
            measure("reference_fa2", "reference")
            if options.reference_fa3:
                measure("reference_fa3", "reference", "--fa3")
        if options.exact:
            measure("float32", "exact")
        compare(outputs, report)
    options.output.write_text(json.dumps(report, indent=2) + "\n")
    print(benchmark_tables(report))


def _passed_on(options: argparse.Namespace) -> list[str]:
    """What a child process needs to know."""
    passed = [f"--{n}={getattr(options, n)}" for n in ("preset", "frames", "window", "scale")]
    passed += [f"--size={options.size[0]}x{options.size[1]}", f"--exact={options.exact}"]
    passed += [f"--kernel={options.kernel}"]
    if options.compile is not None:
        passed.append("--compile" if options.compile else "--no-compile")
    if options.reference_bf16:
        passed.append("--reference-bf16")
    return passed


if __name__ == "__main__":
    main()
