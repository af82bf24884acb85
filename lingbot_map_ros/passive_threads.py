# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Idle threads of PyTorch sleep; programs import this before anything that loads PyTorch.

They would spin on the cores that others need: with anything else on the CPU, DDS and callbacks
included, a frame takes up to ten times as long. OpenMP reads the setting when PyTorch is loaded;
one that the user has made stays, and programs that are started from this one inherit it.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
