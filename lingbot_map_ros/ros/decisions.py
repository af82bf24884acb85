# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The user's decisions about pending frames: taken by the session, and told to the map."""

from __future__ import annotations

from lingbot_map_ros.errors import InputError
from lingbot_map_ros.ros.map_keeper import MapKeeper
from lingbot_map_ros.streaming.session import StreamingSession
from lingbot_map_ros.wording import counted


class Decisions:
    """What the services do to the pending frames of ``session``; each returns its answer."""

    def __init__(self, session: StreamingSession, keeper: MapKeeper) -> None:
        self._session = session
        self._keeper = keeper

    def set_deferred(self, deferred: bool) -> str:
        """Enter or leave manual keyframes."""
        committed = self._session.set_deferred(deferred)
        self.settle()
        if deferred:
            return "frames now wait for execute_deferred_eviction or rollback_last_frame"
        kept = counted(len(committed), "pending frame")
        return f"keyframes are chosen automatically; {kept} kept"

    def commit(self) -> str:
        """Keep what is pending; InputError if nothing is."""
        self._require_pending()
        committed = self._session.commit()
        self.settle()
        return f"{counted(len(committed), 'pending frame')} kept: {committed}"

    def rollback(self) -> str:
        """Drop the newest pending frame; InputError if there is none."""
        self._require_pending()
        index = self._session.rollback()
        self.settle()
        return f"frame {index} dropped; {self._session.pending} still pending"

    def settle(self) -> None:
        """Tell the map what became of pending frames since the last time."""
        for decision in self._session.drain_decisions():
            self._keeper.decide(decision)

    def _require_pending(self) -> None:
        if self._session.pending:
            return
        status = self._session.status()
        if status.gathered or not status.frames:
            raise InputError(f"still initialising: {status.gathered} of {status.needed} frames")
        raise InputError("nothing is pending; call defer_eviction with data: true first")
