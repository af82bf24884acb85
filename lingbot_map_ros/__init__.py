# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Streaming 3D reconstruction from a robot's camera with LingBot-Map, as a ROS 2 package."""

__version__ = "0.1.0"
