# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The environment of the tests and of what they start, set before rclpy and torch are loaded."""

import fcntl
import os
import random
import signal
import sys
import tempfile
from pathlib import Path
from typing import TextIO

from lingbot_map_ros.replay.fastdds import fastdds_environment


def reserve_domain() -> TextIO:
    """Reserve a ROS domain: its number is taken for as long as the returned lock is held."""
    for number in random.sample(range(1, 101), 100):
        path = Path(tempfile.gettempdir(), f"lingbot_map_ros_domain_{number}.lock")
        lock = path.open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            continue
        os.environ["ROS_DOMAIN_ID"] = str(number)
        return lock
    raise RuntimeError("every ROS domain from 1 to 100 is reserved by another test process")


_domain_lock = reserve_domain()
# In the background of a script SIGINT is ignored, and what the tests start would ignore it too.
signal.signal(signal.SIGINT, signal.default_int_handler)
_ros_home = tempfile.TemporaryDirectory(prefix="lingbot_map_ros_home_")
os.environ["ROS_HOME"] = _ros_home.name
os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"] = "LOCALHOST"
os.environ.setdefault("AMENT_PREFIX_PATH", sys.prefix)
os.environ.update(fastdds_environment(os.environ))
# Several processes share few cores, and small models are fastest with one thread each.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
os.environ.setdefault("MPLBACKEND", "Agg")
