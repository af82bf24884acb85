# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The runs of the endurance test: a stream under a memory cap, and a stream without an end."""

import argparse
import math
import re
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np
import torch

from gpu.inputs import camera_images, write_weights
from gpu.records import GIB, Record, memory_gib
from gpu.timing import summary
from lingbot_map_ros.errors import MemoryPlanError
from lingbot_map_ros.layers.attention_backends import flashinfer_obstacles
from lingbot_map_ros.models.checkpoint import load_model
from lingbot_map_ros.models.config import GCTConfig
from lingbot_map_ros.models.gct_stream import GCTStream
from lingbot_map_ros.models.placement import resolve_device, resolve_dtype
from lingbot_map_ros.streaming.device_memory import available_memory
from lingbot_map_ros.streaming.memory import MemorySettings
from lingbot_map_ros.streaming.memory_advice import check_memory
from lingbot_map_ros.streaming.session import SessionConfig, StreamingSession

CAMERA = (480, 640)
PERIOD_NS = 33_000_000
SAMPLE_EVERY = 500
WARM_UP = 20
"""Frames in which kernels are compiled, for minutes on a new machine: no part of the limit."""
SETTING = re.compile(r"(image_size|sliding_window|max_keyframes|num_scale_frames): (\d+)")


@dataclass
class Stream:
    """What a session's frames took, and what became of them."""

    milliseconds: list[float] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    """Frames in the window after each frame."""
    switched: list[int] = field(default_factory=list)
    """Frames at which a window or a segment opened."""
    answered: int = 0
    memory: list[dict[str, float]] = field(default_factory=list)
    status: dict[str, Any] = field(default_factory=dict)


def make_weights(options: argparse.Namespace, record: Record) -> None:
    """Write the checkpoint that all other runs load."""
    gib = write_weights(GCTConfig.preset(options.preset), options.weights, resolve_device())
    record.put("weights_gib", round(gib, 3))


def run_capped(options: argparse.Namespace, record: Record) -> None:
    """Plan under a cap; run, with the first settings that are named if the plan is refused."""
    device = resolve_device()
    dtype = resolve_dtype("auto", device)
    if device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(options.capped * 1e9 / total)
    settings = MemorySettings(
        GCTConfig.preset(options.preset),
        *CAMERA,
        dtype=dtype,
        pending_limit=options.pending_limit + 1,
        flashinfer=not flashinfer_obstacles(device, dtype, 64),
        gpu=device.type == "cuda",
    )
    available = available_memory(device, options.capped)
    changes: dict[str, Any] = {}
    with record.guard("plan"):
        try:
            plan = check_memory(settings, available)
            record.put("refused", None)
        except MemoryPlanError as refusal:
            advice = str(refusal).partition("would fit: ")[2].split("; ")
            record.put("refused", {"reason": str(refusal), "advice": len(advice)})
            named = ({n: int(v) for n, v in SETTING.findall(item)} for item in advice)
            changes = next(filter(None, named), {})
            settings = replace(settings, config=replace(settings.config, **changes))
            plan = check_memory(settings, available)
        record.put("settings", changes)
        record.put("planned_gib", round(plan.total / GIB, 3))
        record.put("plan", str(plan))
    if "errors" in record:
        return
    with record.guard("stream"):
        model = _load(options, **changes)
        run = stream(model, options, options.cap_frames)
        record.put("frames", len(run.milliseconds))
        record.put("answered", run.answered)
        record.put("ms", summary(run.milliseconds[len(run.milliseconds) // 2 :]))
        record.put("status", run.status)
    record.put("peak", memory_gib())


def run_endless(options: argparse.Namespace, record: Record) -> None:
    """A stream over many windows: is a late frame as fast as an early one, and memory flat."""
    model = _load(options, sliding_window=options.window)
    with record.guard("stream"):
        run = stream(model, options, options.frames)
        record.put("frames", len(run.milliseconds))
        record.put("answered", run.answered)
        record.put("status", run.status)
        record.put("memory", run.memory)
        for name, value in growth(run, model.config).items():
            record.put(name, value)
    record.put("peak", memory_gib())


def stream(model: GCTStream, options: argparse.Namespace, frames: int) -> Stream:
    """Feed a session until ``frames``, or the time limit after the first of them."""
    session = StreamingSession(model, SessionConfig(pending_limit=options.pending_limit))
    run, until, place = Stream(), math.inf, (0, 0)
    for i, image in enumerate(islice(camera_images(*CAMERA), frames)):
        if i == WARM_UP:
            until = time.monotonic() + options.seconds
        began = time.perf_counter()
        results = session.step(image, i * PERIOD_NS)
        run.milliseconds.append(1e3 * (time.perf_counter() - began))
        run.answered += len(results)
        status = session.status()
        if (status.window, status.segment) != place:
            place = status.window, status.segment
            run.switched.append(i)
        run.kept.append(status.kept)
        if i % SAMPLE_EVERY == SAMPLE_EVERY - 1:
            run.memory.append(memory_gib())
        if time.monotonic() > until:
            break
    last = session.status()
    run.status = {
        "windows": last.window + 1,
        "segments": last.segment + 1,
        "withheld": last.withheld,
        "last_reason": last.last_reason,
    }
    return run


def growth(run: Stream, config: GCTConfig) -> dict[str, Any]:
    """Early and late frames of the same place in their windows, and the switches by themselves.

    A frame late in its window sees more special tokens than one early in it, so a first window is
    compared with later ones at equal counts of kept frames, once the window of patches is full.
    """
    times, kept = np.asarray(run.milliseconds), np.asarray(run.kept)
    switched = np.zeros(len(times), bool)
    switched[run.switched] = True
    full = config.num_scale_frames + config.sliding_window
    steady = ~switched & (kept > full)
    if not steady.any():
        return {"steady_ms": {}, "switch_ms": summary(times[switched])}
    counts = Counter(kept[steady].tolist())
    tenth = max(len(times) // 10, 1)
    index = np.arange(len(times))
    ends = run.switched[1] if len(run.switched) > 1 else len(times)
    early = {int(k): t for k, t, i in zip(kept, times, index) if steady[i] and i < ends}
    late: dict[int, list[float]] = {k: [] for k in counts}
    for i in np.flatnonzero(steady & (index >= len(times) - max(tenth, 2 * config.max_keyframes))):
        late[int(kept[i])].append(float(times[i]))
    ratios = [np.median(late[k]) / t for k, t in early.items() if late.get(k)]
    return {
        "steady_ms": summary(times[steady]),
        "switch_ms": summary(times[switched][1:]),
        "ms_around": {
            str(at): round(float(np.median(times[max(at - 50, 0) : at])), 3)
            for at in sorted({min(300, len(times)), len(times)})
        },
        "ms_by_tenth": [
            round(float(np.median(part[~gone])), 3)
            for part, gone in zip(np.array_split(times, 10), np.array_split(switched, 10))
            if (~gone).any()
        ],
        "late_over_early": round(float(np.median(ratios)), 4) if ratios else None,
    }


def _load(options: argparse.Namespace, **overrides: Any) -> GCTStream:
    return load_model(
        options.weights,
        device="auto",
        dtype="auto",
        pending_limit=options.pending_limit + 1,
        kernel=options.kernel or None,
        compile=options.compile,
        **overrides,
    )
