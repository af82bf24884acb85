# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The fast path on a GPU: captured graphs, every attention kernel, the eight-bit cache."""

from dataclasses import replace

import pytest
import torch

from lingbot_map_ros.layers.attention_backends import KERNELS
from lingbot_map_ros.models.config import GCTConfig
from lingbot_map_ros.models.gct_stream import GCTStream
from lingbot_map_ros.models.random_weights import randomize_

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
]
CONFIG = replace(GCTConfig.preset("tiny"), max_keyframes=60)
HEIGHT, WIDTH = 84, 112
MODES = ["keyframe", "skip", "keyframe", "pending", "rollback", "keyframe", "pending", "commit"]


def images(count):
    generator = torch.Generator().manual_seed(5)
    return torch.rand((count, 3, HEIGHT, WIDTH), generator=generator)


@pytest.fixture(scope="module")
def weights():
    return randomize_(GCTStream(CONFIG)).state_dict()


def build(weights, dtype=torch.bfloat16, place="cuda", **options):
    model = GCTStream(CONFIG, pending_limit=3, device=place, dtype=dtype, **options)
    model.load_state_dict(weights)
    return model


@pytest.fixture(scope="module")
def exact(weights):
    """What float32 answers, for ``MODES`` four times over."""
    torch.backends.cudnn.allow_tf32 = False
    predictions = stream(
        build(weights, dtype=torch.float32, attention_backend="sdpa", compile=False), MODES * 4
    )
    torch.backends.cudnn.allow_tf32 = True
    return predictions


def stream(model, modes):
    """Poses and depths of all frames that ``modes`` asks for."""
    model.reset()
    frames = images(CONFIG.num_scale_frames + len(modes)).to(model.device)
    predictions = [model.step(frames[: CONFIG.num_scale_frames])]
    for frame, mode in zip(frames[CONFIG.num_scale_frames :], modes, strict=True):
        if mode in ("commit", "rollback"):
            getattr(model, mode)()
        else:
            predictions.append(model.step(frame[None], mode))
    return predictions


def differences(got, want):
    depth, exact = (torch.cat([p.depth.cpu() for p in side]) for side in (got, want))
    poses, exact_poses = (torch.cat([p.pose_enc.cpu() for p in side]) for side in (got, want))
    return float(((depth - exact).abs() / exact).mean()), float((poses - exact_poses).abs().mean())


def usable(kernel):
    return torch.cuda.get_device_capability()[0] == 9 or not kernel.endswith("fa3")


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("kernel", list(KERNELS))
def test_every_kernel_answers_like_float32(weights, exact, kernel, compile):
    if not usable(kernel):
        pytest.skip(f"{kernel} needs a Hopper GPU")
    modes = MODES * 4
    model = build(weights, kernel=kernel, attention_backend="flashinfer", compile=compile)
    for _ in range(2):  # the second stream replays from its first frame on
        depth, pose = differences(stream(model, modes), exact)
        assert depth < 0.01 and pose < 0.005
    assert model._runner()._graphs._graphs, "no frame was captured"


def test_a_replayed_frame_equals_the_same_work_run_directly(weights):
    modes = MODES * 3
    replayed, direct = (build(weights, kernel="paged_fa2", compile=False) for _ in range(2))
    first = stream(replayed, modes)
    runner = direct._runner()
    frames = images(CONFIG.num_scale_frames).to("cuda")
    direct.step(frames)
    direct.step(frames[:1])
    runner._graphs.run = lambda key, function: function()
    second = stream(direct, modes)
    assert not runner._graphs._graphs
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a.pose_enc, b.pose_enc, rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(a.depth, b.depth, rtol=1e-3, atol=1e-3)


def test_undone_frames_leave_no_trace(weights):
    """Also where pages have moved for the dense kernel in between."""
    model, twin = (build(weights, kernel="dense_fa2", compile=False) for _ in range(2))
    noisy = ["keyframe"] * 8 + ["skip", "pending", "rollback", "skip", "keyframe", "keyframe"]
    plain = ["keyframe"] * 10
    frames = images(40).to("cuda")
    start = CONFIG.num_scale_frames
    outputs = []
    for each, modes in ((model, noisy), (twin, plain)):
        each.step(frames[:start])
        kept = iter(frames[start:])
        for mode in modes:
            if mode == "rollback":
                each.rollback()
            elif mode == "keyframe":
                each.step(next(kept)[None], mode)
            else:
                each.step(frames[-1:], mode)
        outputs.append(each.step(frames[-2:-1]))
    assert torch.equal(outputs[0].pose_enc, outputs[1].pose_enc)
    assert torch.equal(outputs[0].depth, outputs[1].depth)


def test_results_outlive_the_next_frame(weights):
    model = build(weights, compile=False)
    frames = images(10).to("cuda")
    model.step(frames[:3])
    predictions = [model.step(frame[None]) for frame in frames[3:]]
    again = [prediction.depth.clone() for prediction in predictions]
    model.step(frames[:1])
    assert all(torch.equal(p.depth, kept) for p, kept in zip(predictions, again, strict=True))
    assert len({float(p.depth.sum()) for p in predictions}) == len(predictions)


def test_an_eight_bit_cache_halves_the_pool(weights, exact):
    modes = MODES * 4
    whole = build(weights, attention_backend="flashinfer")
    half = build(weights, attention_backend="flashinfer", cache_dtype=torch.float8_e4m3fn)
    unrounded, rounded = (stream(model, modes) for model in (whole, half))
    sizes = [m.memory_bytes()["kv_cache"] for m in (whole, half)]
    assert sizes[0] == 2 * sizes[1]
    assert half.aggregator.kv_cache.backend.capturable
    assert 0 < differences(rounded, unrounded)[0] < 0.02
    assert differences(rounded, exact)[0] < 0.02


def test_the_choice_of_kernel_is_remembered(weights, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model = build(weights)
    model.allocate(HEIGHT, WIDTH)
    chosen = model.aggregator.kv_cache.backend.kernel
    file = tmp_path / "lingbot_map_ros" / "attention.json"
    assert str(chosen) in file.read_text()
    again = build(weights)
    again.allocate(HEIGHT, WIDTH)
    assert again.aggregator.kv_cache.backend.kernel == chosen


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_gpu_that_is_not_the_current_one(weights):
    """Streams, events and graphs are those of the model's own device."""
    modes = MODES * 3
    # One kernel for both: each device would choose its own by measuring.
    options = {"kernel": "paged_fa2", "compile": False}
    first, second = (build(weights, place=place, **options) for place in ("cuda:0", "cuda:1"))
    with torch.cuda.device(0):
        depth, pose = differences(stream(second, modes), stream(first, modes))
    assert depth < 1e-3 and pose < 1e-3
    assert second._runner()._graphs._graphs, "no frame was captured"
