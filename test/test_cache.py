# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The paged cache: golden operation sequences, misuse, and properties over random sequences."""

import pytest
import torch
from golden import load_case
from hypothesis import given, settings
from hypothesis import strategies as st

from lingbot_map_ros.errors import (
    BackendUnavailableError,
    CacheError,
    CacheFullError,
    ConfigurationError,
    RollbackError,
)
from lingbot_map_ros.layers.flashinfer_cache import FlashInferKVCacheManager
from lingbot_map_ros.layers.page_table import PageLayout, PageTable

CUDA = torch.cuda.is_available()
BACKENDS = ["sdpa", pytest.param("flashinfer", marks=pytest.mark.gpu)] if CUDA else ["sdpa"]


def make(backend="sdpa", *, blocks=2, tokens=13, window=3, scale=2, frames=100, pending=8):
    on_gpu = backend == "flashinfer"
    return FlashInferKVCacheManager(
        num_blocks=blocks,
        max_num_frames=1024,
        tokens_per_frame=tokens,
        num_heads=2,
        head_dim=64,
        dtype=torch.float16 if on_gpu else torch.float32,
        device="cuda" if on_gpu else "cpu",
        scale_frames=scale,
        sliding_window=window,
        max_total_frames=frames,
        backend=backend,
        pending_frames=pending,
    )


def frame(cache, index, block=0):
    """Keys and values of frame ``index``, different in every block."""
    generator = torch.Generator().manual_seed(1000 * index + block)
    shape = (2, cache.layout.tokens_per_frame, cache.num_heads, cache.head_dim)
    k, v = torch.randn(shape, generator=generator)
    return k, v


def append_everywhere(cache, index, *, evict=True):
    for block in range(cache.num_blocks):
        cache.append_frame(block, *frame(cache, index, block))
        if evict:
            cache.evict_frames(block)


def probe(cache):
    generator = torch.Generator().manual_seed(7)
    q = torch.randn((5, cache.num_heads, cache.head_dim), generator=generator)
    return torch.stack([cache.compute_attention(b, q) for b in range(cache.num_blocks)])


def tables(cache):
    return [cache.page_table(b) for b in range(cache.num_blocks)]


# ---------------------------------------------------------------------------- golden sequences


def held(cache, log):
    """Data indices in each region of block 0, from what was appended in order."""
    table = cache.page_table()
    window = len(table.window)
    return {
        "frame_count": table.num_frames,
        "scale": log[: len(table.scale)],
        "window": log[len(log) - window :] if window else [],
        "special": log,
    }


@pytest.mark.parametrize("name", ["cache_a", "cache_b"])
def test_golden_operations(name):
    case = load_case(name)
    config = case.config
    cache = FlashInferKVCacheManager(
        num_blocks=config["blocks"],
        max_num_frames=1024,
        tokens_per_frame=config["tokens_per_frame"],
        num_heads=config["heads"],
        head_dim=config["head_dim"],
        dtype=torch.float32,
        device="cpu",
        num_special_tokens=config["num_special"],
        scale_frames=config["scale"],
        sliding_window=config["window"],
        max_total_frames=config["max_total_frames"],
    )
    k, v, q = (case[f"in.{n}"].float() / 32 for n in "kvq")
    queries = case["in.probe"].float() / 32
    log: list[int] = []
    for n, (step, expected) in enumerate(zip(case.spec["ops"], case.spec["trace"], strict=True)):
        op, data = step["op"], step.get("data")
        outputs = []
        for block in range(config["blocks"]):
            defer = cache._defer_eviction
            if op == "skip_frame":
                cache._defer_eviction = True
            if op in ("frame", "skip_frame", "append"):
                cache.append_frame(block, k[data, block], v[data, block])
            if op in ("frame", "evict"):
                cache.evict_frames(block, config["scale"], config["window"])
            if op in ("frame", "skip_frame"):
                outputs.append(cache.compute_attention(block, q[data, block]))
            if op in ("skip_frame", "rollback"):
                cache.rollback_last_frame(block)
            if op == "commit":
                cache.execute_deferred_eviction(block, config["scale"], config["window"])
            if op == "skip_frame":
                cache._defer_eviction = defer
        if op in ("frame", "append"):
            log = [*log, data]
        elif op == "rollback":
            log = log[:-1]
        elif op == "reset":
            cache.reset()
            log = []
        elif op in ("defer_on", "defer_off"):
            cache._defer_eviction = op == "defer_on"
        if outputs:
            case.check(torch.stack(outputs), f"out.step{n}")
        assert held(cache, log) == expected
        if cache.num_frames:
            probes = [cache.compute_attention(b, queries[b]) for b in range(config["blocks"])]
            case.check(torch.stack(probes), f"out.probe{n}")


