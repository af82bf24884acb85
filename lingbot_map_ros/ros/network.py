# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The network as the parameters want it: memory plan, weights on their device, warm-up.

PyTorch is imported in the functions and not with the node, so that the node is up, and can say what
is missing, before and without it.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Any

from lingbot_map_ros.ros.parameters import Parameters

if TYPE_CHECKING:
    import torch

    from lingbot_map_ros.models.gct_stream import GCTStream

logger = logging.getLogger(__name__)

ASSUMED_IMAGE = (480, 640)
"""Height and width of the images that plan and warm-up assume before one has come."""


def load_network(parameters: Parameters, image_size: tuple[int, int] = ASSUMED_IMAGE) -> GCTStream:
    """Plan the memory, then load the model to its device; raises what ``load_session`` does."""
    import torch

    from lingbot_map_ros.cache_folder import cache_folder
    from lingbot_map_ros.models.checkpoint import load_model
    from lingbot_map_ros.models.placement import resolve_device, resolve_dtype

    device = resolve_device(parameters.device)
    dtype = resolve_dtype(parameters.dtype, device)
    # PyTorch's own place for what it has compiled is lost when the robot is switched off
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_folder() / "inductor"))
    # on "meta" the weights stay in the file until it is known that they fit
    model = load_model(
        parameters.checkpoint,
        model=parameters.model,
        sha256=parameters.checkpoint_sha256,
        device=torch.device("meta"),
        attention_backend=parameters.attention_backend,
        # a newcomer stands in the caches before the policy decides about the oldest
        pending_limit=parameters.pending_limit + 1,
        cache_dtype=_cache_dtype(parameters),
        kernel=parameters.attention_kernel,
        compile=parameters.compile,
        **model_overrides(parameters),
    )
    plan_memory(model, parameters, device, dtype, image_size)
    model.place(device, dtype)
    _say_what_has_no_effect(parameters, model)
    return model


def plan_memory(
    model: GCTStream,
    parameters: Parameters,
    device: torch.device,
    dtype: torch.dtype,
    image_size: tuple[int, int],
    *,
    held: int = 0,
) -> None:
    """Compute what a stream of images of this height and width will need, before it is taken.

    ``held``: bytes of the device that the network has taken already. They are part of the plan, and
    not of what is free.

    Raises
    ------
    MemoryPlanError
        It does not fit; the message names settings that would.
    """
    from lingbot_map_ros.layers.attention_backends import flashinfer_obstacles
    from lingbot_map_ros.mapping.voxel_map import VoxelMap
    from lingbot_map_ros.streaming.device_memory import available_memory, shares_host_memory
    from lingbot_map_ros.streaming.memory import GIB, MapMemory, MemorySettings
    from lingbot_map_ros.streaming.memory_advice import check_memory

    cache_dtype = _cache_dtype(parameters)
    obstacles = flashinfer_obstacles(device, dtype, model.config.head_dim)
    shared = shares_host_memory(device)
    settings = MemorySettings(
        model.config,
        *image_size,
        dtype=dtype,
        cache_dtype=cache_dtype,
        pending_limit=model.pending_limit,
        flashinfer=not obstacles and parameters.attention_backend != "sdpa",
        gpu=device.type == "cuda",
        map=MapMemory(parameters.map_max_points, VoxelMap.planned_bytes) if shared else None,
    )
    available = available_memory(device) + held
    if parameters.memory_limit_gb:
        available = min(available, int(parameters.memory_limit_gb * 1e9))
    plan = check_memory(settings, available)
    logger.info("memory plan: %s of %.1f GiB on %s", plan, available / GIB, device)


def model_overrides(parameters: Parameters) -> dict[str, Any]:
    """What differs from the model's own configuration; a parameter at its default does not."""
    overrides = {
        name: getattr(parameters, name)
        for name in ("num_scale_frames", "sliding_window", "max_keyframes", "camera_iterations")
        if not parameters.is_default(name)
    }
    if parameters.image_size:
        overrides["image_size"] = parameters.image_size
    return overrides


def _say_what_has_no_effect(parameters: Parameters, model: GCTStream) -> None:
    from lingbot_map_ros.layers.attention_backends import flashinfer_obstacles
    from lingbot_map_ros.models.frame_runner import compile_obstacle
    from lingbot_map_ros.models.placement import is_slow

    device = model.device
    if is_slow(model.dtype, device):
        logger.warning(
            "dtype: %s is several times slower than float32 on this processor", parameters.dtype
        )
    if parameters.attention_kernel != "auto" and (
        obstacles := flashinfer_obstacles(device, model.dtype, model.config.head_dim)
    ):
        logger.warning(
            "attention_kernel: %s has no effect: %s", parameters.attention_kernel, obstacles[0]
        )
    if parameters.compile and (obstacle := compile_obstacle(device)):
        logger.info("compile: true has no effect: %s", obstacle)


def _cache_dtype(parameters: Parameters) -> torch.dtype | None:
    import torch

    return torch.float8_e4m3fn if parameters.kv_cache_dtype == "fp8" else None


def held_memory(model: GCTStream) -> int:
    """Bytes of its device that a placed network has taken."""
    import torch

    if model.device.type == "cuda":
        return int(torch.cuda.memory_reserved(model.device))
    return sum(model.memory_bytes().values())


def warm_up(model: GCTStream, height: int, width: int, *, depth_every: int = 1) -> None:
    """Run the model once, so that the first image does not pay for kernels and allocations.

    And what looks at its output on the device; a session records that at its second frame. Height
    and width are those of the network's input.
    """
    import torch

    from lingbot_map_ros.streaming.frame import Frame
    from lingbot_map_ros.streaming.observation import observe

    # on a CPU there is nothing to compile, and a whole start could take minutes
    gpu = model.device.type == "cuda"
    images = torch.rand(
        model.config.num_scale_frames if gpu else 1, 3, height, width, device=model.device
    )
    frames = [Frame(i, i, image, contrast=0.0) for i, image in enumerate(images)]
    model.reset()
    last = observe(frames, model.step(images, mode="keyframe", depth=True))[-1]
    # a GPU compiles in the first frame of a kind and records the second one
    for depth in (True, False)[: 2 if gpu and depth_every > 1 else 1]:
        for _ in range(2 if gpu else 1):
            observe(frames[:1], model.step(images[:1], mode="keyframe", depth=depth), last)
    model.reset()


def release() -> None:
    """Give the GPU's memory back, after the last reference to the model is gone."""
    import gc

    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def gpu_memory(device: torch.device) -> int:
    """Bytes of the GPU that PyTorch has allocated; 0 on a CPU."""
    import torch

    return int(torch.cuda.memory_allocated(device)) if device.type == "cuda" else 0
