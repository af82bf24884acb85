# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Pages in use stay one run of rows, in an order that follows from the kept frames alone."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lingbot_map_ros.errors import CacheError, CacheFullError, RollbackError
from lingbot_map_ros.layers.flashinfer_backend import merge_parts
from lingbot_map_ros.layers.flashinfer_cache import FlashInferKVCacheManager
from lingbot_map_ros.layers.page_packing import pack
from lingbot_map_ros.layers.page_table import PageLayout, PageTable

OPERATIONS = ["keyframe", "skip", "pending", "commit", "rollback"]
HISTORY = st.lists(st.sampled_from(OPERATIONS), max_size=50)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 3), st.integers(1, 4), st.integers(1, 3), HISTORY)
def test_what_the_next_frame_sees_is_one_run(scale, window, pending, operations):
    layout = PageLayout(13, 6, scale, window, max_frames=60, pending_frames=pending)
    table, content, number = PageTable.empty(layout), {}, 0
    for operation in operations:
        before = table
        try:
            if operation in ("commit", "rollback"):
                table = getattr(table, operation)()
                continue
            if operation == "keyframe" and len(table.window) > window:
                continue  # frames are pending
            packed, moves = pack(table, deferred=operation != "keyframe")
            held = [content[page] for page in table.scale + table.window]
            for source, target in moves:
                content[target] = content[source]
            assert [content[page] for page in packed.scale + packed.window] == held
            assert sorted(packed.free + packed.scale + packed.window) == [
                *range(layout.patch_pages)
            ]
            grown = packed.append()
            content[(grown.window or grown.scale)[-1]] = number
            number += 1
            grown = grown.evict() if operation == "keyframe" else grown
        except (CacheFullError, RollbackError):
            table = before
            continue
        start, end = grown.run
        assert sorted(grown.visible_rows().tolist()) == [*range(start, end)]
        table = packed if operation == "skip" else grown


def test_a_full_window_costs_one_page_copy_a_keyframe():
    table = PageTable.empty(PageLayout(13, 6, 2, 3, max_frames=99, pending_frames=1))
    copies = []
    for _ in range(20):
        table, moves = pack(table, deferred=False)
        copies.append(len(moves))
        table = table.append().evict()
    assert copies == [0] * 5 + [1] * 15


def cache_of(blocks=2):
    return FlashInferKVCacheManager(
        num_blocks=blocks,
        max_num_frames=0,
        tokens_per_frame=13,
        num_heads=2,
        head_dim=64,
        dtype=torch.float32,
        device="cpu",
        scale_frames=2,
        sliding_window=3,
        max_total_frames=40,
        pending_frames=2,
    )


def frame(index, block):
    generator = torch.Generator().manual_seed(100 * index + block)
    return torch.randn((3, 13, 2, 64), generator=generator)


def run_at_once(cache, index, *, deferred=False):
    cache._defer_eviction = deferred
    cache.begin_frame()
    outputs = []
    for block in range(cache.num_blocks):
        q, k, v = frame(index, block)
        cache.write(block, k, v)
        outputs.append(cache.attend(block, q))
    cache._defer_eviction = False
    return torch.stack(outputs)


def run_block_by_block(cache, index, *, deferred=False):
    cache._defer_eviction = deferred
    outputs = []
    for block in range(cache.num_blocks):
        q, k, v = frame(index, block)
        cache.append_frame(block, k, v)
        cache.evict_frames(block)
        outputs.append(cache.compute_attention(block, q))
    cache._defer_eviction = False
    return torch.stack(outputs)


def decide(cache, operation):
    for block in range(cache.num_blocks):
        if operation == "commit":
            cache.execute_deferred_eviction(block)
        else:
            cache.rollback_last_frame(block)


@settings(max_examples=80, deadline=None)
@given(HISTORY)
def test_all_blocks_at_once_answer_like_block_by_block(operations):
    """The dense run against the page table read in order, over any history, with failed steps."""
    dense, paged = cache_of(), cache_of()
    waiting = 0
    for index, operation in enumerate(operations):
        if operation == "keyframe" and not waiting:
            answers = run_at_once(dense, index), run_block_by_block(paged, index)
        elif operation == "skip":
            states = dense.snapshot(), paged.snapshot()
            try:
                answers = (
                    run_at_once(dense, index, deferred=True),
                    run_block_by_block(paged, index, deferred=True),
                )
            except CacheFullError:
                dense._defer_eviction = False
                continue
            for cache, state in zip((dense, paged), states, strict=True):
                cache.restore(state)
        elif operation == "pending" and waiting < 2:
            answers = (
                run_at_once(dense, index, deferred=True),
                run_block_by_block(paged, index, deferred=True),
            )
            waiting += 1
        elif operation in ("commit", "rollback") and waiting:
            for cache in (dense, paged):
                decide(cache, operation)
            waiting = 0 if operation == "commit" else waiting - 1
            continue
        else:
            continue
        torch.testing.assert_close(*answers, rtol=1e-5, atol=1e-5)
        assert dense.page_table().num_frames == paged.page_table().num_frames


def test_a_step_undone_brings_every_page_back():
    cache = cache_of()
    for index in range(9):
        run_at_once(cache, index)
    outer = cache.snapshot()
    with pytest.raises(ZeroDivisionError), cache.transaction():
        run_at_once(cache, 50)
        1 / 0  # noqa: B018
    assert cache.page_table() == outer.tables[0]
    run_at_once(cache, 51)
    cache.restore(outer)  # one taken before the pages moved
    assert cache.page_table() == outer.tables[0]
    twin = cache_of()
    for index in range(9):
        run_at_once(twin, index)
    for index in range(60, 66):
        assert torch.equal(run_at_once(cache, index), run_at_once(twin, index))


def test_special_tokens_of_undone_frames_are_cleared():
    """A kernel may load rows behind the newest special token, and 0 * NaN is NaN."""
    cache = cache_of()
    for index in range(4):
        run_at_once(cache, index)
    state = cache.snapshot()
    for _ in range(2):
        cache._defer_eviction = True
        cache.begin_frame()
        for block in range(cache.num_blocks):
            cache.write(block, *torch.full((2, 13, 2, 64), float("nan")))
    cache.restore(state)
    run_at_once(cache, 6)
    special = cache.pool[:, :, cache.layout.patch_pages :]
    assert torch.isfinite(special).all()


def test_blocks_out_of_step_are_refused():
    cache = cache_of()
    cache.append_frame(0, *frame(0, 0)[1:])
    with pytest.raises(CacheError, match="out of step"):
        cache.begin_frame()


@pytest.mark.parametrize("parts", [1, 2, 5])
def test_attention_over_parts_merges_to_attention_over_all(parts):
    generator = torch.Generator().manual_seed(3)
    q, k, v = torch.randn((3, 40, 2, 16), generator=generator)
    scores = torch.einsum("qhd,khd->qhk", q, k) / 4
    exact = torch.einsum("qhk,khd->qhd", scores.softmax(dim=-1), v)
    outputs, weights = [], []
    for rows in torch.arange(40).tensor_split(parts):
        part = scores[..., rows]
        outputs.append(torch.einsum("qhk,khd->qhd", part.softmax(dim=-1), v[rows]))
        weights.append(part.logsumexp(dim=-1) / torch.log(torch.tensor(2.0)))
    torch.testing.assert_close(merge_parts(torch.stack(outputs), torch.stack(weights)), exact)
