# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Curves of a training log."""

import csv
from collections import defaultdict
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt

_FIGURES = {
    "validation ATE (share of path)": ("evaluation", "ate"),
    "validation rotation over 10 frames (degrees)": ("evaluation", "rpe_deg"),
    "validation AbsRel": ("evaluation", "absrel"),
    "validation field of view (degrees)": ("evaluation", "fov_deg"),
    "loss": ("training", "loss"),
    "relative rotation loss": ("training", "pair_rotation"),
    "relative translation loss": ("training", "pair_translation"),
    "flow loss (patches)": ("training", "flow"),
}


def plot_log(log: Path, image: Path) -> None:
    """Draw ``log.csv`` over the seconds of training."""
    series: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    with log.open(newline="") as file:
        for kind, _, seconds, name, value in csv.reader(file):
            series[kind, name].append((float(seconds), float(value)))
    figure, axes = plt.subplots(2, 4, figsize=(18, 7), layout="constrained")
    for axis, (title, key) in zip(axes.flat, _FIGURES.items()):
        axis.plot(*zip(*series[key] or [(0, 0)]), marker="." if key[0] == "evaluation" else "")
        axis.set_title(title)
        axis.set_xlabel("seconds")
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    figure.savefig(image, dpi=90)
    plt.close(figure)
