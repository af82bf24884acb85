# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the GPU measurements share: inputs, timers, comparisons, the reference, reports."""
