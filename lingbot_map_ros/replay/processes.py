# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Programs of this package that run for as long as a block, and never longer."""

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ament_index_python.packages import get_package_prefix

PACKAGE = "lingbot_map_ros"
_STOP_S = 10.0


@contextmanager
def running(
    command: Sequence[str], log: IO[str] | None = None
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a program of this package until the end of the block, where it is stopped by SIGINT."""
    program = Path(get_package_prefix(PACKAGE), "lib", PACKAGE, command[0])
    call = [sys.executable, str(program), *command[1:]]
    process: subprocess.Popen[bytes] | None = None
    try:
        # A signal between fork and assignment would leave a child that nobody stops.
        with signals_held():
            process = subprocess.Popen(call, stdout=log, stderr=log, start_new_session=True)
        yield process
    finally:
        if process is not None:
            stop(process)


@contextmanager
def signals_held() -> Iterator[None]:
    """Let SIGINT and SIGTERM take effect only at the end of the block."""
    held: list[int] = []
    handlers = {
        number: signal.signal(number, lambda number, _: held.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for received in held:
            signal.raise_signal(received)


def stop(process: "subprocess.Popen[bytes]") -> None:
    """Stop a process by SIGINT, and by force if that takes too long."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
