# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Accuracy while training, on rooms and maps that are neither trained on nor in the model card."""

import logging
from pathlib import Path

import numpy as np
import torch

from lingbot_map_ros.geometry.sim3 import AlignmentError
from lingbot_map_ros.models.clip import ClipLayout, ClipMask, forward_clip
from lingbot_map_ros.models.gct_stream import GCTStream

from .clips import read_clip
from .distributed import World
from .losses import make_targets
from .metrics import image_absrel, sequence_metrics
from .rooms import VALIDATION, RoomTracks
from .schedule import SCALE_FRAMES, WINDOW
from .store import Clips

logger = logging.getLogger("train")

FRAMES, TRACKS = 120, 3  # of each kind and rank
ALONE_EVERY, ALONE_COPIES = 8, 5


class Validation:
    """Rooms and clouds of the validation bank, ``folder/validation`` of rendered OpenArena clips.

    ``prepare`` comes before ``measure``. Like every ``RoomTracks`` made before CUDA is initialised.
    """

    def __init__(
        self, world: World, size: tuple[int, int], folder: Path | None, frames: int = FRAMES
    ) -> None:
        self.world, self.size, self.folder, self.frames = world, size, folder, frames
        self.rooms, self.clouds = (
            RoomTracks(
                frames,
                size,
                world.rank,
                photographs=0,
                workers=1,
                bank=VALIDATION,
                clouds=clouds,
                difficulty=1.0,
            )
            for clouds in (0.0, 1.0)
        )
        self._clips: dict[str, list[Clips]] = {}

    def prepare(self, device: torch.device) -> None:
        """Render and read the clips, once; those of OpenArena that have been rendered by then."""
        if self._clips:
            return
        for kind, tracks in (("evaluation", self.rooms), ("evaluation_clouds", self.clouds)):
            tracks.open(device, None, compiled=False)
            self._clips[kind] = [_batch(*tracks.render()) for _ in range(TRACKS)]
        paths = sorted((self.folder / "validation").glob("[!.]*.npz")) if self.folder else []
        mine = paths[self.world.rank :: self.world.size][:TRACKS]
        clips = [[x.to(device) for x in read_clip(path).values()] for path in mine]
        self._clips["evaluation_openarena"] = [_batch(*clip) for clip in clips]

    @torch.no_grad()
    def measure(self, model: GCTStream) -> dict[str, dict[str, float]]:
        """Medians over all ranks' clips, by kind; no entry for a kind without clips.

        Clips on which the poses, true or predicted, lie on a line are left out with a warning:
        they have no alignment, and a training is not to end for that.
        """
        medians = {}
        for kind, clips in self._clips.items():
            mine = [self._figures(model, clip) for clip in clips]
            results = [r for part in self.world.gather(mine) for r in part if r is not None]
            if results:
                names = results[0]
                medians[kind] = {k: float(np.median([r[k] for r in results])) for k in names}
        return medians

    def _figures(self, model: GCTStream, clip: Clips) -> dict[str, float] | None:
        frames = min(clip.images.shape[1], self.frames)
        images, depth, poses = (x[:, :frames] for x in clip[:3])
        layout = ClipLayout(frames, min(SCALE_FRAMES, frames), SCALE_FRAMES, WINDOW)
        prediction = forward_clip(model, images, ClipMask(model, layout, self.size))
        target = make_targets(poses, depth, clip.focal, layout.first_call)
        try:
            figures = sequence_metrics(
                prediction.poses[-1, 0].float().cpu().numpy(),
                prediction.depth.float().cpu().numpy(),
                poses[0].double().cpu().numpy(),
                depth[0].cpu().numpy(),
                target.fov[0].cpu().numpy(),
            )
        except AlignmentError as error:
            logger.warning("a clip is not evaluated: %s", error)
            return None
        return figures | self._parallax(model, images[0], depth[0], prediction.depth)

    def _parallax(
        self, model: GCTStream, images: torch.Tensor, true: torch.Tensor, streamed: torch.Tensor
    ) -> dict[str, float]:
        """AbsRel with a scale for each image: streamed, and of each image without any motion.

        Where both are equal, depth comes from what things look like and not from how they move.
        """
        some = slice(SCALE_FRAMES, None, ALONE_EVERY)
        stills = images[some, None].expand(-1, ALONE_COPIES, -1, -1, -1)
        count = len(stills)
        layout = ClipLayout(ALONE_COPIES, SCALE_FRAMES, SCALE_FRAMES, WINDOW)
        last = torch.arange(1, count + 1, device=images.device) * ALONE_COPIES - 1
        still = forward_clip(model, stills, ClipMask(model, layout, self.size), last)
        return {
            "absrel_image": image_absrel(streamed[some], true[some]),
            "absrel_still": image_absrel(still.depth, true[some]),
        }

    def close(self) -> None:
        """End the worker processes."""
        self.rooms.close()
        self.clouds.close()


def _batch(
    images: torch.Tensor, depth: torch.Tensor, poses: torch.Tensor, focal: torch.Tensor
) -> Clips:
    return Clips(images[None].float() / 255, depth[None].float(), poses[None], focal[None])
