# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The parameter table, what is written from it, and what it refuses."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
import rclpy
import yaml
from rclpy.context import Context
from rclpy.parameter import Parameter
from streams import tiny_session

from lingbot_map_ros.errors import ConfigurationError
from lingbot_map_ros.mapping.mapper import Mapper
from lingbot_map_ros.ros.map_keeper import mapper_options
from lingbot_map_ros.ros.parameter_checks import check
from lingbot_map_ros.ros.parameter_docs import fields_of, to_markdown, to_yaml
from lingbot_map_ros.ros.parameter_field import FIXED_GROUPS, GROUPS
from lingbot_map_ros.ros.parameter_server import ParameterServer, unknown_overrides
from lingbot_map_ros.ros.parameters import Parameters

REPOSITORY = Path(__file__).parents[1]
NAMES = [field.name for field in dataclasses.fields(Parameters)]


@pytest.fixture
def make_server(tmp_path):
    """Make a parameter server on a node with overrides; with it, what it was told of changes."""
    context = Context()
    rclpy.init(context=context)
    nodes = []

    def make(configured=False, arguments=(), **overrides):
        node = rclpy.create_node(
            "parameters_under_test",
            context=context,
            cli_args=["--ros-args", *arguments] if arguments else None,
            parameter_overrides=[Parameter(name, value=v) for name, v in overrides.items()],
        )
        nodes.append(node)
        changes = []
        return ParameterServer(node, lambda: configured, changes.append), node, changes

    yield make
    for node in nodes:
        node.destroy_node()
    rclpy.shutdown(context=context)


def test_every_parameter_belongs_to_a_group_and_its_default_is_valid():
    check(Parameters())
    assert [field.name for group in GROUPS for field in fields_of(group)] == NAMES


def test_the_committed_yaml_file_is_the_table():
    assert (REPOSITORY / "config" / "map.yaml").read_text() == to_yaml()


def test_the_readme_holds_the_table():
    text = (REPOSITORY / "README.md").read_text()
    begin, end = "<!-- parameters:begin -->", "<!-- parameters:end -->"
    assert text.split(begin)[1].split(end)[0].strip() == to_markdown().strip()


def test_the_command_writes_the_same():
    for option, text in (("--yaml", to_yaml()), ("--markdown", to_markdown())):
        command = [sys.executable, "-m", "lingbot_map_ros.ros.parameter_docs", option]
        done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, check=True)
        assert done.stdout == text


def test_the_yaml_file_gives_every_default_with_its_type():
    values = yaml.safe_load(to_yaml())["/**"]["ros__parameters"]
    defaults = Parameters()
    assert set(NAMES) - set(values) == {"base_to_camera"}
    for name, value in values.items():
        assert value == getattr(defaults, name), name
        assert type(value) is type(getattr(defaults, name)), name


def test_the_node_takes_the_committed_file_without_a_change(make_server):
    path = str(REPOSITORY / "config" / "map.yaml")
    server, _, _ = make_server(arguments=["--params-file", path])
    assert server.read() == Parameters()


def test_descriptors_describe(make_server):
    _, node, _ = make_server()
    for field in dataclasses.fields(Parameters):
        descriptor = node.describe_parameter(field.name)
        about = field.metadata
        assert descriptor.description == about["description"]
        assert all(choice in descriptor.additional_constraints for choice in about["choices"])
        fixed = "read-only after configure" in descriptor.additional_constraints
        assert fixed == (about["group"] in FIXED_GROUPS)
        started = "read-only after the start" in descriptor.additional_constraints
        assert started == (field.name == "autostart")
        changes = "a change holds" in descriptor.additional_constraints
        assert changes != (fixed or started), "when a change takes hold is said for all"
        ranges = [*descriptor.integer_range, *descriptor.floating_point_range]
        if about["low"] is not None:
            assert (ranges[0].from_value, ranges[0].to_value) == (about["low"], about["high"])


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ({"keyframe_mode": "never"}, "keyframe_mode must be one of interval, motion, manual"),
        ({"points_stride": 0}, "points_stride"),
        ({"scale": float("nan")}, "scale"),
        ({"scale": 2}, "write a decimal point"),
        ({"base_to_camera": [0, 0, 0, 0, 0, 0, 1]}, "write a decimal point"),
        ({"checkpoint": 5}, "wrong type"),
    ],
)
def test_bad_overrides_are_refused_with_the_reason(make_server, overrides, reason):
    with pytest.raises(ConfigurationError, match=reason):
        make_server(**overrides)


def test_misspelt_overrides_are_named_with_the_nearest_name(make_server, tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("/**:\n  ros__parameters:\n    keyframe_intervall: 3\n    scale: 2.0\n")
    arguments = ["--params-file", str(file), "-p", "voxel_size:=0.1", "-p", "qqq:=1"]
    server, node, _ = make_server(arguments=[*arguments, "-p", "use_sim_time:=true"])
    assert unknown_overrides(node) == [
        "parameter keyframe_intervall does not exist and is ignored; "
        "did you mean keyframe_interval?",
        "parameter qqq does not exist and is ignored; config/map.yaml lists all there are",
        "parameter voxel_size does not exist and is ignored; did you mean map_voxel_size?",
    ]
    assert server.values.scale == 2.0


@pytest.mark.parametrize(
    "path", sorted((REPOSITORY / "config").glob("*.yaml")), ids=lambda p: p.stem
)
def test_every_shipped_file_is_taken_whole(make_server, path):
    server, node, _ = make_server(arguments=["--params-file", str(path)])
    server.read()
    assert unknown_overrides(node) == []


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ({"map_frame": "odom"}, "three different"),
        ({"base_frame": ""}, "non-empty"),
        ({"tf_mode": "map"}, "scale_source"),
        ({"image_size": 200}, "196 is"),
        ({"attention_kernel": "dense_fa2", "attention_backend": "sdpa"}, "FlashInfer"),
        ({"overlap_keyframes": 64, "max_keyframes": 64}, "must be below max_keyframes"),
        ({"depth_every": 2, "keyframe_mode": "motion"}, "needs the depth of every frame"),
        ({"base_to_camera": [1.0, 2.0]}, "7 numbers"),
        ({"base_to_camera": [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.5]}, "length"),
        ({"output_directory": ""}, "output_directory"),
    ],
)
def test_what_does_not_go_together_is_refused_when_read(make_server, overrides, reason):
    server, _, _ = make_server(**overrides)
    with pytest.raises(ConfigurationError, match=reason):
        server.read()


