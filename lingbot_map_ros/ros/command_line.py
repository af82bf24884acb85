# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Arguments and names that ROS does not take, said in one line that names them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

from rclpy._rclpy_pybind11 import RCLError, UnknownROSArgsError
from rclpy.exceptions import NameValidationException
from rclpy.logging import LoggingSeverity, set_logger_level
from rclpy.utilities import remove_ros_args
from rclpy.validate_full_topic_name import validate_full_topic_name
from rclpy.validate_namespace import validate_namespace
from rclpy.validate_node_name import validate_node_name

from lingbot_map_ros.errors import ConfigurationError
from lingbot_map_ros.ros.arguments import strip_ros_arguments
from lingbot_map_ros.wording import shortened

_REFUSED = re.compile(r"Couldn't parse (?P<kind>[\w ]+): '(?P<argument>.*)", re.DOTALL)
_ALLOWED = {
    "remap rule": "write FROM:=TO with names of letters, digits, underscores and single slashes, "
    "no digit at the beginning or after a slash; a namespace (__ns) begins with a slash",
    "parameter override rule": "write NAME:=VALUE, in YAML a number, true, false, text, or an "
    "array of one of these ([0.0, 0.1], each with a decimal point); empty text is \"NAME:=''\"",
}
_SHORTER = "choose a shorter name, namespace (-r __ns:=...) or node name (-r __node:=...)"


def other_arguments(argv: Sequence[str]) -> list[str]:
    """Return those arguments, of a command line without the program, that are none of ROS's.

    Empty ones, which a launch file may pass on, are left out.

    Raises
    ------
    ConfigurationError
        ROS does not take one of its own; the text names it and says what is allowed.
    """
    try:
        others = _parse(argv)
        for flag, rule in pairwise(strip_ros_arguments(argv)[1]):
            if flag in ("-r", "--remap"):
                _check_names(rule)
    except UnknownROSArgsError as error:
        raise ConfigurationError(
            f"ROS does not know {shortened(str(error))} after --ros-args; arguments of the program "
            "stand before it, or after --"
        ) from error
    except RCLError as error:
        raise ConfigurationError(f"ROS does not take {_refused(reason(error))}") from error
    return [other for other in others if other]


def reason(error: RCLError) -> str:
    """Return what an error of ROS says, without the place in its sources."""
    text = re.split(r", at \S+:\d+", str(error))[0]
    return " ".join(text.removeprefix("Failed to parse ROS arguments: ").split())


@contextmanager
def names_explained() -> Iterator[None]:
    """Make a ConfigurationError of what ROS raises for names of nodes, topics and services."""
    try:
        yield
    except NameValidationException as error:
        why, name = _invalid(error)
        raise ConfigurationError(f"'{shortened(name)}': {why}; {_SHORTER}") from error
    except RCLError as error:
        if "failed to resolve name" not in str(error):
            raise
        raise ConfigurationError(f"{reason(error)}; {_SHORTER}") from error


def _parse(argv: Sequence[str]) -> list[str]:
    # rcl would print the words of its parser, which are explained here
    set_logger_level("rcl", LoggingSeverity.FATAL)
    try:
        return remove_ros_args(["", *argv])[1:]
    finally:
        set_logger_level("rcl", LoggingSeverity.UNSET)


def _check_names(rule: str) -> None:
    """Refuse names that are too long, which the parser takes."""
    what, _, name = rule.partition(":=")
    try:
        if what.endswith("__ns"):
            validate_namespace(name)
        elif what.endswith(("__node", "__name")):
            validate_node_name(name)
        elif name.startswith("/"):
            validate_full_topic_name(name)
    except NameValidationException as error:
        why, _ = _invalid(error)
        raise ConfigurationError(f"ROS does not take '-r {shortened(rule)}': {why}") from error


def _invalid(error: NameValidationException) -> tuple[str, str]:
    """What is wrong with a name, and the name."""
    why, name, *_ = str(error).splitlines()
    return why.removesuffix(":"), name.strip(" '")


def _refused(text: str) -> str:
    """Which argument it is, and what is allowed instead."""
    found = _REFUSED.search(text)
    if found is None:
        mixed = "same type" in text  # of numbers, in a parameter file
        hint = "; write a decimal point in every number of an array (1.0)" if mixed else ""
        return f"these arguments: {text}{hint}"
    # rcl cuts its text where an argument is long
    argument, _, why = found["argument"].partition("'. Error: ")
    return f"'{shortened(argument)}': {_ALLOWED.get(found['kind'], why)}"
