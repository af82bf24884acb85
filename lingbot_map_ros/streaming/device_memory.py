# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""How much memory a device has left."""

from pathlib import Path

import torch


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
