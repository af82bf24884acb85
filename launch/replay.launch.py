# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Play a bag through the live node: ``ros2 launch lingbot_map_ros replay.launch.py bag:=DIR``.

The node stays when the bag has ended, so that the map can be looked at and saved.
"""

import posixpath
from pathlib import Path

import yaml
from ament_index_python.packages import get_package_share_directory
from launch import LaunchContext, LaunchDescription, LaunchDescriptionEntity
from launch.actions import DeclareLaunchArgument, IncludeLaunchDescription, OpaqueFunction
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch_ros.actions import Node

SHARE = Path(get_package_share_directory("lingbot_map_ros"))
IMAGE_TYPES = ("sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage")

ARGUMENTS = (
    DeclareLaunchArgument("bag", description="Directory or file of the bag."),
    DeclareLaunchArgument(
        "image",
        default_value="",
        description="Topic of the images; empty is the only one in the bag's metadata.yaml.",
    ),
    DeclareLaunchArgument(
        "odom",
        default_value="odom",
        description="Topic of the robot's odometry, for scale_source: odometry and tf_mode: map.",
    ),
    DeclareLaunchArgument(
        "rate", default_value="1.0", description="Speed of the bag; the node may slow it down."
    ),
    DeclareLaunchArgument(
        "params_file",
        default_value="replay",
        description="File with the node's parameters, or the name of one in config/ of this "
        "package; every image is processed, whatever it says.",
    ),
    DeclareLaunchArgument(
        "checkpoint", default_value="", description="Weights; empty is what params_file says."
    ),
    DeclareLaunchArgument("rviz", default_value="false", description="Open RViz with the map."),
    DeclareLaunchArgument("namespace", default_value="", description="Namespace of the node."),
)


def generate_launch_description() -> LaunchDescription:
    return LaunchDescription([*ARGUMENTS, OpaqueFunction(function=node_and_player)])


def node_and_player(context: LaunchContext) -> list[LaunchDescriptionEntity]:
    """Start the node as ``map.launch.py`` does, and the player, which waits for it."""
    argument = context.launch_configurations
    bag = Path(argument["bag"]).expanduser()
    passed_on = {
        name: argument[name] for name in ("odom", "params_file", "checkpoint", "rviz", "namespace")
    }
    passed_on["image"] = image_topic(bag, argument["image"], argument["namespace"])
    # A node that drops images would leave the player waiting for answers.
    passed_on["use_sim_time"] = passed_on["lossless"] = "true"
    answers = posixpath.join("/", argument["namespace"], "lingbot_map/odometry")
    # Loading takes a while, and so does a frame without a GPU.
    pacing = ["--wait", "600", "--pace-by", answers, "--pace-timeout", "30"]
    return [
        Node(
            package="lingbot_map_ros",
            executable="play_bag",
            arguments=[str(bag), "--rate", argument["rate"], *pacing],
            output="screen",
        ),
        IncludeLaunchDescription(
            PythonLaunchDescriptionSource(str(SHARE / "launch" / "map.launch.py")),
            launch_arguments=passed_on.items(),
        ),
    ]


def image_topic(bag: Path, chosen: str, namespace: str) -> str:
    """Name the image topic of a bag, which is the only one of its metadata where none is chosen.

    Raises RuntimeError where there is no bag, no such topic in it, or none to take unasked. Without
    metadata what is chosen is believed.
    """
    if not bag.exists():
        raise RuntimeError(f"there is no bag {bag}")
    metadata = bag / "metadata.yaml"
    if not metadata.is_file():
        if chosen:
            return chosen
        raise RuntimeError(f"{bag} has no metadata.yaml: name the topic of its images with image:=")
    try:
        content = yaml.safe_load(metadata.read_text())["rosbag2_bagfile_information"]
        topics = [entry["topic_metadata"] for entry in content["topics_with_message_count"]]
        images = [topic["name"] for topic in topics if topic["type"] in IMAGE_TYPES]
    except (KeyError, TypeError, ValueError, yaml.YAMLError) as error:
        if chosen:
            return chosen
        raise RuntimeError(
            f"{metadata} is damaged: name the topic of its images with image:="
        ) from error
    found = ", ".join(images) or "none"
    if chosen:
        name = posixpath.join("/", namespace, chosen)
        if name not in images and f"{name}/compressed" in images:
            return f"{chosen}/compressed"
        if name not in images:
            raise RuntimeError(f"{bag} has no image topic {chosen} (found: {found})")
        return chosen
    if len(images) != 1:
        raise RuntimeError(f"choose one of the bag's image topics with image:= (found: {found})")
    return images[0]
