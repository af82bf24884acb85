# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Sessions against runs of the reference implementation."""

import numpy as np
import pytest
import torch
from golden import load_case
from streams import PERIOD, clip, golden_model

from lingbot_map_ros.geometry.poses import decode_pose, intrinsics_from_fov, invert
from lingbot_map_ros.streaming.session import SessionConfig, StreamingSession


def settings(run):
    if run["mode"] == "flow":
        return {
            "keyframe_mode": "motion",
            "keyframe_motion_px": run["flow_threshold"],
            "keyframe_max_gap": run["max_non_keyframe_gap"],
        }
    return {"keyframe_interval": run["keyframe_interval"]}


@pytest.mark.parametrize("name", ["a_kf1", "a_kf3", "a_flow"])
def test_session_reproduces_the_reference(name):
    case = load_case(name)
    session = StreamingSession(golden_model(case), SessionConfig(**settings(case.spec["run"])))
    results = [r for i, image in enumerate(clip()) for r in session.step(image, i * PERIOD)]
    assert [r.index for r in results] == list(range(20))

    case.check(torch.from_numpy(np.stack([r.depth for r in results])), "out.depth")
    case.check(torch.from_numpy(np.stack([r.confidence for r in results])), "out.depth_conf")
    poses, fov = decode_pose(case["out.pose_enc"].double().numpy())
    expected = invert(poses[0]) @ poses
    np.testing.assert_allclose([r.pose_map for r in results], expected, rtol=2e-4, atol=1e-4)
    np.testing.assert_array_equal(results[0].pose_map, results[0].pose_odom)
    K = intrinsics_from_fov(fov, (70, 112))
    np.testing.assert_allclose([r.intrinsics for r in results], K, rtol=2e-4, atol=2e-5)
    assert all((r.image == image).all() for r, image in zip(results, clip(), strict=True))
    if name == "a_flow":
        kept = [r.keyframe for r in results]
        assert kept == [True] * 3 + case.spec["kept"]
        assert session.drain_decisions() == []
    else:
        n = case.spec["run"]["keyframe_interval"]
        assert [r.keyframe for r in results] == [i < 3 or (i - 3) % n == 0 for i in range(20)]
