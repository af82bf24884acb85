# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What decides about pending frames when the user does not."""

from __future__ import annotations

import logging
from dataclasses import replace

from lingbot_map_ros.models.gct_stream import GCTStream
from lingbot_map_ros.streaming.config import Limits, SessionConfig
from lingbot_map_ros.streaming.state import Pending, StreamState

logger = logging.getLogger(__name__)


class PendingPolicy:
    """``pending_policy`` at its two occasions: one frame too many, and a lost stream.

    Both methods change the model last, so that an exception leaves state and model as they were.
    """

    def __init__(self, model: GCTStream, config: SessionConfig, limits: Limits) -> None:
        self._model = model
        self._config = config
        self._limits = limits

    @property
    def drops(self) -> bool:
        """Whether a newcomer that is one too many goes, rather than the oldest being kept."""
        return self._config.pending_policy == "rollback_newest"

    def over(self, state: StreamState) -> bool:
        """Whether one more frame than those of `state` is too many."""
        count = len(state.pending) + 1
        return self._fills(state, count) or count > self._limits.pending

    def take(self, state: StreamState, entry: Pending, *, over: bool) -> StreamState:
        """Let a frame, which the model holds already, wait; keep the oldest if it is too many."""
        full = self._fills(state, len(state.pending) + 1)
        state = replace(state, pending=(*state.pending, entry))
        if over:
            # A full window can only be left with nothing pending.
            keep_pending = 0 if full else self._limits.pending
            state = state.decide(len(state.pending) - keep_pending, self._limits.overlap)
            self._model.commit(keep_pending=keep_pending)
        return state

    def applied(self, state: StreamState) -> StreamState:
        """Count an occasion; the first of an epoch is said."""
        if not state.policy_applied:
            logger.warning(
                "more frames than pending_limit wait for a decision: pending_policy '%s' decides",
                self._config.pending_policy,
            )
        return replace(state, policy_applied=state.policy_applied + 1)

    def settle_lost(self, state: StreamState) -> StreamState:
        """Let a lost stream, which re-anchors with nothing pending, wait; but not for ever.

        Withheld frames count against ``pending_limit`` as if they waited too: the user has as many
        frames' time as in a stream that is not lost. Then the policy decides about all.
        """
        waiting = len(state.pending)
        if not waiting or state.rejected < self._config.lost_after:
            return state
        if waiting + state.rejected <= self._limits.pending:
            hint = "re-anchoring waits for the decision of the pending frames"
            return replace(state, reason=f"{state.reason}; {hint}")
        hint = f"pending_policy '{self._config.pending_policy}' has decided about pending frames"
        state = replace(self.applied(state), reason=f"{state.reason}; {hint}")
        if not self.drops:
            state = state.decide(waiting, self._limits.overlap)
            self._model.commit()
            return state
        with self._model.transaction():
            for _ in range(waiting):
                state = state.revoke()
                self._model.rollback()
        return state

    def _fills(self, state: StreamState, count: int) -> bool:
        # A newcomer that fills the window is kept with all others at once, or may still wait.
        return state.kept + count >= self._limits.max_keyframes + self.drops
