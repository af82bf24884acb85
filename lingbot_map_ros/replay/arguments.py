# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the command lines have in common."""

import argparse
from collections.abc import Sequence


def non_negative(text: str) -> float:
    """Parse a finite number of at least 0."""
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number of at least 0")
    return value


def positive(text: str) -> float:
    """Parse a finite number above 0."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return value


def positive_int(text: str) -> int:
    """Parse an integer of at least 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return value


def strip_ros_arguments(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split a command line into the program's own arguments and those between --ros-args and --.

    ``ros2 run`` and launch files append the latter to every program they start.
    """
    own: list[str] = []
    ros: list[str] = []
    inside = False
    for argument in argv:
        if argument == "--ros-args":
            inside = True
        elif inside and argument == "--":
            inside = False
        elif not inside:
            own.append(argument)
            continue
        ros.append(argument)
    return own, ros
