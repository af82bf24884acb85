# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""``ros2 run lingbot_map_ros play_bag``: publish a bag over ROS with ``/clock``.

Exit codes: 0 played to the end, 1 failed, 2 wrong arguments, 3 played what a damaged bag still
holds, 130 and 143 stopped by SIGINT and SIGTERM.
"""

import argparse
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lingbot_map_ros.errors import LingbotMapError, SourceError
from lingbot_map_ros.replay.arguments import non_negative, positive, positive_int
from lingbot_map_ros.replay.bag import IMAGE_TYPES, Bag
from lingbot_map_ros.replay.source import Span
from lingbot_map_ros.ros.arguments import strip_ros_arguments
from lingbot_map_ros.wording import counted

if TYPE_CHECKING:
    from lingbot_map_ros.ros.player import PlayReport

EXIT_FAILED, EXIT_DAMAGED, EXIT_SIGINT, EXIT_SIGTERM = 1, 3, 130, 143


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line without ``--ros-args``."""
    parser = argparse.ArgumentParser(
        prog="play_bag",
        description="Publish a bag over ROS with /clock. Remap with --ros-args -r from:=to.",
        epilog="Exit codes: 0 played, 1 failed, 2 wrong arguments, 3 the bag was damaged and what "
        "is left of it was played, 130 interrupted.",
    )
    parser.add_argument("bag", help="rosbag2 directory, .mcap or .db3 file")
    parser.add_argument("--topics", nargs="+", metavar="T", help="only these topics")
    parser.add_argument(
        "--rate", type=non_negative, default=1.0, help="speed; 0 = as fast as possible (default 1)"
    )
    parser.add_argument(
        "--loop", type=positive_int, default=1, metavar="N", help="rounds (default 1)"
    )
    parser.add_argument(
        "--start-offset", type=non_negative, default=0.0, metavar="S", help="skip S s"
    )
    parser.add_argument("--duration", type=positive, metavar="S", help="play only S seconds")
    parser.add_argument(
        "--qos", choices=("reliable", "best_effort"), default="reliable", help="default reliable"
    )
    parser.add_argument(
        "--pace-by",
        default="",
        metavar="TOPIC",
        help="send as fast as TOPIC answers (messages with the stamps of the images)",
    )
    parser.add_argument(
        "--pace-timeout", type=non_negative, default=10.0, metavar="S", help="default 10 s"
    )
    parser.add_argument(
        "--pace-window",
        type=positive_int,
        default=8,
        metavar="N",
        help="most images on their way, at least the node's num_scale_frames (default 8)",
    )
    parser.add_argument(
        "--wait",
        type=non_negative,
        default=10.0,
        metavar="S",
        help="wait for subscribers (default 10 s)",
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    argv = list(sys.argv[1:] if argv is None else argv)
    own, ros = strip_ros_arguments(argv)
    arguments = parse_arguments(own)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_SIGTERM))
    try:
        with Bag(arguments.bag) as bag:
            report = _play(bag, arguments, ros)
            for text in bag.damage:
                print(f"damaged: {text}", file=sys.stderr)
            unanswered = f", {report.unanswered} without an answer" if arguments.pace_by else ""
            played = f"{counted(report.messages, 'message')}, {counted(report.images, 'image')}"
            print(f"played {played}{unanswered}")
            return EXIT_DAMAGED if bag.damage else 0
    except LingbotMapError as error:
        print(f"play_bag: {error}", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        print("play_bag: interrupted", file=sys.stderr)
        return EXIT_SIGINT


def _play(bag: Bag, arguments: argparse.Namespace, ros: list[str]) -> "PlayReport":
    try:
        import rclpy
        from rclpy._rclpy_pybind11 import RCLError
        from rclpy.signals import SignalHandlerOptions

        from lingbot_map_ros.ros.command_line import names_explained, other_arguments, reason
        from lingbot_map_ros.ros.player import BagPlayer, PlayOptions
    except ImportError as error:
        raise LingbotMapError(
            f"ROS 2 is not available to {sys.executable} ({error}); source its setup.bash"
        ) from error
    if unknown := sorted(set(arguments.topics or ()) - set(bag.topics)):
        raise SourceError(f"{bag.path} has no topic {unknown[0]}; it has {', '.join(bag.topics)}")
    chosen = {
        t.name: t.msgtype for t in bag.topics.values() if t.name in (arguments.topics or bag.topics)
    }
    images = [topic.name for topic in bag.of_type(*IMAGE_TYPES) if topic.name in chosen]
    options = PlayOptions(
        rate=arguments.rate,
        reliable=arguments.qos == "reliable",
        pace_by=arguments.pace_by,
        pace_timeout=arguments.pace_timeout,
        pace_window=arguments.pace_window,
        wait=arguments.wait,
    )
    Span(arguments.start_offset).check(bag.end_ns - bag.start_ns, str(bag.path))
    start = bag.start_ns + int(arguments.start_offset * 1e9)
    stop = None if arguments.duration is None else start + int(arguments.duration * 1e9)
    other_arguments(ros)
    try:
        rclpy.init(args=["play_bag", *ros], signal_handler_options=SignalHandlerOptions.NO)
    except RCLError as error:
        raise LingbotMapError(f"ROS cannot be started: {reason(error)}") from error
    with names_explained():
        node = rclpy.create_node("play_bag")
    try:
        with names_explained():
            player = BagPlayer(node, chosen, images, options)
        player.wait_for_subscribers()
        for _ in range(arguments.loop):
            player.play(bag.messages(chosen, start, stop))
        player.flush()
        return player.report
    finally:
        node.destroy_node()
        rclpy.try_shutdown()


if __name__ == "__main__":
    sys.exit(main())
