# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Reports as aligned Markdown tables."""

from collections.abc import Sequence
from typing import Any


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Markdown table whose columns are aligned as text too; None becomes a dash."""
    body = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    columns = [list(column) for column in zip(head, *body, strict=True)]
    widths = [max(map(len, column)) for column in columns]
    # Numbers to the right.
    right = [all(cell[:1] in "-0123456789" for cell in column[1:]) for column in columns]

    def line(cells: Sequence[str]) -> str:
        padded = (
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(cells, widths, right, strict=True)
        )
        return f"| {' | '.join(padded)} |"

    rule = "|".join("-" * (width + 1) + (":" if r else "-") for width, r in zip(widths, right))
    return "\n".join((line(head), f"|{rule}|", *map(line, body)))


def number(value: Any, digits: int = 2) -> str | None:
    """Rounded number; None where there is none."""
    return f"{value:.{digits}f}" if isinstance(value, int | float) else None


def dig(report: dict[str, Any], *path: str) -> Any:
    """Nested value, or None."""
    found: Any = report
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def attention_table(report: dict[str, Any]) -> str:
    """Table of ``benchmark_attention.py``."""
    head = ["attention", "ms", "TFLOP/s", "relative error", "largest error", "timed"]
    rows: list[list[object]] = [
        [
            name,
            number(found["median_ms"], 3),
            number(found["tflops"], 0),
            f"{found['relative_error']:.1e}",
            f"{found['max_error']:.1e}",
            found["how"],
        ]
        for name, found in report.get("ways", {}).items()
    ]
    problem = report["problem"]
    title = (
        f"{report['machine']['gpu']}: {problem['queries']} queries, {problem['keys']} keys, "
        f"{problem['heads']} heads of 64"
    )
    failed = [f"{name}: {e['reason']}" for name, e in report.get("errors", {}).items()]
    return "\n\n".join((title, table(head, rows), *failed))


def fidelity_table(report: dict[str, Any]) -> str:
    """Table of ``gpu_fidelity.py``."""
    head = ["difference", "depth REL mean", "depth REL p99", "pose mean", "pose max", "attention"]
    keys = ("depth_rel_mean", "depth_rel_p99", "pose_mean", "pose_max")
    rows: list[list[object]] = []
    for name, found in report.items():
        if isinstance(found, dict) and "depth_rel_mean" in found:
            error = dig(report, f"{name}, attention", "max")
            label = name if " - " in name else f"{name} - float32"
            cells = [f"{found[key]:.2e}" for key in keys]
            rows.append([label, *cells, None if error is None else f"{error:.1e}"])
    failed = [f"{name}: {e['reason']}" for name, e in report.get("errors", {}).items()]
    return "\n\n".join((table(head, rows), *failed))
