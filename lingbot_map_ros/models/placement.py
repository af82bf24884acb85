# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Device and dtype by name, with ``auto`` resolved to what the machine does best."""

import torch

from lingbot_map_ros.errors import ConfigurationError
from lingbot_map_ros.wording import counted

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
_BFLOAT16_CAPABILITY = 8


def resolve_device(name: str = "auto") -> torch.device:
    """Device for ``auto``, ``cpu``, ``cuda`` or ``cuda:N``.

    Raises ``ConfigurationError`` for a device that this machine or this PyTorch does not have.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigurationError(f"device '{name}' is unknown; use auto, cpu or cuda:N") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        there = counted(torch.cuda.device_count(), "CUDA device")
        raise ConfigurationError(
            f"device '{name}' is not there: PyTorch {torch.__version__} sees {there}; use device: "
            "cpu or install a CUDA build"
        )
    if device.type == "cuda" and device.index is None:
        # Some of PyTorch's functions want to know which one.
        return torch.device("cuda", torch.cuda.current_device())
    return device


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    """Compute dtype for ``auto`` or a name: bfloat16 on GPUs and CPUs that have it.

    Others compute in float16 (GPUs) or float32 (CPUs).
    """
    if name != "auto":
        if name not in DTYPES:
            raise ConfigurationError(f"dtype '{name}' is none of auto, {', '.join(DTYPES)}")
        return DTYPES[name]
    if device.type != "cuda":
        return torch.float32 if is_slow(torch.bfloat16, device) else torch.bfloat16
    major = torch.cuda.get_device_capability(device)[0]
    return torch.bfloat16 if major >= _BFLOAT16_CAPABILITY else torch.float16


def is_slow(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether ``device`` has no fast matrix products in this dtype, which float32 outruns then."""
    if device.type != "cpu" or dtype is torch.float32:
        return False
    # PyTorch has no public name for it; one without this one gets float32.
    supported = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return dtype is not torch.bfloat16 or not (supported and supported())
