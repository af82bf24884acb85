# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Map from a camera topic: ``ros2 launch lingbot_map_ros map.launch.py image:=/camera/image``."""

import os
import posixpath
from pathlib import Path

from ament_index_python.packages import get_package_share_directory
from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, OpaqueFunction, SetEnvironmentVariable
from launch.conditions import IfCondition
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

CONFIG = Path(get_package_share_directory("lingbot_map_ros"), "config")

PROFILE, OLD_PROFILE = "FASTDDS_DEFAULT_PROFILES_FILE", "FASTRTPS_DEFAULT_PROFILES_FILE"
OLD_DISTRIBUTIONS = ("humble", "iron", "jazzy")

ARGUMENTS = (
    DeclareLaunchArgument(
        "image",
        default_value="image",
        description="Topic of the images; one that ends in /compressed is taken as compressed.",
    ),
    DeclareLaunchArgument(
        "camera_info",
        default_value="",
        description="Topic of the camera's calibration; empty is camera_info beside the images.",
    ),
    DeclareLaunchArgument(
        "odom",
        default_value="odom",
        description="Topic of the robot's odometry, for scale_source: odometry and tf_mode: map.",
    ),
    DeclareLaunchArgument(
        "params_file",
        default_value="map",
        description="File with the node's parameters, or the name of one in config/ of this "
        "package: discrete_gpu, gpu8gb, jetson, map, replay.",
    ),
    DeclareLaunchArgument(
        "checkpoint", default_value="", description="Weights; empty is what params_file says."
    ),
    DeclareLaunchArgument(
        "use_sim_time", default_value="false", description="Take the time from /clock."
    ),
    DeclareLaunchArgument(
        "lossless",
        default_value="false",
        description="Process every image of a reliable publisher, whatever params_file says.",
    ),
    DeclareLaunchArgument("rviz", default_value="false", description="Open RViz with the map."),
    DeclareLaunchArgument("namespace", default_value="", description="Namespace of the node."),
)


def generate_launch_description() -> LaunchDescription:
    rviz = Node(
        package="rviz2",
        executable="rviz2",
        namespace=LaunchConfiguration("namespace"),
        arguments=["-d", str(CONFIG / "map.rviz")],
        parameters=[{"use_sim_time": LaunchConfiguration("use_sim_time")}],
        condition=IfCondition(LaunchConfiguration("rviz")),
    )
    return LaunchDescription(
        [*ARGUMENTS, *fastdds_profile(), OpaqueFunction(function=mapping_node), rviz]
    )


def fastdds_profile() -> list[SetEnvironmentVariable]:
    """Give room for large images in shared memory, where Fast DDS is used and not configured."""
    if not os.environ.get("RMW_IMPLEMENTATION", "rmw_fastrtps_cpp").startswith("rmw_fastrtps"):
        return []
    if any(map(os.environ.get, (PROFILE, OLD_PROFILE, "FASTDDS_BUILTIN_TRANSPORTS"))):
        return []
    # Setting both names would make newer distributions load the profile twice and complain.
    name = OLD_PROFILE if os.environ.get("ROS_DISTRO") in OLD_DISTRIBUTIONS else PROFILE
    return [SetEnvironmentVariable(name, str(CONFIG / "fastdds_profile.xml"))]


def mapping_node(context: LaunchContext) -> list[Node]:
    """Start the node, which configures and activates itself (parameter autostart)."""
    argument = context.launch_configurations
    image = argument["image"].removesuffix("/compressed")
    camera_info = argument["camera_info"] or posixpath.join(posixpath.dirname(image), "camera_info")
    overrides: dict[str, bool | float | str] = {}
    if image != argument["image"]:
        overrides["image_transport"] = "compressed"
    if argument["use_sim_time"].lower() in ("true", "1"):
        overrides["use_sim_time"] = True
    if argument["lossless"].lower() in ("true", "1"):
        overrides |= {"drop_policy": "all", "image_qos": "reliable", "max_rate_hz": 0.0}
    if argument["checkpoint"]:
        overrides["checkpoint"] = argument["checkpoint"]
    return [
        Node(
            package="lingbot_map_ros",
            executable="map_node",
            name="lingbot_map",
            namespace=argument["namespace"],
            remappings=[
                ("image", image),
                ("camera_info", camera_info),
                ("odom", argument["odom"]),
            ],
            parameters=[str(parameter_file(argument["params_file"])), overrides],
            output="screen",
            emulate_tty=True,
        )
    ]


def parameter_file(name: str) -> Path:
    """Find a parameter file by its path or its name in this package; raises where there is none."""
    shipped = {path.stem: path for path in sorted(CONFIG.glob("*.yaml"))}
    found = shipped.get(name, Path(name).expanduser())
    if not found.is_file():
        raise RuntimeError(
            f"there is no parameter file {found}; this package has {', '.join(shipped)}"
        )
    return found
