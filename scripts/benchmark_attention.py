#!/usr/bin/env python3
# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Ways to attend to the cached frames, at the sizes of the released model.

One frame's queries over a full window: the patches of its frames, and the special tokens of many
more. Each way is replayed from a CUDA graph where it can be, and held against float32 attention
over the same keys and values::

    python scripts/benchmark_attention.py --output attention.json
    python scripts/benchmark_attention.py --markdown attention.json
    python scripts/benchmark_attention.py --patches 24 --scale 2 --window 3 --frames 9 --heads 2
"""

import lingbot_map_ros.passive_threads  # noqa: F401 (before PyTorch)

# isort: split

import argparse
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from gpu.attention_kernels import Attend, FullCache, ways
from gpu.records import Record, machine
from gpu.tables import attention_table
from gpu.timing import replay_ms, summary
from torch import Tensor

COMPILED = ("paged_fa2", "paged_fa3", "paged_fa2, fp8 cache")
"""One way of each module that FlashInfer compiles, which takes a minute."""


def parse() -> argparse.Namespace:
    """Options; the defaults are those of 504x378 images after 500 kept frames."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--patches", type=int, default=972, help="of a frame")
    parser.add_argument("--scale", type=int, default=8)
    parser.add_argument("--window", type=int, default=64)
    parser.add_argument("--frames", type=int, default=500, help="kept so far")
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=40)
    parser.add_argument("--output", type=Path, default=Path("attention.json"))
    parser.add_argument("--markdown", type=Path, help="print the table of this report, and end")
    return parser.parse_args()


def prepare(ways: dict[str, Callable[[], Attend]], record: Record) -> dict[str, Attend]:
    """Make every way, and note what cannot be made; modules are compiled at the same time."""
    with ThreadPoolExecutor() as pool:
        started = {n: pool.submit(make) for n, make in ways.items() if n in COMPILED}
    made = {}
    for name, make in ways.items():
        with record.guard(f"make {name}"):
            made[name] = started[name].result() if name in started else make()
    return made


@torch.no_grad()
def measure(attend: Attend, full: FullCache, exact: Tensor, repeats: int) -> dict:
    """Time, rate and error of one way."""
    out = attend().float()
    times, how = replay_ms(attend, full.q.device, repeats)
    median = summary(times)["median"]
    apart = out - exact
    return {
        "median_ms": median,
        "p99_ms": summary(times)["p99"],
        "tflops": round(full.flops / median / 1e9, 1),
        "relative_error": float(apart.norm() / exact.norm()),
        "max_error": float(apart.abs().max() / exact.abs().max()),
        "how": how,
    }


def main() -> None:
    """Measure every way and print a table."""
    options = parse()
    if options.markdown:
        print(attention_table(json.loads(options.markdown.read_text())))
        return
    record = Record(options.output)
    record.put("machine", machine())
    full = FullCache.filled(
        patches=options.patches,
        scale_frames=options.scale,
        window=options.window,
        frames=options.frames,
        heads=options.heads,
        device=torch.device("cuda" if torch.cuda.is_available() else "cpu"),
    )
    record.put("problem", {"queries": len(full.q), "keys": len(full.rows), "heads": options.heads})
    exact = full.exact()
    began = time.perf_counter()
    made = prepare(ways(full), record)
    record.put("compile_s", round(time.perf_counter() - began, 1))
    for name, attend in made.items():
        with record.guard(name):
            found = measure(attend, full, exact, options.repeats)
            record.put("ways", {**record.get("ways", {}), name: found})
    print(attention_table(record))


if __name__ == "__main__":
    main()
