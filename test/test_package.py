# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What is installed, and that the package's files agree with each other."""

import dataclasses
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
import yaml
from catkin_pkg.package import parse_package

import lingbot_map_ros
from lingbot_map_ros.ros.parameter_checks import check
from lingbot_map_ros.ros.parameters import Parameters

REPOSITORY = Path(__file__).parents[1]
NAME = "lingbot_map_ros"
ROS_PACKAGES = (
    r"ament_index_python|cv_bridge|launch|launch_ros|rclpy|tf2_ros|\w+_(?:interfaces|msgs|srvs)"
)
CONFIGURATIONS = sorted((REPOSITORY / "config").glob("*.yaml"))


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prefix into which ``pip install`` put a copy of the source tree."""
    folder = tmp_path_factory.mktemp("installation")
    source = folder / "source"
    shutil.copytree(
        REPOSITORY,
        source,
        ignore=shutil.ignore_patterns(
            ".*", "build", "install", "log", "demo_out", "test", "*.egg-info"
        ),
    )
    # Without --ignore-installed, pip would uninstall what these tests run from.
    options = ("--ignore-installed", "--no-deps", "--no-build-isolation", "--no-index", "--quiet")
    result = subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, "--prefix", folder / "prefix", source],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    return folder / "prefix"


def run_installed(prefix: Path, *command: str | Path) -> str:
    """Run a command that sees only the installation in ``prefix``; returns what it printed."""
    packages = sysconfig.get_path("purelib", vars={"base": str(prefix), "platbase": str(prefix)})
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join([packages, os.environ.get("PYTHONPATH", "")]),
        "AMENT_PREFIX_PATH": str(prefix),
    }
    result = subprocess.run(
        command, env=environment, cwd=prefix, capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_pip_installs_module_and_share(prefix: Path) -> None:
    code = (
        f"import {NAME}; from ament_index_python.packages import get_package_share_directory;"
        f"print({NAME}.__file__); print(get_package_share_directory('{NAME}'))"
    )
    module, share = map(Path, run_installed(prefix, sys.executable, "-c", code).splitlines())
    assert module.is_relative_to(prefix)
    assert (module.parent / "py.typed").exists()
    assert share == prefix / "share" / NAME
    for folder in ("launch", "config"):
        expected = {path.name for path in (REPOSITORY / folder).iterdir() if path.is_file()}
        installed = {path.name for path in (share / folder).iterdir() if path.is_file()}
        assert installed == expected
    assert (share / "package.xml").exists()


def test_pip_installs_weights(prefix: Path) -> None:
    weights = {path.name for path in (REPOSITORY / NAME / "weights").glob("*.safetensors")}
    assert {path.name for path in prefix.rglob("*.safetensors")} == weights


@pytest.mark.parametrize("executable", ["replay", "play_bag", "make_demo_bag", "demo"])
def test_executables_run(prefix: Path, executable: str) -> None:
    assert "usage" in run_installed(prefix, prefix / "lib" / NAME / executable, "--help")


def test_every_executable_is_installed(prefix: Path) -> None:
    installed = {
        path.name for path in (prefix / "lib" / NAME).iterdir() if os.access(path, os.X_OK)
    }
    assert installed == {path.name for path in (REPOSITORY / "bin").iterdir()}


def test_versions_agree() -> None:
    setup = re.search(r'version="([^"]+)"', (REPOSITORY / "setup.py").read_text())
    changes = re.search(r"^(\d+\.\d+\.\d+)", (REPOSITORY / "CHANGELOG.rst").read_text(), re.M)
    assert setup and changes
    version = parse_package(REPOSITORY).version
    assert version == setup[1] == changes[1] == lingbot_map_ros.__version__


@pytest.mark.parametrize("folder", [".", "interfaces/tf2_msgs"])
def test_manifest_is_valid(folder: str) -> None:
    warnings: list[str] = []
    package = parse_package(REPOSITORY / folder, warnings=warnings)
    assert not warnings
    assert package.package_format == 3
    assert [str(licence) for licence in package.licenses] == ["Apache-2.0"]


def test_manifest_names_every_ros_package_that_is_imported() -> None:
    declared = {dependency.name for dependency in parse_package(REPOSITORY).exec_depends}
    pattern = re.compile(rf"^\s*(?:from|import) ({ROS_PACKAGES})\b", re.M)
    sources = [*(REPOSITORY / NAME).rglob("*.py"), *(REPOSITORY / "launch").glob("*.py")]
    imported = {name for path in sources for name in pattern.findall(path.read_text())}
    assert "rclpy" in imported
    assert imported <= declared


@pytest.mark.parametrize("path", CONFIGURATIONS, ids=lambda path: path.name)
def test_configuration_holds_only_valid_parameters(path: Path) -> None:
    content = yaml.safe_load(path.read_text())
    assert list(content) == ["/**"]
    values = content["/**"]["ros__parameters"]
    values.pop("use_sim_time", None)
    fields = {field.name: field.default for field in dataclasses.fields(Parameters)}
    assert set(values) <= set(fields), f"unknown: {set(values) - set(fields)}"
    for name, value in values.items():
        assert type(value) is type(fields[name]), f"{name}: {value!r}"
    check(dataclasses.replace(Parameters(), **values))
