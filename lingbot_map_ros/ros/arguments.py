# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""ROS's part of a command line; needs no ROS."""

from collections.abc import Sequence


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
