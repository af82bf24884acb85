# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Small checkpoint files: matrices as int8 with one scale a row, everything else as float16."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from lingbot_map_ros.errors import CheckpointError

FORMAT = "int8"
_SCALE = ".int8_scale"
_SMALLEST = 4096


def quantize(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors to store: weights of at least 4096 numbers as int8 rows with float32 scales."""
    stored = {}
    for name, tensor in state.items():
        tensor = tensor.detach().float().cpu()
        if not name.endswith(".weight") or tensor.ndim < 2 or tensor.numel() < _SMALLEST:
            stored[name] = tensor.half()
            continue
        rows = tensor.flatten(1)
        scale = rows.abs().amax(dim=1).clamp(min=1e-12) / 127
        stored[name] = (rows / scale[:, None]).round().to(torch.int8).view(tensor.shape)
        stored[name + _SCALE] = scale
    return stored


def dequantize(stored: dict[str, Tensor]) -> dict[str, Tensor]:
    """Float32 tensors from ``quantize``'s; ``CheckpointError`` if a scale is missing."""
    state = {}
    for name, tensor in stored.items():
        if name.endswith(_SCALE):
            continue
        if tensor.dtype == torch.int8:
            if name + _SCALE not in stored:
                raise CheckpointError(f"the quantised tensor {name} has no scale; fetch it again")
            scale = stored[name + _SCALE].float().view(-1, *(1,) * (tensor.ndim - 1))
            state[name] = tensor.float() * scale
        else:
            state[name] = tensor.float()
    return state


def save_quantized(path: Path, state: dict[str, Tensor], config: dict[str, Any]) -> None:
    """Write a quantised checkpoint with its configuration."""
    metadata = {"quantization": FORMAT, "config": json.dumps(config)}
    save_file(quantize(state), path, metadata)


def load_quantized(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Float32 state dict and configuration of a quantised checkpoint.

    Raises ``CheckpointError`` for another kind of file, and safetensors' own error for a damaged
    one.
    """
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata() or {}
        if metadata.get("quantization") != FORMAT or "config" not in metadata:
            raise CheckpointError(f"{path} is no {FORMAT} checkpoint with a configuration")
        stored = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return dequantize(stored), json.loads(metadata["config"])
