# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The runs of the benchmark: ours, the reference, and the network in float32."""

import argparse
import cProfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import load_file
from torch import Tensor

import lingbot_map_ros
from gpu.comparison import calls, stream
from gpu.inputs import camera_images, make_images, write_weights
from gpu.parts import time_parts
from gpu.records import Record, memory_gib
from gpu.reference import Reference
from gpu.timing import PartTimer, StepTimer, summary, synchronize
from lingbot_map_ros.models.checkpoint import load_model
from lingbot_map_ros.models.config import GCTConfig
from lingbot_map_ros.models.gct_stream import GCTStream
from lingbot_map_ros.streaming.session import SessionConfig, StreamingSession

PENDING = 2
"""What a session with ``pending_limit`` 1 asks of the model: the newcomer stands there too."""
CAMERA = (480, 640)
PART_FRAMES = 20
SESSION_FRAMES = 40
"""Frames over which a session is timed, once its window is full."""
BARE_FRAMES = 10
"""Frames of the network alone that are held against it, and of the session under a profiler."""
COSTLIEST = 40
"""Functions of the host that are named."""

Step = Callable[[Tensor], tuple[Tensor, Tensor]]


def device() -> torch.device:
    """Where everything runs."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def configuration(options: argparse.Namespace) -> GCTConfig:
    """Network and stream of the options."""
    preset = GCTConfig.preset(options.preset)
    return replace(
        preset,
        sliding_window=options.window,
        num_scale_frames=options.scale,
        max_keyframes=max(preset.max_keyframes, options.frames + 1),
        image_size=max(options.size),
        image_height=0,
    )


def measure_ours(options: argparse.Namespace, record: Record) -> None:
    """Start-up, stream, parts, and the way from host to host."""
    config, where = configuration(options), device()
    images = make_images(options.frames + 1, options.size[1], options.size[0])
    record.put(
        "weights_gib",
        round(write_weights(GCTConfig.preset(options.preset), options.weights, where), 3),
    )
    chosen = {"kernel": options.kernel or None, "compile": options.compile}
    chosen = {name: value for name, value in chosen.items() if value is not None}
    with record.guard("start"):
        began = time.perf_counter()
        model = _load(config, options.weights, where, "auto", **chosen)
        loaded = time.perf_counter()
        times = _first_calls(partial(_step, model), images, config.num_scale_frames, where)
        record.put("start_up_s", {"load": round(loaded - began, 2), **times})
        record.put("kernel", _kernel(model))
    if "start" in record.get("errors", {}):
        return
    with record.guard("stream"):
        model.reset()
        _stream(partial(_step, model), images[:-1], options, record)
        record.put("planned_bytes", model.memory_bytes())
    with record.guard("parts"):
        record.put("parts", time_parts(model, images[-1:].to(where)))
    with record.guard("session"):
        record.put("host_to_host", _session(model, options))


def measure_reference(options: argparse.Namespace, record: Record) -> None:
    """The same of the reference: start-up, stream, parts."""
    config, where = configuration(options), device()
    images = make_images(options.frames + PART_FRAMES, options.size[1], options.size[0])
    with record.guard("start"):
        began = time.perf_counter()
        model = Reference(
            load_file(options.weights),
            config,
            len(images),
            fa3=options.fa3,
            bf16_trunk=options.reference_bf16,
        )
        loaded = time.perf_counter()
        model.warm_up(images, passes=1)
        eager = time.perf_counter()
        if options.compile is not False:
            model.compile()
        model.warm_up(images, passes=3)
        times = {"load": loaded - began, "eager warm-up": eager - loaded}
        times["compiled warm-up"] = time.perf_counter() - eager
        record.put("start_up_s", {name: round(value, 2) for name, value in times.items()})
    if "start" in record.get("errors", {}):
        return
    with record.guard("stream"):
        model.reset()
        _stream(model.step, images[: options.frames], options, record)
    with record.guard("parts"):
        timer = PartTimer(where)
        with model.timed_parts(timer):
            for i in range(options.frames, len(images)):
                timer.wrap("step", model.step)(images[i : i + 1].to(where))
                timer.end_frame()
        record.put("parts", {n: {"median": v, "how": "events"} for n, v in timer.medians().items()})


def measure_exact(options: argparse.Namespace, record: Record) -> None:
    """Outputs of our network in float32 throughout, over the first frames."""
    config, where = configuration(options), device()
    torch.backends.cudnn.allow_tf32 = False
    images = make_images(options.exact, options.size[1], options.size[0])
    with record.guard("stream"):
        chosen = {"attention_backend": "sdpa", "compile": False}
        model = _load(config, options.weights, where, torch.float32, **chosen)
        torch.save(stream(model, images), options.outputs)


def _load(
    config: GCTConfig, weights: Path, where: torch.device, dtype: str | torch.dtype, **chosen: Any
) -> GCTStream:
    return load_model(
        weights,
        device=where,
        dtype=dtype,
        pending_limit=PENDING,
        sliding_window=config.sliding_window,
        num_scale_frames=config.num_scale_frames,
        max_keyframes=config.max_keyframes,
        image_size=config.image_size,
        **chosen,
    )


def _step(model: GCTStream, images: Tensor) -> tuple[Tensor, Tensor]:
    prediction = model.step(images)
    return prediction.pose_enc, cast(Tensor, prediction.depth)


def _kernel(model: GCTStream) -> str:
    backend = getattr(model.aggregator.kv_cache, "backend", None)
    return str(getattr(backend, "kernel", type(backend).__name__))


def _first_calls(step: Step, images: Tensor, scale: int, where: torch.device) -> dict[str, float]:
    """Seconds of the scale frames and of the first frames: compiling, tuning, capturing."""
    seconds = {}
    for start, end in calls(scale + 3, scale):
        began = time.perf_counter()
        step(images[start:end].to(where))
        synchronize(where)
        name = "scale frames" if start == 0 else f"frame {start}"
        seconds[name] = round(time.perf_counter() - began, 3)
    return seconds


def _stream(step: Step, images: Tensor, options: argparse.Namespace, record: Record) -> None:
    """Time a stream whose images lie on the device; writes its outputs beside the record."""
    where = device()
    timer = StepTimer(where)
    poses: list[Tensor] = []
    depths: list[Tensor] = []
    first = len(images) // 3
    for start, end in calls(len(images), options.scale):
        if start == first and where.type == "cuda":
            record.put("peak_gib", memory_gib())
            torch.cuda.reset_peak_memory_stats()
        shown = images[start:end].to(where)
        pose, depth = timer(partial(step, shown))
        poses.append(pose.cpu())
        depths.append(depth.cpu())
    record.put("steady_gib", memory_gib())
    spans = {f"{a}-{len(images)}": a for a in (first, 2 * len(images) // 3)}
    offset = options.scale - 1  # The scale frames are one call.
    for name, values in (("device_ms", timer.device), ("wall_ms", timer.wall)):
        record.put(name, {span: summary(values[a - offset :]) for span, a in spans.items()})
    tenth = max(len(images) // 10, 1)
    trace = [timer.device[max(i - offset, 1) :][:tenth] for i in range(0, len(images), tenth)]
    record.put("device_ms_by_tenth", [summary(values).get("median") for values in trace])
    torch.save((poses, depths), options.outputs)


def _session(model: GCTStream, options: argparse.Namespace) -> dict[str, Any]:
    """A camera's uint8 image on the host to all results on the host, through a session."""
    session = StreamingSession(model, SessionConfig(pending_limit=1))
    first = model.config.num_scale_frames + model.config.sliding_window
    frames = min(first + SESSION_FRAMES, session.status().capacity - 2 * BARE_FRAMES)
    times, stages, profile = [], [], cProfile.Profile()
    for i, image in enumerate(islice(camera_images(*CAMERA), frames + BARE_FRAMES)):
        if i == frames:
            profile.enable()
        began = time.perf_counter()
        results = session.step(image, i * 33_000_000)
        if min(first, frames // 2) <= i < frames:
            times.append(1e3 * (time.perf_counter() - began))
            stages += [result.timings["preprocess"] for result in results]
    profile.disable()
    bare = StepTimer(model.device)
    shown = torch.rand(1, 3, *reversed(options.size), device=model.device)
    for _ in range(BARE_FRAMES):
        bare(lambda: model.step(shown))
    alone = summary(bare.device)["median"]
    return {
        "session_ms": summary(times),
        "preprocess_ms": summary(stages).get("median"),
        "step_alone_ms": alone,
        "added_ms": round(summary(times)["median"] - alone, 3),
        "withheld": session.status().withheld,
        "profile_ms": costliest(profile),
    }


def costliest(profile: cProfile.Profile) -> dict[str, float]:
    """Milliseconds a frame in the library's costliest functions, with what they call.

    They are named by module, name and line, for several of a module may have one name. The
    profiler's own time is in them, more where more functions are called.
    """
    package = str(Path(lingbot_map_ros.__file__).parent)
    totals = {
        f"{Path(code.co_filename).stem}.{code.co_name}:{code.co_firstlineno}": entry.totaltime
        for entry in profile.getstats()
        if not isinstance(code := entry.code, str) and code.co_filename.startswith(package)
    }
    ordered = sorted(totals.items(), key=lambda item: -item[1])[:COSTLIEST]
    return {name: round(1e3 * seconds / BARE_FRAMES, 3) for name, seconds in ordered}
