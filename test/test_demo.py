# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The demo as `make demo` runs it, short and with the smallest model."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from lingbot_map_ros.replay.demo_report import read_ply
from lingbot_map_ros.replay.evaluation import read_tum

FRAMES = 10
PNG = b"\x89PNG\r\n\x1a\n"


def command(folder: Path, *more: str) -> list[str]:
    domain = os.environ["ROS_DOMAIN_ID"]
    program = [sys.executable, "-m", "lingbot_map_ros.replay.demo"]
    return [*program, "--output", str(folder), "--domain", domain, *more]


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Folder and printed report of a demo."""
    folder = tmp_path_factory.mktemp("demo") / "demo_out"
    call = command(folder, "--frames", str(FRAMES), "--checkpoint", "random:tiny")
    result = subprocess.run(call, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stdout + result.stderr
    return folder, result.stdout


def test_every_frame_gets_a_pose(demo: tuple[Path, str]) -> None:
    folder, _ = demo
    stamps, _ = read_tum(folder / "trajectory.tum")
    true_stamps, _ = read_tum(folder / "ground_truth.tum")
    np.testing.assert_allclose(stamps, true_stamps, atol=1e-6)
    assert len(stamps) == FRAMES


def test_map_and_pictures(demo: tuple[Path, str]) -> None:
    folder, _ = demo
    xyz, rgb = read_ply(folder / "map.ply")
    assert len(xyz) > 1000
    assert np.isfinite(xyz).all()
    assert rgb.std() > 1
    for name in ("trajectory.png", "map.png"):
        assert (folder / name).read_bytes().startswith(PNG)


def test_report(demo: tuple[Path, str]) -> None:
    folder, printed = demo
    report = json.loads((folder / "report.json").read_text())
    assert report["poses"] == FRAMES
    assert report["ate"]["sim3"]["rmse"] > 0
    assert f"{report['ate']['sim3']['rmse']:.3f} m" in printed
    assert "weights are random" in printed


def test_missing_checkpoint_is_said(tmp_path: Path) -> None:
    call = command(tmp_path, "--frames", "2", "--checkpoint", str(tmp_path / "none.pt"))
    result = subprocess.run(call, capture_output=True, text=True, timeout=120)
    assert result.returncode == 1
    assert "none.pt" in result.stderr


def test_a_folder_of_somebody_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "bag").mkdir()
    (tmp_path / "bag" / "mine.txt").write_text("mine")
    call = command(tmp_path, "--frames", "2", "--checkpoint", "random:tiny")
    result = subprocess.run(call, capture_output=True, text=True, timeout=120)
    assert result.returncode == 1
    assert "mine.txt, which no demo wrote" in result.stderr
    assert (tmp_path / "bag" / "mine.txt").read_text() == "mine"
    file = tmp_path / "file"
    file.touch()
    call = command(file, "--frames", "2", "--checkpoint", "random:tiny")
    result = subprocess.run(call, capture_output=True, text=True, timeout=120)
    assert result.returncode == 1
    assert "Traceback" not in result.stderr


def test_interrupt_leaves_no_process(tmp_path: Path) -> None:
    call = command(tmp_path, "--frames", "2", "--checkpoint", "random:tiny")
    process = subprocess.Popen(call, stdout=subprocess.DEVNULL, start_new_session=True)
    log = tmp_path / "node.log"
    deadline = time.monotonic() + 120
    while not log.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 128 + signal.SIGINT
    running = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not any(str(tmp_path).encode() in line for line in running)
