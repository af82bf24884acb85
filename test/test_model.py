# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The network as a stream of transactions: all caches and counters together."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lingbot_map_ros.aggregator.base import ViTConfig
from lingbot_map_ros.errors import (
    BackendUnavailableError,
    CacheError,
    CacheFullError,
    ConfigurationError,
    InputError,
    RollbackError,
)
from lingbot_map_ros.layers.attention import full_attention
from lingbot_map_ros.models.config import GCTConfig
from lingbot_map_ros.models.gct_stream import GCTStream
from lingbot_map_ros.models.placement import resolve_device, resolve_dtype
from lingbot_map_ros.models.random_weights import randomize_

CONFIG = replace(
    GCTConfig.preset("tiny"),
    embed_dim=64,
    num_heads=1,
    camera_num_heads=1,
    num_scale_frames=2,
    sliding_window=3,
    max_keyframes=40,
)
HEIGHT, WIDTH = 28, 42


def image(index, height=HEIGHT, width=WIDTH):
    return torch.rand((3, height, width), generator=torch.Generator().manual_seed(index))


@pytest.fixture(scope="module")
def weights():
    return randomize_(GCTStream(CONFIG)).state_dict()


@pytest.fixture
def model(weights):
    return build(weights)


def build(weights, **changes):
    pending_limit = changes.pop("pending_limit", 4)
    model = GCTStream(replace(CONFIG, **changes), pending_limit=pending_limit)
    model.load_state_dict(weights)
    return model


def start(model, scale=2):
    return model.step(torch.stack([image(i) for i in range(scale)]))


def step(model, index, mode="keyframe"):
    return model.step(image(index)[None], mode)


def state(model):
    cache, camera = model.aggregator.kv_cache, model.camera_head.cache
    return (
        None if cache is None else [cache.page_table(b) for b in range(cache.num_blocks)],
        None if cache is None else cache._defer_eviction,
        None if camera is None else camera.snapshot(),
        model.num_frames,
        model.num_pending,
    )


def same(a, b):
    return torch.equal(a.pose_enc, b.pose_enc) and torch.equal(a.depth, b.depth)


# ------------------------------------------------------------------------------- transactions


OPERATIONS = ("keyframe", "skip", "pending", "commit", "commit_older", "rollback", "bad")


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["keyframe", "skip", "pending", "commit", "commit_older", "rollback", "bad"]
        ),
        max_size=14,
    )
)
@example(["keyframe"] * 3 + ["pending", "pending", "commit_older", "pending", "rollback"])
@example(["keyframe"] * 4 + ["pending", "commit", "skip", "keyframe", "pending", "commit_older"])
def test_any_history_equals_the_history_of_kept_frames(weights, operations):
    """Skipped, rolled-back and failed frames leave no trace: later answers are bit-equal.

    The twin sees only what stays, with the same decisions. A pending frame that is committed later
    is replayed as pending and committed, because eviction order is part of the answer (4.2).
    """
    model, twin = build(weights), build(weights)
    assert same(start(model), start(twin))
    waiting: list[int] = []  # pending frames of the model, oldest first,
    shown = 0  # and how many of them the twin has seen

    def catch_up():
        nonlocal shown
        for index in waiting[shown:]:
            step(twin, index, "pending")
        shown = len(waiting)

    for number, operation in enumerate(operations):
        index = 10 + number
        if operation == "keyframe" and not model.num_pending:
            assert same(step(model, index), step(twin, index))
        elif operation == "skip" and model.num_pending < 4:
            step(model, index, "skip")
        elif operation == "pending" and model.num_pending < 4:
            step(model, index, "pending")
            waiting.append(index)
        elif operation == "commit":
            catch_up()
            assert model.commit() == twin.commit()
            waiting, shown = [], 0
        elif operation == "commit_older" and model.num_pending:
            catch_up()  # Also the newest: it saw what is committed now, and what that will evict.
            assert model.commit(keep_pending=1) == twin.commit(keep_pending=1)
            waiting, shown = waiting[-1:], 1
        elif operation == "rollback" and model.num_pending:
            model.rollback()
            waiting.pop()
            if shown > len(waiting):
                twin.rollback()
                shown -= 1
        elif operation == "bad":
            before = state(model)
            with pytest.raises(InputError):
                model.step(torch.rand(1, 3, HEIGHT, WIDTH + 14), "skip")
            assert state(model) == before
    probe = step(model, 99, "skip")
    catch_up()
    assert same(probe, step(twin, 99, "skip"))
    assert model.num_frames == twin.num_frames


