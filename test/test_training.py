# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The training script on a CPU, its losses, and the accuracy of the weights that ship."""

import csv
import hashlib
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = ROOT / "scripts"
sys.path.insert(0, str(SCRIPTS))

from training.losses import (  # noqa: E402
    WORST,
    depth_losses,
    make_targets,
    pose_losses,
    total_loss,
)
from training.metrics import rotation_rpe, sequence_metrics  # noqa: E402
from training.network import ClipTrainer, continued_model  # noqa: E402
from training.optimisers import Optimisers, _orthogonal  # noqa: E402
from training.readouts import AuxiliaryHeads  # noqa: E402

from lingbot_map_ros.geometry.poses import encode_pose  # noqa: E402
from lingbot_map_ros.models.checkpoint import load_model  # noqa: E402
from lingbot_map_ros.models.config import PRESETS  # noqa: E402
from lingbot_map_ros.models.quantize import load_quantized  # noqa: E402
from lingbot_map_ros.synthetic.sequence import HELD_OUT, make_sequence  # noqa: E402

CPU = torch.device("cpu")
WEIGHTS = ROOT / "lingbot_map_ros" / "weights"
# What evaluate_small's figures were on this sequence when the weights were made.
RECORDED = {"ate": 0.01874, "absrel": 0.04967}
TOLERANCE = 0.10


@pytest.fixture(scope="module")
def clip():
    return make_sequence(HELD_OUT + 900, 40, 210, 126, "drive", 0.6)


def truth_as_prediction(s, scale=1.0):
    poses = np.linalg.inv(s.poses[0]) @ s.poses
    poses[:, :3, 3] *= scale
    intrinsics = np.broadcast_to(s.intrinsics, (len(poses), 3, 3))
    return encode_pose(poses, intrinsics, s.depth.shape[1:])


def targets(s):
    focal = torch.tensor([[s.intrinsics[0, 0], s.intrinsics[1, 1]]], dtype=torch.float32)
    return make_targets(
        torch.from_numpy(s.poses).float()[None], torch.from_numpy(s.depth)[None], focal, 4
    )


def test_losses_vanish_at_the_truth_and_only_there(clip):
    target = targets(clip)
    fov = target.fov[:, None].expand(-1, len(clip), -1)
    encoding = torch.cat((target.translation, target.quaternion, fov), -1)[None]
    perfect = pose_losses(encoding, target)
    assert all(value < 2e-3 for value in perfect.values())
    off = encoding.clone()
    off[..., 3] += 0.05
    worse = pose_losses(off, target)
    assert worse["rotation"] > 0.05 and worse["translation"] == perfect["translation"]
    depth = target.depth[0]
    assert depth_losses(depth, torch.ones_like(depth), depth)["depth"].abs() < 1e-6
    farther = depth_losses(1.1 * depth, torch.ones_like(depth), depth)
    assert farther["relative_depth"] == pytest.approx(0.1)


def test_relative_depth_counts_too_far_more_and_has_an_end():
    depth = torch.linspace(1, 5, 32 * 32).view(1, 32, 32)

    def loss(said):
        return depth_losses(said, torch.ones_like(depth), depth)["relative_depth"]

    assert loss(1.5 * depth) == pytest.approx(0.5) and loss(depth / 1.5) == pytest.approx(1 / 3)
    assert loss(9 * depth) == loss(7 * depth) == pytest.approx(WORST - 1)
    far = (1e30 * depth).requires_grad_()
    loss(far).backward()
    assert torch.isfinite(far.grad).all()


def test_flow_and_points_of_the_auxiliary_heads_fit_the_truth(clip):
    """With a standing camera there is no flow, with a moving one there is."""
    torch.manual_seed(0)
    target = targets(clip)
    heads = AuxiliaryHeads(8, 1)
    with torch.no_grad():
        for parameter in heads.parameters():
            parameter.zero_()
    outputs = [torch.zeros(1, len(clip), 6 + 135, 8)]
    previous = torch.arange(len(clip)) - 1
    moving = heads(outputs, target, previous.clamp(min=0), 6)
    standing = heads(outputs, target, torch.arange(len(clip)), 6)
    assert standing["flow"] < 1e-4 < 0.05 < moving["flow"]
    assert standing["motion"] < 1e-4 < 1e-3 < moving["motion"]
    assert total_loss(moving) > total_loss(standing)


def test_metrics_of_the_truth_are_perfect_in_any_unit(clip):
    fov = 2 * np.arctan(np.array([126, 210]) / 2 / np.diag(clip.intrinsics)[[1, 0]])
    figures = sequence_metrics(
        truth_as_prediction(clip, 0.3), 0.3 * clip.depth, clip.poses, clip.depth, fov
    )
    assert max(figures["ate"], figures["absrel"]) < 1e-5
    assert max(figures["rpe_deg"], figures["fov_deg"]) < 1e-4
    assert rotation_rpe(clip.poses[::-1], clip.poses) > 0.1


def test_orthogonal_updates():
    torch.manual_seed(0)
    for shape in ((3, 16, 64), (2, 64, 16)):
        update = _orthogonal(torch.randn(shape))
        singular = torch.linalg.svdvals(update)
        assert singular.min() > 0.5 and singular.max() < 1.3


