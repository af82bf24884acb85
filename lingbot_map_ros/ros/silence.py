# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Why nothing comes on a topic: who publishes it and how, and what to change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nav_msgs.msg import Odometry
from rclpy.node import Node, NodeNameNonExistentError
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import CompressedImage, Image

from lingbot_map_ros.wording import counted

FAST_DDS_HINT = (
    "Raw images above 0.5 MB get lost in Fast DDS's default shared memory when they are sent with "
    "best effort: give this process and the camera's the profile that this package ships "
    "(FASTDDS_DEFAULT_PROFILES_FILE and FASTRTPS_DEFAULT_PROFILES_FILE = "
    "share/lingbot_map_ros/config/fastdds_profile.xml), or set image_qos: reliable, or "
    "image_transport: compressed."
)


@dataclass(frozen=True)
class _Advice:
    """What to do about a silent topic of one type."""

    name: str
    """Name of the topic in remappings."""
    other_type: str
    """For publishers of another type."""
    no_topic: str
    """When no topic carries the type."""
    best_effort: str = ""
    """Why messages that are sent with best effort may get lost."""
    suffix: str = ""
    """What the topic's name has behind that of the remapping."""


_ADVICE = {
    Image: _Advice(
        "image",
        "set image_transport or remap image",
        "No other topic carries images; is the camera running in this ROS_DOMAIN_ID?",
        best_effort=FAST_DDS_HINT,
    ),
    CompressedImage: _Advice(
        "image",
        "set image_transport or remap image",
        "No other topic carries compressed images; is the camera running in this ROS_DOMAIN_ID?",
        suffix="/compressed",
    ),
    Odometry: _Advice(
        "odom",
        "remap odom",
        "No other topic carries odometry; is the robot's base running in this ROS_DOMAIN_ID?",
    ),
}


def explain_silence(
    node: Node, topic: str, message_type: Any, qos: QoSProfile, *, heard: bool
) -> str:
    """Say why nothing may come in on ``topic`` now.

    ``heard`` tells that something came before: then names and network were right.
    """
    wanted, advice = _type_name(message_type), _ADVICE[message_type]
    publishers = node.get_publishers_info_by_topic(topic)
    if not publishers:
        if heard:
            return "nobody publishes it any more: its node has ended, or cannot be reached."
        return f"nobody publishes it. {_suggestions(node, topic, wanted, advice)}"
    described = "; ".join(sorted(_describe(info) for info in publishers))
    lines = [f"it has {counted(len(publishers), 'publisher')}: {described}."]
    if all(info.topic_type != wanted for info in publishers):
        lines.append(f"None of them sends {wanted}: {advice.other_type}.")
    elif reasons := {r for info in publishers if (r := _mismatch(info.qos_profile, qos))}:
        lines.append(f"QoS does not match: {'; '.join(sorted(reasons))}.")
    elif advice.best_effort and not heard and qos.reliability is not ReliabilityPolicy.RELIABLE:
        lines.append(f"QoS and type match. {advice.best_effort}")
    else:
        still, network = ("still ", "") if heard else ("", ", and from this machine's network")
        lines.append(
            f"QoS and type match. Does it {still}send anything (ros2 topic hz {topic}){network}?"
        )
    return " ".join(lines)


def _describe(info: Any) -> str:
    name = f"{info.node_namespace.rstrip('/')}/{info.node_name}"
    qos = info.qos_profile
    return f"{name} ({info.topic_type}, {qos.reliability.name}, {qos.durability.name})"


def _mismatch(offered: QoSProfile, requested: QoSProfile) -> str:
    if (
        requested.reliability is ReliabilityPolicy.RELIABLE
        and offered.reliability is ReliabilityPolicy.BEST_EFFORT
    ):
        return "it offers best effort, we ask for reliable (set image_qos: sensor_data)"
    if (
        requested.durability is DurabilityPolicy.TRANSIENT_LOCAL
        and offered.durability is DurabilityPolicy.VOLATILE
    ):
        return "it is volatile, we ask for transient local"
    return ""


def _suggestions(node: Node, topic: str, wanted: str, advice: _Advice) -> str:
    # Our own depth is an image too, and no camera's; our odometry is not the robot's.
    try:
        own = {name for name, _ in node.get_publisher_names_and_types_by_node(*_identity(node))}
    except NodeNameNonExistentError:  # it is not in its own view of the graph yet
        own = set()
    others = sorted(
        name
        for name, types in node.get_topic_names_and_types()
        if wanted in types and name != topic and name not in own and node.count_publishers(name)
        if name.endswith(advice.suffix)
    )
    if others:
        return (
            f"Topics of this type: {', '.join(others[:8])}; remap with "
            f"{advice.name}:={others[0].removesuffix(advice.suffix)}"
        )
    compressed = sorted(
        name
        for name, types in node.get_topic_names_and_types()
        if name.endswith("/compressed") and "sensor_msgs/msg/CompressedImage" in types
    )
    if compressed and wanted == "sensor_msgs/msg/Image":
        base = compressed[0].removesuffix("/compressed")
        return f"There is {compressed[0]}: set image_transport: compressed and remap image:={base}"
    return advice.no_topic


def _identity(node: Node) -> tuple[str, str]:
    return node.get_name(), node.get_namespace()


def _type_name(message_type: Any) -> str:
    package = message_type.__module__.split(".")[0]
    return f"{package}/msg/{message_type.__name__}"
