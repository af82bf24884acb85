# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Settings of a stream, checked against the model that will run it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lingbot_map_ros.errors import ConfigurationError
from lingbot_map_ros.integers import require_integers
from lingbot_map_ros.streaming.keyframes import KeyframeRule, check_depth

if TYPE_CHECKING:
    from lingbot_map_ros.models.gct_stream import GCTStream

PENDING_POLICIES = ("commit_oldest", "rollback_newest")


@dataclass(frozen=True)
class SessionConfig:
    """Settings of a ``StreamingSession``; None stands for the model's own value.

    ConfigurationError for a number that is no integer where one is needed; what the values may be
    is checked with the model.
    """

    num_scale_frames: int | None = None
    """Frames that start a stream together."""
    max_keyframes: int | None = None
    """Kept frames at which the next window opens."""
    overlap_keyframes: int | None = None
    """Newest keyframes from which the next window opens; None: ``num_scale_frames``."""
    pending_limit: int | None = None
    """Frames that may await a decision."""
    pending_policy: str = "commit_oldest"
    """What happens at the limit: ``commit_oldest`` or ``rollback_newest``."""
    keyframe_mode: str = "interval"
    keyframe_interval: int = 1
    keyframe_motion_px: float = 12.0
    keyframe_max_gap: int = 30
    depth_every: int = 1
    """Depth and confidence for every n-th frame, and for every keyframe; not with motion keyframes,
    which need them all."""
    lost_after: int = 10
    """Withheld frames in a row after which the stream re-anchors."""

    def __post_init__(self) -> None:
        require_integers(self)

    @property
    def keyframe_rule(self) -> KeyframeRule:
        """The keyframe settings as a rule; raises ConfigurationError when one is out of range."""
        check_depth(self.keyframe_mode, self.depth_every)
        return KeyframeRule(
            self.keyframe_mode,
            self.keyframe_interval,
            self.keyframe_motion_px,
            self.keyframe_max_gap,
        )


@dataclass(frozen=True)
class Limits:
    """The sizes of a stream, all known and consistent."""

    scale_frames: int
    max_keyframes: int
    overlap: int
    pending: int

    @classmethod
    def of(cls, config: SessionConfig, model: GCTStream) -> Limits:
        """Fill in the model's own values and check the result.

        Raises
        ------
        ConfigurationError
            A value is out of range, or beyond what the model was built for.

        """
        scale = _or(config.num_scale_frames, model.config.num_scale_frames)
        limits = cls(
            scale_frames=scale,
            max_keyframes=_or(config.max_keyframes, model.config.max_keyframes),
            overlap=_or(config.overlap_keyframes, scale),
            # A newcomer enters before the policy makes room, so that a failure leaves the backlog.
            pending=min(_or(config.pending_limit, model.pending_limit), model.pending_limit - 1),
        )
        limits._check(config, model)
        return limits

    @property
    def window_size(self) -> int:
        """Kept frames at which the next window opens as soon as nothing is pending.

        Below ``max_keyframes`` by what may still be pending then, so that late decisions never let
        the caches hold more; but by a quarter at most, for models with a short memory.
        """
        usable = self.max_keyframes - max(self.overlap, self.scale_frames)
        return self.max_keyframes - min(self.pending, (usable - 1) // 4)

    def _check(self, config: SessionConfig, model: GCTStream) -> None:
        known = model.config.num_scale_frames
        if not 1 <= self.scale_frames <= known:
            raise ConfigurationError(
                f"num_scale_frames {self.scale_frames} must lie in 1..{known}, the model's own"
            )
        smallest = max(self.scale_frames, self.overlap) + 1
        largest = model.config.max_keyframes
        if not smallest <= self.max_keyframes <= largest:
            raise ConfigurationError(
                f"max_keyframes {self.max_keyframes} must lie in {smallest} (scale frames or "
                f"overlap, and one more) .. {largest} (what the caches were built for)"
            )
        if self.overlap < 1:
            raise ConfigurationError(f"overlap_keyframes {self.overlap} must be at least 1")
        asked = _or(config.pending_limit, model.pending_limit)
        if self.pending < 1 or not 1 <= asked <= model.pending_limit:
            raise ConfigurationError(
                f"pending_limit {asked} must be at least 1 and below {model.pending_limit}, "
                "the frames that the caches were built for: one place is the newcomer's"
            )
        if config.pending_policy not in PENDING_POLICIES:
            raise ConfigurationError(
                f"pending_policy '{config.pending_policy}' must be one of {PENDING_POLICIES}"
            )
        if config.lost_after < 1:
            raise ConfigurationError(f"lost_after {config.lost_after} must be at least 1")
        if config.depth_every < 1:
            raise ConfigurationError(f"depth_every {config.depth_every} must be at least 1")


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
