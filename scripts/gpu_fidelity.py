#!/usr/bin/env python3
# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Fidelity of the released model's size on a GPU, with seeded random weights.

For each attention kernel, over a stream of frames: the difference of depth and pose from the same
network in float32 on the gather-and-SDPA path, and in the end the error of every block's attention
against float32 attention over the same cached keys and values. With LINGBOT_REF naming a checkout
of the reference implementation, its own bfloat16 run (FA2, as its demo runs) is measured with the
same yardstick::

    python scripts/gpu_fidelity.py --frames 100 --output fidelity.json
    python scripts/gpu_fidelity.py --preset tiny --frames 8 --height 84 --width 112 --window 4
"""

import lingbot_map_ros.passive_threads  # noqa: F401 (before PyTorch)

# isort: split

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from gpu.comparison import Outputs, differences, stream
from gpu.inputs import make_images
from gpu.records import Record, machine, release
from gpu.reference import Reference, obstacle
from gpu.tables import fidelity_table
from torch import Tensor

from lingbot_map_ros.models.config import GCTConfig
from lingbot_map_ros.models.gct_stream import GCTStream
from lingbot_map_ros.models.random_weights import randomize_


def kernels(device: torch.device) -> Iterator[tuple[str, dict[str, Any]]]:
    """Names and settings of the attention kernels that this machine has."""
    if device.type != "cuda":
        yield "gather", {"attention_backend": "sdpa"}
        return
    hopper = torch.cuda.get_device_capability()[0] == 9
    for name in ("paged_fa2", "dense_fa2", *(("paged_fa3", "dense_fa3") if hopper else ())):
        yield name, {"attention_backend": "flashinfer", "kernel": name}
    yield "fp8 cache", {"attention_backend": "flashinfer", "cache_dtype": torch.float8_e4m3fn}


def spread(outputs: Outputs) -> dict[str, Any]:
    """Sizes that the differences are to be read against."""
    depths = torch.cat(outputs[1])[::10].flatten()[::97]
    return {
        "depth_quantiles": depths.quantile(torch.tensor([0.01, 0.5, 0.99])).tolist(),
        "pose_std": torch.cat(outputs[0]).std(dim=0).tolist(),
    }


@torch.no_grad()
def attention_errors(model: GCTStream) -> list[float]:
    """Relative error of each block's attention over what its cache holds, for normal queries."""
    cache = model.aggregator.kv_cache
    if cache is None:
        return []
    generator = torch.Generator(model.device).manual_seed(2)
    errors = []
    for block in range(cache.num_blocks):
        rows = torch.from_numpy(cache.page_table(block).visible_rows()).to(model.device)
        k, v = cache.pool[block].flatten(1, 2).index_select(1, rows).float().transpose(1, 2)
        shape = (cache.layout.tokens_per_frame, cache.num_heads, cache.head_dim)
        q = torch.randn(shape, generator=generator, device=model.device).to(model.dtype)
        out = cache.compute_attention(block, q).float()
        scores = q.float().transpose(0, 1) @ k.transpose(1, 2) * cache.head_dim**-0.5
        exact = (scores.softmax(-1) @ v).transpose(0, 1)
        errors.append(float((out - exact).norm() / exact.norm()))
    return errors


def run_kernel(
    state: dict[str, Tensor], config: GCTConfig, images: Tensor, chosen: dict[str, Any]
) -> tuple[Outputs, GCTStream]:
    """Outputs with one kernel, the trunk in bfloat16, and the model that has seen the stream."""
    with torch.device("meta"):
        model = GCTStream(config, pending_limit=1, device="meta", **chosen)
    # A copy, because a module casts its parameters in place.
    model.load_state_dict({k: v.clone() for k, v in state.items()}, assign=True)
    model.requires_grad_(False)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return stream(model.place(device, torch.bfloat16), images), model


def main() -> None:
    """Run everything and write a JSON report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--frames", type=int, default=100)
    parser.add_argument("--preset", default="vitl")
    parser.add_argument("--height", type=int, default=378)
    parser.add_argument("--width", type=int, default=504)
    parser.add_argument("--window", type=int, default=64)
    parser.add_argument("--kernel", action="append", help="only this one; may be repeated")
    parser.add_argument("--output", type=Path, default=Path("fidelity.json"))
    parser.add_argument("--markdown", type=Path, help="print the table of this report, and end")
    options = parser.parse_args()
    if options.markdown:
        print(fidelity_table(json.loads(options.markdown.read_text())))
        return

    torch.backends.cudnn.allow_tf32 = False
    config = replace(GCTConfig.preset(options.preset), sliding_window=options.window)
    images = make_images(options.frames, options.height, options.width)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    record = Record(options.output)
    record.put("machine", machine())

    with torch.device(device):
        model = GCTStream(
            config, attention_backend="sdpa", pending_limit=1, compile=False, device=device
        )
    state = {k: v.cpu() for k, v in randomize_(model).state_dict().items()}
    exact = stream(model, images)
    record.put("float32", spread(exact))
    del model
    release()

    runs: dict[str, Outputs] = {}
    for name, chosen in kernels(device):
        if options.kernel and name not in options.kernel:
            continue
        with record.guard(name):
            runs[name], model = run_kernel(state, config, images, chosen)
            record.put(name, differences(runs[name], exact))
            errors = attention_errors(model)
            record.put(f"{name}, attention", {"max": max(errors), "by_block": errors})
            del model
        release()
    if obstacle():
        record.put("reference_skipped", obstacle())
    else:
        with record.guard("reference"):
            reference = Reference(state, config, options.frames, bf16_trunk=True).run(images)
            record.put("reference", differences(reference, exact))
            for name, run in runs.items():
                record.put(f"{name} - reference", differences(run, reference))
    print(fidelity_table(record))


if __name__ == "__main__":
    main()
