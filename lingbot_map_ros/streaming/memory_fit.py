# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Whether a stream fits into the memory that there is, and what would."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from lingbot_map_ros.errors import MemoryPlanError
from lingbot_map_ros.streaming.memory import FLOAT, GIB, MemoryPlan, MemorySettings

HEADROOM = 0.05
"""Share of the free memory left to the allocator's fragments and kernels' own workspaces."""
SMALLEST_IMAGE, SMALLEST_WINDOW = 112, 4


def check_memory(settings: MemorySettings, available: int) -> MemoryPlan:
    """Return the plan if it fits into `available` bytes, less `HEADROOM`.

    Raises
    ------
    MemoryPlanError
        It does not; the message holds the plan and settings that would fit.

    """
    plan = settings.plan()
    budget = int(available * (1 - HEADROOM))
    if plan.total <= budget:
        return plan
    fitting = [
        f"{name} ({alternative.plan().total / GIB:.2f} GiB)"
        for name, alternative in _alternatives(settings, budget)
    ]
    advice = (
        "any of these would fit: " + "; ".join(fitting)
        if fitting
        else f"the weights alone take {plan.weights / GIB:.2f} GiB: choose a smaller model"
    )
    raise MemoryPlanError(f"{plan} exceeds the {budget / GIB:.2f} GiB that may be used; {advice}")


def shares_host_memory(device: torch.device) -> bool:
    """Whether a device has no memory of its own: a CPU, or the GPU of a Jetson."""
    if device.type != "cuda":
        return True
    return bool(torch.cuda.get_device_properties(device).is_integrated)


def available_memory(device: torch.device, limit_gb: float = 0.0) -> int:
    """Bytes that this process may still take on a device, at most `limit_gb` (0: no limit)."""
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        if shares_host_memory(device):
            # CUDA leaves out what the system would give back: the pages of files, for one, among
            # them those of the weights.
            free = max(free, _available_host_memory())
        # Older versions of PyTorch can set this limit but not tell it.
        fraction = getattr(torch.cuda, "get_per_process_memory_fraction", lambda _device: 1.0)
        free = min(free, int(fraction(device) * total) - torch.cuda.memory_reserved(device))
    else:
        free = _available_host_memory()
    return min(free, int(limit_gb * 1e9)) if limit_gb > 0 else free


def _available_host_memory() -> int:
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and (text := limit.read_text(encoding="ascii").strip()) != "max":
        free = min(free, int(text) - int(used.read_text(encoding="ascii")))
    return free


def _alternatives(settings: MemorySettings, budget: int) -> Iterator[tuple[str, MemorySettings]]:
    """Settings that fit, from the least to the most painful; one of each kind."""
    config, patch = settings.config, settings.config.patch_size

    def with_config(**changes: Any) -> MemorySettings:
        return replace(settings, config=replace(config, **changes))

    def image(size: int) -> dict[str, int]:
        height = config.image_height * size // config.image_size // patch * patch
        return {"image_size": size, "image_height": height}

    sizes = range(config.image_size - patch, SMALLEST_IMAGE - 1, -patch)
    windows = [w for w in (48, 32, 16, 8, SMALLEST_WINDOW) if w < config.sliding_window]
    keyframes = [
        k for k in (256, 192, 128, 64) if config.num_scale_frames < k < config.max_keyframes
    ]
    scale = [s for s in (4, 2, 1) if s < config.num_scale_frames]
    kinds: list[list[tuple[str, MemorySettings]]] = []
    if settings.dtype.itemsize == FLOAT:
        kinds.append([("dtype: bfloat16", replace(settings, dtype=torch.bfloat16))])
    kinds += [
        [(f"sliding_window: {w}", with_config(sliding_window=w)) for w in windows],
        [
            (f"max_keyframes: {k} (a larger keyframe_interval makes them last)", candidate)
            for k in keyframes
            for candidate in [with_config(max_keyframes=k)]
        ],
        [(f"image_size: {size}", with_config(**image(size))) for size in sizes],
        [(f"num_scale_frames: {s}", with_config(num_scale_frames=s)) for s in scale],
        [
            (
                f"image_size: {size} with sliding_window: {SMALLEST_WINDOW}",
                with_config(sliding_window=SMALLEST_WINDOW, **image(size)),
            )
            for size in sizes
        ],
        [
            (
                f"image_size: {size} with sliding_window: 16 and num_scale_frames: 4",
                with_config(
                    sliding_window=min(16, config.sliding_window),
                    num_scale_frames=min(4, config.num_scale_frames),
                    **image(size),
                ),
            )
            for size in sizes
        ],
    ]
    for kind in kinds:
        for name, candidate in kind:
            if candidate.plan().total <= budget:
                yield name, candidate
                break
