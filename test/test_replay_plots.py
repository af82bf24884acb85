# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the pictures of a report say."""

import numpy as np
import pytest

from lingbot_map_ros.replay import plots


@pytest.mark.parametrize(
    ("ceiling", "title"),
    [(0, "map from above: 1,500 points"),
     (300, "map from above: 1,500 of 1,800 points, without those above the camera")],
)  # fmt: skip
def test_the_picture_of_a_map_counts_the_points_that_the_report_counts(
    monkeypatch, tmp_path, ceiling, title
):
    drawn = []
    monkeypatch.setattr(plots, "_save", lambda figure, path: drawn.append(figure))
    xyz = np.random.default_rng(0).uniform(-1, 0, (1500 + ceiling, 3)).astype(np.float32)
    xyz[1500:, 2] = 3
    way = np.zeros((2, 3))
    plots.plot_map(tmp_path / "map.png", xyz, np.zeros_like(xyz, np.uint8), way, "m", 0.02)
    assert drawn[0].axes[0].get_title() == title
