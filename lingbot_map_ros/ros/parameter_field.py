# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""How a parameter is declared: a field of a dataclass that carries its group and description."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

GROUPS = {
    "model": "what runs, and where",
    "stream": "how much of the past the model sees",
    "keyframes": "which frames stay in the caches",
    "input": "how images come in",
    "frames": "frame names and TF",
    "scale": "from model units to metres",
    "output": "what is published, and how much of it",
    "guards": "what watches the stream",
}
CHANGES = {
    "keyframes": "a change holds from the next image on",
    "scale": "a change holds at once for map, path and saves, for the rest from the next image on",
    "output": "a change holds from the next image on where nothing else is said",
    "guards": "a change holds at once",
}
"""When a change takes hold that is made while the node runs."""
FIXED_GROUPS = frozenset(GROUPS) - frozenset(CHANGES)
"""Groups whose parameters cannot change once the node is configured."""


def parameter(
    group: str,
    default: Any,
    description: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: Sequence[str] = (),
    start_only: bool = False,
) -> Any:
    """Field of a parameter; with a range from low to high, or with choices.

    One that is ``start_only`` is read when the node starts, and cannot change afterwards.
    """
    about = {
        "group": group,
        "description": description,
        "low": low,
        "high": high,
        "choices": tuple(choices),
        "start_only": start_only,
    }
    return dataclasses.field(default=default, metadata=about)


def when_changed(group: str) -> str:
    """Say when a change of a parameter of the group takes hold, or that there is none."""
    return CHANGES.get(group, "read-only after configure")