# ------------------------------------------------------------------------------------- examples


def test_plan_once_a_frame_run_once_a_block():
    cache = make(blocks=4)
    plans = []
    original = cache.backend.plan
    cache.backend.plan = lambda table, n: (plans.append(table), original(table, n))
    for index in range(6):
        for block in range(4):
            k, v = frame(cache, index, block)
            cache.append_frame(block, k, v)
            cache.evict_frames(block)
            cache.compute_attention(block, k)
    assert len(plans) == 6


def test_blocks_out_of_step_still_see_their_own_frames():
    """Block 1 lags behind block 0: each is planned for what it holds (fault 10)."""
    cache = make()
    append_everywhere(cache, 0)
    expected = probe(cache)[1]
    cache.append_frame(0, *frame(cache, 1, 0))
    assert torch.equal(probe(cache)[1], expected)


def test_padding_rows_never_act_as_keys():
    """Fault 3: whatever lies in unused rows, attention sees the frames' tokens only."""
    cache = make(tokens=26)
    for index in range(7):
        append_everywhere(cache, index)
    before = probe(cache)
    table = cache.page_table()
    used = torch.zeros(cache.layout.num_pages * cache.layout.page_size, dtype=torch.bool)
    used[torch.from_numpy(table.visible_rows())] = True
    cache.pool.flatten(2, 3)[:, :, ~used] = 1e4
    assert torch.equal(probe(cache), before)
    assert cache.layout.page_size == 20


def test_attention_without_frames_is_zero():
    q = torch.randn(3, 2, 64)
    assert torch.equal(make().compute_attention(0, q), torch.zeros_like(q))


def test_reset_forgets_frames_and_flags():
    """Fault 9: a flag left set must not rule the next session."""
    cache = make()
    append_everywhere(cache, 0)
    cache._defer_eviction = True
    cache.reset()
    assert not cache._defer_eviction
    assert cache.get_cache_stats() == {
        "frame_count": 0,
        "scale_pages": 0,
        "live_pages": 0,
        "free_pages": 13,
        "special_tokens": 0,
    }


def test_pools_are_allocated_once():
    cache = make(frames=40)
    address, size = cache.pool.data_ptr(), cache.nbytes
    for index in range(40):
        append_everywhere(cache, index)
        probe(cache)
    assert (cache.pool.data_ptr(), cache.nbytes) == (address, size)


def test_article_shape_of_a_blocks_pages():
    cache = make()
    append_everywhere(cache, 0)
    k, v = frame(cache, 0, 1)
    page = cache.page_table(1).scale[0]
    pages = cache.kv_pages(1)
    assert pages.shape == (cache.layout.num_pages, 2, 7, 2, 64)
    assert torch.equal(pages[page, 0], k[6:])
    assert torch.equal(pages[page, 1], v[6:])


# --------------------------------------------------------------------------------------- misuse


def check_refused(cache, error, match, call):
    """``call`` raises and leaves tables and attention as they were."""
    before, seen = tables(cache), probe(cache)
    with pytest.raises(error, match=match):
        call()
    assert tables(cache) == before
    assert torch.equal(probe(cache), seen)


