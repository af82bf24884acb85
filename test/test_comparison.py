# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What a frame and the one before it say of each other, on renderings with exact geometry."""

import math
import types
from functools import lru_cache

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

from lingbot_map_ros.geometry.poses import make_pose
from lingbot_map_ros.models.prediction import Prediction
from lingbot_map_ros.streaming import block_matching, summary_recorder
from lingbot_map_ros.streaming.comparison import Comparison, Sketch, compare
from lingbot_map_ros.streaming.frame import Frame
from lingbot_map_ros.streaming.guard import MAX_LOG_SCALE, MIN_AGREEMENT
from lingbot_map_ros.streaming.summary import summarize, thumbnail_stride
from lingbot_map_ros.streaming.summary_recorder import SummaryRecorder
from lingbot_map_ros.synthetic.sequence import HELD_OUT, make_sequence

WIDTH, HEIGHT = 210, 126


@lru_cache
def rooms():
    return [make_sequence(HELD_OUT + 40 + i, 8, WIDTH, HEIGHT, "drive", 1.0) for i in range(3)]


def tensor_of(image):
    return torch.from_numpy(np.ascontiguousarray(image)).permute(2, 0, 1).float() / 255


def thumbnail(image):
    pose = torch.zeros(1, 9)
    return summarize([tensor_of(image)], Prediction(pose, None, None, ())).thumbnails[0]


def sketch(room, i, image=None, depth=None):
    """What is exactly true of a frame, unless another image or depth is given."""
    grey = thumbnail(room.images[i] if image is None else image)
    stride = thumbnail_stride(WIDTH)
    K = room.intrinsics.copy()
    K[:2, 2] -= (stride - 1) / 2
    K[:2] /= stride
    half, (height, width) = stride // 2, grey.shape
    depth = (room.depth[i] if depth is None else depth)[half::stride, half::stride]
    return Sketch(
        grey,
        torch.from_numpy(depth[:height, :width].copy()),
        torch.from_numpy(room.poses[i]),
        torch.from_numpy(K),
    )


def moved(frame, pose):
    return frame._replace(pose=frame.pose @ torch.from_numpy(pose))


def said(last, frame, **limit):
    compared = compare(last, frame, **limit)
    return None if compared is None else Comparison.of(compared.numpy())


def agreement(last, frame):
    compared = said(last, frame)
    return compared and compared.agreement


@pytest.mark.parametrize("gap", [1, 4])
def test_views_of_one_scene_agree(gap):
    for room in rooms():
        shares = [agreement(sketch(room, i), sketch(room, i + gap)) for i in range(8 - gap)]
        assert min(shares) > 0.6, shares


def test_other_scenes_and_noise_do_not():
    noise = np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
    shares = []
    for room, other in zip(rooms(), rooms()[1:] + rooms()[:1], strict=True):
        last = sketch(room, 0)
        assert agreement(last, sketch(room, 1, noise)) == 0.0
        images = [other.images[i] for i in range(8)] + [
            room.images[1][::-1],
            room.images[1][:, ::-1],
        ]
        shares += [agreement(last, sketch(room, 1, image)) for image in images]
    assert np.mean(np.array(shares) < MIN_AGREEMENT) > 0.9 and max(shares) < 0.4, shares


