# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Reports as aligned Markdown tables."""

from collections.abc import Sequence
from typing import Any

PARTS = ("patch embed", "frame blocks", "global blocks", "camera head", "depth head")
COLUMNS = {"ours": "ours", "reference_fa2": "reference, FA2", "reference_fa3": "reference, FA3"}


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Markdown table whose columns are aligned as text too; None becomes a dash."""
    lines = [[str(c) for c in head]]
    lines += [["-" if cell is None else str(cell) for cell in row] for row in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]

    def row(cells: Sequence[str]) -> str:
        first, *others = (
            c.ljust(w) if i == 0 else c.rjust(w)
            for i, (c, w) in enumerate(zip(cells, widths, strict=True))
        )
        return "| " + " | ".join((first, *others)) + " |"

    rule = "|" + "|".join("-" * (w + 1) + (":" if i else "-") for i, w in enumerate(widths)) + "|"
    return "\n".join((row(lines[0]), rule, *map(row, lines[1:])))


def number(value: Any, digits: int = 2) -> str | None:
    """Rounded number; None where there is none."""
    return f"{value:.{digits}f}" if isinstance(value, int | float) else None


def dig(report: dict[str, Any], *path: str) -> Any:
    """Nested value, or None."""
    found: Any = report
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def benchmark_tables(report: dict[str, Any]) -> str:
    """Tables of ``benchmark.py``."""
    runs = [name for name in COLUMNS if name in report]
    texts = [_machine(report, runs), _main_table(report, runs), _start_table(report, runs)]
    if report.get("differences"):
        texts.append(_difference_table(report["differences"]))
    texts += [
        f"{name}, {part}: {error['reason']}"
        for name in runs
        for part, error in (dig(report, name, "errors") or {}).items()
    ]
    if "reference_skipped" in report:
        texts.append(f"The reference was skipped: {report['reference_skipped']}.")
    return "\n\n".join(texts)


def _machine(report: dict[str, Any], runs: list[str]) -> str:
    about = dig(report, runs[0], "machine") or {} if runs else {}
    settings, kernel = report["settings"], dig(report, "ours", "kernel")
    width, height = settings["size"]
    return (
        f"{about.get('gpu')}, torch {about.get('torch')}, flashinfer {about.get('flashinfer')}; "
        f"{settings['preset']} at {width}x{height}, window {settings['window']}, "
        f"{settings['scale']} scale frames, {settings['frames']} frames; our kernel: {kernel}"
    )


def _main_table(report: dict[str, Any], runs: list[str]) -> str:
    rows: list[list[object]] = []

    def add(label: str, *path: str, digits: int = 2) -> None:
        values = [dig(report, run, *path) for run in runs]
        ours = values[0] if runs and runs[0] == "ours" else None
        ratios = [
            number(ours / other) if ours is not None and other else None for other in values[1:]
        ]
        rows.append([label, *(number(v, digits) for v in values), *ratios])

    spans = dig(report, runs[0], "device_ms") or {} if runs else {}
    for clock, label in (("device_ms", "GPU"), ("wall_ms", "wall")):
        for span in spans:
            add(f"ms/frame, frames {span}, {label}, median", clock, span, "median")
            add(f"ms/frame, frames {span}, {label}, p99", clock, span, "p99")
    for part in PARTS:
        add(f"{part}, ms", "parts", part, "median")
    for label, path in (("peak", "peak_gib"), ("steady", "steady_gib")):
        add(f"{label} memory, GiB", path, "max_allocated")
    add("host to host through a session, ms", "host_to_host", "session_ms", "median")
    add("of it not the network, ms", "host_to_host", "added_ms")
    ratios = [f"ours / {COLUMNS[run]}" for run in runs[1:]]
    return table(["", *(COLUMNS[run] for run in runs), *ratios], rows)


def _start_table(report: dict[str, Any], runs: list[str]) -> str:
    rows = [
        [COLUMNS[run], stage, number(seconds)]
        for run in runs
        for stage, seconds in (dig(report, run, "start_up_s") or {}).items()
    ]
    return table(["start-up of", "stage", "s"], rows)


def _difference_table(found: dict[str, dict[str, float]]) -> str:
    head = ["difference", "depth REL mean", "depth REL p99", "pose mean", "pose max"]
    keys = ("depth_rel_mean", "depth_rel_p99", "pose_mean", "pose_max")
    return table(head, [[name, *(f"{d[k]:.2e}" for k in keys)] for name, d in found.items()])


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


def endurance_tables(report: dict[str, Any]) -> str:
    """Tables of ``gpu_endurance.py``."""
    texts = []
    if report.get("caps"):
        head = ["cap, GB", "refused at first", "run with", "frames", "plan, GiB", "peak, GiB"]
        head += ["peak / plan", "reserved, GiB", "ms/frame", "passed"]
        texts.append(table(head, [_cap_row(*item) for item in report["caps"].items()]))
    runs = {f"cap {cap}": run for cap, run in report.get("caps", {}).items()}
    if "endless" in report:
        run = runs["endless"] = report["endless"]
        rows: list[list[object]] = [
            ["frames", run.get("frames")],
            ["answered", run.get("answered")],
        ]
        rows += [[name, value] for name, value in (run.get("status") or {}).items() if value != ""]
        rows += [
            [f"ms/frame, median of the 50 before frame {at}", number(value)]
            for at, value in (run.get("ms_around") or {}).items()
        ]
        rows += [
            ["late / early frames at equal window fill", number(run.get("late_over_early"), 3)],
            ["ms/frame, median", number(dig(run, "steady_ms", "median"))],
            ["ms/frame, p99", number(dig(run, "steady_ms", "p99"))],
            ["ms of a window switch, median", number(dig(run, "switch_ms", "median"))],
            ["ms of a window switch, largest", number(dig(run, "switch_ms", "max"))],
            ["peak memory, GiB", number(dig(run, "peak", "max_allocated"))],
            ["memory, last / first sample", number(run.get("memory_growth"), 4)],
            ["passed", run.get("passed")],
        ]
        texts.append(table(["stream without an end", ""], rows))
    texts += [
        f"{name}, {part}: {error['reason']}"
        for name, run in runs.items()
        for part, error in run.get("errors", {}).items()
    ]
    return "\n\n".join(texts)


def _cap_row(cap: str, run: dict[str, Any]) -> list[object]:
    settings = ", ".join(f"{name} {value}" for name, value in run.get("settings", {}).items())
    return [
        cap,
        "yes" if run.get("refused") else "no",
        settings or "the defaults",
        run.get("frames"),
        number(run.get("planned_gib")),
        number(dig(run, "peak", "max_allocated")),
        number(run.get("peak_over_plan"), 3),
        number(dig(run, "peak", "reserved")),
        number(dig(run, "ms", "median")),
        run.get("passed"),
    ]
