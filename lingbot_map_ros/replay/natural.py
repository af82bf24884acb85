# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Files in the order in which a person would number them."""

import re
from pathlib import Path


def natural_key(path: Path) -> tuple[list[tuple[int, str]], str]:
    """Sort key by which ``frame_10`` comes after ``frame_9``, and no two names are equal."""
    parts = re.split(r"(\d+)", path.name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts], path.name
