# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the node's tests read out of messages."""

import numpy as np

from lingbot_map_ros.ros.frames import pose_matrix


def matrix(pose):
    p, q = pose.position, pose.orientation
    return pose_matrix([p.x, p.y, p.z], [q.x, q.y, q.z, q.w])


def as_matrix(stamped):
    t, r = stamped.transform.translation, stamped.transform.rotation
    return pose_matrix([t.x, t.y, t.z], [r.x, r.y, r.z, r.w])


def floats(msg):
    return np.frombuffer(msg.data, np.float32).reshape(msg.height, msg.width)


def cloud(msg):
    points = np.frombuffer(msg.data, np.float32).reshape(-1, 4)
    packed = points[:, 3].copy().view(np.uint32)
    return points[:, :3], np.stack([packed >> 16 & 255, packed >> 8 & 255, packed & 255], -1)
