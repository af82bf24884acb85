# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The whole network against runs of the reference implementation."""

import os
from pathlib import Path

import pytest
import torch
from golden import ROOT, load_arrays, load_case, load_clip, load_weights, model_config

from lingbot_map_ros.models.gct_stream import GCTStream

# Runs of the ViT model are too large for the repository; whoever has them names their folder.
EXTRA = Path(os.environ.get("LINGBOT_GOLDEN", Path(__file__).parents[2] / "shared/model/golden"))


def build(case, root=ROOT):
    model = GCTStream(model_config(case.config), attention_backend="sdpa")
    model.load_state_dict(load_weights(case, root))
    return model


def collect(predictions):
    return {
        "out.pose_enc": torch.cat([p.pose_enc for p in predictions]),
        "out.depth": torch.cat([p.depth for p in predictions]),
        "out.depth_conf": torch.cat([p.confidence for p in predictions]),
    }


def check_all(case, results):
    for name, value in results.items():
        case.check(value, name)


def run_interval(model, clip, scale, interval):
    predictions = [model.step(clip[:scale])]
    for i, frame in enumerate(clip[scale:]):
        mode = "keyframe" if i % interval == 0 else "skip"
        predictions.append(model.step(frame[None], mode))
    return predictions


@pytest.mark.parametrize("name", ["a_kf1", "a_kf3"])
def test_streaming(name):
    case = load_case(name)
    run = case.spec["run"]
    model = build(case)
    clip = load_clip(case)
    check_all(
        case, collect(run_interval(model, clip, run["num_scale_frames"], run["keyframe_interval"]))
    )
    if name == "a_kf3":
        assert model.num_frames == model.camera_head.cache.length == 9
        assert model.camera_head.cache.frame_index == 20


@pytest.mark.parametrize("name", ["b_kf1", "b_kf3"])
def test_streaming_with_vit(name):
    if not (EXTRA / "weights" / "model_b.safetensors").exists():
        pytest.skip(f"vectors of the ViT model are not in {EXTRA} (set LINGBOT_GOLDEN)")
    case = load_case(name, EXTRA)
    run = case.spec["run"]
    predictions = run_interval(
        build(case, EXTRA),
        load_clip(case, EXTRA),
        run["num_scale_frames"],
        run["keyframe_interval"],
    )
    check_all(case, collect(predictions))
    if "taps" not in case.spec:
        return
    taps = load_arrays(EXTRA / case.spec["taps"])
    model = build(case, EXTRA)
    clip = load_clip(case, EXTRA)
    outputs = model.aggregator(clip[None, :3])
    for i, output in enumerate(outputs):
        torch.testing.assert_close(output[0], taps[f"call0.layer{i}"], atol=2e-5, rtol=2e-4)


def test_deferred_decisions():
    case = load_case("a_deferred")
    run = case.spec["run"]
    model = build(case)
    clip = load_clip(case)
    predictions = [model.step(clip[: run["num_scale_frames"]])]
    frames = clip[run["num_scale_frames"] :]
    for frame, decision in zip(frames, run["decisions"], strict=True):
        predictions.append(model.step(frame[None], "pending"))
        if decision == "keep":
            assert model.commit() == 1
        else:
            model.rollback()
    check_all(case, collect(predictions))


def test_published_calls_equal_steps():
    """``forward`` and ``inference_streaming`` give the golden numbers too."""
    case = load_case("a_kf3")
    model = build(case)
    clip = load_clip(case)
    result = model.inference_streaming(clip, num_scale_frames=3, keyframe_interval=3)
    case.check(result["pose_enc"][0], "out.pose_enc")
    case.check(result["depth"][0, ..., 0], "out.depth")
    case.check(result["depth_conf"][0], "out.depth_conf")
    moved = model.inference_streaming(
        clip, num_scale_frames=3, keyframe_interval=3, output_device=torch.device("cpu")
    )
    assert torch.equal(moved["pose_enc"], result["pose_enc"])
    assert model.num_frames == 0

    model.clean_kv_cache()
    first = model.forward(clip[None, :3], num_frame_for_scale=3, num_frame_per_block=3)
    second = model.forward(clip[None, 3:4], num_frame_for_scale=3, num_frame_per_block=1)
    assert first["depth"].shape == (1, 3, 70, 112, 1)
    assert len(second["pose_enc_list"]) == 4
    kf1 = load_case("a_kf1")
    torch.testing.assert_close(
        torch.cat((first["pose_enc"][0], second["pose_enc"][0])),
        kf1["out.pose_enc"][:4],
        atol=2e-5,
        rtol=2e-4,
    )


def test_without_causal_inference_the_camera_head_keeps_nothing():
    case = load_case("a_kf1")
    model = build(case)
    clip = load_clip(case)
    result = model.forward(
        clip[None, :3], num_frame_for_scale=3, num_frame_per_block=3, causal_inference=False
    )
    torch.testing.assert_close(
        result["pose_enc"][0], case["out.pose_enc"][:3], atol=2e-5, rtol=2e-4
    )
    assert model.camera_head.cache.length == 0
    assert model.num_frames == 3
