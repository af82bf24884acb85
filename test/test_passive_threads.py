# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Every program makes PyTorch's idle threads sleep before PyTorch is loaded."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
PROGRAMS = [
    path
    for path in sorted([*REPOSITORY.glob("bin/*"), *REPOSITORY.glob("scripts/*.py")])
    if path.is_file() and "__main__" in path.read_text() and path.name != "play_bag"
]
IMPORT = """
import os, runpy, sys

def say():
    print(os.environ.get("OMP_WAIT_POLICY"), flush=True)
    os._exit(0)

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            say()

sys.meta_path.insert(0, Finder())
sys.path.insert(0, os.path.dirname(sys.argv[1]))
runpy.run_path(sys.argv[1], run_name="imported")
say()
"""
"""Runs the imports of a program up to that of PyTorch, and tells what OpenMP would read then."""


def policy_of(program, **environment):
    clean = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    done = subprocess.run(
        [sys.executable, "-c", IMPORT, str(program)],
        env={**clean, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
def test_idle_threads_sleep(program):
    assert policy_of(program) == "PASSIVE"


def test_what_the_user_has_set_stays():
    assert policy_of(REPOSITORY / "bin" / "replay", OMP_WAIT_POLICY="ACTIVE") == "ACTIVE"
