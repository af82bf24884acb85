# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Agreement of the attention back ends over 60 frames, in every way a frame can be kept.

The yardstick keeps whole frames in lists and attends to their concatenation in float64. Gather-and-
SDPA is held against it everywhere, FlashInfer where a GPU is.
"""

import pytest
import torch

from lingbot_map_ros.layers import attention_backends
from lingbot_map_ros.layers.flashinfer_cache import FlashInferKVCacheManager

FRAMES = 60
SCALE = 3
ON_GPU = torch.cuda.is_available()
HOPPER = ON_GPU and torch.cuda.get_device_capability()[0] == 9
BACKENDS = [
    pytest.param("sdpa", "cpu", torch.float32, 1e-5, id="sdpa-float32"),
    pytest.param("sdpa", "cpu", torch.bfloat16, 2e-2, id="sdpa-bfloat16"),
    pytest.param("sdpa", "cpu", torch.float8_e4m3fn, 1e-5, id="sdpa-float8"),
]
if ON_GPU:
    BACKENDS += [
        pytest.param("sdpa", "cuda", torch.float32, 1e-5, id="sdpa-cuda"),
        pytest.param("fa2", "cuda", torch.bfloat16, 1e-2, id="fa2-bfloat16"),
        pytest.param("fa2", "cuda", torch.float16, 2e-3, id="fa2-float16"),
    ]
if HOPPER:
    BACKENDS += [
        pytest.param("fa3", "cuda", torch.bfloat16, 1e-2, id="fa3-bfloat16"),
        pytest.param("fa3", "cuda", torch.float16, 2e-3, id="fa3-float16"),
    ]


class Yardstick:
    """Frames as they are, without pages: the published rules and nothing else."""

    def __init__(self, window):
        self.window_size = window
        self.frames = []
        self.in_window = []

    def append(self, k, v):
        if len(self.frames) >= SCALE:
            self.in_window.append(len(self.frames))
        self.frames.append((k, v))

    def evict(self):
        self.in_window = self.in_window[max(0, len(self.in_window) - self.window_size) :]

    def rollback(self):
        self.frames.pop()
        if self.in_window and self.in_window[-1] == len(self.frames):
            self.in_window.pop()

    def attend(self, q):
        visible = [*range(min(SCALE, len(self.frames))), *self.in_window]
        parts = [[self.frames[i][n][6:] for i in visible] for n in (0, 1)]
        for n in (0, 1):
            parts[n] += [frame[n][:6] for frame in self.frames]
        k, v = (torch.cat(p).double().transpose(0, 1) for p in parts)
        weights = (q.double().transpose(0, 1) @ k.transpose(1, 2) / q.shape[-1] ** 0.5).softmax(-1)
        return (weights @ v).transpose(0, 1)


def decisions(scenario):
    """What becomes of each frame after the scale frames."""
    for i in range(FRAMES - SCALE):
        if scenario == "interval-1":
            yield "keyframe"
        elif scenario == "interval-3":
            yield "keyframe" if i % 3 == 0 else "skip"
        else:
            yield "drop" if i % 5 in (1, 2) else "keep"


@pytest.mark.parametrize(("backend", "device", "dtype", "tolerance"), BACKENDS)
@pytest.mark.parametrize("window", [4, 64], ids=["window-full", "window-not-full"])
@pytest.mark.parametrize("scenario", ["interval-1", "interval-3", "deferred"])
@pytest.mark.parametrize("patches", [20, 36])
def test_agreement(backend, device, dtype, tolerance, window, scenario, patches):
    cache = FlashInferKVCacheManager(
        num_blocks=2,
        max_num_frames=FRAMES,
        tokens_per_frame=patches + 6,
        num_heads=2,
        head_dim=64,
        dtype=dtype,
        device=device,
        scale_frames=SCALE,
        sliding_window=window,
        max_total_frames=FRAMES,
        fa3=backend == "fa3",
        backend="sdpa" if backend == "sdpa" else "flashinfer",
    )
    generator = torch.Generator().manual_seed(3)
    yardsticks = [Yardstick(window) for _ in range(2)]
    worst = 0.0
    for decision in ["keyframe"] * SCALE + list(decisions(scenario)):
        for block, yardstick in enumerate(yardsticks):
            k, v, q = torch.randn((3, patches + 6, 2, 64), generator=generator).to(dtype)
            if dtype == torch.float8_e4m3fn:
                k, v, q = (x.float() for x in (k, v, q))
            cache._defer_eviction = decision != "keyframe"
            cache.append_frame(block, k, v)
            cache.evict_frames(block)
            yardstick.append(k, v)
            if decision == "keyframe":
                yardstick.evict()
            # As the network makes them: each head's rows lie together.
            strided = q.transpose(0, 1).contiguous().transpose(0, 1)
            out = cache.compute_attention(block, strided)
            expected = yardstick.attend(q)
            worst = max(worst, float((out.double() - expected).norm() / expected.norm()))
            if decision == "keep":
                cache.execute_deferred_eviction(block)
                yardstick.evict()
            elif decision in ("skip", "drop"):
                cache.rollback_last_frame(block)
                yardstick.rollback()
    assert worst <= tolerance


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scores", [1, 100, 1 << 20])
def test_in_half_precision_a_cpu_attends_in_parts(monkeypatch, scores, dtype):
    monkeypatch.setattr(attention_backends, "_SCORES", scores)
    generator = torch.Generator().manual_seed(1)
    cache = FlashInferKVCacheManager(
        num_blocks=1,
        max_num_frames=9,
        tokens_per_frame=16,
        num_heads=2,
        head_dim=8,
        dtype=dtype,
        device="cpu",
        num_special_tokens=6,
        scale_frames=3,
        sliding_window=3,
        max_total_frames=9,
    )
    q, k, v = (torch.randn((16, 2, 8), generator=generator).to(dtype) for _ in range(3))
    cache.append_frame(0, k, v)
    out = cache.compute_attention(0, q)
    q, k, v = (x.double().transpose(0, 1) for x in (q, k, v))
    want = torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(0, 1)
    torch.testing.assert_close(out.double(), want, rtol=0.02, atol=0.02)
