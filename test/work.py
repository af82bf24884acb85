# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""How much a call works, in a measure that does not depend on the machine or its load."""

import sys
from collections.abc import Callable
from typing import Any


def counted(function: Callable[..., Any], *arguments: Any) -> tuple[Any, int]:
    """Result of a call, and how many functions (and resumed generators) it called in turn."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        result = function(*arguments)
    finally:
        sys.setprofile(before)
    return result, count
