#!/usr/bin/env python3
# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Fidelity of the released model's size on a GPU, with seeded random weights.

For each FlashInfer kernel, over a stream of frames: the error of every block's attention against
float32 attention over the same cached keys and values, and the difference of depth and pose from
the same network in float32 on the gather-and-SDPA path. With LINGBOT_REF naming a checkout of the
reference implementation, its own bfloat16 run (FA2) is measured with the same yardstick.

    python scripts/gpu_fidelity.py --frames 100 --output fidelity.json
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lingbot_map_ros.models.config import GCTConfig
from lingbot_map_ros.models.gct_stream import GCTStream
from lingbot_map_ros.models.random_weights import randomize_

Poses, Depths = list[Tensor], list[Tensor]


def make_images(frames: int, height: int, width: int) -> Tensor:
    """Smooth drifting patterns ``[frames, 3, H, W]`` in [0, 1]."""
    generator = torch.Generator().manual_seed(1)
    canvas = torch.rand((1, 3, height // 6, width // 3), generator=generator)
    canvas = torch.nn.functional.interpolate(
        canvas, size=(height, 2 * width), mode="bicubic", antialias=True
    )[0].clamp(0, 1)
    return torch.stack([canvas[..., i : i + width] for i in range(frames)])


def stream(model: GCTStream, images: Tensor) -> tuple[Poses, Depths]:
    """Poses and depths of every frame, on the CPU."""
    model.reset()
    scale = model.config.num_scale_frames
    poses, depths = [], []
    for start in (0, *range(scale, len(images))):
        end = scale if start == 0 else start + 1
        prediction = model.step(images[start:end].to(model.device))
        poses.append(prediction.pose_enc.cpu())
        depths.append(prediction.depth.cpu())
    return poses, depths


def watch_attention(model: GCTStream, every: int) -> dict[int, list[float]]:
    """Record each block's relative attention error in every ``every``-th frame."""
    cache = model.aggregator.kv_cache
    errors: dict[int, list[float]] = {block: [] for block in range(cache.num_blocks)}
    attention: Callable[[int, Tensor], Tensor] = cache.compute_attention

    def watched(block: int, q: Tensor) -> Tensor:
        out = attention(block, q)
        if cache.num_frames % every == 0:
            rows = torch.from_numpy(cache.page_table(block).visible_rows()).to(q.device)
            k, v = cache.pool[block].flatten(1, 2).index_select(1, rows).transpose(1, 2).float()
            exact = torch.nn.functional.scaled_dot_product_attention(
                q.transpose(0, 1).float(), k, v
            ).transpose(0, 1)
            errors[block].append(float((out.float() - exact).norm() / exact.norm()))
        return out

    cache.compute_attention = watched
    return errors


def differences(got: tuple[Poses, Depths], want: tuple[Poses, Depths]) -> dict[str, float]:
    """Depth REL and absolute pose-encoding differences."""
    poses = (torch.cat(got[0]) - torch.cat(want[0])).abs()
    depth, exact = torch.cat(got[1]), torch.cat(want[1])
    relative = (depth - exact).abs() / exact
    return {
        "depth_rel_mean": float(relative.mean()),
        "depth_rel_p99": float(relative.flatten()[:: relative.numel() // 10**6 + 1].quantile(0.99)),
        "pose_mean": float(poses.mean()),
        "pose_max": float(poses.max()),
        "finite": bool(torch.isfinite(depth).all() and torch.isfinite(torch.cat(got[0])).all()),
    }


def reference_run(
    state: dict[str, Tensor], config: GCTConfig, images: Tensor
) -> tuple[Poses, Depths]:
    """Poses and depths of the reference implementation: bfloat16 trunk, FA2, as its demo runs."""
    sys.path.insert(0, os.environ["LINGBOT_REF"])
    from lingbot_map.models.gct_stream import GCTStream as Reference

    model = Reference(
        img_size=518,
        patch_size=14,
        enable_3d_rope=True,
        max_frame_num=1024,
        kv_cache_sliding_window=config.sliding_window,
        kv_cache_scale_frames=config.num_scale_frames,
        use_sdpa=False,
        camera_num_iterations=config.camera_iterations,
    )
    model.load_state_dict(state, strict=True)
    model = model.cuda().eval()
    model.aggregator = model.aggregator.to(torch.bfloat16)
    scale = config.num_scale_frames
    poses, depths = [], []
    model.clean_kv_cache()
    with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
        for start in (0, *range(scale, len(images))):
            end = scale if start == 0 else start + 1
            out = model.forward(
                images[None, start:end].cuda(),
                num_frame_for_scale=scale,
                num_frame_per_block=end - start,
                causal_inference=True,
            )
            poses.append(out["pose_enc"][0].float().cpu())
            depths.append(out["depth"][0, ..., 0].float().cpu())
    return poses, depths


def kernels() -> Iterator[tuple[str, bool]]:
    """FlashInfer kernels that this GPU has."""
    yield "fa2", False
    if torch.cuda.get_device_capability()[0] == 9:
        yield "fa3", True


def main() -> None:
    """Run everything and write a JSON report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--frames", type=int, default=100)
    parser.add_argument("--preset", default="vitl")
    parser.add_argument("--height", type=int, default=378)
    parser.add_argument("--width", type=int, default=504)
    parser.add_argument("--window", type=int, default=64)
    parser.add_argument("--every", type=int, default=9, help="check attention in every n-th frame")
    parser.add_argument("--output", type=Path, default=Path("fidelity.json"))
    arguments = parser.parse_args()

    torch.backends.cudnn.allow_tf32 = False
    config = replace(GCTConfig.preset(arguments.preset), sliding_window=arguments.window)
    images = make_images(arguments.frames, arguments.height, arguments.width)
    report: dict[str, Any] = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}

    began = time.time()
    model = GCTStream(config, attention_backend="sdpa", pending_limit=1, device="cuda")
    state = {k: v.cpu() for k, v in randomize_(model).state_dict().items()}
    exact = stream(model, images)
    report["exact"] = {
        "seconds": time.time() - began,
        "depth_quantiles": torch.cat(exact[1])[::10]
        .flatten()[::97]
        .quantile(torch.tensor([0.01, 0.5, 0.99]))
        .tolist(),
        "pose_std": torch.cat(exact[0]).std(dim=0).tolist(),
    }
    del model
    print(json.dumps(report), flush=True)

    runs: dict[str, tuple[Poses, Depths]] = {}
    for name, fa3 in kernels():
        torch.cuda.empty_cache()
        with torch.device("meta"):
            model = GCTStream(
                config, attention_backend="flashinfer", pending_limit=1, fa3=fa3, device="meta"
            )
        # A copy, because a module casts its parameters in place.
        model.load_state_dict({k: v.clone() for k, v in state.items()}, assign=True)
        model.place(torch.device("cuda"), torch.bfloat16)
        model.allocate(arguments.height, arguments.width)
        errors = watch_attention(model, arguments.every)
        runs[name] = stream(model, images)
        report[name] = {
            "attention_error_max": max(max(e) for e in errors.values()),
            "attention_error_by_block": [max(e) for e in errors.values()],
            "against_float32": differences(runs[name], exact),
        }
        print(name, json.dumps(report[name]), flush=True)
        del model
    if "LINGBOT_REF" in os.environ:
        torch.cuda.empty_cache()
        reference = reference_run(state, config, images)
        report["reference"] = {
            "against_float32": differences(reference, exact),
            "ours_fa2_against_reference": differences(runs["fa2"], reference),
        }
        print("reference", json.dumps(report["reference"]), flush=True)
    arguments.output.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
