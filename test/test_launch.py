# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Launch files: their arguments, and the parameter files that they find."""

import ast
import dataclasses
import runpy
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
import yaml

from lingbot_map_ros.mapping.voxel_map import VoxelMap
from lingbot_map_ros.models.config import GCTConfig
from lingbot_map_ros.ros.network import model_overrides
from lingbot_map_ros.ros.parameter_checks import check
from lingbot_map_ros.ros.parameters import Parameters
from lingbot_map_ros.streaming.memory import MapMemory, MemorySettings
from lingbot_map_ros.streaming.memory_advice import check_memory

LAUNCH = Path(__file__).parents[1] / "launch"
CONFIG = Path(__file__).parents[1] / "config"
ARGUMENTS = {
    "map.launch.py": {
        "image",
        "camera_info",
        "odom",
        "params_file",
        "checkpoint",
        "use_sim_time",
        "lossless",
        "rviz",
        "namespace",
    },
    "replay.launch.py": {
        "bag",
        "image",
        "odom",
        "rate",
        "params_file",
        "checkpoint",
        "rviz",
        "namespace",
    },
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


def run_launch(monkeypatch: pytest.MonkeyPatch, name: str) -> dict[str, Any]:
    """Names that a launch file defines, with stand-ins for ``launch`` that record their calls."""

    def recorder(kind: str) -> Any:
        return lambda *positional, **named: SimpleNamespace(
            kind=kind, positional=positional, **named
        )

    names = {
        "launch": ("LaunchContext", "LaunchDescription", "LaunchDescriptionEntity"),
        "launch.actions": (
            "DeclareLaunchArgument",
            "IncludeLaunchDescription",
            "OpaqueFunction",
            "SetEnvironmentVariable",
        ),
        "launch.conditions": ("IfCondition",),
        "launch.launch_description_sources": ("PythonLaunchDescriptionSource",),
        "launch.substitutions": ("LaunchConfiguration",),
        "launch_ros": (),
        "launch_ros.actions": ("Node", "SetParametersFromFile"),
    }
    for module, attributes in names.items():
        stand_in = ModuleType(module)
        for attribute in attributes:
            setattr(stand_in, attribute, recorder(attribute))
        monkeypatch.setitem(sys.modules, module, stand_in)
    monkeypatch.setattr(
        "ament_index_python.packages.get_package_share_directory", lambda name: CONFIG.parent
    )
    return runpy.run_path(str(LAUNCH / name))


def context_of(launch: dict[str, Any], **arguments: str) -> SimpleNamespace:
    """Context of a launch with these arguments; the others have their defaults."""
    defaults = {
        declared.positional[0]: getattr(declared, "default_value", "")
        for declared in launch["ARGUMENTS"]
    }
    return SimpleNamespace(launch_configurations={**defaults, **arguments})


def nodes_of_launch(monkeypatch: pytest.MonkeyPatch, **arguments: str) -> list[Any]:
    """Keyword arguments of the nodes that map.launch.py starts."""
    launch = run_launch(monkeypatch, "map.launch.py")
    return list(launch["mapping_node"](context_of(launch, **arguments)))


def test_a_replay_loses_no_image_whatever_the_parameter_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The player is paced by answers, which do not come for images that a node drops."""
    launch = run_launch(monkeypatch, "replay.launch.py")
    folder = str(tmp_path)
    context = context_of(launch, bag=folder, image="/image", odom="/wheels", params_file="jetson")
    player, included = launch["node_and_player"](context)
    assert (player.kind, included.kind) == ("Node", "IncludeLaunchDescription")
    passed_on = dict(included.launch_arguments)
    assert passed_on["params_file"] == "jetson"
    (node,) = nodes_of_launch(monkeypatch, **passed_on)
    assert ("odom", "/wheels") in node.remappings
    assert node.parameters[0] == str(CONFIG / "jetson.yaml")
    assert node.parameters[-1] == {
        "use_sim_time": True,
        "drop_policy": "all",
        "image_qos": "reliable",
        "max_rate_hz": 0.0,
    }


def test_a_replay_of_a_topic_that_the_bag_lacks_is_refused_with_those_that_it_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    topics = {"/left/image": "Image", "/right/image": "CompressedImage", "/imu": "Imu"}
    topics["/jpeg/compressed"] = "CompressedImage"
    counts = [
        {"topic_metadata": {"name": name, "type": f"sensor_msgs/msg/{kind}"}}
        for name, kind in topics.items()
    ]
    metadata = {"rosbag2_bagfile_information": {"topics_with_message_count": counts}}
    (tmp_path / "metadata.yaml").write_text(yaml.safe_dump(metadata))
    launch = run_launch(monkeypatch, "replay.launch.py")

    def start(**arguments: str) -> list[Any]:
        return launch["node_and_player"](context_of(launch, **arguments))

    found = r"\(found: /left/image, /right/image, /jpeg/compressed\)"
    for wrong in ("/nope", "/imu", "image"):
        with pytest.raises(RuntimeError, match=f"has no image topic {wrong} {found}"):
            start(bag=str(tmp_path), image=wrong)
    with pytest.raises(RuntimeError, match=f"choose one .* {found}"):
        start(bag=str(tmp_path))
    with pytest.raises(RuntimeError, match="there is no bag"):
        start(bag=str(tmp_path / "absent"), image="/image")
    for right in ("/left/image", "left/image"):
        assert dict(start(bag=str(tmp_path), image=right)[1].launch_arguments)["image"] == right
    assert start(bag=str(tmp_path), image="image", namespace="right")
    base = dict(start(bag=str(tmp_path), image="/jpeg")[1].launch_arguments)
    assert base["image"] == "/jpeg/compressed"
    (tmp_path / "metadata.yaml").write_text("half: a")
    assert start(bag=str(tmp_path), image="/believed")
    with pytest.raises(RuntimeError, match="is damaged"):
        start(bag=str(tmp_path))


@pytest.mark.parametrize("name", sorted(path.stem for path in CONFIG.glob("*.yaml")))
def test_shipped_parameter_files_are_found_by_name(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (node,) = nodes_of_launch(monkeypatch, params_file=name)
    assert node.parameters == [str(CONFIG / f"{name}.yaml"), {}]
    assert name in (LAUNCH / "map.launch.py").read_text()


def test_parameter_files_are_found_by_path_or_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("")
    (node,) = nodes_of_launch(monkeypatch, params_file=str(mine), image="/cam/image/compressed")
    assert node.parameters == [str(mine), {"image_transport": "compressed"}]
    (node,) = nodes_of_launch(monkeypatch)
    assert node.parameters[0] == str(CONFIG / "map.yaml")
    with pytest.raises(RuntimeError, match=r"no parameter file jetsom; this package has .*jetson"):
        nodes_of_launch(monkeypatch, params_file="jetsom")


@pytest.mark.parametrize("flashinfer", [False, True])
@pytest.mark.parametrize("name", ["gpu8gb", "jetson"])
def test_small_devices_run_the_full_model_in_less_than_8_gb(name: str, flashinfer: bool) -> None:
    values = yaml.safe_load((CONFIG / f"{name}.yaml").read_text())["/**"]["ros__parameters"]
    parameters = Parameters(**values)
    check(parameters)
    assert (parameters.device, parameters.dtype) == ("cuda", "bfloat16")
    settings = MemorySettings(
        dataclasses.replace(GCTConfig.preset("vitl"), **model_overrides(parameters)),
        *(480, 640),
        dtype=torch.bfloat16,
        pending_limit=parameters.pending_limit + 1,
        flashinfer=flashinfer,
        gpu=True,
        map=MapMemory(parameters.map_max_points, VoxelMap.planned_bytes),
    )
    plan = check_memory(settings, int(parameters.memory_limit_gb * 1e9))
    assert plan.total < 0.9 * 8e9