def test_one_update_moves_no_output_far():
    """All entries of a row may pull the same way, over hundreds of inputs that do not vary."""
    trainer = ClipTrainer(continued_model(PRESETS["small"], WEIGHTS / "small.safetensors", CPU))
    parameters = dict(trainer.named_parameters())
    names = [
        "model.aggregator.patch_embed.blocks.0.mlp.fc1.weight",
        "model.aggregator.global_blocks.0.attn.qkv.weight",
        "model.camera_head.pose_branch.fc1.weight",
        "model.camera_head.pose_branch.fc2.weight",
    ]
    before = {name: parameters[name].detach().clone() for name in names}
    torch.manual_seed(0)
    optimisers = Optimisers(trainer, rate=1e-3, backbone_rate=0.2)
    for parameter in optimisers.parameters:
        parameter.grad = torch.ones_like(parameter) + 0.1 * torch.randn_like(parameter)
    optimisers.step(1.0, torch.tensor(True))
    for name in names:
        change = parameters[name].detach() - before[name]
        shift = change.sum(1).abs().mean()
        rate = 2e-4 if "patch_embed" in name else 1e-3
        adam = rate * change.shape[1]
        assert 0 < shift < 0.2 * adam, name
    assert all(p.grad is None for p in optimisers.parameters)


def test_unsound_gradients_change_nothing():
    trainer = ClipTrainer(continued_model(PRESETS["small"], WEIGHTS / "small.safetensors", CPU))
    optimisers = Optimisers(trainer, rate=1e-3, backbone_rate=0.2)
    before = [p.detach().clone() for p in optimisers.parameters]
    for parameter in optimisers.parameters:
        parameter.grad = torch.ones_like(parameter)
    optimisers.step(0.0, torch.tensor(True))
    for parameter in optimisers.parameters:
        parameter.grad = torch.full_like(parameter, torch.nan)
    optimisers.step(1.0, torch.tensor(False))
    assert all(torch.equal(a, b) for a, b in zip(before, optimisers.parameters))


def train(output, *options):
    """Two steps of the smallest preset on the CPU; what the program logged."""
    command = [sys.executable, SCRIPTS / "train_small.py", "--preset", "tiny", "--steps", "2"]
    command += ["--frames", "12", "--tracks", "1", "--workers", "1", "--output", output, *options]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def write_clip(path, side, frames, bend=1.0):
    """A clip of the form that openarena_clips.py writes: a walk towards a wall of noise."""
    path.parent.mkdir(parents=True, exist_ok=True)
    poses = np.tile(np.eye(4, dtype=np.float32), (frames, 1, 1))
    poses[:, 2, 3] = np.linspace(0, 3, frames)
    poses[:, 0, 3] = bend * np.sin(poses[:, 2, 3])
    np.savez(
        path,
        images=np.random.default_rng(0).integers(0, 255, (frames, side, side, 3), np.uint8),
        depth=np.broadcast_to(5 - poses[:, 2, 3, None, None], (frames, side, side)).astype("f2"),
        poses=poses,
        focal=np.full(2, side / 2, np.float32),
    )


@pytest.mark.slow
def test_smoke_run_resumed_and_continued_from_exported_weights(tmp_path):
    first, second, clips = tmp_path / "first", tmp_path / "second", tmp_path / "clips"
    for number in range(4):
        write_clip(clips / "train" / f"map_{number}.npz", 168, 160)
    write_clip(clips / "validation" / "map_0.npz", 112, 24)
    write_clip(clips / "validation" / "map_1.npz", 112, 24, bend=0.0)
    train(first)
    messages = train(first, "--openarena", clips)
    assert "resumed at step 2" in messages
    assert "a clip is not evaluated" in messages, "a straight line has no alignment"
    with (first / "log.csv").open() as file:
        rows = list(csv.reader(file))
    assert {row[1] for row in rows if row[0] == "evaluation"} == {"2", "4"}
    maps = {row[3]: float(row[4]) for row in rows if row[0] == "evaluation_openarena"}
    assert maps.keys() >= {"ate", "absrel", "fov_deg"}
    assert all(map(math.isfinite, maps.values()))
    weights = first / "small.safetensors"
    assert load_model(weights).config.image_size == 112
    train(second, "--weights", weights, "--export", tmp_path / "parts")
    before, _ = load_quantized(weights)
    after, _ = load_quantized(second / "small.safetensors")
    largest = max(float((after[name] - before[name]).abs().max()) for name in before)
    assert 0 < largest < 0.05, "two steps of a warm-up move the weights, but not far"
    parts = sorted((tmp_path / "parts").glob("small.safetensors.*"))
    joined = b"".join(part.read_bytes() for part in parts)
    assert joined == (second / "small.safetensors").read_bytes()


def test_shipped_file_has_the_recorded_digest_and_size():
    path = WEIGHTS / "small.safetensors"
    digest, name = (WEIGHTS / "SHA256SUMS").read_text().split()
    assert name == path.name
    assert hashlib.sha256(path.read_bytes()).hexdigest() == digest
    assert path.stat().st_size <= 48_000_000


def test_accuracy_of_the_shipped_weights(clip):
    """Streamed with a window shorter than the sequence; what was recorded, within a tenth."""
    figures = shipped_figures(clip)
    for name, recorded in RECORDED.items():
        assert figures[name] <= recorded * (1 + TOLERANCE), figures


def shipped_figures(s) -> dict[str, float]:
    model = load_model("builtin:small")
    images = torch.from_numpy(s.images).permute(0, 3, 1, 2).float() / 255
    calls = [images[:4], *images[4:].split(1)]
    predictions = [model.step(call) for call in calls]
    pose_enc = torch.cat([p.pose_enc for p in predictions]).numpy()
    depth = torch.cat([p.depth for p in predictions]).numpy()
    focal = np.diag(s.intrinsics)
    fov = 2 * np.arctan(np.array([126, 210]) / 2 / focal[[1, 0]])
    return sequence_metrics(pose_enc, depth, s.poses, s.depth, fov)
