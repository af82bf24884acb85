# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What is trained when: from short gentle clips to long streams, and the learning rate.

``FROM_BACKBONE`` teaches a network that knows images only; ``CONTINUED`` goes on with one that can
stream already, with long streams from the start.
"""

import math
import random
from dataclasses import dataclass
from typing import NamedTuple

from lingbot_map_ros.models.clip import ClipLayout

SCALE_FRAMES, WINDOW = 4, 16
WARM_UP_STEPS = 150
FINAL_RATE = 0.01


class Lesson(NamedTuple):
    """A layout, how often it is drawn, and how many frames of a track one step may leap."""

    weight: float
    layout: ClipLayout
    max_stride: int


@dataclass(frozen=True)
class Stage:
    """Lessons to draw from until ``until`` (share of the training)."""

    until: float
    lessons: tuple[Lesson, ...]
    difficulty: float
    openarena: float
    altered: float = 1.0  # share of the clips whose colours ``augment`` alters
    clouds: float = 0.0  # share of the other clips that lead through clouds, not rooms


@dataclass(frozen=True)
class Course:
    """Stages in turn, and the highest learning rate that suits where they start from."""

    stages: tuple[Stage, ...]
    rate: float

    def stage(self, progress: float) -> Stage:
        """Stage at ``progress`` in [0, 1]."""
        return next((s for s in self.stages if progress < s.until), self.stages[-1])


def _lesson(
    weight: float, frames: int, first_call: int, window: int, interval: int = 1, stride: int = 3
) -> Lesson:
    layout = ClipLayout(frames, first_call, SCALE_FRAMES, window, interval)
    return Lesson(weight, layout, stride)


# Each length of clip is compiled for, so there are few.
_SHORT = (_lesson(3, 12, 4, 4), _lesson(1, 12, 2, 8), _lesson(1, 12, 1, 6))
_MIDDLE = (
    _lesson(3, 30, 4, 8),
    _lesson(3, 30, 4, WINDOW),
    _lesson(1, 30, 1, 12),
    _lesson(1, 30, 4, 6, interval=2),
)
_STREAM = (
    _lesson(4, 120, 4, WINDOW, stride=1),
    _lesson(1, 120, 1, WINDOW, stride=1),
    _lesson(1, 120, 4, 12, stride=1),
)

# Photographs of a walk turn by 20 to 30 degrees from one to the next; so does a hard track when 8
# frames of it are leapt at a time.
_FAR_APART = (_lesson(2, 16, 4, WINDOW, stride=8), _lesson(1, 16, 1, 8, stride=8))
_CONTINUED = (
    _lesson(7, 120, 4, WINDOW, stride=1),
    _lesson(2, 40, 4, WINDOW),
    _lesson(1, 40, 1, 12, interval=2),
    *_FAR_APART,
)

FROM_BACKBONE = Course(
    (
        Stage(0.15, _SHORT, 0.6, 0.0),
        Stage(0.30, _SHORT, 0.8, 0.25),
        Stage(0.60, _MIDDLE, 1.0, 0.35),
        Stage(0.80, (*_MIDDLE, *_STREAM), 1.0, 0.35),
        Stage(1.00, (*_STREAM, *_FAR_APART), 1.0, 0.35),
    ),
    rate=1e-3,
)
# A rate of 6e-4 undid what the weights knew: two fifths of eight minutes went into relearning it.
# Towards the end half of the clips look as they were rendered: altered colours teach not to rely on
# them, and cost accuracy where a camera is good.
# Until then most clips lead through clouds, where nothing but motion tells depth.
CONTINUED = Course(
    (
        Stage(0.60, _CONTINUED, 1.0, 0.4, clouds=0.7),
        Stage(1.00, _CONTINUED, 1.0, 0.6, altered=0.5, clouds=0.4),
    ),
    rate=2e-4,
)


def draw_lesson(stage: Stage, step: int, budget: int) -> Lesson:
    """Lesson of a step, the same on every rank, of those whose clips fit ``budget`` frames."""
    fitting = [lesson for lesson in stage.lessons if lesson.layout.frames <= budget]
    lessons = fitting or [_lesson(1, min(budget, 12), 1, 4)]
    return random.Random(step).choices(lessons, [lesson.weight for lesson in lessons])[0]


def rate_factor(step: int, progress: float) -> float:
    """Learning rate relative to its maximum: linear warm-up by steps, cosine by progress."""
    warm = min(1.0, (step + 1) / WARM_UP_STEPS)
    cosine = 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))
    return warm * (FINAL_RATE + (1 - FINAL_RATE) * cosine)