def test_what_does_not_go_together_can_be_mended_in_steps(make_server):
    server, node, _ = make_server(tf_mode="map", map_frame="odom")
    for name, value in (("map_frame", "map"), ("scale_source", "odometry")):
        assert node.set_parameters([Parameter(name, value=value)])[0].successful
    assert server.read().tf_mode == "map"


def test_arrays_and_their_absence_are_read(make_server):
    numbers = [0.1, 0.0, 0.2, -0.5, 0.5, -0.5, 0.5]
    server, _, _ = make_server(base_to_camera=numbers)
    assert server.read().base_to_camera == tuple(numbers)
    server, _, _ = make_server()
    assert server.read().base_to_camera == ()


def test_a_good_change_is_taken_and_told(make_server):
    server, node, changes = make_server(configured=True)
    node.set_parameters([Parameter("keyframe_interval", value=3)])
    assert changes[-1].keyframe_interval == server.read().keyframe_interval == 3


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("keyframe_mode", "never", "one of"),
        ("keyframe_interval", 0, "range"),
        ("scale_source", "wheel", "one of"),
        ("image_qos", "reliable", "read-only once the node is configured"),
        ("lost_after", "ten", "type"),
    ],
)
def test_a_bad_change_is_refused_and_changes_nothing(make_server, name, value, reason):
    server, node, changes = make_server(configured=True)
    result = node.set_parameters([Parameter(name, value=value)])[0]
    assert not result.successful
    assert reason in result.reason
    assert server.read() == Parameters()
    assert not changes


@pytest.mark.parametrize("configured", [False, True])
def test_what_is_read_at_the_start_only_cannot_be_set_later(make_server, configured):
    server, node, changes = make_server(configured=configured, autostart=False)
    assert server.values.autostart is False
    result = node.set_parameters([Parameter("autostart", value=True)])[0]
    assert not result.successful
    assert "autostart is read-only once the node runs" in result.reason
    assert server.values.autostart is False and not changes
    # what a dump of the node holds can be loaded again
    assert node.set_parameters([Parameter("autostart", value=False)])[0].successful


def test_an_output_directory_is_tried_before_it_is_taken(make_server, tmp_path):
    _, node, changes = make_server(configured=True)

    def answer(folder):
        return node.set_parameters([Parameter("output_directory", value=str(folder))])[0]

    (tmp_path / "file").write_text("no folder")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for folder, reason in (
        (tmp_path / "file", "Not a directory"),
        (tmp_path / "file" / "below", "Not a directory"),
        (tmp_path / "link" / "maps", "No such file"),
        (tmp_path / ("long" * 100), "too long"),
        ("/proc/maps", "cannot be written to"),
        ("~nobody_of_this_name/maps", "home"),
        ("", "empty"),
    ):
        result = answer(folder)
        assert not result.successful and reason in result.reason, folder
    assert not changes
    assert answer(tmp_path / "new" / "maps").successful
    assert answer(tmp_path / "new" / ".." / ".." / tmp_path.name / "maps").successful
    assert answer(tmp_path).successful
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["file", "link"]


CHANGEABLE = [
    field
    for field in dataclasses.fields(Parameters)
    if field.metadata["group"] not in FIXED_GROUPS and field.metadata["low"] is not None
]


@pytest.mark.parametrize("field", CHANGEABLE, ids=lambda field: field.name)
@pytest.mark.parametrize("end", ["low", "high"])
def test_what_is_taken_while_running_is_what_session_and_map_take(field, end):
    value = type(field.default)(field.metadata[end])
    parameters = dataclasses.replace(Parameters(keyframe_mode="motion"), **{field.name: value})
    check(parameters)
    session = tiny_session()
    session.update_keyframes(
        mode=parameters.keyframe_mode,
        interval=parameters.keyframe_interval,
        motion_px=parameters.keyframe_motion_px,
        max_gap=parameters.keyframe_max_gap,
    )
    session.update_lost_after(parameters.lost_after)
    Mapper(mapper_options(parameters))


def test_values_that_do_not_go_together_are_refused_as_one(make_server):
    server, node, _ = make_server(configured=True, scale_source="fixed", tf_mode="map")
    result = node.set_parameters([Parameter("scale_source", value="none")])[0]
    assert not result.successful
    assert "tf_mode: map" in result.reason
    assert server.read().scale_source == "fixed"


def test_fixed_groups_are_open_until_configured(make_server):
    server, node, _ = make_server(configured=False)
    assert node.set_parameters([Parameter("image_qos", value="reliable")])[0].successful
    assert server.read().image_qos == "reliable"


def test_is_default_tells_what_the_model_decides():
    assert Parameters().is_default("num_scale_frames")
    assert not Parameters(num_scale_frames=4).is_default("num_scale_frames")