STAGES = [
    *(f"aggregator.frame_blocks.{i}" for i in range(4)),
    *(f"aggregator.global_blocks.{i}" for i in range(4)),
    *(f"aggregator.global_blocks.{i}.mlp" for i in (0, 3)),
    "aggregator.patch_embed",
    "camera_head",
    "camera_head.trunk.0",
    "camera_head.pose_branch",
    "depth_head",
    "depth_head.scratch.output_conv1",
]


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("mode", ["keyframe", "skip", "pending"])
def test_an_exception_at_any_stage_undoes_the_step(weights, stage, mode):
    """With a full window a keyframe has already hidden the oldest page when a later stage fails."""
    model, twin = build(weights), build(weights)
    for each in (model, twin):
        start(each)
        for index in range(2, 8):
            step(each, index)
    before = state(model)

    def fail(*_):
        raise torch.cuda.OutOfMemoryError("simulated")

    hook = model.get_submodule(stage).register_forward_hook(fail)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        step(model, 50, mode)
    hook.remove()
    assert state(model) == before
    for index in range(60, 64):
        assert same(step(model, index), step(twin, index))


def test_a_failure_behind_a_reset_leaves_an_empty_stream_and_its_own_exception(weights):
    model = build(weights)
    start(model)
    step(model, 3)
    with pytest.raises(ZeroDivisionError), model.transaction():
        model.reset()
        model.step(image(5)[None])
        1 / 0  # noqa: B018
    assert model.num_frames == 0 and model.num_pending == 0
    assert same(start(model), start(build(weights)))


@pytest.mark.parametrize("stage", ["aggregator.global_blocks.2", "camera_head", "depth_head"])
def test_a_failed_first_call_leaves_an_empty_stream(weights, stage):
    model = build(weights)
    hook = model.get_submodule(stage).register_forward_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        start(model)
    hook.remove()
    assert model.num_frames == 0
    assert same(start(model), start(build(weights)))


@pytest.mark.parametrize("count", [1, 2, 4])
def test_pending_frames_roll_back_one_after_the_other(weights, count):
    model, twin = build(weights), build(weights)
    for each in (model, twin):
        start(each)
        for index in range(2, 7):
            step(each, index)
    states = []
    for index in range(count):
        states.append(state(model))
        step(model, 20 + index, "pending")
    for expected in reversed(states):
        model.rollback()
        assert state(model) == expected
    assert same(step(model, 30), step(twin, 30))


def test_window_sizes_seen_by_each_mode(model):
    """An interval keyframe sees W window frames with itself, the others W + 1 (contract 4.2)."""
    start(model)
    for index in range(2, 8):
        step(model, index)
    cache = model.aggregator.kv_cache
    seen = []
    attention = cache.attend
    cache.attend = lambda b, q: (
        seen.append(len(cache.page_table(b).window)),
        attention(b, q),
    )[1]
    for mode in ("keyframe", "skip", "pending"):
        step(model, 20, mode)
    assert seen == [3] * 4 + [4] * 8


def test_a_stream_is_reproducible_after_reset(model):
    """Fault 14: a new stream begins only with reset(), and then from nothing."""
    first = [start(model), *(step(model, i) for i in range(2, 7))]
    assert model.num_frames == 7
    model.reset()
    assert model.num_frames == 0
    again = [start(model), *(step(model, i) for i in range(2, 7))]
    assert all(same(a, b) for a, b in zip(first, again, strict=True))


