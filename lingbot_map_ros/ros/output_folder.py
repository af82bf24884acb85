# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The folder that ``output_directory`` names: whether it can be written to, and names in it."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

from lingbot_map_ros.errors import ConfigurationError


def output_folder(setting: str) -> Path:
    """Return the folder that ``setting`` names; ConfigurationError where it names none."""
    if not setting:
        raise ConfigurationError("output_directory must not be empty")
    try:
        return Path(setting).expanduser()
    except RuntimeError as error:
        raise ConfigurationError(f"output_directory {setting}: {error}") from error


def require_writable(setting: str) -> None:
    """Refuse a folder that cannot be made or written to; nothing of the trial stays behind.

    Raises
    ------
    ConfigurationError
        With the reason.
    """
    # Path.resolve would look behind a link that leads nowhere, where no folder can be made
    folder = Path(os.path.abspath(output_folder(setting)))  # noqa: PTH100
    try:
        there = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
        # What would be made is made aside: permissions tell less, above all root's.
        with tempfile.TemporaryDirectory(prefix=".trial_", dir=there) as aside:
            Path(aside, folder.relative_to(there)).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"output_directory {folder} cannot be written to: {error.strerror or error}; choose "
            "another folder, or free this one"
        ) from error


def unused_path(setting: str, name: str, suffix: str) -> Path:
    """Path in the folder that ``setting`` names, with the time in its name; no file has it yet."""
    folder = output_folder(setting)
    stem = f"{name}_{time.strftime('%Y%m%d_%H%M%S')}"
    path, number = folder / f"{stem}.{suffix}", 1
    while path.exists():
        number += 1
        path = folder / f"{stem}_{number}.{suffix}"
    return path
