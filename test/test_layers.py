# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Layers and heads against the golden vectors."""

import pytest
import torch
from golden import load_case

from lingbot_map_ros.aggregator.base import AggregatorBase
from lingbot_map_ros.aggregator.stream import AggregatorStream
from lingbot_map_ros.errors import ConfigurationError, InputError
from lingbot_map_ros.heads.camera_head import CameraHead
from lingbot_map_ros.heads.dpt_head import DPTHead
from lingbot_map_ros.layers.block import Block
from lingbot_map_ros.layers.patch_embed import PatchEmbed
from lingbot_map_ros.layers.rope import (
    grid_positions,
    rope_2d,
    rope_3d,
    rotate,
    set_time,
    spacetime_positions,
    split_3d,
    time_rows,
)
from lingbot_map_ros.layers.vision_transformer import VisionTransformer

pytestmark = pytest.mark.usefixtures("no_grad")


@pytest.fixture
def no_grad():
    with torch.no_grad():
        yield


def grid_of(case):
    return tuple(case.config["grid"])


def positions_3d(case):
    config = case.config
    frames = config["frames"]
    times = torch.arange(config["f_start"], config["f_start"] + frames)
    return spacetime_positions(grid_of(case), config["num_special"], times, torch.device("cpu"))


def load_block(case, qk_norm=True):
    block = Block(case.config["dim"], case.config["dim"] // 64, qk_norm=qk_norm)
    block.load_state_dict(case.weights)
    return block


def test_rope2d():
    case = load_case("rope2d")
    expected = grid_positions(grid_of(case), case.config["num_special"], torch.device("cpu"))
    assert torch.equal(case["out.positions"][0], expected)
    table = rope_2d(case["out.positions"], case.config["head_dim"], case.config["base"])
    case.check(rotate(case["in.x"], table), "out.y")


@pytest.mark.parametrize("name", ["rope3d", "rope3d_camera"])
def test_rope3d(name):
    case = load_case(name)
    positions = positions_3d(case)
    if name == "rope3d_camera":
        positions[:, 1:] = 0
    table = rope_3d(positions, tuple(case.config["split"]), case.config["theta"])
    case.check(table.cos[0, :, ::2], "out.cos")
    case.check(table.sin[0, :, ::2], "out.sin")
    case.check(rotate(case["in.x"], table), "out.y")


def test_rope_has_no_end():
    """Angles exist for any frame number and image size (fault 1)."""
    times = torch.tensor([1_000_000])
    positions = spacetime_positions((2000, 1), 6, times, torch.device("cpu"))
    table = rope_3d(positions, (20, 22, 22))
    assert torch.isfinite(table.cos).all()
    # float64 angles: at t = 1e6 float32 would already be off by several hundredths.
    expected = torch.tensor(1e6, dtype=torch.float64).cos().float()
    torch.testing.assert_close(table.cos[0, 0, 0], expected)


@pytest.mark.parametrize("time", [0, 1, 63, 336])
def test_the_time_of_a_table_is_rewritten_in_place(time):
    """As if the table had been made for that time."""
    device, split = torch.device("cpu"), split_3d(64)
    table = rope_3d(spacetime_positions((3, 4), 6, torch.tensor([5]), device), split)
    expected = rope_3d(spacetime_positions((3, 4), 6, torch.tensor([time]), device), split)
    set_time(table, time_rows(337, split[0], device), time)
    torch.testing.assert_close(table.cos, expected.cos, rtol=0, atol=1e-7)
    torch.testing.assert_close(table.sin, expected.sin, rtol=0, atol=1e-7)


def test_rope2d_angles_are_float32_for_bfloat16_features():
    """Fault 23: rounding positions or angles to bfloat16 would be visible far from the origin."""
    positions = grid_positions((300, 1), 0, torch.device("cpu"))
    table = rope_2d(positions, 64)
    assert table.cos.dtype == torch.float32
    x = torch.ones(1, 1, 300, 64, dtype=torch.bfloat16)
    torch.testing.assert_close(rotate(x, table), rotate(x.float(), table))


@pytest.mark.parametrize("name", ["block_frame", "block_frame_small"])
def test_frame_block(name):
    case = load_case(name)
    case.check(load_block(case)(case["in.x"], rope_2d(case["in.positions"], 64)), "out.y")


@pytest.mark.parametrize("name", ["block_global_3d", "block_global_2d"])
def test_global_block(name):
    case = load_case(name)
    config = case.config
    if config["rope"] == "3d":
        table = rope_3d(positions_3d(case), (20, 22, 22))
    else:
        positions = grid_positions(grid_of(case), config["num_special"], torch.device("cpu"))
        table = rope_2d(positions.repeat(config["frames"], 1), 64)
    case.check(load_block(case)(case["in.x"], table), "out.y")


def test_global_block_stream():
    """One global block with its cache: scale frames, keyframes and skipped frames."""
    case = load_case("block_global_stream")
    config = case.config
    grid = grid_of(case)
    stream = AggregatorStream(
        depth=4,
        num_heads=1,
        use_sdpa=True,
        scale_frames=config["scale"],
        sliding_window=config["window"],
        max_total_frames=50,
    )
    block = load_block(case)
    cache = stream.allocate(grid[0] * grid[1] + config["num_special"])
    for i, call in enumerate(config["calls"]):
        times = torch.arange(cache.num_frames, cache.num_frames + call["frames"])
        rope = stream.global_rope(grid, times, torch.device("cpu"))
        together = call["frames"] > 1
        attend = (stream._attend_together if together else stream._attend_through_cache)(0)
        state = cache.snapshot()
        cache._defer_eviction = not call["keyframe"]
        case.check(block(case[f"in.x{i}"], rope, attend), f"out.y{i}")
        cache._defer_eviction = False
        if not call["keyframe"]:
            cache.restore(state)


@pytest.mark.parametrize("name", ["vit_patch_embed", "vit_patch_embed_small"])
def test_vision_transformer(name):
    case = load_case(name)
    config = case.config
    vit = VisionTransformer(
        config["dim"], config["depth"], config["heads"], img_size=config["img_size"]
    )
    weights = {"mask_token": torch.zeros(1, config["dim"]), **case.weights}
    vit.load_state_dict(weights)
    for height, width in config["sizes"]:
        images = case[f"in.{height}x{width}"]
        case.check(vit.prepare_tokens(images), f"out.tokens_{height}x{width}")
        case.check(vit(images), f"out.{height}x{width}")


def test_conv_patch_embed():
    case = load_case("conv_patch_embed")
    embed = PatchEmbed(case.config["dim"])
    embed.load_state_dict(case.weights)
    case.check(embed(case["in.x"]), "out.y")


@pytest.mark.parametrize("size", [(70, 113), (13, 14), (0, 14)])
def test_patch_embed_rejects_partial_patches(size):
    with pytest.raises(InputError, match="multiple of the patch size 14"):
        PatchEmbed(64)(torch.zeros(1, 3, *size))


def test_special_tokens():
    case = load_case("special_tokens")
    dim = case.weights["camera_token"].shape[-1]
    base = AggregatorBase(depth=4, num_heads=1, head_dim=dim)
    base.load_state_dict(case.weights, strict=False)
    for i, (cached, frames) in enumerate(case.config["calls"]):
        tokens = base.special_tokens(cached, frames, case.config["num_scale_frames"])
        case.check(tokens, f"out.tokens{i}")


@pytest.mark.parametrize("name", ["camera_head", "camera_head_small", "camera_head_rope3d"])
def test_camera_head(name):
    case = load_case(name)
    config = case.config
    head = CameraHead(
        config["dim"],
        config["heads"],
        trunk_depth=config["trunk_depth"],
        num_iterations=config["iterations"],
        enable_3d_rope=config.get("rope3d", False),
    )
    head.load_state_dict(case.weights)
    head.allocate(capacity=8, device=torch.device("cpu"))
    for i, call in enumerate(config["calls"]):
        case.check(head.encode(case[f"in.x{i}"], keep=call["keyframe"]), f"out.pose{i}")
    assert head.cache.length == sum(c["frames"] for c in config["calls"] if c["keyframe"])
    assert head.cache.frame_index == sum(c["frames"] for c in config["calls"])


@pytest.mark.parametrize("name", ["dpt_head", "dpt_head_small"])
@pytest.mark.parametrize("group", [1, 2, 8])
def test_dpt_head(name, group, monkeypatch):
    monkeypatch.setattr("lingbot_map_ros.heads.dpt_head.FRAMES_PER_GROUP", group)
    case = load_case(name)
    config = case.config
    head = DPTHead(
        config["dim"], features=config["features"], channels=tuple(config["out_channels"])
    )
    head.load_state_dict(case.weights)
    maps = head([case[f"in.tokens{i}"] for i in range(4)], *config["size"])
    case.check(maps.depth[None], "out.depth")
    case.check(maps.confidence[None], "out.depth_conf")


def test_selected_layers_come_from_the_configuration():
    """Fault 19: neither heads nor selected layers are fixed."""
    base = AggregatorBase(depth=8, num_heads=3, head_dim=32, selected_layers=(0, 3, 5, 7))
    tokens = torch.randn(1, 1, 10, 96)
    rope = base.frame_rope((2, 2), torch.device("cpu"))
    from lingbot_map_ros.layers.attention import full_attention

    outputs = base.run_blocks(tokens, rope, None, lambda _: full_attention)
    assert [tuple(o.shape) for o in outputs] == [(1, 1, 10, 192)] * 4
    with pytest.raises(ConfigurationError, match="exceed depth"):
        AggregatorBase(depth=4, num_heads=1, selected_layers=(0, 1, 2, 4))


def test_normalisation_constants_stay_float32():
    """Fault 22: casting the trunk must not round the image statistics."""
    stream = AggregatorStream(depth=4, num_heads=1, use_sdpa=True, dtype=torch.bfloat16)
    assert stream.image_mean.dtype == torch.float32
    assert stream.image_mean.flatten().tolist() == pytest.approx([0.485, 0.456, 0.406])
    assert "image_mean" not in stream.state_dict()
