# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Trajectory errors by evo, which runs as a program of its own (it is GPL-licensed).

ATE is the distance between estimated and true positions after the best alignment, RPE the error of
the motion from one pose to the next. Both are given for a Sim(3) alignment, which forgives the
scale, and for an SE(3) alignment, which does not.
"""

import io
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lingbot_map_ros.errors import LingbotMapError

STATISTICS = ("rmse", "mean", "median", "std", "min", "max")
MAX_DIFFERENCE_S = 0.02
_ALIGNMENTS = {"sim3": ["--align", "--correct_scale"], "se3": ["--align"]}
_TIMEOUT_S = 600.0
_PARALLEL = 2


class EvaluationError(LingbotMapError):
    """Trajectories that cannot be compared, or no evo to compare them with."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Errors of an estimated trajectory.

    ``summary`` is plain data for a report: ``poses`` (compared), ``path_length`` of the truth in
    metres, ``scale`` (truth per estimate), ``ate`` and ``rpe_translation`` (metres) and
    ``rpe_rotation`` (degrees), each with ``sim3`` and ``se3``, each with ``STATISTICS``;
    ``ate_percent`` is the Sim(3) ATE's rmse in percent of the path.

    ``stamps`` [N] in seconds and ``errors`` [N] in metres are the ATE after the Sim(3) alignment,
    ``alignment`` [4, 4] (scale included) brings estimated positions to the truth's world.
    """

    summary: dict[str, Any]
    stamps: NDArray[np.float64]
    errors: NDArray[np.float64]
    alignment: NDArray[np.float64]

    @property
    def title(self) -> str:
        """Heading of a picture of the aligned trajectory."""
        rmse, percent = self.summary["ate"]["sim3"]["rmse"], self.summary["ate_percent"]
        share = "" if percent is None else f" ({percent:.2f}% of the way)"
        return f"trajectory after Sim(3) alignment, ATE {rmse:.3g} m{share}"


def find_evo() -> dict[str, Path]:
    """Find ``evo_ape`` and ``evo_rpe``, beside this Python or on the path.

    Raises
    ------
    EvaluationError
        With the command that installs them.
    """
    found = {}
    for name in ("evo_ape", "evo_rpe"):
        beside = Path(sys.executable).parent / name
        program = str(beside) if beside.is_file() else shutil.which(name)
        if program is None:
            command = f"{sys.executable} -m pip install evo"
            raise EvaluationError(f"evo is missing; install it with: {command}")
        found[name] = Path(program)
    return found


def evaluate(truth: Path, estimate: Path, max_difference_s: float = MAX_DIFFERENCE_S) -> Evaluation:
    """Compare two TUM files; poses belong together whose stamps differ least.

    Parameters
    ----------
    truth, estimate : Path
        TUM files in metres and in any unit.
    max_difference_s : float
        Largest difference in seconds between the stamps of a pair.

    Raises
    ------
    EvaluationError
        If evo is missing or finds too few pairs, or the motion does not determine an alignment.
    """
    programs = find_evo()
    with tempfile.TemporaryDirectory(prefix="replay_evo_") as folder:

        def run(metric: str, relation: str, alignment: str) -> dict[str, Any]:
            result = Path(folder) / f"{metric}_{relation}_{alignment}.zip"
            command = [str(programs[metric]), "tum", str(truth), str(estimate)]
            command += [*_ALIGNMENTS[alignment], "--pose_relation", relation]
            command += ["--t_max_diff", str(max_difference_s), "--save_results", str(result)]
            command += ["--no_warnings"]
            return _run(command, result)

        # The first one fails early where nothing can be compared. Rotations do not depend on it.
        results = {("evo_ape", "trans_part", "sim3"): run("evo_ape", "trans_part", "sim3")}
        jobs = [
            ("evo_ape", "trans_part", "se3"),
            ("evo_rpe", "trans_part", "sim3"),
            ("evo_rpe", "trans_part", "se3"),
            ("evo_rpe", "angle_deg", "sim3"),
        ]
        with ThreadPoolExecutor(_PARALLEL) as pool:
            results.update(zip(jobs, pool.map(lambda job: run(*job), jobs)))
        results["evo_rpe", "angle_deg", "se3"] = results["evo_rpe", "angle_deg", "sim3"]
    return _summarise(results, truth)


def read_tum(path: Path) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Stamps [N] in seconds and positions [N, 3] of a TUM file.

    Raises
    ------
    EvaluationError
        If the file cannot be read or is no TUM trajectory.
    """
    try:
        text = path.read_text()
        rows = np.loadtxt(io.StringIO(text), ndmin=2) if text.strip() else np.empty((0, 0))
    except (OSError, ValueError) as error:
        raise EvaluationError(f"{path} cannot be read as a TUM trajectory: {error}") from error
    if rows.shape[1] != 8:
        raise EvaluationError(f"{path} is no TUM trajectory: 8 numbers a line are needed")
    return rows[:, 0], rows[:, 1:4]


def _run(command: list[str], result: Path) -> dict[str, Any]:
    """Run evo; the content of its result file by name."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EvaluationError(f"{command[0]} failed: {error}") from error
    if done.returncode or not result.is_file():
        raise EvaluationError(f"evo: {_reason(done.stdout + done.stderr)}")
    content: dict[str, Any] = {}
    with zipfile.ZipFile(result) as archive:
        for name in archive.namelist():
            with archive.open(name) as file:
                if name.endswith(".json"):
                    content[Path(name).stem] = json.load(file)
                elif name.endswith(".npy"):
                    content[Path(name).stem] = np.load(file)
    return content


def _reason(output: str) -> str:
    """The line of evo's output that says what is wrong."""
    lines = [line.strip() for line in output.splitlines() if line.strip(" -")]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or ["it failed without a message"])[-1].removeprefix("[ERROR] ")


def _summarise(results: dict[tuple[str, str, str], dict[str, Any]], truth: Path) -> Evaluation:
    def statistics(metric: str, relation: str) -> dict[str, dict[str, float]]:
        return {
            name: {key: results[metric, relation, name]["stats"][key] for key in STATISTICS}
            for name in _ALIGNMENTS
        }

    ape = results["evo_ape", "trans_part", "sim3"]
    stamps, errors = ape["timestamps"], ape["error_array"]
    alignment = ape["alignment_transformation_sim3"]
    length = _path_length(truth, stamps)
    ate = statistics("evo_ape", "trans_part")
    summary = {
        "poses": len(errors),
        "path_length": length,
        "scale": float(np.cbrt(np.linalg.det(alignment[:3, :3]))),
        "ate": ate,
        "ate_percent": 100 * ate["sim3"]["rmse"] / length if length else None,
        "rpe_translation": statistics("evo_rpe", "trans_part"),
        "rpe_rotation": statistics("evo_rpe", "angle_deg"),
    }
    return Evaluation(summary, stamps, errors, alignment)


def _path_length(truth: Path, stamps: NDArray[np.float64]) -> float:
    """Metres that the truth travels while it is compared."""
    times, positions = read_tum(truth)
    low, high = stamps.min() - MAX_DIFFERENCE_S, stamps.max() + MAX_DIFFERENCE_S
    inside = (times >= low) & (times <= high)
    steps = np.diff(positions[inside], axis=0)
    return float(np.linalg.norm(steps, axis=1).sum())
