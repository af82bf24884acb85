# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Who gets which tracks: rooms and clouds, in training and in its validation."""

import time
from concurrent.futures import Future

import numpy as np
import pytest
import torch
from test_training_views import reprojection_error
from train_small import make_parser
from training import rooms, validation
from training.distributed import World
from training.loop import Trainer
from training.rooms import TRAINING, VALIDATION, RoomTracks, plan_track
from training.schedule import CONTINUED, FROM_BACKBONE
from training.store import Clips
from training.validation import Validation

from lingbot_map_ros.models.config import GCTConfig
from lingbot_map_ros.models.gct_stream import GCTStream
from lingbot_map_ros.synthetic.sequence import TEXTURES

CPU = torch.device("cpu")


class Pool:
    """Plans at once and in this process."""

    def __init__(self, *_):
        pass

    def submit(self, function, *arguments):
        future = Future()
        future.set_result(function(*arguments))
        return future

    def shutdown(self, **_):
        pass


@pytest.fixture
def planned(monkeypatch):
    """The arguments of every track that was planned; textures that take no time to make."""
    calls = []

    def plan(*arguments):
        calls.append(arguments)
        return plan_track(*arguments)

    noise = np.random.default_rng(0).integers(0, 256, (TEXTURES, 256, 256, 3), np.uint8)
    monkeypatch.setattr(rooms, "procedural_bank", lambda *_: noise)
    monkeypatch.setattr(rooms, "ProcessPoolExecutor", Pool)
    monkeypatch.setattr(rooms, "plan_track", plan)
    return calls


def test_rendered_clouds_are_consistent(planned):
    """Points of one frame fall on the surfaces of the next, which lies apart from it."""
    tracks = RoomTracks(2, (84, 140), 0, photographs=0, workers=1, clouds=1.0, difficulty=1.0)
    tracks.open(CPU, None, compiled=False)
    for _ in range(4):
        images, depth, poses, focal = tracks.render()
        assert images.float().std((1, 2, 3)).min() > 8, "there is something to see"
        clips = Clips(images[None], depth[None], poses[None], focal[None])
        standing = clips._replace(poses=poses[:1].expand(1, 2, 4, 4))
        assert reprojection_error(clips, 0, 1) < 0.01 < 0.05 < reprojection_error(standing, 0, 1)


def test_the_tracks_to_come_are_as_they_are_wanted_now(planned):
    tracks = RoomTracks(2, (14, 14), 3, photographs=0, workers=2)
    assert {call[-1] for call in planned} == {0.0}, "rooms unless told otherwise"
    assert max(call[3] for call in planned) <= 0.3
    tracks.open(CPU, None, compiled=False)
    tracks.clouds, tracks.difficulty = 0.7, 1.0
    before = len(planned)
    for _ in range(4):
        tracks.render()
    later = planned[before:]
    assert [call[-1] for call in later] == [0.7] * 4
    assert min(call[3] for call in later) >= 0.5
    assert [call[0] for call in planned] == [(TRAINING, 3, k) for k in range(before + 4)]


def test_a_training_begins_with_the_tracks_of_its_first_stage(planned, monkeypatch, tmp_path):
    options = ["--preset", "tiny", "--steps", "0", "--workers", "1", "--tracks", "1", "--output"]
    args = make_parser().parse_args([*options, str(tmp_path)])
    trainer = Trainer(args, World(0, 1), time.monotonic())
    assert trainer.course is FROM_BACKBONE
    trainer.course = CONTINUED
    rendered = []

    def render():
        rendered.append((trainer.rooms.difficulty, trainer.rooms.clouds))
        return 0, 0, 0, 0

    monkeypatch.setattr(trainer.rooms, "render", render)
    monkeypatch.setattr(trainer, "save", lambda: None)
    monkeypatch.setattr(trainer, "evaluate", lambda progress: None)
    monkeypatch.setattr(trainer.checkpoints, "plot", lambda: None)
    trainer.run()
    trainer.close()
    first = CONTINUED.stages[0]
    assert rendered == [(first.difficulty, first.clouds)]


def test_validation_tells_rooms_from_clouds(planned, monkeypatch):
    monkeypatch.setattr(validation, "TRACKS", 1)
    measured = Validation(World(0, 1), (28, 42), None, frames=13)
    assert all(call[0][0] == VALIDATION and call[3] >= 0.5 for call in planned), "as hard as any"
    shares = {"evaluation": 0.0, "evaluation_clouds": 1.0}
    first = {kind: next(c for c in planned if c[-1] == share) for kind, share in shares.items()}
    measured.prepare(CPU)
    figures = measured.measure(GCTStream(GCTConfig.preset("tiny"), attention_backend="sdpa"))
    measured.close()
    assert figures.keys() == shares.keys()
    for kind, medians in figures.items():
        assert medians.keys() >= {"ate", "absrel", "absrel_image", "absrel_still"}
        assert np.isfinite(list(medians.values())).all()
        track = plan_track(*first[kind])
        centres = track.shot.path.poses(np.arange(13) / track.fps)[:, :3, 3]
        length = np.linalg.norm(np.diff(centres, axis=0), axis=1).sum()
        assert medians["path"] == pytest.approx(length, rel=1e-4), kind