def test_temporal_position_counts_kept_frames(model):
    start(model)
    for index, mode in enumerate(["keyframe", "skip", "skip", "keyframe", "pending"]):
        step(model, 10 + index, mode)
    model.rollback()
    assert model.num_frames == 4
    assert model.camera_head.cache.length == 4


# -------------------------------------------------------------------------------------- limits


def test_capacity_is_a_typed_error_before_anything_runs(weights):
    model = build(weights, max_keyframes=5, pending_limit=1)
    start(model)
    for index in range(2, 6):
        step(model, index)
    probe = step(model, 50, "skip")
    before = state(model)
    for mode in ("keyframe", "pending"):
        with pytest.raises(CacheFullError, match="at most 6"):
            step(model, 9, mode)
        assert state(model) == before
    # A frame that is not kept still passes: its tokens stand in a transient row.
    assert same(step(model, 50, "skip"), probe)


def test_pending_limit(model):
    start(model)
    for index in range(4):
        step(model, 10 + index, "pending")
    before = state(model)
    with pytest.raises(CacheFullError, match=r"pending_limit \(4\) is reached"):
        step(model, 20, "pending")
    with pytest.raises(CacheError, match="commit or roll them back"):
        step(model, 20, "keyframe")
    assert state(model) == before
    assert model.commit(keep_pending=1) == 3
    model.rollback()
    with pytest.raises(RollbackError, match="no frame is pending"):
        model.rollback()
    assert model.commit() == 0


def test_commit_of_more_than_is_pending(model):
    start(model)
    with pytest.raises(CacheError, match="keep_pending=1"):
        model.commit(keep_pending=1)


def test_buffers_are_allocated_once(model):
    model.allocate(HEIGHT, WIDTH)
    addresses = (
        model.aggregator.kv_cache.pool.data_ptr(),
        model.camera_head.cache.buffer.data_ptr(),
    )
    memory = model.memory_bytes()
    start(model)
    for index in range(2, 30):
        step(model, index, "skip" if index % 3 else "keyframe")
    assert memory == model.memory_bytes()
    assert addresses == (
        model.aggregator.kv_cache.pool.data_ptr(),
        model.camera_head.cache.buffer.data_ptr(),
    )


# --------------------------------------------------------------------------------------- input


@pytest.mark.parametrize(
    ("images", "mode", "error", "match"),
    [
        (torch.rand(1, 3, 28, 43), "keyframe", InputError, "multiple of the patch size"),
        (torch.rand(1, 3, 42, 42), "keyframe", InputError, "image size changed"),
        (torch.rand(2, 3, 28, 42), "keyframe", InputError, "one frame a call"),
        (torch.rand(1, 1, 3, 28, 42), "keyframe", InputError, r"\[frames, 3, H, W\]"),
        (torch.rand(1, 4, 28, 42), "keyframe", InputError, r"\[frames, 3, H, W\]"),
        (torch.zeros(0, 3, 28, 42), "keyframe", InputError, r"\[frames, 3, H, W\]"),
        (torch.zeros(1, 3, 28, 42, dtype=torch.uint8), "keyframe", InputError, "floating-point"),
        (torch.rand(1, 3, 28, 42).numpy(), "keyframe", InputError, "torch.Tensor, not ndarray"),
        (None, "keyframe", InputError, "torch.Tensor, not NoneType"),
        (torch.rand(1, 3, 28, 42), "maybe", InputError, "none of keyframe, skip, pending"),
    ],
)
def test_bad_input_changes_nothing(model, images, mode, error, match):
    start(model)
    for index in range(2, 6):
        step(model, index)
    probe = step(model, 50, "skip")
    before = state(model)
    with pytest.raises(error, match=match):
        model.step(images, mode)
    assert state(model) == before
    assert torch.equal(step(model, 50, "skip").depth, probe.depth)


def test_first_call_must_keep_its_frames(model):
    for mode in ("skip", "pending"):
        with pytest.raises(InputError, match="begins with its scale frames"):
            model.step(torch.rand(2, 3, HEIGHT, WIDTH), mode)


