# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Tables of ``gpu_endurance.py``."""

from typing import Any

from gpu.tables import dig, number, table


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
