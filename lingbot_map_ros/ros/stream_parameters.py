# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The part of the parameter table that is about the network and its stream."""

from __future__ import annotations

import dataclasses

from lingbot_map_ros.ros.parameter_field import parameter


@dataclasses.dataclass(frozen=True)
class StreamParameters:
    """Groups model, stream and keyframes."""

    checkpoint: str = parameter(
        "model",
        "builtin:small",
        "Weights: a path (.pt, .safetensors), hf://OWNER/REPO/FILE, builtin:NAME, or "
        "random:PRESET (random weights, for tests).",
    )
    checkpoint_sha256: str = parameter(
        "model", "", "Expected SHA-256 of the checkpoint; empty accepts any."
    )
    model: str = parameter(
        "model", "auto", "Preset of the model (vitl, small, tiny); auto reads the checkpoint."
    )
    device: str = parameter(
        "model", "auto", "cpu, cuda or cuda:N; auto takes the GPU where there is one."
    )
    dtype: str = parameter(
        "model",
        "auto",
        "Precision of the blocks; auto is bfloat16 where the GPU or CPU has it, else float16 or "
        "float32.",
        choices=("auto", "float32", "float16", "bfloat16"),
    )
    attention_backend: str = parameter(
        "model",
        "auto",
        "Paged attention: flashinfer needs an NVIDIA GPU, sdpa runs anywhere.",
        choices=("auto", "flashinfer", "sdpa"),
    )
    attention_kernel: str = parameter(
        "model",
        "auto",
        "FlashInfer's kernel for a frame; auto times them on this GPU at configure.",
        choices=("auto", "paged_fa2", "paged_fa3", "dense_fa2", "dense_fa3"),
    )
    kv_cache_dtype: str = parameter(
        "model",
        "auto",
        "Type of the cached keys and values; auto is the dtype of the blocks; fp8 halves it.",
        choices=("auto", "fp8"),
    )
    compile: bool = parameter(
        "model",
        True,
        "Compile the network's element-wise parts for this GPU at configure; takes up to a minute "
        "the first time.",
    )
    image_size: int = parameter(
        "model",
        0,
        "Longer side of the network's input in pixels, a multiple of 14; 0 is the model's own.",
        low=0,
        high=2072,
    )
    camera_iterations: int = parameter(
        "model", 4, "Refinement iterations of the camera head.", low=1, high=16
    )
    depth_every: int = parameter(
        "model",
        1,
        "Depth is computed for every N-th frame, and for every keyframe.",
        low=1,
        high=1000,
    )

    num_scale_frames: int = parameter(
        "stream",
        8,
        "Frames that start a stream together and fix its scale. At the default, the model's own.",
        low=1,
        high=64,
    )
    sliding_window: int = parameter(
        "stream",
        64,
        "Recent keyframes that are attended to in full. At the default, the model's own.",
        low=1,
        high=1024,
    )
    max_keyframes: int = parameter(
        "stream",
        320,
        "Most cached keyframes; the next window opens pending_limit before. At the default, the "
        "model's own.",
        low=2,
        high=4096,
    )
    overlap_keyframes: int = parameter(
        "stream",
        8,
        "Keyframes that the next window shares with the last. At the default, num_scale_frames.",
        low=1,
        high=64,
    )
    pending_limit: int = parameter(
        "stream", 16, "Most frames that may wait for a decision.", low=1, high=64
    )
    pending_policy: str = parameter(
        "stream",
        "commit_oldest",
        "What happens to a pending frame when pending_limit is reached.",
        choices=("commit_oldest", "rollback_newest"),
    )
    memory_limit_gb: float = parameter(
        "stream",
        0.0,
        "Memory that the node may plan for, in GB; 0 is what the device has.",
        low=0.0,
        high=1024.0,
    )

    keyframe_mode: str = parameter(
        "keyframes",
        "interval",
        "Who decides what stays: every N-th frame, image motion, or the services; leaving manual "
        "keeps what is pending.",
        choices=("interval", "motion", "manual"),
    )
    keyframe_interval: int = parameter(
        "keyframes", 1, "Every N-th frame is a keyframe (interval mode).", low=1, high=1000
    )
    keyframe_motion_px: float = parameter(
        "keyframes",
        12.0,
        "Mean image motion since the last keyframe, in pixels of the network's input, that makes "
        "a keyframe (motion mode).",
        low=0.001,
        high=1000.0,
    )
    keyframe_max_gap: int = parameter(
        "keyframes", 30, "Most frames between two keyframes (motion mode).", low=1, high=10000
    )
