# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A stream of many windows in bounded memory and work."""

import gc
import os
from pathlib import Path

import numpy as np
import pytest
from streams import PERIOD, image, tiny_model
from work import counted

from lingbot_map_ros.streaming.session import SessionConfig, StreamingSession


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("frames", [500, pytest.param(5000, marks=pytest.mark.slow)])
def test_many_windows_in_flat_memory(frames):
    session = StreamingSession(tiny_model(image_size=56), SessionConfig())
    resident, objects, work, handed_out = [], [], [], 0
    for i in range(frames):
        if i == frames // 2:  # half of it manual, with nobody deciding
            session.set_deferred(True)
        if i % 50 in (48, 49):
            results, calls = counted(session.step, image(i), i * PERIOD)
            work.append(calls)
        else:
            results = session.step(image(i), i * PERIOD)
        handed_out += len(results)
        for result in results:
            assert np.isfinite(result.pose_map).all() and np.isfinite(result.pose_odom).all()
            np.testing.assert_allclose(np.linalg.det(result.pose_map[:3, :3]), 1.0, atol=1e-6)
        if i % 50 == 49:
            gc.collect()
            resident.append(resident_bytes())
            objects.append(len(gc.get_objects()))
    status = session.status()
    assert handed_out == frames and status.withheld == 0 and status.segment == 0
    assert status.window > frames // 10
    assert np.median(resident[-3:]) <= 1.02 * np.median(resident[1:4])
    # Decisions that nobody fetches are the only thing that may grow, up to their limit.
    assert objects[-1] - objects[1] < 3000
    assert np.median(work[-6:]) < 1.1 * np.median(work[:6])
