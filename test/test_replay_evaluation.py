# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Trajectory errors by the evo programs, against numbers computed here."""

import ast
import json
from pathlib import Path

import numpy as np
import pytest

import lingbot_map_ros.replay as replay_package
from lingbot_map_ros.geometry.poses import make_pose, quaternion_to_matrix
from lingbot_map_ros.geometry.sim3 import umeyama
from lingbot_map_ros.mapping.export import write_tum
from lingbot_map_ros.replay import evaluation
from lingbot_map_ros.replay.evaluation import Evaluation, EvaluationError, evaluate, read_tum

START_NS = 1_700_000_000_000_000_000


def spiral(count=120):
    """Poses [count, 4, 4] along a spiral with a turning camera, at 10 Hz."""
    s = np.linspace(0, 4 * np.pi, count)
    t = np.stack((3 * np.cos(s), 2 * np.sin(s), 0.1 * s), -1)
    q = np.stack((0 * s, np.sin(s / 4), 0 * s, np.cos(s / 4)), -1)
    return START_NS + np.arange(count) * 100_000_000, make_pose(quaternion_to_matrix(q), t)


def test_a_scaled_copy_has_no_sim3_error_and_gives_its_scale(tmp_path):
    stamps, truth = spiral()
    R = quaternion_to_matrix(np.array([0.1, -0.4, 0.2, 0.9]))
    estimate = make_pose(R, np.array([1.0, 2.0, 3.0])) @ truth
    estimate[:, :3, 3] *= 0.25
    write_tum(tmp_path / "truth.tum", stamps, truth)
    write_tum(tmp_path / "estimate.tum", stamps + 3_000_000, estimate)
    found = evaluate(tmp_path / "truth.tum", tmp_path / "estimate.tum")
    summary = found.summary
    assert summary["poses"] == 120
    assert summary["scale"] == pytest.approx(4.0, rel=1e-6)
    assert summary["ate"]["sim3"]["rmse"] < 1e-6
    assert summary["ate"]["se3"]["rmse"] > 1.0
    assert summary["rpe_translation"]["sim3"]["rmse"] < 1e-6
    assert summary["rpe_rotation"]["sim3"]["max"] < 1e-4
    length = np.linalg.norm(np.diff(truth[:, :3, 3], axis=0), axis=1).sum()
    assert summary["path_length"] == pytest.approx(length, rel=1e-6)
    json.dumps(summary, allow_nan=False)
    text = (Path(__file__).parents[1] / "docs" / "replay.md").read_text()
    assert not [key for key in (*summary, *summary["ate"]["se3"]) if f"`{key}`" not in text]


def test_the_title_tells_alignment_error_and_share_of_the_way():
    summary = {"ate": {"sim3": {"rmse": 0.1154}}, "ate_percent": 2.158}
    known = Evaluation(summary, np.zeros(0), np.zeros(0), np.eye(4))
    assert known.title == "trajectory after Sim(3) alignment, ATE 0.115 m (2.16% of the way)"
    summary["ate_percent"] = None
    assert known.title == "trajectory after Sim(3) alignment, ATE 0.115 m"


def test_errors_equal_those_of_a_least_squares_alignment(tmp_path):
    stamps, truth = spiral()
    estimate = truth.copy()
    estimate[:, :3, 3] += np.random.default_rng(0).normal(0, 0.1, (len(truth), 3))
    write_tum(tmp_path / "truth.tum", stamps, truth)
    write_tum(tmp_path / "estimate.tum", stamps, estimate)
    found = evaluate(tmp_path / "truth.tum", tmp_path / "estimate.tum")
    for name, with_scale in (("sim3", True), ("se3", False)):
        fit = umeyama(estimate[:, :3, 3], truth[:, :3, 3], with_scale=with_scale)
        errors = np.linalg.norm(fit.apply(estimate[:, :3, 3]) - truth[:, :3, 3], axis=1)
        rmse = np.sqrt(np.mean(errors**2))
        assert found.summary["ate"][name]["rmse"] == pytest.approx(rmse, rel=1e-5)
        if with_scale:
            np.testing.assert_allclose(found.errors, errors, atol=1e-6)
            np.testing.assert_allclose(found.alignment[:3, :3], fit.scale * fit.R, atol=1e-6)
            np.testing.assert_allclose(found.alignment[:3, 3], fit.t, atol=1e-6)


def test_only_poses_of_the_same_time_are_compared(tmp_path):
    stamps, truth = spiral()
    write_tum(tmp_path / "truth.tum", stamps, truth)
    write_tum(tmp_path / "estimate.tum", stamps[20:60], truth[20:60])
    found = evaluate(tmp_path / "truth.tum", tmp_path / "estimate.tum")
    assert found.summary["poses"] == 40
    part = np.linalg.norm(np.diff(truth[20:60, :3, 3], axis=0), axis=1).sum()
    assert found.summary["path_length"] == pytest.approx(part, rel=1e-6)
    write_tum(tmp_path / "late.tum", stamps + 10**12, truth)
    with pytest.raises(EvaluationError, match="evo: "):
        evaluate(tmp_path / "truth.tum", tmp_path / "late.tum")


def test_what_is_no_trajectory_is_named(tmp_path):
    for name, content in (("text", "hello\n"), ("short", "1 2 3\n"), ("empty", "")):
        path = tmp_path / name
        path.write_text(content)
        with pytest.raises(EvaluationError, match=name):
            read_tum(path)
    with pytest.raises(EvaluationError, match="absent"):
        read_tum(tmp_path / "absent")


def test_a_missing_evo_is_said_with_the_command_that_helps(monkeypatch, tmp_path):
    monkeypatch.setattr(evaluation.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EvaluationError, match="pip install evo"):
        evaluation.find_evo()


def test_evo_is_never_imported():
    """It is GPL-licensed: a program beside this one, not a part of it."""
    for path in Path(replay_package.__file__).parents[1].rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.split(".")[0] == "evo" for name in names), path
