# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The published examples of the cache and the aggregator, with this package's import lines.

They run on FlashInfer where a GPU is and on the gather-and-SDPA path elsewhere.
"""

import pytest
import torch

from lingbot_map_ros.aggregator.stream import AggregatorStream
from lingbot_map_ros.errors import BackendUnavailableError, InputError
from lingbot_map_ros.layers.attention import full_attention
from lingbot_map_ros.layers.flashinfer_cache import FlashInferKVCacheManager

ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if ON_GPU else "cpu")
DTYPE = torch.bfloat16 if ON_GPU else torch.float32


def make_manager(num_blocks=12, **changes):
    arguments = {
        "num_blocks": num_blocks,
        "max_num_frames": 1024,
        "tokens_per_frame": 262,
        "num_heads": 16,
        "head_dim": 64,
        "dtype": DTYPE,
        "device": DEVICE,
        "num_special_tokens": 6,
        "scale_frames": 8,
        "sliding_window": 64,
        "max_total_frames": 2048,
        "force_fp32": not ON_GPU,
        "fa3": False,
        **changes,
    }
    return FlashInferKVCacheManager(**arguments)


def test_setting_up_the_cache_and_streaming_100_frames():
    # Twelve blocks of 16 heads on a GPU; a CPU would need minutes for what 2 and 2 show as well.
    blocks, heads = (12, 16) if ON_GPU else (2, 2)
    manager = make_manager(blocks, num_heads=heads)
    for frame in range(100):
        k, v, q = torch.randn(3, 262, heads, 64, dtype=DTYPE, device=DEVICE)
        for block in range(manager.num_blocks):
            manager.append_frame(block, k, v)
            manager.evict_frames(block, scale_frames=8, sliding_window=64)
            out = manager.compute_attention(block, q)
        assert out.shape == (262, heads, 64)
        assert torch.isfinite(out).all()
        assert manager.num_frames == frame + 1
    assert manager.get_cache_stats() == {
        "frame_count": 100,
        "scale_pages": 8,
        "live_pages": 64,
        "free_pages": 16,
        "special_tokens": 600,
    }


def make_aggregator(**changes):
    torch.manual_seed(0)
    arguments = {
        "depth": 12,
        "num_heads": 16,
        "head_dim": 64,
        "tokens_per_frame": 262,
        "use_sdpa": not ON_GPU,
        "device": DEVICE,
        "dtype": DTYPE,
        **changes,
    }
    return AggregatorStream(**arguments)


def test_the_aggregator_on_tokenised_features():
    stream = make_aggregator()
    features = torch.randn(1, 262, 16, 64, device=DEVICE)
    outputs = stream(features, causal_inference=False)
    assert stream.selected_layers == (2, 5, 8, 11)
    assert [tuple(o.shape) for o in outputs] == [(1, 1, 262, 2048)] * 4
    assert stream.num_frames == 1

    # The same tokens block by block.
    x = features.flatten(2).float()
    rope_2d = stream.frame_rope((16, 16), DEVICE)
    rope_3d = stream.global_rope((16, 16), torch.zeros(1), DEVICE)
    expected = []
    with torch.no_grad():
        for i in range(12):
            local = stream.frame_blocks[i](x, rope_2d)
            x = stream.global_blocks[i](local, rope_3d, full_attention)
            if i in (2, 5, 8, 11):
                expected.append(torch.cat((local, x), dim=-1)[None])
    tolerance = 3e-2 if ON_GPU else 1e-5
    for got, want in zip(outputs, expected, strict=True):
        torch.testing.assert_close(got, want, atol=tolerance, rtol=tolerance)


def test_tokens_on_another_grid():
    stream = make_aggregator(depth=4, tokens_per_frame=None)
    with pytest.raises(InputError, match="give grid="):
        stream(torch.randn(1, 6 + 12, 16, 64))
    outputs = stream(torch.randn(1, 6 + 12, 16, 64), grid=(3, 4))
    assert outputs[0].shape == (1, 1, 18, 2048)
    with pytest.raises(InputError, match="image size changed"):
        stream(torch.randn(1, 262, 16, 64))
    with pytest.raises(InputError, match="tokens must be"):
        stream(torch.randn(1, 18, 8, 64))


def test_tokens_per_frame_is_checked():
    stream = make_aggregator(depth=4)
    with pytest.raises(InputError, match="tokens_per_frame=262"):
        stream(torch.randn(1, 6 + 25, 16, 64))
    assert stream.num_frames == 0


@pytest.mark.skipif(ON_GPU, reason="with a GPU FlashInfer is available")
def test_flashinfer_without_cuda_says_so():
    for device in ("cuda", "cpu"):
        with pytest.raises(BackendUnavailableError, match="use_sdpa=True"):
            AggregatorStream(
                depth=12,
                num_heads=16,
                head_dim=64,
                tokens_per_frame=262,
                use_sdpa=False,
                device=torch.device(device),
                dtype=torch.bfloat16,
            )


def test_deferred_eviction_with_commit_and_rollback():
    manager = make_manager(2, scale_frames=2, sliding_window=4)
    blocks = range(manager.num_blocks)

    def add_frame():
        k, v = torch.randn(2, 262, 16, 64, dtype=DTYPE, device=DEVICE)
        for block in blocks:
            manager.append_frame(block, k, v)
            manager.evict_frames(block, scale_frames=2, sliding_window=4)

    for _ in range(6):
        add_frame()
    q = torch.randn(262, 16, 64, dtype=DTYPE, device=DEVICE)
    before = [manager.compute_attention(block, q) for block in blocks]

    manager._defer_eviction = True
    add_frame()
    assert manager.get_cache_stats()["live_pages"] == 5
    for block in blocks:
        manager.rollback_last_frame(block)
    assert manager.get_cache_stats()["live_pages"] == 4
    for block in blocks:
        assert torch.equal(manager.compute_attention(block, q), before[block])

    add_frame()
    for block in blocks:
        manager.execute_deferred_eviction(block, scale_frames=2, sliding_window=4)
    manager._defer_eviction = False
    stats = manager.get_cache_stats()
    assert (stats["frame_count"], stats["live_pages"]) == (7, 4)
    assert not torch.equal(manager.compute_attention(0, q), before[0])