def test_batches_are_refused(model):
    """Fault 12: one model serves one stream."""
    with pytest.raises(InputError, match="one model for each stream"):
        model.forward(torch.rand(2, 1, 3, HEIGHT, WIDTH))
    with pytest.raises(InputError, match="of one stream"):
        model.aggregator(torch.rand(2, 1, 3, HEIGHT, WIDTH))


@pytest.mark.parametrize("call", ["forward", "inference_streaming", "aggregator"])
@pytest.mark.parametrize("images", [np.zeros((1, 1, 3, 28, 42), np.float32), [], None])
def test_every_call_says_that_it_takes_tensors(model, call, images):
    with pytest.raises(InputError, match=r"torch\.Tensor.*from_numpy"):
        getattr(model, call)(images)


def test_another_image_size_after_a_reset(model):
    """Fault 11: the cache is rebuilt for the new size, and only between streams."""
    start(model)
    model.reset()
    prediction = model.step(torch.rand(2, 3, 42, 42))
    assert prediction.depth.shape == (2, 42, 42)
    assert model.aggregator.kv_cache.layout.tokens_per_frame == 15


def test_single_scale_frame_equals_the_cached_path(weights):
    """With one scale frame the first call gives what the cache would give (contract 4.1)."""
    aggregator = build(weights).aggregator
    images = image(0)[None, None]
    outputs = aggregator(images)
    aggregator.reset()
    tokens, grid = aggregator._tokens(images, None, 1)
    with torch.no_grad():
        dense = aggregator.run_blocks(
            tokens,
            aggregator.frame_rope(grid, tokens.device),
            aggregator.global_rope(grid, torch.zeros(1), tokens.device),
            lambda _: full_attention,
        )
    for a, b in zip(outputs, dense, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_more_scale_frames_than_the_cache_protects(weights):
    """Surplus scale frames go to the window, also beyond it, after seeing each other (4.1, 5.5)."""
    model = build(weights)
    prediction = start(model, scale=8)
    table = model.aggregator.kv_cache.page_table()
    assert (len(table.scale), len(table.window), table.num_frames) == (2, 3, 8)
    assert prediction.depth.shape[0] == 8
    step(model, 20)
    assert model.num_frames == 9


def test_without_depth(model):
    prediction = model.step(torch.rand(2, 3, HEIGHT, WIDTH), depth=False)
    assert prediction.depth is None
    assert prediction.pose_enc.shape == (2, 9)


# ------------------------------------------------------------------------------- configuration


def test_presets_survive_a_round_trip():
    for name in ("vitl", "small", "tiny"):
        config = GCTConfig.preset(name)
        assert GCTConfig.from_dict(config.to_dict()) == config


@pytest.mark.parametrize(
    "values",
    [
        {"embed_dim": 100, "num_heads": 3},
        {"num_scale_frames": 0},
        {"sliding_window": 0},
        {"max_keyframes": 8},
        {"camera_iterations": 0},
        {"colour": "blue"},
        {"vit": {"depth": 2, "legs": 4}},
    ],
)
def test_impossible_configurations(values):
    with pytest.raises(ConfigurationError):
        GCTConfig.from_dict({**GCTConfig().to_dict(), **values})


def test_backend_names_and_missing_gpu():
    with pytest.raises(ConfigurationError, match="none of auto, flashinfer, sdpa"):
        GCTStream(CONFIG, attention_backend="cudnn")
    with pytest.raises(BackendUnavailableError, match="use_sdpa=True"):
        GCTStream(CONFIG, attention_backend="flashinfer")
    with pytest.raises(ConfigurationError, match="pending_limit"):
        GCTStream(CONFIG, pending_limit=0)


def test_auto_logs_why_it_chose(caplog):
    with caplog.at_level("INFO"):
        start(GCTStream(CONFIG))
    assert caplog.text.count("sdpa (FlashInfer needs an NVIDIA GPU") == 1


def test_devices_and_dtypes_by_name(monkeypatch):
    cpu = torch.device("cpu")
    assert resolve_dtype("auto", cpu) in (torch.float32, torch.bfloat16)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True, raising=False)
    assert resolve_dtype("auto", cpu) is torch.bfloat16
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False, raising=False)
    assert resolve_dtype("auto", cpu) is torch.float32
    assert resolve_dtype("bfloat16", cpu) is torch.bfloat16
    with pytest.raises(ConfigurationError, match="none of auto"):
        resolve_dtype("float8", cpu)
    assert resolve_device("cpu") == cpu
    for name in ("cuda:99", "quantum"):
        with pytest.raises(ConfigurationError, match=name):
            resolve_device(name)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_on_the_cpu(weights, dtype):
    """Matrix products in half precision, norms and residual stream in float32."""
    exact, half = build(weights), build(weights)
    half.place(torch.device("cpu"), dtype)
    assert half.dtype == dtype
    assert half.aggregator.global_blocks[0].norm1.weight.dtype == torch.float32
    assert half.camera_head.trunk[0].attn.qkv.weight.dtype == torch.float32
    start(exact), start(half)
    assert half.dtype == dtype
    assert half.aggregator.kv_cache.dtype == dtype
    for index in range(2, 6):
        a, b = step(exact, index), step(half, index)
    assert b.depth.dtype == torch.float32
    assert ((a.depth - b.depth).abs() / a.depth).mean() < 0.03
    assert 0 < (a.pose_enc - b.pose_enc).abs().max() < 0.1


