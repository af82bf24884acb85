# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The pictures of a report. Every function draws one and writes it as PNG."""

import io
import os
from collections.abc import Sequence
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from lingbot_map_ros.errors import ExportError

_TRUTH = {"color": "0.55", "linewidth": 2.5, "label": "ground truth"}
_ESTIMATE = {"color": "tab:blue", "linewidth": 1.3}
_SWITCH = {"color": "tab:orange", "marker": "d", "markersize": 5, "linestyle": ""}
_MOST_DRAWN_POINTS = 400_000
_OUTLIERS_PERCENT = 1.0
_MARGIN = 0.04
_SMALLEST_MARKER = 0.6
"""In printer's points."""
_HEADROOM = 0.5
"""Of the camera's height over the middle of the map, shown above the camera."""


def plot_trajectory(
    path: Path,
    estimate: NDArray[np.float64],
    unit: str,
    *,
    truth: NDArray[np.float64] | None = None,
    keyframes: NDArray[np.float64] | None = None,
    switches: NDArray[np.float64] | None = None,
    title: str = "",
) -> None:
    """Draw positions [N, 3] in the x-y and in the x-z plane of their world.

    ``unit`` labels the axes; ``keyframes`` [M, 3] and window ``switches`` [S, 3], where the path
    may step aside, are marked, ``truth`` [L, 3] lies below.
    """
    figure = Figure(figsize=(11, 5.5), layout="constrained")
    for axes, vertical in zip(figure.subplots(1, 2), (1, 2)):
        columns = [0, vertical]
        if truth is not None:
            axes.plot(*truth[:, columns].T, **_TRUTH)
        axes.plot(*estimate[:, columns].T, label="estimate", **_ESTIMATE)
        if keyframes is not None:
            axes.plot(*keyframes[:, columns].T, ".", color="tab:blue", label="keyframe")
        if switches is not None and len(switches):
            axes.plot(*switches[:, columns].T, label="window switch", **_SWITCH)
        axes.plot(*estimate[0, columns], "s", color="tab:green", markersize=7, label="start")
        axes.plot(*estimate[-1, columns], "X", color="tab:red", markersize=8, label="end")
        _spatial(axes, "x", "xyz"[vertical], unit)
        axes.set_title(f"x-{'xyz'[vertical]} plane")
    figure.axes[0].legend(loc="best", fontsize=9)
    figure.suptitle(title or "trajectory of the camera")
    _save(figure, path)


