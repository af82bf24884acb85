# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The soak in short: it runs, judges, and no memory grows.

A tenth of these runs is too short to judge times by; ``test_windows_endless`` counts the work.
"""

import json
import subprocess
import sys

import numpy as np
import pytest
import soak_record
from node_harness import REPOSITORY

FRAMES = 10_000
SCRIPT = REPOSITORY / "scripts" / "soak.py"


def run(*arguments):
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode in (0, 1), done.stderr
    report = json.loads(done.stdout)
    assert report["passed"] == (done.returncode == 0)
    return report


def growth_by_quarters(report):
    """From the second quarter, for caches still fill in the first, to the last."""
    _, second, _, last = np.array_split(report["resident_mb"], 4)
    return np.median(last) / np.median(second)


def test_a_session_does_not_grow():
    report = run("--frames", 300)
    assert report["answered"] == 300 and report["withheld"] == 0 and report["windows"] > 5
    assert growth_by_quarters(report) <= soak_record.MEMORY_GROWTH


def test_a_node_does_not_grow():
    report = run("--target", "node", "--frames", 150)
    assert report["answered"] == 150
    assert report["early"] == report["late"]
    # The map still grows.
    assert growth_by_quarters(report) < 1.06


@pytest.mark.parametrize(
    ("leak", "slower", "answered", "passed"),
    [
        (0, 1.0, FRAMES, True),
        (0, 1.05, FRAMES, True),
        (1_000_000, 1.0, FRAMES, False),
        (0, 1.2, FRAMES, False),
        (0, 1.0, FRAMES - 1, False),
    ],
)
def test_the_verdict(leak, slower, answered, passed):
    sizes = iter(range(300_000_000, 10**9, leak) if leak else [300_000_000] * soak_record.SAMPLES)
    record = soak_record.Record(FRAMES, lambda: next(sizes), lambda: 1e-3)
    random = np.random.default_rng(0)
    for i in range(FRAMES):
        time = (slower if i >= FRAMES // 2 else 1.0) * random.uniform(0.9, 1.0)
        # A few hiccups do not make a slow program.
        record.add(i, time, 30 * time if i in (1500, 9300, 9777) else time)
    report = record.report(answered)
    assert report["passed"] is passed and report["machine_slower"] == 1.0
    assert len(report["resident_mb"]) == soak_record.SAMPLES
