# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What a stream will need of the device's memory, computed before anything is allocated.

Weights and caches follow from the configuration exactly. Activations are counted at the two places
where they peak, the last block of the aggregator and the full-resolution end of the depth head; the
figures per channel there are those of the code in `layers` and `heads`, and a test compares them
with what a step really holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lingbot_map_ros.aggregator.base import NUM_REGISTERS
from lingbot_map_ros.errors import MemoryPlanError
from lingbot_map_ros.heads.dpt_head import FRAMES_PER_GROUP
from lingbot_map_ros.layers.flashinfer_backend import WORKSPACE_BYTES
from lingbot_map_ros.layers.page_table import PageLayout
from lingbot_map_ros.models.config import GCTConfig
from lingbot_map_ros.models.gct_stream import GCTStream
from lingbot_map_ros.streaming.preprocessing import network_size

FLOAT = 4
SPECIAL = NUM_REGISTERS + 2
BLOCK_BYTES = {4: 86, 2: 80}
"""Per token and channel at the aggregator's peak, by the size of the compute dtype: the residual
stream, the outputs for the heads, and the widest point of a block."""
DEPTH_CONV_CHANNELS = 32
SKIP_SHARE = (16 + 4 + 1 + 0.25) / 14**2
"""Size of the four coarser maps of the depth head, as a share of the image's."""
HEADROOM = 0.05
"""Share of the free memory left to the allocator's fragments and kernels' own workspaces."""
SMALLEST_IMAGE, SMALLEST_WINDOW = 112, 4
GIB = 1024**3


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes by part."""

    weights: int
    kv_cache: int
    camera_cache: int
    workspace: int
    activations: int
    graphs: int
    map: int
    """0 where the map lies in another memory than the network."""

    @property
    def total(self) -> int:
        """Bytes of all parts together."""
        return sum(getattr(self, field.name) for field in fields(self))

    def __str__(self) -> str:
        parts = ", ".join(
            f"{field.name.replace('_', ' ')} {getattr(self, field.name) / GIB:.2f}"
            for field in fields(self)
            if getattr(self, field.name)
        )
        return f"{self.total / GIB:.2f} GiB ({parts})"


@dataclass(frozen=True)
class MemorySettings:
    """All that decides about the memory of a stream."""

    config: GCTConfig
    camera_height: int
    camera_width: int
    dtype: torch.dtype
    cache_dtype: torch.dtype | None = None
    pending_limit: int = 16
    """Of the model."""
    flashinfer: bool = False
    gpu: bool = False
    """Whether the network runs on a GPU: its depth head is in `dtype` then, and frames are recorded
    as CUDA graphs, which keep memory of their own where FlashInfer serves the cache."""
    map_bytes: int = 0
    """Of the map, where it shares the network's memory."""

    def plan(self) -> MemoryPlan:
        """Compute the plan; raises InputError for an image that the network cannot take."""
        config = self.config
        height, width = network_size(self.camera_height, self.camera_width, config)
        patches = height * width // config.patch_size**2
        frames = config.max_keyframes + self.pending_limit + 1
        attended = self.dtype.itemsize if self.gpu else FLOAT
        cache_item = attended if self.cache_dtype is None else self.cache_dtype.itemsize
        layout = PageLayout(
            tokens_per_frame=patches + SPECIAL,
            num_special=SPECIAL,
            scale_frames=config.num_scale_frames,
            window=config.sliding_window,
            max_frames=frames,
            pending_frames=self.pending_limit,
        )
        rows = layout.num_pages * layout.page_size
        visible = layout.patch_pages * patches + frames * SPECIAL
        # Without FlashInfer keys are read in place, but for those of another dtype.
        converted = 2 * visible * config.embed_dim * attended if cache_item != attended else 0
        return MemoryPlan(
            # Settings that do not change the weights must not cost another count.
            weights=_weight_bytes(
                replace(
                    config, image_size=0, num_scale_frames=1, sliding_window=1, max_keyframes=2
                ),
                self.dtype,
                self.gpu,
            ),
            kv_cache=2 * config.depth * rows * config.embed_dim * cache_item,
            camera_cache=2
            * (config.camera_iterations * config.camera_trunk_depth)
            * (frames * 2 * config.embed_dim * FLOAT),
            workspace=WORKSPACE_BYTES if self.flashinfer else converted,
            activations=self._activations(height, width, patches, config.num_scale_frames),
            graphs=self._activations(height, width, patches, 1)
            if self.gpu and self.flashinfer
            else 0,
            map=self.map_bytes,
        )

    def _activations(self, height: int, width: int, patches: int, frames: int) -> int:
        """At the peak of a call with so many frames."""
        config = self.config
        tokens = frames * (patches + SPECIAL)
        aggregator = tokens * config.embed_dim * BLOCK_BYTES[self.dtype.itemsize]
        outputs = len(config.selected_layers) * tokens * 2 * config.embed_dim * FLOAT
        # The largest maps: half the features at full resolution, and two of the last convolution.
        half = config.depth_features // 2
        channels = half * (1 + 2 * SKIP_SHARE) + 2 * DEPTH_CONV_CHANNELS
        item = self.dtype.itemsize if self.gpu else FLOAT
        group = min(frames, FRAMES_PER_GROUP)
        return max(aggregator, outputs + int(group * height * width * channels * item))


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


@lru_cache(maxsize=8)
def _weight_bytes(config: GCTConfig, dtype: torch.dtype, gpu: bool) -> int:
    """Bytes of the weights; the matrices are in the compute dtype, but for the camera head's."""
    with torch.device("meta"):
        model = GCTStream(config, attention_backend="sdpa", device="meta")
    total = sum(p.numel() for p in model.parameters()) * FLOAT
    head = model.depth_head
    last = head.scratch.output_conv2[-1]
    matrices = sum(
        p.numel()
        for part in ([model.aggregator, head] if gpu else [model.aggregator])
        for module in part.modules()
        if isinstance(module, nn.Linear | nn.Conv2d | nn.ConvTranspose2d) and module is not last
        for p in module.parameters(recurse=False)
    )
    return total - matrices * (FLOAT - dtype.itemsize)


def _available_host_memory() -> int:
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and (text := limit.read_text(encoding="ascii").strip()) != "max":
        free = min(free, int(text) - int(used.read_text(encoding="ascii")))
    return free