def plot_errors(
    path: Path, seconds: NDArray[np.float64], errors: NDArray[np.float64], title: str
) -> None:
    """Draw position errors [N] in metres over time [N] in seconds since the start."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    axes = figure.subplots()
    rmse, median = float(np.sqrt(np.mean(errors**2))), float(np.median(errors))
    axes.plot(seconds, errors, color="tab:red", linewidth=1.2, label="position error")
    axes.axhline(rmse, color="0.2", linestyle="--", linewidth=1, label=f"rmse {rmse:.3g} m")
    axes.axhline(median, color="0.2", linestyle=":", linewidth=1, label=f"median {median:.3g} m")
    axes.set(xlabel="time (s)", ylabel="error (m)", title=title, xlim=(seconds[0], seconds[-1]))
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(loc="best", fontsize=9)
    _save(figure, path)


def plot_map(
    path: Path,
    xyz: NDArray[np.float32],
    rgb: NDArray[np.uint8],
    trajectory: NDArray[np.float64],
    unit: str,
    voxel: float,
) -> None:
    """Draw the map from above: points [N, 3] (z up) in their colours, and the way [M, 3] over it.

    What lies clearly above the camera, such as a ceiling, is left out, so that one sees into rooms.
    What is far outside (the outermost percent in each direction) does not set the frame. Points are
    squares as large as the map's ``voxel``.
    """
    figure = Figure(figsize=(9, 8), layout="constrained")
    axes = figure.subplots()
    axes.set_facecolor("0.93")
    low, high = trajectory.min(0), trajectory.max(0)
    count = f"{len(xyz):,} points"
    if len(xyz):
        height = max(high[2] - float(np.median(xyz[:, 2])), 0.0)
        shown = xyz[:, 2] < high[2] + _HEADROOM * height + voxel
        if not shown.all():
            count = f"{np.count_nonzero(shown):,} of {count}, without those above the camera"
        xyz, rgb = xyz[shown], rgb[shown]
    if len(xyz):
        chosen = np.random.default_rng(0).permutation(len(xyz))[:_MOST_DRAWN_POINTS]
        # The highest points are drawn last, as they are seen from above.
        chosen = chosen[np.argsort(xyz[chosen, 2])]
        share = [_OUTLIERS_PERCENT, 100 - _OUTLIERS_PERCENT]
        inner = np.percentile(xyz[chosen, :2], share, axis=0)
        low = np.minimum(low[:2], inner[0])
        high = np.maximum(high[:2], inner[1])
        extent = max(float((high - low).max()), voxel)
        low, high = low - _MARGIN * extent, high + _MARGIN * extent
        # Marker areas are in square points; the frame is about 7 inches wide.
        side = 7 * 72 * voxel / (extent * (1 + 2 * _MARGIN))
        x, y = xyz[chosen, :2].T
        area = max(side, _SMALLEST_MARKER) ** 2
        axes.scatter(x, y, s=area, c=rgb[chosen] / 255.0, linewidths=0, marker="s")
        axes.set_xlim(low[0], high[0])
        axes.set_ylim(low[1], high[1])
    axes.plot(*trajectory[:, :2].T, color="tab:red", linewidth=1.6, label="camera")
    axes.plot(*trajectory[0, :2], "s", color="tab:green", markersize=7, label="start")
    axes.plot(*trajectory[-1, :2], "X", color="tab:red", markersize=8, label="end")
    _spatial(axes, "x", "y", unit)
    axes.set_title(f"map from above: {count}")
    axes.legend(loc="best", fontsize=9)
    _save(figure, path)


def plot_depth_strip(
    path: Path,
    images: Sequence[NDArray[np.uint8]],
    depths: Sequence[NDArray[np.float32]],
    labels: Sequence[str],
    unit: str,
) -> None:
    """Draw images [H, W, 3] above their depths [H, W] (NaN = not trusted), side by side."""
    count = len(images)
    height, width = depths[0].shape
    figure = Figure(figsize=(2.3 * count + 1.0, 4.6 * height / width + 0.9), layout="constrained")
    grid = figure.subplots(2, count, squeeze=False)
    finite = np.concatenate([depth[np.isfinite(depth)] for depth in depths])
    low, high = np.percentile(finite, [2, 98]) if len(finite) else (0.0, 1.0)
    colours = matplotlib.colormaps["turbo_r"].with_extremes(bad="black")
    for column, (image, depth, label) in enumerate(zip(images, depths, labels)):
        grid[0, column].imshow(image)
        grid[0, column].set_title(label, fontsize=9)
        drawn = grid[1, column].imshow(depth, cmap=colours, vmin=low, vmax=high)
    for axes in grid.flat:
        axes.set(xticks=[], yticks=[])
    bar = figure.colorbar(drawn, ax=grid[1].tolist(), pad=0.01)
    bar.set_label(f"depth ({unit})")
    grid[1, 0].set_xlabel("black: below the confidence limit", fontsize=8, loc="left")
    _save(figure, path)


def _spatial(axes: Axes, horizontal: str, vertical: str, unit: str) -> None:
    axes.set_aspect("equal", adjustable="datalim" if not axes.collections else "box")
    axes.set_xlabel(f"{horizontal} ({unit})")
    axes.set_ylabel(f"{vertical} ({unit})")
    axes.xaxis.set_major_locator(MaxNLocator(7))
    axes.grid(alpha=0.3)


def _save(figure: Figure, path: Path) -> None:
    """Write the picture aside and rename it, so that its name never holds half of one."""
    FigureCanvasAgg(figure)
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=110)
    write_whole(path, content.getvalue())


def write_whole(path: Path, content: bytes) -> None:
    """Write a file aside and rename it; ExportError if that fails."""
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        aside.write_bytes(content)
        aside.replace(path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise ExportError(f"{path} cannot be written: {error.strerror or error}") from error
