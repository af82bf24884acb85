# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""``ros2 run lingbot_map_ros replay``: a recording in, trajectory, map and report out.

Every frame is processed in order, so the same input gives the same files. See ``--help`` for the
exit codes.
"""

import logging
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from lingbot_map_ros.errors import LingbotMapError

EXIT_FAILED, EXIT_ARGUMENTS = 1, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    try:
        from lingbot_map_ros.replay.options import parse

        options = parse(list(sys.argv[1:] if argv is None else argv))
    except ImportError as error:
        return _missing(error)
    except LingbotMapError as error:
        print(f"replay: {error}", file=sys.stderr)
        return EXIT_ARGUMENTS
    try:
        # PyTorch takes seconds to import: mistakes in the arguments are said before.
        from lingbot_map_ros.replay.program import replay

        with StopSignal() as stop:
            return replay(options, stop)
    except ImportError as error:
        return _missing(error)
    except (LingbotMapError, OSError) as error:
        print(f"replay: {error}", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        print("replay: ended at once; files may be missing", file=sys.stderr)
        return 128 + signal.SIGINT


class StopSignal:
    """Notes the first SIGINT or SIGTERM as ``number``; the second SIGINT interrupts at once."""

    def __init__(self) -> None:
        self.number = 0
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "StopSignal":
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, _: object) -> None:
        if self.number and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.number = number
        # The handler may have interrupted a print, so it must not print itself.
        os.write(sys.stderr.fileno(), b"\nending after this frame; once more to end at once\n")


def _missing(error: ImportError) -> int:
    print(
        f"replay: {error}; install what it needs with: {sys.executable} -m pip install "
        "torch rosbags tqdm matplotlib",
        file=sys.stderr,
    )
    return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
