# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Which attention kernel is the fastest for this GPU and these shapes, found by measuring."""

import json
import logging
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from lingbot_map_ros.cache_folder import cache_folder
from lingbot_map_ros.errors import BackendUnavailableError
from lingbot_map_ros.layers.flashinfer_backend import FlashInferBackend, Kernel, Problem
from lingbot_map_ros.layers.page_table import PageTable

logger = logging.getLogger(__name__)

_REPEATS, _ROUNDS = 8, 4
_FA3_TILE = 192
_MOST_SPLITS = 12


def fastest(problem: Problem, names: Sequence[str]) -> Kernel:
    """Kernel of ``names`` that takes the least time over a full window.

    The result is remembered in ``$XDG_CACHE_HOME/lingbot_map_ros`` for the next start. Kernels that
    do not build here are left out; ``BackendUnavailableError`` if none is left.
    """
    path, key = cache_folder() / "attention.json", _key(problem, names)
    kernels = [kernel for name in names for kernel in _variants(name, problem)]
    known = _read(path)
    for kernel in kernels:
        if known.get(key) == str(kernel):
            return kernel
    # Compiling them for the first time takes minutes; each kind on a processor of its own.
    with ThreadPoolExecutor() as pool:
        builds = [pool.submit(_full_window, problem, kernel) for kernel in kernels]
    times: dict[Kernel, float] = {}
    failures: list[str] = []
    for kernel, build in zip(kernels, builds, strict=True):
        try:
            times[kernel] = milliseconds(problem, build.result())
        except (RuntimeError, OSError, ValueError, ImportError) as error:
            failures.append(f"{kernel}: {error}")
            logger.warning("attention kernel %s does not run here: %s", kernel, error)
    if not times:
        raise BackendUnavailableError(
            f"none of FlashInfer's kernels runs here ({'; '.join(failures)})"
        )
    logger.info("attention kernels: %s", ", ".join(f"{k} {ms:.3f} ms" for k, ms in times.items()))
    del builds, build
    torch.cuda.empty_cache()
    best = min(times, key=lambda kernel: times[kernel])
    _write(path, {**known, key: str(best)})
    return best


def _full_window(problem: Problem, kernel: Kernel) -> FlashInferBackend:
    """Back end that is planned for a full window; compiles the kernel where that is new."""
    layout = problem.layout
    table = PageTable.empty(layout)
    for _ in range(layout.scale_frames + layout.window):
        table = table.append()
    with torch.cuda.device(problem.device):
        backend = FlashInferBackend(problem, kernel)
        backend.plan(table, layout.tokens_per_frame)
    return backend


@torch.no_grad()
def milliseconds(problem: Problem, backend: FlashInferBackend) -> float:
    """Time of one block's attention over a full window, as a CUDA graph replays it."""
    layout = problem.layout
    with torch.cuda.device(problem.device):
        shape = (layout.tokens_per_frame, problem.num_heads, problem.head_dim)
        q = torch.randn(shape, dtype=problem.dtype, device=problem.device)
        pages = (2, layout.num_pages, layout.page_size, *shape[1:])
        # Zeros would need less power, and so be faster, than real keys.
        kv = torch.randn(pages, dtype=problem.dtype, device=problem.device)
        kv = kv.to(problem.cache_dtype)
        backend.run(q, kv)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
            for _ in range(_REPEATS):
                backend.run(q, kv)
        times = []
        for _ in range(_ROUNDS):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) / _REPEATS)
    return min(times)


def _variants(name: str, problem: Problem) -> list[Kernel]:
    """A kernel as it is and, where it leaves processors idle, in parts that fill them."""
    if name != "dense_fa3":
        return [Kernel(name)]
    processors = torch.cuda.get_device_properties(problem.device).multi_processor_count
    tiles = -(-problem.layout.tokens_per_frame // _FA3_TILE) * problem.num_heads

    def length(splits: int) -> float:
        return -(-tiles * splits // processors) / splits

    few = min(range(1, _MOST_SPLITS // 2), key=length)
    many = min(range(1, _MOST_SPLITS + 1), key=length)
    return [Kernel(name, splits) for splits in sorted({1, few, many})]


def _key(problem: Problem, names: Sequence[str]) -> str:
    try:
        import flashinfer
    # Built for another PyTorch or CUDA it fails with either.
    except (ImportError, OSError) as error:
        raise BackendUnavailableError(f"flashinfer cannot be imported ({error})") from error
    layout = problem.layout
    return " ".join(
        (
            torch.cuda.get_device_name(problem.device),
            f"torch {torch.__version__} flashinfer {flashinfer.__version__}",
            f"{layout.tokens_per_frame}x{layout.scale_frames + layout.window}",
            f"{problem.num_heads}x{problem.head_dim} {problem.dtype} {problem.cache_dtype}",
            ",".join(names),
        )
    )


def _read(path: Path) -> dict[str, str]:
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _write(path: Path, known: dict[str, str]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_text(json.dumps(known, indent=1), encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        logger.info("the choice of attention kernel is not remembered: %s", error)
