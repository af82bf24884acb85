# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Trained weights that ship with the package; ``SHA256SUMS`` records their digests."""
