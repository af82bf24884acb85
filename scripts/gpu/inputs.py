# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Weights and images of the GPU measurements, the same in every run."""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F

from gpu.records import release
from lingbot_map_ros.models.config import GCTConfig
from lingbot_map_ros.models.gct_stream import GCTStream
from lingbot_map_ros.models.random_weights import randomize_


def make_images(frames: int, height: int, width: int) -> Tensor:
    """Smooth drifting patterns ``[frames, 3, H, W]`` in [0, 1], on the CPU."""
    canvas = _canvas(height, width, columns=max(2 * width, width + frames - 1))
    return torch.stack([canvas[..., i : i + width] for i in range(frames)])


def camera_images(height: int, width: int, step: int = 4) -> Iterator[NDArray[np.uint8]]:
    """Endless uint8 RGB images ``[H, W, 3]`` of a camera that pans to and fro."""
    canvas = (_canvas(height, width, columns=8 * width) * 255).to(torch.uint8)
    pixels = np.ascontiguousarray(canvas.permute(1, 2, 0).numpy())
    travel = pixels.shape[1] - width
    at = 0
    while True:
        left = at if at < travel else 2 * travel - at
        yield pixels[:, left : left + width]
        at = (at + step) % (2 * travel)


def _canvas(height: int, width: int, columns: int) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    coarse = torch.rand(
        (1, 3, height // 6, columns * (width // 3) // (2 * width)), generator=generator
    )
    size = (height, columns)
    return F.interpolate(coarse, size=size, mode="bicubic", antialias=True)[0].clamp(0, 1)


def write_weights(config: GCTConfig, path: Path, device: torch.device) -> float:
    """Write a checkpoint of seeded random weights unless it is there; returns its GiB."""
    if not path.is_file():
        # Filled where they are made: a GPU takes seconds for what takes a CPU minutes.
        with torch.device(device):
            model = GCTStream(
                config, attention_backend="sdpa", pending_limit=1, compile=False, device=device
            )
        state = {
            name: value.cpu().contiguous() for name, value in randomize_(model).state_dict().items()
        }
        part = path.with_name(path.name + ".part")
        save_file(state, part, metadata={"config": json.dumps(config.to_dict())})
        part.rename(path)
        del model, state
        release()
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
    return path.stat().st_size / 2**30
