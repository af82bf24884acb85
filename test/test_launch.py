# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Arguments of the launch files, by ``launch`` where it is installed, else from the source."""

import ast
import runpy
from importlib.util import find_spec
from pathlib import Path

import pytest

LAUNCH = Path(__file__).parents[1] / "launch"
ARGUMENTS = {
    "map.launch.py": {
        "image",
        "camera_info",
        "params_file",
        "checkpoint",
        "use_sim_time",
        "rviz",
        "namespace",
    },
    "replay.launch.py": {"bag", "image", "rate", "params_file", "checkpoint", "rviz", "namespace"},
}


def declared_in_source(path: Path) -> set[str]:
    """Names in the calls of ``DeclareLaunchArgument`` of a launch file."""
    return {
        ast.literal_eval(node.args[0])
        for node in ast.walk(ast.parse(path.read_text(), str(path)))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "DeclareLaunchArgument"
    }


def test_every_launch_file_is_known() -> None:
    assert {path.name for path in LAUNCH.iterdir() if path.is_file()} == set(ARGUMENTS)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments(name: str) -> None:
    if find_spec("launch_ros"):
        description = runpy.run_path(str(LAUNCH / name))["generate_launch_description"]()
        declared = {argument.name for argument in description.get_launch_arguments()}
    else:
        declared = declared_in_source(LAUNCH / name)
    assert declared == ARGUMENTS[name]