def test_wrong_number_of_tokens():
    cache = make()
    append_everywhere(cache, 0)
    k, v = frame(cache, 1)
    message = r"must be \[13, 2, 64\]"
    check_refused(cache, CacheError, message, lambda: cache.append_frame(0, k[:-1], v[:-1]))
    check_refused(cache, CacheError, message, lambda: cache.append_frame(0, k, v[:, :1]))
    check_refused(cache, CacheError, "q must be", lambda: cache.compute_attention(0, k[0]))
    check_refused(cache, CacheError, "not one of the", lambda: cache.append_frame(2, k, v))


def test_full_patch_pool():
    cache = make(pending=2)
    cache._defer_eviction = True
    for index in range(7):
        append_everywhere(cache, index)
    check_refused(
        cache,
        CacheFullError,
        "commit or roll back",
        lambda: cache.append_frame(0, *frame(cache, 8)),
    )


def test_full_special_pool():
    cache = make(frames=5)
    for index in range(5):
        append_everywhere(cache, index)
    check_refused(
        cache, CacheFullError, "its 5 frames", lambda: cache.append_frame(0, *frame(cache, 8))
    )


def test_rollback_of_nothing_or_past_a_commit():
    cache = make()
    with pytest.raises(RollbackError, match="cache is empty"):
        cache.rollback_last_frame(0)
    append_everywhere(cache, 0)
    for block in range(2):
        cache.execute_deferred_eviction(block)
    check_refused(cache, RollbackError, "was committed", lambda: cache.rollback_last_frame(0))


def test_rollback_past_an_eviction():
    cache = make()
    for index in range(6):
        append_everywhere(cache, index)
    check_refused(cache, RollbackError, "eviction", lambda: cache.rollback_last_frame(1))


@pytest.mark.parametrize(
    "flags",
    [{"cross_frame_special": False}, {"include_scale_frames": False}, {"camera_only": True}],
)
def test_flags_that_this_cache_does_not_have(flags):
    cache = make()
    append_everywhere(cache, 0)
    check_refused(
        cache, ConfigurationError, "do not apply", lambda: cache.evict_frames(0, 2, 3, **flags)
    )


def test_policy_of_another_cache():
    cache = make()
    append_everywhere(cache, 0)
    check_refused(cache, CacheError, "scale_frames=5", lambda: cache.evict_frames(0, 5, 3))
    check_refused(cache, CacheError, "sliding_window=0", lambda: cache.evict_frames(0, 2, 0))
    check_refused(
        cache, CacheError, "sliding_window=9", lambda: cache.execute_deferred_eviction(0, 2, 9)
    )


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"tokens_per_frame": 6}, ConfigurationError, "leaves no patch"),
        ({"sliding_window": 0}, ConfigurationError, "at least 1"),
        ({"backend": "flashinfer"}, BackendUnavailableError, "needs an NVIDIA GPU"),
        ({"fa3": True}, BackendUnavailableError, "needs an NVIDIA GPU"),
        (
            {"dtype": torch.float32, "backend": "flashinfer"},
            BackendUnavailableError,
            "takes float16 or bfloat16, not torch.float32",
        ),
        ({"head_dim": 80, "backend": "flashinfer"}, BackendUnavailableError, "not 80"),
        ({"fa3": True, "force_fp32": True}, ConfigurationError, "force_fp32"),
        ({"backend": "cudnn"}, ConfigurationError, "none of auto, flashinfer, sdpa"),
        ({"dtype": torch.int8}, BackendUnavailableError, "float dtype"),
        ({"pending_frames": 0}, ConfigurationError, "pending_frames"),
    ],
)
def test_impossible_caches(arguments, error, match):
    values = {
        "num_blocks": 1,
        "max_num_frames": 10,
        "tokens_per_frame": 13,
        "num_heads": 2,
        "head_dim": 64,
        "dtype": torch.bfloat16,
        "device": "cpu",
        **arguments,
    }
    with pytest.raises(error, match=match):
        FlashInferKVCacheManager(**values)


