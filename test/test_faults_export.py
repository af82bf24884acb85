# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What a process killed in mid-save leaves behind does not fill the disk."""

import os
import subprocess
import sys
import time

import numpy as np

from lingbot_map_ros.mapping.export import write_ply, write_tum

KILLED = """
import os, signal, sys
from pathlib import Path
import numpy as np
from lingbot_map_ros.mapping.export import write_ply

os.fsync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)
write_ply(Path(sys.argv[1]), np.zeros((1000, 3), np.float32), np.zeros((1000, 3), np.uint8))
"""


def test_a_later_save_removes_what_a_killed_one_has_left(tmp_path):
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "map_1.ply")])
    assert killed.returncode == -9
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".map_1.ply.") and left.suffix == ".part"
    others = [tmp_path / name for name in (".hidden", ".other.part", "notes.part")]
    for other in others:
        other.write_text("mine")
        os.utime(other, (0, 0))
    # It might still be written to.
    write_tum(tmp_path / "a.tum", np.array([1]), np.eye(4)[None])
    assert left.exists()
    long_ago = time.time() - 7200
    os.utime(left, (long_ago, long_ago))
    write_ply(tmp_path / "map_2.ply", np.zeros((1, 3), np.float32), np.zeros((1, 3), np.uint8))
    assert not left.exists() and all(other.exists() for other in others)
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"a.tum", "map_2.ply", *(other.name for other in others)}
