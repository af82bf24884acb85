# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Numbers, lists, and names that others chose, in sentences."""

from collections.abc import Sequence

_FEW = 5
LONGEST = 80
"""Characters of a name from a message that a sentence holds."""


def counted(number: int, noun: str) -> str:
    """Return ``1 image`` or ``12 images``: a number of what a noun with a regular plural names."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def first_few(names: Sequence[str]) -> str:
    """Return ``a, b, c, d, e and 7 more``: at most five names."""
    more = f" and {len(names) - _FEW} more" if len(names) > _FEW else ""
    return ", ".join(names[:_FEW]) + more


def shortened(text: str) -> str:
    """Return a text of at most `LONGEST` characters as it is, of a longer one the beginning.

    For frame names, encodings and the like: a message may hold any number of characters, and every
    one of them would be logged.
    """
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]}... ({len(text)} characters)"
