# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A procedural world with exact poses, depth and intrinsics.

A path is planned (``trajectory``), a world built around it (``layout``, ``furniture``, ``world``,
``textures``), rays are cast and shaded (``raycast``, ``shading``, ``mipmap``, ``render``) and
photographed (``camera``, ``imaging``): as a ``sequence``, or as a ``bag``.
"""
