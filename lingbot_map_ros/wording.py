# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Numbers and lists in sentences."""

from collections.abc import Sequence

_FEW = 5


def counted(number: int, noun: str) -> str:
    """Return ``1 image`` or ``12 images``: a number of what a noun with a regular plural names."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def first_few(names: Sequence[str]) -> str:
    """Return ``a, b, c, d, e and 7 more``: at most five names."""
    more = f" and {len(names) - _FEW} more" if len(names) > _FEW else ""
    return ", ".join(names[:_FEW]) + more
