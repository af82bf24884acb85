# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Faults at every place of a call: the n-th function of the package, or the n-th tensor operation.

Run a call once with a number that is never reached to learn how many places there are.
"""

import inspect
import sys
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import lingbot_map_ros

PACKAGE = str(Path(lingbot_map_ros.__file__).parent)
NEVER = 10**9


class PlannedError(Exception):
    """Thrown by a test."""


class Places:
    """Counts the places that were passed; the place with the number `at` raises `error`."""

    def __init__(self, at, error):
        self.passed = 0
        self.where = ""
        self._at, self._error = at, error

    def visit(self, name):
        self.passed += 1
        if self.passed == self._at:
            self.where = name
            raise self._error(f"planned at {name}")


@contextmanager
def failing_function(at=NEVER, error=PlannedError):
    """Raise when the package's `at`-th function is entered."""
    places = Places(at, error)

    def profile(frame, event, arg):
        code = frame.f_code
        # Comprehensions are functions in old Pythons only; generators are entered again and again.
        function = not code.co_name.startswith("<") and not code.co_flags & inspect.CO_GENERATOR
        if event == "call" and function and code.co_filename.startswith(PACKAGE):
            places.visit(f"{Path(code.co_filename).name}:{code.co_name}")

    sys.setprofile(profile)
    try:
        yield places
    finally:
        sys.setprofile(None)


class _Operations(TorchDispatchMode):
    def __init__(self, places):
        super().__init__()
        self._places = places

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self._places.visit(str(function))
        return function(*args, **(kwargs or {}))


@contextmanager
def failing_operation(at=NEVER, error=torch.OutOfMemoryError):
    """Raise instead of the `at`-th tensor operation, as a full GPU does."""
    places = Places(at, error)
    with _Operations(places):
        yield places