def test_one_pool_dtype_chosen_explicitly():
    """Fault 4: float32 stays float32, and ``force_fp32`` holds the pool in float32 as well."""
    common = {"max_num_frames": 1, "tokens_per_frame": 13, "num_heads": 2, "head_dim": 64}
    common |= {"num_blocks": 1, "device": "cpu"}
    assert FlashInferKVCacheManager(dtype=torch.float32, **common).pool.dtype == torch.float32
    assert FlashInferKVCacheManager(dtype=torch.bfloat16, **common).pool.dtype == torch.bfloat16
    forced = FlashInferKVCacheManager(dtype=torch.bfloat16, force_fp32=True, **common)
    assert forced.pool.dtype == torch.float32
    k, v = frame(forced, 0)
    forced.append_frame(0, k, v)
    page = forced.page_table().scale[0]
    assert torch.equal(forced.kv_pages(0)[page, 0], k[6:])


# ----------------------------------------------------------------------------------- properties

OPERATIONS = ("append", "frame", "evict", "commit", "commit_older", "rollback", "defer", "undefer")


class Model:
    """What a cache must hold, kept as lists of frame indices, by definition and without pages."""

    def __init__(self, layout):
        self.layout = layout
        self.frames: list[int] = []
        self.first = 0  # oldest streamed frame that is still in the window
        self.revocable = 0
        self.defer = False

    @property
    def window(self):
        return self.frames[max(self.first, self.layout.scale_frames) :]

    @property
    def rows(self):
        return len(self.window)

    def append(self, index):
        self.frames.append(index)
        self.revocable += 1

    def evict(self, keep=0):
        surplus = self.rows - self.layout.window - min(keep, self.rows)
        if surplus > 0:
            self.first = max(self.first, self.layout.scale_frames) + surplus
            self.revocable = 0

    def commit(self, keep):
        keep = min(keep, self.revocable)
        self.evict(keep)
        self.revocable = keep

    def rollback(self):
        self.frames.pop()
        self.revocable -= 1

    @property
    def full(self):
        return self.rows >= self.layout.window + self.layout.pending_frames and (
            len(self.frames) >= self.layout.scale_frames
        )


