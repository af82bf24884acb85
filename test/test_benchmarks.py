# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The GPU measurements in small, on the CPU: they measure, survive failures, and judge."""

import argparse
import cProfile
import json

import gpu_endurance
import pytest
import torch
from gpu.attention_kernels import FullCache, ways
from gpu.benchmark_runs import costliest, measure_exact, measure_ours
from gpu.benchmark_tables import benchmark_tables
from gpu.comparison import differences
from gpu.endurance_runs import Stream, growth
from gpu.inputs import make_images
from gpu.records import Record
from gpu.tables import attention_table, table
from gpu.timing import replay_ms

from lingbot_map_ros.models.config import GCTConfig
from lingbot_map_ros.ros.rates import Rate, Tally

CPU = torch.device("cpu")
FRAMES = 12


@pytest.fixture
def options(tmp_path):
    return argparse.Namespace(
        preset="tiny",
        frames=FRAMES,
        size=(84, 56),
        window=4,
        scale=3,
        kernel="",
        compile=None,
        exact=6,
        weights=tmp_path / "weights.safetensors",
        outputs=tmp_path / "ours.pt",
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="in float32, as on a CPU")
def test_ours_is_measured_and_equals_itself_in_float32(options, tmp_path, monkeypatch):
    # "auto" would be bfloat16 on some CPUs.
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False, raising=False)
    record = Record(tmp_path / "ours.json")
    measure_ours(options, record)
    assert "errors" not in record
    assert record["device_ms"]["4-12"]["median"] > 0
    parts = record["parts"]
    assert all(part["median"] > 0 for part in parts.values()) and len(parts) == 5
    assert record["host_to_host"]["withheld"] == 0
    ours = torch.load(options.outputs)
    assert sum(map(len, ours[0])) == FRAMES
    options.outputs = tmp_path / "exact.pt"
    measure_exact(options, record)
    found = differences(ours, torch.load(options.outputs), options.exact)
    assert found["frames"] == options.exact and found["finite"] and found["pose_max"] < 1e-5
    report = {"settings": {**vars(options), "size": options.size}, "ours": record}
    text = benchmark_tables({**report, "differences": {"ours - float32": found}})
    assert "camera head, ms" in text and "ours - float32" in text


def test_a_failure_is_noted_and_the_rest_goes_on(tmp_path):
    record = Record(tmp_path / "record.json")
    record.put("before", 1)
    with record.guard("broken"):
        raise RuntimeError("no such kernel")
    record.put("behind", 2)
    written = json.loads((tmp_path / "record.json").read_text())
    assert written["before"] == 1 and written["behind"] == 2
    assert written["errors"]["broken"]["reason"] == "RuntimeError: no such kernel"


def test_ways_to_attend_agree_with_float32():
    full = FullCache.filled(
        patches=24, scale_frames=2, window=3, frames=9, heads=2, device=torch.device("cpu")
    )
    assert len(full.rows) == 5 * 24 + 9 * 6
    exact = full.exact()
    made = {name: make() for name, make in ways(full).items()}
    assert len(made) == 2
    for attend in made.values():
        assert torch.allclose(attend(), exact, atol=1e-5)
        assert len(replay_ms(attend, CPU, 5)[0]) == 5


def test_images_drift_by_a_pixel():
    images = make_images(40, 42, 28)
    assert images.shape == (40, 3, 42, 28) and images.min() >= 0 and images.max() <= 1
    assert torch.equal(images[1:, ..., :-1], images[:-1, ..., 1:])


def stream(slower):
    """Two windows of 100 frames that slow down within, and the second by a factor."""
    run = Stream()
    for i in range(200):
        run.kept.append(i % 100 + 1)
        run.milliseconds.append((20 + 0.1 * (i % 100)) * (slower if i >= 100 else 1))
    run.switched = [0, 100]
    run.milliseconds[100] = 500.0
    return run


@pytest.mark.parametrize(("slower", "passed"), [(1.0, True), (1.02, True), (1.05, False)])
def test_late_frames_are_held_against_early_ones(slower, passed):
    found = growth(stream(slower), GCTConfig.preset("tiny"))
    assert found["late_over_early"] == pytest.approx(slower, abs=1e-3)
    assert found["switch_ms"]["max"] == 500 and found["steady_ms"]["max"] < 40
    held = [{"max_allocated": 9.0}, {"max_allocated": 9.05}]
    run = {**found, "memory": held, "frames": 200}
    assert gpu_endurance.judge_endless(run, 200)["passed"] is passed
    assert not gpu_endurance.judge_endless({**run, "errors": {"stream": {}}}, 200)["passed"]


@pytest.mark.parametrize(
    ("peak", "frames", "advice", "passed"),
    [(10.4, 500, 0, True), (10.6, 500, 0, False), (10.0, 499, 0, False), (10.0, 500, 1, False)],
)
def test_a_plan_is_judged(peak, frames, advice, passed):
    run = {"planned_gib": 10.0, "peak": {"max_allocated": peak}, "frames": frames}
    run["refused"] = {"reason": "", "advice": advice} if advice else None
    assert gpu_endurance.judge_cap(run, 500)["passed"] is passed


def test_tables():
    text = table(["name", "ms"], [["a", "1.5"], ["longer", None]])
    lines = text.splitlines()
    assert lines == ["| name   |  ms |", "|--------|----:|", "| a      | 1.5 |", "| longer |   - |"]
    found = {"median_ms": 1, "tflops": 2, "relative_error": 0.1, "max_error": 0.2, "how": "graph"}
    report = {"machine": {"gpu": "x"}, "problem": {"queries": 1, "keys": 2, "heads": 3}}
    assert "graph" in attention_table({**report, "ways": {"paged": found}})


def test_functions_of_one_name_are_told_apart():
    profile = cProfile.Profile()
    with profile:
        Rate(), Tally()
    names = [name.split(":")[0] for name in costliest(profile)]
    assert names.count("rates.__init__") == 2
