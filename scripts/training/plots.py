# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Curves of a training log."""

import csv
from collections import defaultdict
from pathlib import Path

import matplotlib

matplotlib.use("agg")
import matplotlib.pyplot as plt

_KINDS = {
    "evaluation": "rooms",
    "evaluation_openarena": "maps",
    "evaluation_clouds": "clouds",
}
_VALIDATION = {
    "validation ATE (share of path)": "ate",
    "validation rotation over 10 frames (degrees)": "rpe_deg",
    "validation AbsRel": "absrel",
    "validation field of view (degrees)": "fov_deg",
}
_TRAINING = {
    "loss": "loss",
    "relative rotation loss": "pair_rotation",
    "relative translation loss": "pair_translation",
    "flow loss (patches)": "flow",
}


def plot_log(log: Path, image: Path) -> None:
    """Draw ``log.csv`` over the seconds of training."""
    series: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    with log.open(newline="") as file:
        for kind, _, seconds, name, value in csv.reader(file):
            series[kind, name].append((float(seconds), float(value)))
    figure, (above, below) = plt.subplots(2, 4, figsize=(18, 7), layout="constrained")
    for axis, (title, name) in zip(above, _VALIDATION.items()):
        for kind, label in _KINDS.items():
            if series[kind, name]:
                axis.plot(*zip(*series[kind, name]), marker=".", label=label)
        if axis.lines:
            axis.legend()
        axis.set_title(title)
    for axis, (title, name) in zip(below, _TRAINING.items()):
        axis.plot(*zip(*series["training", name] or [(0, 0)]))
        axis.set_title(title)
    for axis in figure.axes:
        axis.set_xlabel("seconds")
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    figure.savefig(image, dpi=90)
    plt.close(figure)