def expected_attention(cache, model, block, q):
    """Dense attention over exactly the tokens that the model says are visible."""
    visible = [*model.frames[: model.layout.scale_frames], *model.window]
    keys, values = [], []
    for index in dict.fromkeys(visible):
        k, v = frame(cache, index, block)
        keys.append(k[6:])
        values.append(v[6:])
    for index in model.frames:
        k, v = frame(cache, index, block)
        keys.append(k[:6])
        values.append(v[:6])
    k, v = (torch.cat(x).to(cache.dtype).float().transpose(0, 1) for x in (keys, values))
    logits = q.to(cache.dtype).float().transpose(0, 1) @ k.transpose(1, 2) / 8
    return (logits.softmax(-1) @ v).transpose(0, 1)


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=60, deadline=None)
@given(
    scale=st.integers(0, 3),
    window=st.integers(1, 3),
    tokens=st.sampled_from([8, 10, 13, 31]),
    operations=st.lists(st.sampled_from(OPERATIONS), max_size=30),
)
def test_any_sequence_holds_what_it_should(backend, scale, window, tokens, operations):
    cache = make(backend, tokens=tokens, window=window, scale=scale, pending=3)
    model = Model(cache.layout)
    tolerance = 2e-3 if backend == "flashinfer" else 1e-5
    q = torch.randn((4, 2, 64), generator=torch.Generator().manual_seed(0))
    for index, operation in enumerate(operations):
        if operation in ("append", "frame"):
            if model.full:
                with pytest.raises(CacheFullError):
                    append_everywhere(cache, index)
                continue
            append_everywhere(cache, index, evict=operation == "frame")
            model.append(index)
            if operation == "frame" and not model.defer:
                model.evict()
        elif operation == "evict":
            for block in range(2):
                cache.evict_frames(block)
            if not model.defer:
                model.evict()
        elif operation.startswith("commit"):
            keep = 1 if operation == "commit_older" else 0
            for block in range(2):
                cache.execute_deferred_eviction(block, keep_pending=keep)
            model.commit(keep)
        elif operation == "rollback":
            if not model.revocable:
                with pytest.raises(RollbackError):
                    cache.rollback_last_frame(0)
                continue
            for block in range(2):
                cache.rollback_last_frame(block)
            model.rollback()
        else:
            cache._defer_eviction = model.defer = operation == "defer"
        assert cache.num_frames == len(model.frames)
        assert len(cache.page_table().window) == model.rows
        if model.frames:
            for block in range(2):
                torch.testing.assert_close(
                    cache.compute_attention(block, q),
                    expected_attention(cache, model, block, q),
                    atol=tolerance,
                    rtol=tolerance,
                )


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=40, deadline=None)
@given(before=st.integers(0, 9), pending=st.integers(1, 3), after=st.integers(1, 4))
def test_append_and_rollback_leave_no_trace(backend, before, pending, after):
    """Several pending frames, undone: tables, counters and every later answer are as before."""
    tried, untouched = make(backend), make(backend)
    for cache in (tried, untouched):
        for index in range(before):
            append_everywhere(cache, index)
    state, seen = tables(tried), probe(tried) if before else None
    with tried.transaction(deferred=True):
        for index in range(pending):
            append_everywhere(tried, 50 + index)
            probe(tried)
        for _ in range(pending):
            for block in range(2):
                tried.rollback_last_frame(block)
    assert tables(tried) == state and not tried._defer_eviction
    if seen is not None:
        assert torch.equal(probe(tried), seen)
    for index in range(after):
        for cache in (tried, untouched):
            append_everywhere(cache, 70 + index)
        assert torch.equal(probe(tried), probe(untouched))
    assert tables(tried) == tables(untouched)


@settings(max_examples=40, deadline=None)
@given(before=st.integers(0, 9), block=st.integers(0, 2), stage=st.integers(0, 2))
def test_an_exception_in_any_block_undoes_the_frame(before, block, stage):
    """A keyframe evicts before it attends; the hidden page must survive a failure after that."""
    tried, untouched = make(blocks=3), make(blocks=3)
    for cache in (tried, untouched):
        for index in range(before):
            append_everywhere(cache, index)
    state = tables(tried)

    def fail_at(b, s):
        if (b, s) == (block, stage):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), tried.transaction():
        for b in range(3):
            tried.append_frame(b, *frame(tried, 50, b))
            fail_at(b, 0)
            tried.evict_frames(b)
            fail_at(b, 1)
            tried.compute_attention(b, frame(tried, 50, b)[0])
            fail_at(b, 2)
    assert tables(tried) == state
    for index in range(5):
        for cache in (tried, untouched):
            append_everywhere(cache, 70 + index)
        assert torch.equal(probe(tried), probe(untouched))


@settings(max_examples=100, deadline=None)
@given(
    st.integers(0, 3),
    st.integers(1, 4),
    st.lists(st.sampled_from(["append", "evict", "commit", "rollback"]), max_size=60),
)
def test_pages_are_never_shared_or_lost(scale, window, operations):
    layout = PageLayout(13, 6, scale, window, max_frames=20, pending_frames=2)
    table = PageTable.empty(layout)
    for operation in operations:
        try:
            table = getattr(table, operation)()
        except (CacheFullError, RollbackError):
            continue
        pages = [*table.free, *table.scale, *table.window]
        assert sorted(pages) == list(range(layout.patch_pages))
        rows = table.visible_rows()
        assert len(set(rows.tolist())) == len(rows)
        assert len(rows) == 7 * (len(table.scale) + len(table.window)) + 6 * table.num_frames
        if table.num_frames:
            assert set(table.frame_rows()) <= set(rows)
