# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Everything that a stream knows, as one immutable value.

A step computes the next value and the session adopts it only when all went well, so there is no
half-done state to repair. Every collection is bounded; every counter is a Python int.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from lingbot_map_ros.geometry.alignment import AlignmentQuality
from lingbot_map_ros.streaming.frame import Frame
from lingbot_map_ros.streaming.guard import Guard
from lingbot_map_ros.streaming.observation import Observation
from lingbot_map_ros.streaming.results import Decision
from lingbot_map_ros.streaming.windows import Placement

MAX_DECISIONS = 1024


@dataclass(frozen=True, eq=False)
class Track:
    """What every frame that is handed out changes, and its rollback changes back."""

    last: Observation | None = None
    """Newest frame handed out."""
    guard: Guard = field(default_factory=Guard)
    recovering: int = 0
    """Next frames whose covariance is raised."""
    since_depth: int = 0
    """Frames since one had depth."""


@dataclass(frozen=True, eq=False)
class Pending:
    """A frame that waits for its decision."""

    observation: Observation
    before: Track


@dataclass(frozen=True, eq=False)
class StreamState:
    """State of a stream within an epoch."""

    epoch: int = 0
    frames: int = 0
    """Images that came; also the index of the next."""
    size: tuple[int, ...] = ()
    """Shape of the epoch's images."""
    gathered: tuple[Frame, ...] = ()
    """Scale frames of the next segment."""
    regathered: bool = False
    """Some of them were shown to the network before, beside others that came out bad."""
    open: bool = False
    """The model's caches hold a window."""
    stale: bool = False
    """A step failed after it had emptied them: the window must be opened once more."""
    segment: int = 0
    window: int = -1
    first: bool = False
    """The next frame is the first after the scale frames; it is always kept."""
    kept: int = 0
    skipped: int = 0
    """Frames handed out since the last keyframe, pending ones excluded."""
    keyframes: tuple[Observation, ...] = ()
    """The newest kept frames, oldest first, for the next window to open from."""
    pending: tuple[Pending, ...] = ()
    placement: Placement | None = None
    track: Track = field(default_factory=Track)
    lost: int = 0
    """Frames withheld in a row."""
    rejected: int = 0
    """Of these, the ones that showed something."""
    withheld: int = 0
    reason: str = ""
    quality: AlignmentQuality | None = None
    policy_applied: int = 0
    decisions: tuple[Decision, ...] = ()

    def keep(self, observation: Observation, overlap: int) -> StreamState:
        """Return the state with one more keyframe."""
        return replace(
            self,
            kept=self.kept + 1,
            first=False,
            skipped=0,
            keyframes=(*self.keyframes, observation)[-overlap:],
        )

    def decide(self, count: int, overlap: int) -> StreamState:
        """Return the state with the oldest `count` pending frames kept."""
        state = self
        for entry in self.pending[:count]:
            state = state.keep(entry.observation, overlap)._decided(entry, kept=True)
        return replace(state, pending=self.pending[count:])

    def revoke(self) -> StreamState:
        """Return the state without the newest pending frame."""
        entry = self.pending[-1]
        state = replace(self, pending=self.pending[:-1], track=entry.before)
        return state._decided(entry, kept=False)

    def withhold(self, reason: str, *, showed: bool, count: int = 1) -> StreamState:
        """Return the state after `count` untrusted frames, which `showed` something or not."""
        return replace(
            self,
            lost=self.lost + count,
            rejected=self.rejected + count * showed,
            withheld=self.withheld + count,
            reason=reason,
        )

    def _decided(self, entry: Pending, *, kept: bool) -> StreamState:
        decision = Decision(entry.observation.frame.index, kept)
        return replace(self, decisions=(*self.decisions, decision)[-MAX_DECISIONS:])
