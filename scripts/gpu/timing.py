# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Timers that mean the same for every implementation that is held against another."""

import time
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

Result = TypeVar("Result")
Arguments = ParamSpec("Arguments")


def synchronize(device: torch.device) -> None:
    """Wait until the device has done all that it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def summary(milliseconds: Sequence[float] | NDArray[np.float64]) -> dict[str, float]:
    """Median, 99th percentile, mean and largest value."""
    values = np.asarray(milliseconds)
    if not values.size:
        return {}
    return {
        "median": round(float(np.median(values)), 3),
        "p99": round(float(np.percentile(values, 99)), 3),
        "mean": round(float(values.mean()), 3),
        "max": round(float(values.max()), 3),
    }


class StepTimer:
    """Milliseconds of steps, each between two synchronisations.

    ``wall`` is the host's clock, ``device`` the time between two events on the GPU's stream, which
    is the wall time again on a CPU.
    """

    def __init__(self, device: torch.device) -> None:
        self.wall: list[float] = []
        self.device: list[float] = []
        self._where = device
        self._events = _event_pair() if device.type == "cuda" else None

    def __call__(self, step: Callable[[], Result]) -> Result:
        """Run and time a step."""
        synchronize(self._where)
        began = time.perf_counter()
        if self._events:
            self._events[0].record()
        result = step()
        if self._events:
            self._events[1].record()
        synchronize(self._where)
        self.wall.append(1e3 * (time.perf_counter() - began))
        self.device.append(
            self._events[0].elapsed_time(self._events[1]) if self._events else self.wall[-1]
        )
        return result


class PartTimer:
    """Milliseconds that a frame spends in named functions, between events around each call.

    Nothing is synchronised between the parts, so gaps in which the GPU waits for the host count
    for the part that leaves them.
    """

    def __init__(self, device: torch.device) -> None:
        self.frames: list[dict[str, float]] = []
        self._where = device
        self._calls: list[tuple[str, Any, Any]] = []

    def wrap(self, name: str, function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        """Return ``function`` with a timer around it."""

        def timed(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            start = self._mark()
            result = function(*args, **kwargs)
            self._calls.append((name, start, self._mark()))
            return result

        return timed

    def end_frame(self) -> None:
        """Sum up what the parts took since the last call."""
        synchronize(self._where)
        frame: dict[str, float] = {}
        for name, start, end in self._calls:
            took = 1e3 * (end - start) if isinstance(start, float) else start.elapsed_time(end)
            frame[name] = frame.get(name, 0.0) + took
        self.frames.append(frame)
        self._calls = []

    def medians(self) -> dict[str, float]:
        """Median over the frames by part."""
        names = dict.fromkeys(name for frame in self.frames for name in frame)
        return {n: round(float(np.median([f.get(n, 0.0) for f in self.frames])), 3) for n in names}

    def _mark(self) -> Any:
        if self._where.type != "cuda":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


def replay_ms(
    run: Callable[[], object], device: torch.device, repeats: int = 40
) -> tuple[list[float], str]:
    """Milliseconds of ``run``, replayed from a CUDA graph where it can be captured.

    Returns the times and how they were taken: ``graph``, or ``eager`` and the reason.
    """
    if device.type != "cuda":
        return [_host_ms(run) for _ in range(repeats)], "eager: no GPU"
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    how, replay = "graph", run
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            # Held, so that the graph's own memory is not handed to anybody else.
            kept = run()
        replay = graph.replay
    except RuntimeError as error:
        kept = None
        how = f"eager: {str(error).splitlines()[0]}"
        torch.cuda.synchronize()
    pairs = [_event_pair() for _ in range(repeats + 3)]
    for start, end in pairs:
        start.record()
        replay()
        end.record()
    torch.cuda.synchronize()
    del kept
    return [start.elapsed_time(end) for start, end in pairs[3:]], how


def _host_ms(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return 1e3 * (time.perf_counter() - began)


def _event_pair() -> tuple[torch.cuda.Event, torch.cuda.Event]:
    return torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
