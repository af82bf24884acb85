# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""One process of one or many."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import distributed as dist


@dataclass(frozen=True)
class World:
    """Rank and size of the job. CUDA stays untouched until ``device`` is asked for."""

    rank: int
    size: int

    @staticmethod
    @contextmanager
    def join() -> Iterator["World"]:
        """Take part in a torchrun job, or in a job of one."""
        yield World(int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1)))
        if dist.is_initialized():
            dist.destroy_process_group()

    def device(self) -> torch.device:
        """Device of this process; the job's processes meet here."""
        gpu = torch.cuda.is_available()
        local = int(os.environ.get("LOCAL_RANK", 0))
        device = torch.device("cuda", local) if gpu else torch.device("cpu")
        if gpu:
            torch.cuda.set_device(device)
        if self.size > 1 and not dist.is_initialized():
            dist.init_process_group("nccl" if gpu else "gloo")
        return device

    def agree(self, values: list[float], device: torch.device) -> list[float]:
        """Rank 0's values, on every rank."""
        if self.size == 1:
            return values
        shared = torch.tensor(values, dtype=torch.float64, device=device)
        dist.broadcast(shared, 0)
        return shared.tolist()

    def gather(self, value: object) -> list:
        """Every rank's value, on every rank."""
        if self.size == 1:
            return [value]
        values = [None] * self.size
        dist.all_gather_object(values, value)
        return values
