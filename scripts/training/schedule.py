# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What is trained when: from short gentle clips to long streams, and the learning rate.

``FROM_BACKBONE`` teaches a network that knows images only; ``CONTINUED`` goes on with one that can
stream already, with long streams from the start.
"""

import math
import random
from dataclasses import dataclass

from lingbot_map_ros.models.clip import ClipLayout

SCALE_FRAMES, WINDOW = 4, 16
WARM_UP_STEPS = 150
FINAL_RATE = 0.01


@dataclass(frozen=True)
class Stage:
    """Layouts to draw from, with weights, until ``until`` (share of the training)."""

    until: float
    layouts: tuple[tuple[float, ClipLayout], ...]
    max_stride: int
    difficulty: float
    openarena: float


def _layout(frames: int, first_call: int, window: int, interval: int = 1) -> ClipLayout:
    return ClipLayout(frames, first_call, SCALE_FRAMES, window, interval)


# Each length of clip is compiled for, so there are few.
_SHORT = ((3, _layout(12, 4, 4)), (1, _layout(12, 2, 8)), (1, _layout(12, 1, 6)))
_MIDDLE = (
    (3, _layout(30, 4, 8)),
    (3, _layout(30, 4, WINDOW)),
    (1, _layout(30, 1, 12)),
    (1, _layout(30, 4, 6, 2)),
)
_STREAM = ((4, _layout(120, 4, WINDOW)), (1, _layout(120, 1, WINDOW)), (1, _layout(120, 4, 12)))

# Strides up to 3 over 40 frames: views as far apart as photographs of a walk.
_CONTINUED = (
    (8, _layout(120, 4, WINDOW)),
    (2, _layout(40, 4, WINDOW)),
    (1, _layout(40, 1, 12, 2)),
)

FROM_BACKBONE = (
    Stage(0.15, _SHORT, 3, 0.6, 0.0),
    Stage(0.30, _SHORT, 3, 0.8, 0.25),
    Stage(0.60, _MIDDLE, 3, 1.0, 0.35),
    Stage(0.80, (*_MIDDLE, *_STREAM), 3, 1.0, 0.35),
    Stage(1.00, _STREAM, 1, 1.0, 0.35),
)
CONTINUED = (Stage(1.00, _CONTINUED, 3, 1.0, 0.5),)


def stage_at(stages: tuple[Stage, ...], progress: float) -> Stage:
    """Stage at ``progress`` in [0, 1]."""
    return next((stage for stage in stages if progress < stage.until), stages[-1])


def draw_layout(stage: Stage, step: int, budget: int) -> ClipLayout:
    """Layout of a step, the same on every rank, of those whose clips fit ``budget`` frames."""
    fitting = [(weight, layout) for weight, layout in stage.layouts if layout.frames <= budget]
    weights, layouts = zip(*fitting or [(1, _layout(min(budget, 12), 1, 4))])
    return random.Random(step).choices(layouts, weights)[0]


def rate_factor(step: int, progress: float) -> float:
    """Learning rate relative to its maximum: linear warm-up by steps, cosine by progress."""
    warm = min(1.0, (step + 1) / WARM_UP_STEPS)
    cosine = 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))
    return warm * (FINAL_RATE + (1 - FINAL_RATE) * cosine)