def test_vit_model_streams():
    config = replace(CONFIG, vit=ViTConfig(depth=2, num_heads=1, img_size=56))
    model = randomize_(GCTStream(config))
    start(model)
    assert torch.isfinite(step(model, 3).depth).all()


# --------------------------------------------------------------------------- random weights


def test_every_part_of_the_random_model_matters():
    """Weights are deterministic, outputs have the announced size, and each block moves them."""
    model = randomize_(GCTStream(GCTConfig.preset("tiny")))
    twin = randomize_(GCTStream(GCTConfig.preset("tiny")))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters()))
    images = torch.stack([image(i, 70, 112) for i in range(3)])
    first = model.step(images)
    low, high = first.depth.quantile(torch.tensor([0.01, 0.99]))
    assert 0.25 < low < 1
    assert 2.5 < high < 10
    assert 0.1 < first.pose_enc[:, :7].abs().max() < 4
    for i in range(4):
        model.reset()
        with torch.no_grad():
            saved = model.aggregator.global_blocks[i].ls1.gamma.clone()
            model.aggregator.global_blocks[i].ls1.gamma.zero_()
            changed = model.step(images)
            model.aggregator.global_blocks[i].ls1.gamma.copy_(saved)
        assert ((changed.depth - first.depth).abs() / first.depth).mean() > 0.002
        assert (changed.pose_enc - first.pose_enc).abs().max() > 0.01


def test_only_the_fine_layers_of_the_depth_head_are_rounded(weights):
    """The output of the last layer is the logarithm of the depth."""
    head, exact = build(weights).depth_head, build(weights).depth_head
    head.place_(torch.device("cpu"), torch.bfloat16)
    fine = {id(p) for layer in head.fine_layers() for p in layer.parameters()}
    assert {p.dtype for p in head.parameters() if id(p) in fine} == {torch.bfloat16}
    assert {p.dtype for p in head.parameters() if id(p) not in fine} == {torch.float32}
    last = head.scratch.output_conv2[-1]
    assert torch.equal(last.weight, weights["depth_head.scratch.output_conv2.2.weight"])
    generator = torch.Generator().manual_seed(2)
    tokens = 6 + 5 * 8
    outputs = [torch.randn(1, 1, tokens, head.norm.weight.numel(), generator=generator)] * 4
    with torch.inference_mode():
        depth, want = (h(outputs, 70, 112).depth for h in (head, exact))
    assert 0 < ((depth - want).abs() / want).mean() < 0.01
