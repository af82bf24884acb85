# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What a soak feeds (a camera that pans for ever), what it records, and how it judges."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np

HEIGHT, WIDTH = 240, 320
PERIOD_NS = 100_000_000
MEMORY_GROWTH, TIME_GROWTH = 1.02, 1.1
SAMPLES = 20
BLOCK = 100
"""Frames over which a 99th percentile is taken."""

VALUES = np.random.default_rng(0).random(4000)


def yardstick() -> float:
    """CPU seconds that a fixed calculation takes now."""
    began = time.thread_time()
    for _ in range(2):
        np.sort(VALUES)
    sum(i * i for i in range(2000))
    return time.thread_time() - began


class Record:
    """Times of the steps and memory of the process that takes them."""

    def __init__(
        self,
        frames: int,
        resident_bytes: Callable[[], int],
        pace: Callable[[], float] = yardstick,
    ) -> None:
        self.frames = frames
        self.wall_s = np.zeros(frames)
        self.cpu_s = np.zeros(frames)
        self.pace_s = np.zeros(frames)
        self.resident: list[int] = []
        self._resident_bytes = resident_bytes
        self._pace = pace
        self._every = max(frames // SAMPLES, 1)

    def add(self, index: int, wall_s: float, cpu_s: float) -> bool:
        """Take the times of frame `index`, and now and then the memory; whether it was taken."""
        self.wall_s[index], self.cpu_s[index] = wall_s, cpu_s
        self.pace_s[index] = self._pace()
        if index % self._every < self._every - 1:
            return False
        self.resident.append(self._resident_bytes())
        return True

    def report(self, answered: int, *, by_wall_time: bool = False) -> dict[str, object]:
        """Figures and verdict."""
        tenth = self.frames // 10
        early, late = slice(tenth, 2 * tenth), slice(-tenth, None)
        p99 = {
            name: [1e3 * _p99(times[early]), 1e3 * _p99(times[late])]
            for name, times in (("wall", self.wall_s), ("cpu", self.cpu_s))
        }
        tenths = np.array_split(self.cpu_s, 10)
        judged = p99["wall" if by_wall_time else "cpu"]
        memory = memory_growth(self.resident)
        machine = float(np.median(self.pace_s[late]) / np.median(self.pace_s[early]))
        growth = judged[1] / judged[0] / (1.0 if by_wall_time else machine)
        return {
            "frames": self.frames,
            "answered": answered,
            "frames_per_second": self.frames / float(self.wall_s.sum()),
            "p99_wall_ms": p99["wall"],
            "p99_cpu_ms": p99["cpu"],
            "median_cpu_ms_by_tenth": [round(1e3 * float(np.median(t)), 2) for t in tenths],
            "p99_cpu_ms_by_tenth": [round(1e3 * _p99(t), 2) for t in tenths],
            "resident_mb": [round(r / 1e6, 1) for r in self.resident],
            "memory_growth": memory,
            "machine_slower": machine,
            "time_growth": growth,
            "passed": memory <= MEMORY_GROWTH and growth <= TIME_GROWTH and answered == self.frames,
        }


def memory_growth(resident: list[int]) -> float:
    """Factor from a tenth of the run to its end; of three samples each the median.

    What the allocator keeps comes and goes by a few megabytes.
    """
    tenth = max(len(resident) // 10, 1)
    return float(np.median(resident[-3:]) / np.median(resident[tenth - 1 : tenth + 2]))


def _p99(times: np.ndarray) -> float:
    blocks = np.array_split(times, max(len(times) // BLOCK, 1))
    return float(np.median([np.percentile(block, 99) for block in blocks]))


def panorama() -> np.ndarray:
    """Texture wide enough to pan over."""
    noise = np.random.default_rng(0).integers(0, 255, (HEIGHT // 8, WIDTH, 3), np.uint8)
    return cv2.resize(noise, (8 * WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC)


def view(canvas: np.ndarray, index: int) -> np.ndarray:
    """Image of a camera that pans forth and back."""
    travel = canvas.shape[1] - WIDTH
    phase = (4 * index) % (2 * travel)
    left = phase if phase < travel else 2 * travel - phase
    return canvas[:, left : left + WIDTH]


def resident_bytes(pid: int | str = "self") -> int:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
