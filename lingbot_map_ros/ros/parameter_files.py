# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Parameter files of a command line that hold nothing for the node, which ROS passes over."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import yaml

from lingbot_map_ros.ros.arguments import strip_ros_arguments
from lingbot_map_ros.wording import shortened

_PARAMETERS = "ros__parameters"
_WILDCARDS = {"/**": r"(?:/\w+)*", "/*": r"/\w+"}


def unused_files(argv: Sequence[str], node: str) -> list[str]:
    """Sentences about files whose parameters are all for nodes of other names.

    Parameters
    ----------
    argv
        Command line that ROS has taken, without the program.
    node
        The node's name with its namespace, as in ``/robot/lingbot_map``.
    """
    _, ros = strip_ros_arguments(argv)
    sentences = []
    for path in (value for flag, value in pairwise(ros) if flag == "--params-file"):
        names = _node_names(Path(path))
        if names and not any(_is_for(name, node) for name in names):
            sentences.append(
                f"the parameter file {path} is ignored: it is for {shortened(', '.join(names))}, "
                f"and this node is {node}; write {node}: or /**: above {_PARAMETERS}"
            )
    return sentences


def _node_names(path: Path) -> list[str]:
    """Names of nodes that a file has, wildcards as they are; none where it cannot be read."""
    try:
        root = yaml.compose(path.read_bytes())
    except (OSError, yaml.YAMLError):
        return []
    return list(dict.fromkeys(_walk(root, "")))


def _walk(value: yaml.Node | None, name: str) -> Iterator[str]:
    """Names of the nodes below ``name``; namespaces may be written as levels of their own."""
    if not isinstance(value, yaml.MappingNode):
        return
    for key, below in value.value:
        if key.value == _PARAMETERS:
            yield name
        else:
            yield from _walk(below, f"{name}/{key.value.strip('/')}")


def _is_for(name: str, node: str) -> bool:
    pattern = re.sub(r"/\*\*?", lambda found: _WILDCARDS[found[0]], name)
    return re.fullmatch(pattern, node) is not None
