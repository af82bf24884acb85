# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The training loop of one process."""

import argparse
import logging
import time
from contextlib import nullcontext

import numpy as np
import torch
from PIL import Image
from torch.nn.parallel import DistributedDataParallel

from lingbot_map_ros.models.checkpoint_file import locate
from lingbot_map_ros.models.clip import ClipLayout, ClipMask
from lingbot_map_ros.models.config import GCTConfig

from .augment import augment
from .checkpoints import Checkpoints
from .clips import ClipFolder
from .distributed import World
from .losses import make_targets, total_loss
from .network import ClipTrainer, compile_blocks, continued_model, initial_model
from .optimisers import Optimisers
from .rooms import RoomTracks
from .schedule import CONTINUED, FROM_BACKBONE, Lesson, Stage, draw_lesson, rate_factor
from .store import Clips, TrackStore, join, mirror
from .timetable import Timetable
from .validation import FRAMES as VALIDATION_FRAMES
from .validation import Validation
from .virtual_camera import draw_views, look

logger = logging.getLogger("train")

TRACK_FRAMES = 128
DEPTH_SHARE = 4
AGREE_EVERY = 20
FRAMES_PER_TRACK = 720  # of training, until the next room track is rendered
REPORT_EVERY = 50
# Each takes several seconds, in which nothing is trained.
EVALUATE_SECONDS, SAVE_SECONDS = 200.0, 240.0
# Fresh read-outs beside trained weights first learn to read before they teach.
TEACHING_STEPS = 300
EMA_DECAY = 0.998
MAX_NORM = 1.0


