# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What is no argument of ROS, and what ROS does not take, is one line that names it."""

import subprocess
import sys

import pytest
import rclpy
from bag_factory import camera_messages, write_messages
from node_harness import REPOSITORY, NodeProcess, wait_until
from rclpy.context import Context
from rclpy.lifecycle import LifecycleNode

from lingbot_map_ros.errors import ConfigurationError
from lingbot_map_ros.ros.command_line import names_explained, other_arguments
from lingbot_map_ros.ros.parameter_files import unused_files

LONG = "a" * 300
FORGOTTEN = "did you forget --ros-args before it?"
NAMES = "names of letters, digits, underscores and single slashes"
HEADERS = [
    "lingbot_map",
    "/lingbot_map",
    "/**",
    "/*",
    "'*'",
    "/**/lingbot_map",
    "/*/lingbot_map",
    "/robot/lingbot_map",
    "robot/lingbot_map",
    "/robot/*",
    "/*/*",
    "map_node",
    "/robot",
    "/robots/lingbot_map",
    "lingbot_map_2",
    "robot lingbot_map",
    "/robot lingbot_map",
    "/** lingbot_map",
    "robot map_node",
]


@pytest.mark.parametrize(
    ("arguments", "others"),
    [
        ([], []),
        (["--ros-args", "-r", "image:=/x", "-p", "scale:=1.0", "--params-file", "FILE"], []),
        (["--ros-args", "-r", "__ns:=/robot", "-r", "lingbot_map:__node:=eye", "--"], []),
        (["--ros-args", "--remap", "rostopic://image:=/view", "--log-level", "warn"], []),
        # the old form of a remapping, of which ROS itself warns
        (["image:=/x"], []),
        (["", "--ros-args", "-r", "image:=/x", "--", ""], []),
        (["--params-file", "x.yaml"], ["--params-file", "x.yaml"]),
        (["-r", "image:=/x", "-p", "scale_source:=bogus"], ["-r", "-p"]),
        (["--ros-args", "-p", "scale:=1.0", "--", "--foo"], ["--foo"]),
    ],
)
def test_what_is_not_for_ros_is_left_over(arguments, others):
    file = str(REPOSITORY / "config" / "replay.yaml")
    assert other_arguments([file if a == "FILE" else a for a in arguments]) == others


@pytest.mark.parametrize(
    ("argument", "reason"),
    [
        ("-r __ns:=robot1", f"'-r __ns:=robot1': write FROM:=TO with {NAMES}"),
        ("-r __ns:=/a/1b", NAMES),
        (f"-r __ns:=/{LONG}", "characters)': Invalid namespace"),
        ("-r __node:=1x", NAMES),
        (f"-r __node:={LONG}", "characters)': Invalid node name"),
        ("-r image:=/camera/1raw", NAMES),
        ("-r image:=/camera/image-raw", NAMES),
        ("-r image:=/camera//image", NAMES),
        (f"-r image:=/{LONG}", "'-r image:=/aaa"),
        (f"-r image:=/1{LONG * 4}", "'-r image:=/1aaa"),
        ("-r image", "'-r image': write FROM:=TO"),
        ("-p map_frame:=", "'-p map_frame:=': write NAME:=VALUE"),
        ("-p base_to_camera:=[0,0.1,0]", "each with a decimal point"),
        ("-p scale:={a:1}", "'-p scale:={a:1}': write NAME:=VALUE"),
        ("-r image:=/cam,at", "'-r image:=/cam,at': write FROM:=TO"),
        ("-p", "trailing -p flag"),
        ("--params-file /nowhere.yaml", "/nowhere.yaml"),
        ("--log-level loud", "--log-level loud"),
        ("--foo", "ROS does not know ['--foo'] after --ros-args"),
    ],
)
def test_what_ros_does_not_take_is_named_with_what_is_allowed(argument, reason):
    with pytest.raises(ConfigurationError) as error:
        other_arguments(["--ros-args", *argument.split()])
    assert reason in str(error.value)
    assert len(str(error.value)) < 400
    assert "lexeme" not in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("program", "arguments", "code", "text"),
    [
        ("map_node", ["--params-file", "config/replay.yaml"], 2, f"'--params-file': {FORGOTTEN}"),
        ("map_node", ["-r", "image:=/x", "-p", "scale_source:=bogus"], 2, FORGOTTEN),
        ("map_node", ["--foo"], 2, f"map_node: unknown argument '--foo': {FORGOTTEN}"),
        ("map_node", ["--ros-args", "-r", "__ns:=robot1"], 1, "__ns:=robot1"),
        ("map_node", ["--ros-args", "-r", f"__ns:=/{LONG}"], 1, "Invalid namespace"),
        ("map_node", ["--ros-args", "-r", f"__ns:=/{LONG[:230]}"], 1, "a shorter name, namespace"),
        ("play_bag", ["--ros-args", "-r", "__ns:=robot1"], 1, "__ns:=robot1"),
        ("play_bag", ["--ros-args", "-r", f"__ns:=/{LONG[:230]}"], 1, "a shorter name, namespace"),
    ],
)
def test_a_program_says_it_in_one_line(small_bag, program, arguments, code, text):
    own = [str(small_bag), "--wait", "0"] if program == "play_bag" else []
    command = [sys.executable, str(REPOSITORY / "bin" / program), *own, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=REPOSITORY)
    assert done.returncode == code, done.stderr
    assert text in done.stderr
    assert done.stderr.startswith(f"{program}: ") and done.stderr.count("\n") == 1


