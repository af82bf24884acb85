# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Tables of ``benchmark.py``."""

from typing import Any

from gpu.tables import dig, number, table

COLUMNS = {"ours": "ours", "reference_fa2": "reference, FA2", "reference_fa3": "reference, FA3"}
STEPS = {
    "patch embed": (6.0, "2.5", "bfloat16 weights instead of casts, one CUDA graph"),
    "frame blocks": (4.0, "2.2", "the same"),
    "global blocks": (
        36.0,
        "20 to 27",
        "the fastest kernel by measurement, planned once a frame outside the graph; no host work "
        "between blocks",
    ),
    "camera head": (
        11.0,
        "2",
        "float32 as before, but one graph over a cache of fixed capacity: it was bound by launches",
    ),
    "depth head": (8.0, "2.4", "bfloat16 for the largest maps, channels last, one graph"),
}
"""Milliseconds of the reference before anything was built, timers around its parts; what we
expected of ours then; and why."""


def benchmark_tables(report: dict[str, Any]) -> str:
    """Tables of ``benchmark.py``."""
    runs = [name for name in COLUMNS if name in report]
    texts = [_machine(report, runs), _main_table(report, runs), _start_table(report, runs)]
    if "ours" in runs:
        texts.insert(2, _step_table(report))
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

    timed = [dig(report, run, "device_ms") for run in runs]
    spans: dict[str, Any] = next(filter(None, timed), {})
    for clock, label in (("device_ms", "GPU"), ("wall_ms", "wall")):
        for span in spans:
            add(f"ms/frame, frames {span}, {label}, median", clock, span, "median")
            add(f"ms/frame, frames {span}, {label}, p99", clock, span, "p99")
    for span in list(spans)[-1:]:
        cells = [number(t[span]["p99"] / t[span]["median"]) if t else None for t in timed]
        rows.append([f"p99 / median, frames {span}, GPU", *cells, *(None for _ in runs[1:])])
    for part in STEPS:
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


def _step_table(report: dict[str, Any]) -> str:
    """What each step was thought to bring, and what it brought."""
    rows: list[list[object]] = [
        [
            part,
            number(before, 1),
            predicted,
            number(dig(report, "reference_fa2", "parts", part, "median"), 1),
            number(dig(report, "ours", "parts", part, "median"), 1),
            how,
        ]
        for part, (before, predicted, how) in STEPS.items()
    ]
    before = sum(first for first, *_ in STEPS.values())
    spans = [dig(report, run, "device_ms") or {} for run in ("reference_fa2", "ours")]
    whole = [number(list(span.values())[-1].get("median"), 1) if span else None for span in spans]
    rows.append(["whole frame", number(before, 1), "29 to 36", *whole, ""])
    head = ["ms/frame", "reference, earlier", "predicted", "reference, this run", "ours", "by what"]
    return table(head, rows)
