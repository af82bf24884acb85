# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Where what was measured or compiled for this machine is kept for the next start."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """``lingbot_map_ros`` in the user's cache, ``$XDG_CACHE_HOME`` or ``~/.cache``."""
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "lingbot_map_ros"
