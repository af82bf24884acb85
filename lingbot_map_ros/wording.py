# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Numbers in sentences."""


def counted(number: int, noun: str) -> str:
    """Return ``1 image`` or ``12 images``: a number of what a noun with a regular plural names."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
