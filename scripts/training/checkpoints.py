# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Saving and resuming, the moving average of the weights, the exported file, the log."""

import argparse
import csv
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from lingbot_map_ros.models.quantize import save_quantized

from .distributed import World
from .network import ClipTrainer
from .optimisers import Optimisers
from .plots import plot_log

logger = logging.getLogger("train")

PART_BYTES = 16_000_000
WEIGHTS, STATE, LOG = "small.safetensors", "state.pt", "log.csv"
TOTAL = "total_seconds"


class Checkpoints:
    """State of a training in ``args.output``; taken up again if there is one."""

    def __init__(
        self,
        args: argparse.Namespace,
        world: World,
        trainer: ClipTrainer,
        optimisers: Optimisers,
        decay: float,
    ) -> None:
        self.args, self.world, self.trainer, self.optimisers = args, world, trainer, optimisers
        self.decay = decay
        self.step, self.seconds = 0, 0.0
        self.folder = args.output
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / LOG).touch()
        self._parameters = [p for p in trainer.parameters() if p.requires_grad]
        path = self.folder / STATE
        average = None
        if path.is_file():
            state = torch.load(path, map_location=trainer.model.device, weights_only=True)
            trainer.load_state_dict(state["weights"])
            optimisers.load_state_dict(state["optimisers"])
            self.step, self.seconds = state["step"], state["seconds"]
            average = state["average"]
            logger.info("resumed at step %d, %.0f s", self.step, self.seconds)
        self._average = average or [p.detach().clone() for p in self._parameters]

    def total_seconds(self) -> float | None:
        """Length of the schedule; None if it ends with this call.

        The file ``total_seconds`` in the output folder overrides the command line: a job
        whose time turns out shorter can so be brought to a good end.
        """
        path = self.folder / TOTAL
        return float(path.read_text()) if path.is_file() else self.args.total_seconds

    @torch.no_grad()
    def update_average(self) -> None:
        """Move the average towards the present weights; faster in the beginning."""
        decay = min(self.decay, (1 + self.step) / (10 + self.step))
        torch._foreach_lerp_(self._average, [p.detach() for p in self._parameters], 1 - decay)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Put the average in the place of the weights for a while."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for parameter, average in zip(self._parameters, self._average):
            kept = parameter.detach().clone()
            parameter.copy_(average)
            average.copy_(kept)

    def save(self) -> None:
        """Write the state that a later call resumes from; rank 0 alone."""
        if self.world.rank:
            return
        state = {
            "weights": self.trainer.state_dict(),
            "optimisers": self.optimisers.state_dict(),
            "average": self._average,
            "step": self.step,
            "seconds": self.seconds,
        }
        partial = self.folder / (STATE + ".partial")
        torch.save(state, partial)
        partial.replace(self.folder / STATE)

    def export(self) -> None:
        """Write the quantised average, in parts too if asked for; rank 0 alone."""
        if self.world.rank:
            return
        model = self.trainer.model
        path = self.folder / WEIGHTS
        with self.averaged():
            save_quantized(path, model.state_dict(), model.config.to_dict())
        if self.args.export is not None:
            self.args.export.mkdir(parents=True, exist_ok=True)
            data = path.read_bytes()
            for number, start in enumerate(range(0, len(data), PART_BYTES)):
                part = self.args.export / f"{WEIGHTS}.{number}"
                part.write_bytes(data[start : start + PART_BYTES])

    def plot(self) -> None:
        """Draw the log; rank 0 alone."""
        if self.world.rank == 0:
            plot_log(self.folder / LOG, self.folder / "log.png")

    def log(self, kind: str, progress: float, values: dict[str, float]) -> None:
        """Append a row to the log; rank 0 alone."""
        if self.world.rank:
            return
        head = {"kind": kind, "step": self.step, "seconds": round(self.seconds, 1)}
        text = " ".join(f"{k} {v:.4g}" for k, v in values.items())
        logger.info("%s step %d (%.1f%%): %s", kind, self.step, 100 * progress, text)
        with (self.folder / LOG).open("a", newline="") as file:
            writer = csv.writer(file)
            for name, value in values.items():
                writer.writerow([*head.values(), name, f"{value:.6g}"])
        if kind != "training" and self.args.export is not None:
            self.args.export.mkdir(parents=True, exist_ok=True)
            (self.args.export / LOG).write_bytes((self.folder / LOG).read_bytes())
