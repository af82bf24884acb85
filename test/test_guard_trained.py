# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The collapse guard with the trained model, on rooms and faults that it has never seen."""

import re
from contextlib import contextmanager, suppress

import cv2
import numpy as np
import pytest
import torch
from streams import PERIOD

from lingbot_map_ros.models.checkpoint import load_model
from lingbot_map_ros.streaming.results import SessionState
from lingbot_map_ros.streaming.session import SessionConfig, StreamingSession
from lingbot_map_ros.synthetic.sequence import HELD_OUT, KINDS, make_sequence

GOOD = 26
"""Images before the fault."""
LOST_AFTER = 3


class _BackError(Exception):
    pass


@pytest.fixture(scope="module")
def model():
    torch.set_num_threads(1)
    return load_model("builtin:small")


def render(model, seed, frames, kind, difficulty):
    width, height = model.config.image_size, model.config.image_height
    return make_sequence(HELD_OUT + seed, frames, width, height, kind, difficulty).images


@pytest.fixture(scope="module")
def images(model):
    return render(model, 860, GOOD + 8, "drive", 0.6)


@pytest.fixture(scope="module")
def elsewhere(model):
    return render(model, 861, 8, "corridor", 0.6)


@pytest.fixture(scope="module")
def tracking(model, images):
    """A session that has seen the good images; none of them was withheld."""
    session = StreamingSession(model, SessionConfig(lost_after=LOST_AFTER))
    answered = sum(len(session.step(images[i], i * PERIOD)) for i in range(GOOD))
    assert answered == GOOD and session.status().withheld == 0
    return session


@contextmanager
def forgotten(session):
    """What happens to the session inside is undone."""
    before = session._state
    try:
        with suppress(_BackError), session._model.transaction():
            yield
            raise _BackError
    finally:
        session._state = before


def feed(session, images, start=GOOD):
    return [len(session.step(image, (start + k) * PERIOD)) for k, image in enumerate(images)]


@pytest.mark.parametrize("kind", ["rotate", "handheld"])
def test_the_hardest_motion_is_believed(model, kind):
    session = StreamingSession(model)
    images = render(model, 870, GOOD, kind, 1.0)
    assert sum(feed(session, images, 0)) == GOOD and session.status().withheld == 0


WRONG = {
    "noise": lambda image: np.random.default_rng(0).integers(0, 256, image.shape, np.uint8),
    "black": np.zeros_like,
    "upside down": lambda image: image[::-1, ::-1].copy(),
}


@pytest.mark.parametrize("fault", WRONG)
def test_wrong_images_are_withheld_and_the_stream_goes_on(tracking, images, fault):
    with forgotten(tracking):
        wrong = [WRONG[fault](image) for image in images[GOOD : GOOD + 2]]
        assert feed(tracking, wrong) == [0, 0], tracking.status().last_reason
        assert tracking.state is SessionState.LOST
        (answered,) = feed(tracking, [images[GOOD + 2]], GOOD + 2)
        assert answered == 1 and tracking.state is SessionState.TRACKING
        assert tracking.status().segment == 0


def test_a_frozen_image_and_half_a_view_are_believed(tracking, images):
    covered = images[GOOD + 1].copy()
    covered[:, : covered.shape[1] // 3] = 0
    with forgotten(tracking):
        assert feed(tracking, [images[GOOD - 1]] * 3) == [1, 1, 1]
    with forgotten(tracking):
        assert feed(tracking, [images[GOOD], covered, images[GOOD + 2]]) == [1, 1, 1]


@pytest.mark.parametrize("scale", [0.5, 2.0, 1e3, float("nan")])
def test_output_that_breaks_down_is_withheld(tracking, images, model, scale):
    """The network itself fails: another unit at once, or no number."""
    with forgotten(tracking):
        handle = model.depth_head.register_forward_hook(
            lambda module, args, out: (out[0] * scale, *out[1:])
        )
        try:
            assert feed(tracking, [images[GOOD]]) == [0]
        finally:
            handle.remove()
        assert feed(tracking, [images[GOOD + 1]], GOOD + 1) == [1]


@pytest.mark.slow
def test_another_lens_is_withheld_more_often_than_believed(model):
    """In single rooms the network finds a step forwards that agrees."""

    def zoomed(image):
        height, width = image.shape[:2]
        y, x = height // 4, width // 4
        return cv2.resize(image[y : height - y, x : width - x], (width, height))

    answered = []
    for seed, kind in enumerate(KINDS, 860):
        images = render(model, seed, GOOD + 2, kind, 0.8)
        session = StreamingSession(model)
        assert sum(feed(session, images[:GOOD], 0)) == GOOD
        answered += feed(session, [zoomed(image) for image in images[GOOD:]])
    assert sum(answered) < len(answered) / 2, answered


def test_a_camera_that_is_carried_elsewhere_gets_a_segment_of_its_own(tracking, elsewhere):
    """The last test of the module: a new window empties the caches for good."""
    assert feed(tracking, elsewhere[:LOST_AFTER]) == [0] * LOST_AFTER
    assert re.search("another scene|confidence collapsed", tracking.status().last_reason)
    # The first image after that is shown to a window of the old keyframes, and begins anew.
    later = feed(tracking, elsewhere[LOST_AFTER : LOST_AFTER + 4], GOOD + LOST_AFTER)
    assert later == [0, 0, 0, 4]
    assert tracking.status().segment == 1 and tracking.state is SessionState.TRACKING
