# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What a stream will need of the device's memory, computed before anything is allocated.

Weights and caches follow from the configuration exactly. Activations are counted at the two places
where they peak, the last block of the aggregator and the full-resolution end of the depth head; the
figures per channel there are those of the code in `layers` and `heads`, and a test compares them
with what a step really holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import lru_cache

import torch
from torch import nn

from lingbot_map_ros.aggregator.base import NUM_REGISTERS
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
SKIP_SHARE, FINEST_SHARE = (16 + 4 + 1 + 0.25) / 14**2, 16 / 14**2
"""Size of the four coarser maps of the depth head, and of the finest of them, as a share of the
image's."""
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
class MapMemory:
    """A map that shares the network's memory."""

    max_points: int
    bytes_of: Callable[[int], int]
    """What a map of so many points comes to hold."""

    @property
    def nbytes(self) -> int:
        """What this one does."""
        return self.bytes_of(self.max_points)


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
    """Whether the network runs on a GPU: frames are recorded as CUDA graphs then, which keep memory
    of their own where FlashInfer serves the cache."""
    map: MapMemory | None = None
    """None where the map lies in another memory."""

    def plan(self) -> MemoryPlan:
        """Compute the plan; raises InputError for an image that the network cannot take."""
        config = self.config
        height, width = network_size(self.camera_height, self.camera_width, config)
        patches = height * width // config.patch_size**2
        frames = config.max_keyframes + self.pending_limit + 1
        attended = self.dtype.itemsize
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
        # Without FlashInfer keys are read in place, but for those of another dtype, and on a CPU
        # those of half precision.
        copied = cache_item != attended or (not self.gpu and attended < FLOAT)
        converted = 2 * visible * config.embed_dim * attended if copied else 0
        return MemoryPlan(
            # Settings that do not change the weights must not cost another count.
            weights=_weight_bytes(
                replace(
                    config, image_size=0, num_scale_frames=1, sliding_window=1, max_keyframes=2
                ),
                self.dtype,
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
            map=self.map.nbytes if self.map else 0,
        )

    def _activations(self, height: int, width: int, patches: int, frames: int) -> int:
        """At the peak of a call with so many frames."""
        config = self.config
        tokens = frames * (patches + SPECIAL)
        aggregator = tokens * config.embed_dim * BLOCK_BYTES[self.dtype.itemsize]
        outputs = len(config.selected_layers) * tokens * 2 * config.embed_dim * FLOAT
        # The largest maps: half the features at full resolution, and what is given to the last
        # layer, before and after it is made float32. The coarse ones still lie in float32.
        item = self.dtype.itemsize
        features = config.depth_features
        pixel = features // 2 * item + features * SKIP_SHARE * FLOAT
        pixel += DEPTH_CONV_CHANNELS * (item + FLOAT)
        if item < FLOAT:
            pixel += features * FINEST_SHARE * item + 2 * FLOAT
        group = min(frames, FRAMES_PER_GROUP)
        return max(aggregator, outputs + int(group * height * width * pixel))


@lru_cache(maxsize=8)
def _weight_bytes(config: GCTConfig, dtype: torch.dtype) -> int:
    """Bytes of the weights; the matrices are in the compute dtype, but for the camera head's."""
    with torch.device("meta"):
        model = GCTStream(config, attention_backend="sdpa", device="meta")
    total = sum(p.numel() for p in model.parameters()) * FLOAT
    matrices = sum(
        p.numel()
        for part in (model.aggregator, *model.depth_head.fine_layers())
        for module in part.modules()
        if isinstance(module, nn.Linear | nn.Conv2d | nn.ConvTranspose2d)
        for p in module.parameters(recurse=False)
    )
    return total - matrices * (FLOAT - dtype.itemsize)