@pytest.mark.parametrize("grey", [0, 20, 128, 235, 255])
def test_an_area_of_one_grey_level_agrees_with_nothing(grey):
    for room, other in zip(rooms(), rooms()[1:] + rooms()[:1], strict=True):
        for i in range(8):
            image = other.images[i].copy()
            image[: 3 * HEIGHT // 5] = grey
            assert agreement(sketch(room, 0), sketch(room, 1, image)) < MIN_AGREEMENT


def test_neither_exposure_nor_a_small_error_of_the_pose_matters():
    room = rooms()[0]
    last, frame = sketch(room, 2), sketch(room, 3)
    darker = sketch(room, 3, (0.5 * room.images[3] + 10).astype(np.uint8))
    assert agreement(last, darker) > 0.6
    for degrees in (2, 4, 6):
        turned = moved(frame, _turn(np.radians(degrees)))
        assert agreement(last, turned) > 0.5, degrees
    # More than any error of a pose: what is compared are other parts of the room.
    turned = moved(frame, _turn(np.radians(11)))
    assert agreement(last, turned) < 0.4


def _turn(angle):
    c, s = np.cos(angle), np.sin(angle)
    return make_pose(np.array([[c, 0, s], [0, 1, 0], [-s, 0, c]]), np.zeros(3))


def test_either_frame_may_lack_depth_but_not_both():
    room = rooms()[1]
    last, frame = sketch(room, 4), sketch(room, 5)
    without = frame._replace(depth=None)
    assert agreement(last, without) > 0.6
    assert agreement(last._replace(depth=None), without) is None


def test_nothing_is_said_after_a_large_motion_or_of_a_bare_wall():
    room = rooms()[2]
    last, frame = sketch(room, 4), sketch(room, 5)
    assert agreement(last, moved(frame, _turn(np.radians(40)))) is None
    behind = moved(frame, make_pose(np.diag([-1.0, 1.0, -1.0]), np.zeros(3)))
    assert agreement(last, behind) is None
    bare = np.full((HEIGHT, WIDTH, 3), 128, np.uint8)
    assert agreement(sketch(room, 4, bare), sketch(room, 5, bare)) is None


def test_a_unit_that_jumps_is_seen_and_a_passer_by_is_not():
    room = rooms()[1]
    last, frame = sketch(room, 2), sketch(room, 3)
    assert abs(said(last, frame).log_scale) < 0.02
    doubled = frame._replace(depth=2 * frame.depth)
    assert said(last, doubled).log_scale == pytest.approx(np.log(2), abs=0.1)
    assert abs(said(last, doubled).log_scale) > MAX_LOG_SCALE
    # Somebody stands before a third of the view, much nearer than the wall.
    image, depth = room.images[3].copy(), room.depth[3].copy()
    image[:, :70], depth[:, :70] = image[::-1, :70], 0.5
    passer = sketch(room, 3, image, depth)
    assert abs(said(last, passer).log_scale) < 0.1
    assert said(last._replace(depth=None), frame).log_scale is None


def test_a_search_that_is_not_needed_changes_nothing(monkeypatch):
    """A GPU searches always, for that is done before it could be asked."""
    room, other = rooms()[:2]
    last, images = sketch(room, 2), (room.images[3], other.images[3], room.images[3][::-1])
    frames = [moved(sketch(room, 3, i), _turn(a)) for i in images for a in (0.0, 0.05, 0.1)]
    frames += [frame._replace(depth=None) for frame in frames]
    lazy = [said(last, frame, max_flow=math.inf) for frame in frames]
    monkeypatch.setattr(block_matching, "_answers_at_once", lambda device: False)
    assert [said(last, frame, max_flow=math.inf) for frame in frames] == lazy
    shares = [compared.agreement for compared in lazy]
    assert min(shares) < block_matching.CLEAR < max(shares)


class NoWaiting(TorchFunctionMode):
    """Refuses what uploads a number and waits for that on a GPU, where no device can tell."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.__setitem__:
            assert isinstance(args[2], torch.Tensor), "a number is put into a tensor"
        if func is torch.where:
            assert all(isinstance(x, torch.Tensor) for x in args), "numbers in torch.where"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("depths", [(True, True), (True, False), (False, True), (False, False)])
def test_nothing_waits_for_the_device_or_leaves_it(depths):
    """Tensors without values, which answer no question and go with no others."""
    device, last = torch.device("meta"), None
    image = torch.empty(3, 378, 504, device=device)
    with NoWaiting():
        for has_depth in depths:
            said = prediction_on(device, has_depth)
            summary = summarize([image], said, last)
            assert summary.figures.shape == (1, 12 if has_depth else 9)
            assert {part.device for part in summary if part is not None} == {device}
            last = summary.sketch(0)
    assert (summary.compared is None) == (depths == (False, False))


def prediction_on(device, has_depth=True):
    depth, confidence = torch.ones(2, 1, 378, 504, device=device) if has_depth else (None, None)
    return Prediction(torch.ones(1, 9, device=device), depth, confidence, ())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_gpu_says_the_same():
    room, other = rooms()[:2]
    last = sketch(room, 2)
    for image in (room.images[3], other.images[3]):
        frame = sketch(room, 3, image)
        compared = compare(*(Sketch(*(tensor.cuda() for tensor in s)) for s in (last, frame)))
        np.testing.assert_allclose(compared.cpu(), compare(last, frame), atol=0.05)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("depths", [(True, True), (True, False), (False, True)])
@pytest.mark.parametrize("recorded", [False, True])
def test_a_gpu_is_not_waited_for(depths, recorded):
    device = torch.device("cuda", torch.cuda.device_count() - 1)
    reduce = SummaryRecorder(device) if recorded else summarize

    def run():
        last = None
        for has_depth in depths:
            image = torch.rand(3, 378, 504, device=device)
            Frame(0, 0, image, 50.0).on_device()
            summary = reduce([image], prediction_on(device, has_depth), last, 0.5)
            last = summary.sketch(0)
        return summary

    for _ in range(3):  # uploads constants, records
        run()
    torch.cuda.set_sync_debug_mode("error")
    try:
        summary = run()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert summary.compared.device == device


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_replay_says_what_it_would_say_anew():
    """Frame after frame, so that nothing of an old one may be left in what was handed out."""
    pairs = summaries(SummaryRecorder(torch.device("cuda")), torch.device("cuda"))
    for replayed, anew in pairs:
        for ours, theirs in zip(replayed, anew, strict=True):
            torch.testing.assert_close(ours, theirs, equal_nan=True)


def summaries(recorder, device):
    """Summaries by the recorder and anew, of images of two sizes that move by half their width."""
    room, last, pairs = rooms()[0], None, []
    for i, max_flow in enumerate(2 * (0.5, 0.5, 0.5, math.inf, 0.5, math.inf, math.inf, 0.5)):
        rows = slice(None if i < 8 else 98)
        depth = torch.from_numpy(room.depth[i % 8, rows])[None].float().to(device)
        pose = torch.tensor([[0.1 * i, 0, 0, 0, 0.3 * (i % 2), 0, 1, 0.9, 1.1]], device=device)
        said = Prediction(pose, depth, 1 + depth, ())
        image = [tensor_of(room.images[i % 8, rows]).to(device)]
        last = None if i == 8 else last
        anew = summarize(image, said, last, max_flow)
        pairs.append((recorder(image, said, last, max_flow), anew))
        last = anew.sketch(0)
    told = {bool(anew.compared[0]) for _, anew in pairs if anew.compared is not None}
    assert told == {True, False}, "what may move decides"
    return pairs


class Tape:
    """Stands for graphs: what is recorded for a key is replayed on the same buffers."""

    made = 0

    def __init__(self, device):
        Tape.made += 1
        self.functions = {}

    def run(self, key, function):
        outputs = self.functions.setdefault(key, function)()
        return tuple(output.clone() for output in outputs)


def test_what_is_recorded_is_told_apart_by_size_and_motion(monkeypatch):
    monkeypatch.setattr(summary_recorder, "FrameGraphs", Tape)
    Tape.made = 0
    for replayed, anew in summaries(SummaryRecorder(types.SimpleNamespace(type="cuda")), "cpu"):
        for ours, theirs in zip(replayed, anew, strict=True):
            torch.testing.assert_close(ours, theirs, equal_nan=True)
    assert Tape.made == 3, "at first, and anew for each size"


def test_without_a_gpu_nothing_is_recorded(monkeypatch):
    monkeypatch.setattr(summary_recorder, "FrameGraphs", Tape)
    monkeypatch.setattr(Tape, "run", None)
    for ours, theirs in summaries(SummaryRecorder(torch.device("cpu")), "cpu"):
        torch.testing.assert_close(ours.compared, theirs.compared, equal_nan=True)


@pytest.mark.parametrize("size", [(42, 56), (70, 112), (378, 504), (14, 14)])
def test_thumbnails_of_any_size(size):
    grey = thumbnail(np.random.default_rng(1).integers(0, 256, (*size, 3), np.uint8))
    height, width = grey.shape
    assert (height, width) == tuple(side // thumbnail_stride(size[1]) for side in size)
    assert width <= 140 and grey.min() >= 0 and grey.max() <= 255
