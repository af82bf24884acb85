# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""``ros2 run lingbot_map_ros demo``: a synthetic recording through the real node, over real DDS.

Writes a bag of a camera that drives through the synthetic world, starts the node and the player as
processes of their own, has the node save what it made of it, and compares that with the truth.
"""

import argparse
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ament_index_python.packages import get_package_share_directory

from lingbot_map_ros.errors import CheckpointError, LingbotMapError
from lingbot_map_ros.replay.arguments import positive_int
from lingbot_map_ros.replay.fastdds import fastdds_environment
from lingbot_map_ros.replay.processes import PACKAGE, running
from lingbot_map_ros.ros.arguments import strip_ros_arguments
from lingbot_map_ros.wording import counted

NODE = "/lingbot_map"
BUILTIN, RANDOM = "builtin:small", "random:"
_IDENTITY = "[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]"
_OF_A_BAG = {"metadata.yaml", ".mcap", ".db3"}
_VOXEL = 0.02
# Gentle enough for a small model, and no longer than the streams it was trained on.
_FRAMES, _DIFFICULTY, _WORLD = 120, 0.4, 1
_ANSWER_S = 600.0


class DemoError(LingbotMapError):
    """A process of the demo that failed."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the demo; returns the exit code."""
    own, _ = strip_ros_arguments(sys.argv[1:] if argv is None else argv)
    arguments = _parser().parse_args(own)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        demonstrate(arguments.output, arguments.frames, arguments.checkpoint, arguments.domain)
    except LingbotMapError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="demo", description="A synthetic recording through the real node, over real DDS."
    )
    parser.add_argument("--output", type=Path, default=Path("demo_out"), help="default: demo_out")
    parser.add_argument("--frames", type=positive_int, default=_FRAMES, help="images (%(default)s)")
    parser.add_argument("--checkpoint", default="", help=f"weights (default: {BUILTIN})")
    parser.add_argument(
        "--domain",
        type=int,
        default=random.randint(1, 100),
        help="ROS domain (default: any from 1 to 100, to leave a robot that runs beside alone)",
    )
    return parser


def demonstrate(folder: Path, frames: int, checkpoint: str, domain: int) -> None:
    """Run everything and print what came out.

    Parameters
    ----------
    folder : Path
        Where all files go; those of an earlier demo are replaced.
    frames : int
        Length of the recording.
    checkpoint : str
        As the node's parameter; empty takes the built-in model, or random weights without one.
    domain : int
        ROS domain of the processes.

    Raises
    ------
    LingbotMapError
        If a process fails, or the result cannot be compared or written.
    """
    from lingbot_map_ros.replay import demo_report
    from lingbot_map_ros.replay.outputs import make_folder
    from lingbot_map_ros.synthetic.bag import write_bag
    from lingbot_map_ros.synthetic.sequence import HELD_OUT

    checkpoint = choose_checkpoint(checkpoint)
    make_folder(folder)
    bag, truth = folder / "bag", folder / "ground_truth.tum"
    remove_bag(bag)
    print(f"writing a recording of {counted(frames, 'image')} to {bag}", flush=True)
    seed = HELD_OUT + _WORLD
    write_bag(bag, truth, frames, seed=seed, kind="loop", difficulty=_DIFFICULTY)
    print(f"mapping it with {checkpoint}; the node's log is {folder / 'node.log'}", flush=True)
    os.environ.update(fastdds_environment(os.environ), ROS_DOMAIN_ID=str(domain))
    began = time.monotonic()
    trajectory, cloud = map_bag(folder, bag, checkpoint)
    seconds = time.monotonic() - began
    content = demo_report.report(folder, truth, trajectory, cloud, _VOXEL)
    print(f"\nframes      {frames} in {seconds:.0f} s, the node's start included")
    print("\n".join(demo_report.lines(content)))
    print(f"files       {', '.join(sorted(path.name for path in folder.iterdir()))} in {folder}/")
    if checkpoint.startswith(RANDOM):
        print(
            "The weights are random, so poses and map mean nothing: this shows the way of the data."
        )


def choose_checkpoint(wanted: str) -> str:
    """Name what is wanted, else the built-in model, else random weights (where none ships).

    Raises
    ------
    CheckpointError
        If what is wanted is not there.
    """
    from lingbot_map_ros.models.checkpoint_file import locate

    if wanted.startswith(RANDOM):
        return wanted
    try:
        locate(wanted or BUILTIN)
    except CheckpointError:
        if wanted:
            raise
        return f"{RANDOM}tiny"
    return wanted or BUILTIN


def remove_bag(bag: Path) -> None:
    """Remove the recording of an earlier demo.

    Raises
    ------
    DemoError
        If the folder holds anything else: it may be somebody's.
    """
    if not bag.exists():
        return
    foreign = [
        path.name
        for path in (bag.iterdir() if bag.is_dir() else [bag])
        if not {path.name, path.suffix} & _OF_A_BAG
    ]
    if foreign:
        raise DemoError(f"{bag} holds {foreign[0]}, which no demo wrote: choose another --output")
    shutil.rmtree(bag)


def map_bag(folder: Path, bag: Path, checkpoint: str) -> tuple[Path, Path]:
    """Play a bag into a node of its own and let it save; returns trajectory and map.

    Raises
    ------
    DemoError, ServiceError
        If the node or the player fails or does not answer.
    """
    from lingbot_map_ros.ros.trigger_client import call_triggers
    from lingbot_map_ros.synthetic.bag import CAMERA_INFO, IMAGE

    saved = folder / "saved"
    shutil.rmtree(saved, ignore_errors=True)
    parameters = Path(get_package_share_directory(PACKAGE), "config", "replay.yaml")
    node = ["map_node", "--ros-args", "--params-file", str(parameters)]
    node += ["-p", f"checkpoint:={checkpoint}", "-p", f"output_directory:={saved}"]
    node += ["-p", f"map_voxel_size:={_VOXEL}"]
    node += ["-r", f"image:={IMAGE}", "-r", f"camera_info:={CAMERA_INFO}"]
    # The truth is the camera's optical frame's, so the trajectory is to be that frame's too.
    node += ["-p", "base_frame:=camera", "-p", f"base_to_camera:={_IDENTITY}"]
    # As fast as the node is, whatever the machine; it saves after the last image.
    player = ["play_bag", str(bag), "--rate", "0", "--wait", "300"]
    player += ["--pace-by", f"{NODE}/odometry", "--pace-timeout", "30"]
    with (folder / "node.log").open("w") as log, running(node, log=log) as node_process:
        with running(player) as player_process:
            while player_process.poll() is None:
                if node_process.poll() is not None:
                    raise DemoError(f"the node ended by itself; its log is {log.name}")
                time.sleep(0.1)
        if player_process.returncode:
            raise DemoError(f"the player failed (exit code {player_process.returncode})")
        call_triggers([f"{NODE}/save_trajectory", f"{NODE}/save_map"], _ANSWER_S)
    results = []
    for name in ("trajectory.tum", "map.ply"):
        stem, _, suffix = name.partition(".")
        found = sorted(saved.glob(f"{stem}_*.{suffix}"))
        results.append(found[-1].replace(folder / name))
    saved.rmdir()
    return results[0], results[1]


if __name__ == "__main__":
    sys.exit(main())
