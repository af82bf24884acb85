# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Linters: the project's own, and ROS's where they are installed."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

import pytest

REPOSITORY = Path(__file__).parents[1]
HEADER = (
    "# Copyright 2026 The lingbot_map_ros authors",
    "# SPDX-License-Identifier: Apache-2.0",
)
EXECUTABLES = sorted(REPOSITORY.glob("bin/*"))
PEP257 = ("--convention", "numpy", "--add-ignore", "D105", "D401", "D403", "--", "lingbot_map_ros")
# Distributions have all four, the wheels the middle two; the tests below stand in for the others.
AMENT_LINTERS = {
    "ament_copyright": ("lingbot_map_ros",),
    "ament_flake8": ("--config", "setup.cfg", "lingbot_map_ros", "launch", "test"),
    "ament_pep257": PEP257,
    "ament_xmllint": ("package.xml",),
}


def source_files() -> list[Path]:
    """Python files of the project, the executables without a suffix included."""
    folders = ("lingbot_map_ros", "launch", "scripts", "test")
    modules = [path for folder in folders for path in (REPOSITORY / folder).rglob("*.py")]
    return [REPOSITORY / "setup.py", *modules, *EXECUTABLES]


def run(*command: str) -> None:
    """Run a linter in the repository; fails with what it printed."""
    result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout + result.stderr


def test_ruff() -> None:
    run(sys.executable, "-m", "ruff", "check", "--no-cache")


def test_format() -> None:
    run(sys.executable, "-m", "ruff", "format", "--check", "--no-cache")


def test_types() -> None:
    run(sys.executable, "-m", "mypy")


def test_copyright() -> None:
    missing = []
    for path in source_files():
        lines = path.read_text().splitlines()
        start = 1 if lines[0].startswith("#!") else 0
        if tuple(lines[start : start + 2]) != HEADER:
            missing.append(str(path.relative_to(REPOSITORY)))
    assert not missing, f"without the copyright header: {missing}"


def test_executables_run_with_the_python_of_the_path() -> None:
    assert EXECUTABLES
    for path in EXECUTABLES:
        assert path.read_text().startswith("#!/usr/bin/env python3\n"), path
        assert os.access(path, os.X_OK), path


def test_xml_is_well_formed() -> None:
    files = [
        *REPOSITORY.glob("*.xml"),
        *(REPOSITORY / "config").glob("*.xml"),
        *(REPOSITORY / "interfaces").rglob("*.xml"),
    ]
    assert len(files) >= 3
    for path in files:
        ElementTree.parse(path)


@pytest.mark.parametrize("linter", [name for name in AMENT_LINTERS if find_spec(name)])
def test_ament(linter: str) -> None:
    call = f"import sys; from {linter}.main import main; sys.exit(main())"
    run(sys.executable, "-c", call, *AMENT_LINTERS[linter])
