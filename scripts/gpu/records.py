# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Results that outlive the crash of what comes after them."""

import gc
import json
import platform
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

GIB = 2**30


class Record(dict[str, Any]):
    """Results by name, written to a file whenever one comes in."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def put(self, name: str, value: Any) -> None:
        """Keep, print and write a result."""
        self[name] = value
        print(f"  {name}: {json.dumps(value)}", flush=True)
        self._path.write_text(json.dumps(self, indent=2) + "\n")

    @contextmanager
    def guard(self, name: str) -> Iterator[None]:
        """Note an exception of the body under ``errors``, and go on behind it."""
        began = time.perf_counter()
        try:
            yield
        except Exception as error:  # A measurement that fails must not cost the others.
            where = traceback.format_exc().splitlines()[-7:]
            reason = f"{type(error).__name__}: {error}"
            self.put("errors", {**self.get("errors", {}), name: {"reason": reason, "at": where}})
        took = round(time.perf_counter() - began, 1)
        self.put("seconds", {**self.get("seconds", {}), name: took})


def run_child(arguments: Sequence[object], result: Path, seconds: float) -> dict[str, Any]:
    """Run a Python script with its own CUDA context and read what it recorded, however it ended."""
    began = time.perf_counter()
    command = [sys.executable, *map(str, arguments)]
    result.unlink(missing_ok=True)
    try:
        code: int | str = subprocess.run(command, timeout=seconds, check=False).returncode
    except subprocess.TimeoutExpired:
        code = f"killed after {seconds:.0f} s"
    found: dict[str, Any] = json.loads(result.read_text()) if result.is_file() else {}
    found["exit"] = code
    found["total_seconds"] = round(time.perf_counter() - began, 1)
    return found


def machine() -> dict[str, Any]:
    """What the figures belong to."""
    try:
        flashinfer = metadata.version("flashinfer-python")
    except metadata.PackageNotFoundError:
        flashinfer = "none"
    return {
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": str(torch.version.cuda),
        "flashinfer": flashinfer,
    }


def release() -> None:
    """Give back the GPU's memory of models to which no name is left; compiled ones hold cycles."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def memory_gib() -> dict[str, float]:
    """Largest allocation since the last reset, and what the allocator holds, in GiB."""
    if not torch.cuda.is_available():
        return {}
    return {
        "max_allocated": round(torch.cuda.max_memory_allocated() / GIB, 3),
        "allocated": round(torch.cuda.memory_allocated() / GIB, 3),
        "reserved": round(torch.cuda.memory_reserved() / GIB, 3),
    }