class Trainer:
    """Everything that one rank needs; ``run`` trains."""

    def __init__(self, args: argparse.Namespace, world: World, start: float) -> None:
        self.args, self.world = args, world
        logging.basicConfig(level=logging.INFO if world.rank == 0 else logging.WARNING)
        config = GCTConfig.preset(args.preset)
        self.size = (config.image_height or config.image_size, config.image_size)
        textures = load_textures(args.textures) if args.textures else None
        photographs = 0 if textures is None else len(textures)
        # Its worker processes are forked, which must come before CUDA starts.
        smoke = args.steps < REPORT_EVERY
        frames = 24 if smoke else TRACK_FRAMES
        self.rooms = RoomTracks(
            frames,
            self.size,
            args.seed * 1000 + world.rank,
            photographs=photographs,
            workers=args.workers,
        )
        self.validation = Validation(
            world, self.size, args.openarena, frames if smoke else VALIDATION_FRAMES
        )
        self.device = world.device()
        cuda = self.device.type == "cuda"
        if cuda:
            torch.backends.cuda.matmul.allow_tf32 = True
            torch.backends.cudnn.allow_tf32 = True
            torch.backends.cudnn.benchmark = True
        compiled = cuda and not args.eager
        self.rooms.open(self.device, textures, compiled=compiled)
        if args.weights is None:
            model = initial_model(config, args.backbone, self.device)
        else:
            model = continued_model(config, locate(args.weights), self.device)
        self.course = FROM_BACKBONE if args.weights is None else CONTINUED
        self.module = ClipTrainer(model)
        if compiled:
            compile_blocks(model)
        self.flex = cuda and not args.dense
        rate = args.lr or self.course.rate
        self.optimisers = Optimisers(self.module, rate, args.backbone_rate)
        self.checkpoints = Checkpoints(args, world, self.module, self.optimisers, EMA_DECAY)
        self.ddp = (
            DistributedDataParallel(
                self.module,
                [self.device.index] if cuda else None,
                broadcast_buffers=False,
                gradient_as_bucket_view=True,
            )
            if world.size > 1
            else self.module
        )
        self.autocast = torch.autocast("cuda", torch.bfloat16) if cuda else nullcontext()
        self.store = TrackStore(args.tracks, frames, self.size, self.device)
        self.clips = ClipFolder(args.openarena, world, self.device, args.clips)
        self.masks: dict[ClipLayout, ClipMask] = {}
        generator_seed = args.seed + 7919 * world.rank + self.checkpoints.step
        self.generator = torch.Generator().manual_seed(generator_seed)
        torch.manual_seed(generator_seed)
        self.times = Timetable(start, args.seconds, self.checkpoints.seconds)
        logger.info("set up in %.1f s", time.monotonic() - start)

    def run(self) -> None:
        """Train until the schedule, this call's time or its steps are over."""
        args, state, times = self.args, self.checkpoints, self.times
        first_step = state.step
        progress = times.progress(state.total_seconds())
        self._follow(progress)
        for _ in range(1 if args.steps < REPORT_EVERY else min(32, self.store.capacity)):
            self.store.add(*self.rooms.render())
        times.begin()
        begin = last_evaluation = last_save = time.monotonic()
        losses: list[dict[str, torch.Tensor]] = []
        while state.step - first_step < args.steps:
            step = state.step
            if step % AGREE_EVERY == 0 or step == first_step:
                now = time.monotonic()
                state.seconds, progress, over, evaluate, save = self.world.agree(
                    [
                        times.spent(),
                        times.progress(state.total_seconds()),
                        times.over(),
                        now - last_evaluation > EVALUATE_SECONDS,
                        now - last_save > SAVE_SECONDS,
                    ],
                    self.device,
                )
                if over or progress >= 1:
                    break
                if evaluate:
                    self.evaluate(progress)
                    last_evaluation = time.monotonic()
                if save:
                    self.save()
                    last_save = time.monotonic()
            losses.append(self.train_step(step, progress))
            state.step += 1
            if state.step % REPORT_EVERY == 0:
                self._report(losses, progress, begin, state.step - first_step)
                losses = []
        # First what cannot be had again.
        self.save()
        (fits,) = self.world.agree([times.has_time_for("evaluate")], self.device)
        if fits:
            self.evaluate(progress)
        state.plot()

    def save(self) -> None:
        """Write the exported weights, and the state that a later call goes on from."""
        with self.times.task("export"):
            self.checkpoints.export()
        with self.times.task("save"):
            self.checkpoints.save()

    def train_step(self, step: int, progress: float) -> dict[str, torch.Tensor]:
        """One update; returns the losses, still on the device."""
        stage = self._follow(progress)
        if step % max(FRAMES_PER_TRACK // self.args.frames, 1) == 0 and self.rooms.ready():
            self.store.add(*self.rooms.render())
        lesson = draw_lesson(stage, step, min(self.args.frames, self.store.length))
        layout = lesson.layout
        batch = self._clips(lesson, stage.openarena)
        altered = torch.rand(len(batch.images), device=self.device) < stage.altered
        images = augment(batch.images, altered)
        target = make_targets(batch.poses, batch.depth, batch.focal, layout.first_call)
        frames = images.shape[0] * images.shape[1]
        chosen = torch.randperm(frames, device=self.device)[: max(frames // DEPTH_SHARE, 1)]
        teaching = 1.0 if self.args.weights is None else min(step / TEACHING_STEPS, 1.0)
        with self.autocast:
            losses = self.ddp(images, self._mask(layout), target, chosen, teaching)
        loss = total_loss(losses)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(self.optimisers.parameters, MAX_NORM, foreach=True)
        # A step that went wrong is left out, on all ranks alike: the gradients are their mean.
        self.optimisers.step(rate_factor(step, progress), torch.isfinite(norm))
        self.checkpoints.update_average()
        return {k: v.detach() for k, v in losses.items()} | {"loss": loss.detach(), "norm": norm}

    def evaluate(self, progress: float) -> None:
        """Log the accuracy of the averaged weights on clips longer than the window."""
        self.validation.prepare(self.device)
        # Eager: compiling for a shape that comes once in minutes would cost more.
        eager = torch.compiler.set_stance("force_eager")
        with self.times.task("evaluate"), self.checkpoints.averaged(), self.autocast, eager:
            for kind, medians in self.validation.measure(self.module.model).items():
                self.checkpoints.log(kind, progress, medians)

    def _follow(self, progress: float) -> Stage:
        """Stage at ``progress``; tracks planned from now on are as it wants them."""
        stage = self.course.stage(progress)
        self.rooms.difficulty, self.rooms.clouds = stage.difficulty, stage.clouds
        return stage

    def _clips(self, lesson: Lesson, openarena: float) -> Clips:
        frames, stride, random = lesson.layout.frames, lesson.max_stride, self.generator
        batch = max(self.args.frames // frames, 1)
        others = round(openarena * batch) if self.clips.poll() else 0
        parts = []
        if others:
            wide = self.clips.store.sample(others, frames, stride, random)
            parts.append(look(wide, draw_views(wide, self.size, random), self.size))
        if batch > others:
            parts.append(self.store.sample(batch - others, frames, stride, random))
        clips = join(parts)
        return mirror(clips, torch.rand(batch, device=self.device) < 0.5)

    def _mask(self, layout: ClipLayout) -> ClipMask:
        if layout not in self.masks:
            self.masks[layout] = ClipMask(self.module.model, layout, self.size, flex=self.flex)
        return self.masks[layout]

    def _report(
        self, losses: list[dict[str, torch.Tensor]], progress: float, begin: float, steps: int
    ) -> None:
        means = {k: float(torch.stack([x[k] for x in losses]).mean()) for k in losses[0]}
        means["steps_per_s"] = steps / (time.monotonic() - begin)
        means["tracks"] = self.rooms.rendered
        means["clips"] = self.clips.loaded
        self.checkpoints.log("training", progress, means)

    def close(self) -> None:
        """End the worker processes."""
        self.rooms.close()
        self.validation.close()


def load_textures(path: object) -> torch.Tensor:
    """Textures ``[N, 256, 256, 3]`` uint8 from the column written by ``pack_textures.py``."""
    column = np.asarray(Image.open(path).convert("RGB"))
    return torch.from_numpy(column.reshape(-1, column.shape[1], column.shape[1], 3).copy())