@pytest.fixture(scope="module")
def small_bag(tmp_path_factory):
    return write_messages(tmp_path_factory.mktemp("bags") / "bag", camera_messages(2))


@pytest.fixture(scope="module")
def context():
    context = Context()
    rclpy.init(context=context)
    yield context
    context.try_shutdown()


def test_a_name_that_is_too_long_with_its_namespace(context):
    names = {"node_name": "n", "namespace": f"/{LONG[:200]}", "context": context}
    node = LifecycleNode(**names, cli_args=["--ros-args", "-r", f"path:={LONG[:60]}"])
    try:
        with pytest.raises(ConfigurationError, match="a shorter name, namespace"):  # noqa: SIM117
            with names_explained():
                node.resolve_topic_name("path")
    finally:
        node.destroy_node()


@pytest.mark.parametrize("namespace", ["", "/robot"])
@pytest.mark.parametrize("header", HEADERS)
def test_a_file_is_unused_where_ros_takes_nothing_of_it(context, tmp_path, header, namespace):
    arguments = ["--ros-args", "--params-file", str(parameter_file(tmp_path, header))]
    node = rclpy.create_node(
        "lingbot_map", namespace=namespace, context=context, cli_args=arguments
    )
    try:
        taken = "scale" in node._parameter_overrides
        said = unused_files(arguments, node.get_fully_qualified_name())
    finally:
        node.destroy_node()
    assert len(said) == (0 if taken else 1)


def parameter_file(folder, *headers):
    """Write a file with one parameter under each header; a space stands for another level."""
    path = folder / "mine.yaml"
    lines = []
    for header in headers:
        levels = [*header.split(), "ros__parameters"]
        lines += [f"{'  ' * depth}{level}:" for depth, level in enumerate(levels)]
        lines.append(f"{'  ' * len(levels)}scale: 7.5")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_an_unused_file_is_named_with_its_names_and_the_node(tmp_path):
    path = parameter_file(tmp_path, "map_node", "robot camera")
    arguments = ["--ros-args", "-p", "scale:=1.0", "--params-file", str(path), "--"]
    assert unused_files(arguments, "/robot/lingbot_map") == [
        f"the parameter file {path} is ignored: it is for /map_node, /robot/camera, and this node "
        "is /robot/lingbot_map; write /robot/lingbot_map: or /**: above ros__parameters"
    ]


def test_the_node_warns_of_an_unused_file_at_the_start(tmp_path):
    path = parameter_file(tmp_path, "map_node")
    program = (
        f"import sys; sys.argv += ['--params-file', {str(path)!r}]; "
        "from lingbot_map_ros.ros.node import main; sys.exit(main())"
    )
    node = NodeProcess(program=program, namespace="/robot", autostart=False)
    try:
        wait_until(lambda: "it is for /map_node, and this node is /robot/lingbot_map" in node.log)
    finally:
        code, _ = node.stop()
    assert code == 0, node.log


@pytest.mark.parametrize("path", sorted((REPOSITORY / "config").glob("*.yaml")), ids=str)
def test_every_shipped_file_is_for_the_node(path):
    assert unused_files(["--ros-args", "--params-file", str(path)], "/robot/lingbot_map") == []


def test_a_file_of_several_nodes_is_used(tmp_path):
    path = parameter_file(tmp_path, "camera", "lingbot_map")
    assert unused_files(["--ros-args", "--params-file", str(path)], "/lingbot_map") == []
