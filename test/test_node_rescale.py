# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A scale that is changed on a running node: what follows without another image."""

import numpy as np
import pytest
from geometry_msgs.msg import PoseArray
from nav_msgs.msg import Path
from node_harness import LATCHED, feed, wait_until
from node_messages import cloud
from sensor_msgs.msg import PointCloud2

pytest_plugins = ["node_fixtures"]
PARAMETERS = {"map_rate_hz": 5.0, "scale_source": "fixed", "scale": 2.0}


def extent(msg):
    """Length of the diagonal that a map, a path or keyframes span."""
    if isinstance(msg, PointCloud2):
        xyz, _ = cloud(msg)
    else:
        poses = msg.poses if isinstance(msg, PoseArray) else [p.pose for p in msg.poses]
        xyz = np.array([(p.position.x, p.position.y, p.position.z) for p in poses])
    return np.linalg.norm(np.ptp(xyz, axis=0)) if len(xyz) > 1 else 0.0


def saved(client):
    """Save trajectory and map; returns the trajectory's positions and the answers."""
    answers = [client.call(f"save_{what}") for what in ("trajectory", "map")]
    assert all(answer.success for answer in answers)
    rows = np.loadtxt(answers[0].message.split(": ")[0])
    return rows[:, 1:4], [answer.message for answer in answers]


def test_saves_map_and_path_have_a_new_scale_before_the_next_image(client, node, camera, fresh):
    feed(camera, fresh, 6)
    topics = [
        client.record(kind, topic, LATCHED)
        for kind, topic in ((PointCloud2, "~/map"), (Path, "~/path"), (PoseArray, "~/keyframes"))
    ]
    wait_until(lambda: all(t and extent(t[-1]) for t in topics), 20, "map, path and keyframes")
    shown = [extent(topic[-1]) for topic in topics]
    first, answers = saved(client)
    assert all(answer.endswith("metres") for answer in answers)

    def follows(factor):
        wanted = pytest.approx([factor * size for size in shown], rel=1e-3)
        wait_until(lambda: [extent(topic[-1]) for topic in topics] == wanted, 20, f"{factor} times")

    for name, value, factor, units in (
        ("scale", 4.0, 2.0, "metres"),
        ("scale_source", "none", 0.5, "model units"),
        ("scale", 3.0, 0.5, "model units"),
        ("scale_source", "fixed", 1.5, "metres"),
        ("scale", 2.0, 1.0, "metres"),
    ):
        assert client.set_parameter(name, value).successful
        positions, answers = saved(client)
        assert np.allclose(positions, factor * first, rtol=1e-4, atol=1e-6), name
        assert all(answer.endswith(f", {units}") for answer in answers)
        follows(factor)
    assert "the camera sits" not in node.log
