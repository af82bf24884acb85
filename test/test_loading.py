# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the log says of a start: precision in use, and settings that have no effect here."""

import logging

import pytest
import torch
from safetensors.torch import save_file

from lingbot_map_ros.errors import MemoryPlanError
from lingbot_map_ros.models.checkpoint import load_model
from lingbot_map_ros.models.frame_runner import compile_obstacle
from lingbot_map_ros.ros.loading import load_session
from lingbot_map_ros.ros.network import load_network
from lingbot_map_ros.ros.parameters import Parameters
from lingbot_map_ros.streaming import device_memory
from lingbot_map_ros.streaming.memory import MemorySettings
from lingbot_map_ros.streaming.memory_advice import HEADROOM


def start(caplog, **settings):
    """Load a session on the CPU; returns the lines of its log."""
    caplog.clear()
    with caplog.at_level(logging.INFO, "lingbot_map_ros"):
        load_session(Parameters(checkpoint="random:tiny", device="cpu", **settings), lambda: None)
    return [record.message for record in caplog.records]


def beginning(lines, start):
    return [line for line in lines if line.startswith(start)]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_log_names_the_precision_that_is_used(caplog, dtype):
    lines = start(caplog, dtype=dtype)
    (ready,) = beginning(lines, "random:tiny is ready on cpu")
    assert f"(products {dtype}, cache {dtype})" in ready
    backend = beginning(lines, "attention back end: sdpa")[-1]
    assert "needs an NVIDIA GPU" in backend
    assert "float" not in backend and "install" not in backend


def test_the_precision_is_that_of_weights_and_cache():
    model = load_model(
        "random:tiny", dtype=torch.bfloat16, cache_dtype=torch.float8_e4m3fn, device="cpu"
    )
    assert model.precision == "products bfloat16, cache float8_e4m3fn"
    assert model.aggregator.global_blocks[0].mlp.fc1.weight.dtype == torch.bfloat16
    model.allocate(84, 112)
    assert model.aggregator.kv_cache.dtype == torch.float8_e4m3fn


def test_a_precision_that_is_slow_on_a_cpu_is_said_to_be(caplog):
    assert beginning(start(caplog, dtype="float16"), "dtype: float16 is several times slower")
    assert not beginning(start(caplog, dtype="auto"), "dtype:")


def test_settings_of_a_gpu_are_said_to_have_no_effect_on_a_cpu(caplog):
    lines = start(caplog, attention_kernel="dense_fa3")
    (kernel,) = beginning(lines, "attention_kernel: dense_fa3 has no effect")
    assert "NVIDIA GPU" in kernel
    (compiled,) = beginning(lines, "compile: true has no effect")
    assert "'cpu'" in compiled
    lines = start(caplog, compile=False)
    assert not [line for line in lines if "has no effect" in line]


def test_what_keeps_a_gpu_from_compiling_is_named(monkeypatch):
    gpu = torch.device("cuda")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "Triton" in compile_obstacle(gpu)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    assert compile_obstacle(gpu) == ""
    monkeypatch.delattr("torch.compiler.set_stance")
    assert torch.__version__ in compile_obstacle(gpu)


def test_a_replay_hears_of_a_kernel_without_effect_too(caplog):
    parameters = Parameters(checkpoint="random:tiny", device="cpu", attention_kernel="paged_fa2")
    load_network(parameters)
    (record,) = [
        r for r in caplog.records if "has no effect" in r.message and "kernel" in r.message
    ]
    assert record.levelno == logging.WARNING


def test_weights_that_are_still_in_their_file_take_none_of_the_device(monkeypatch, tmp_path):
    path = tmp_path / "tiny.safetensors"
    save_file(load_model("random:tiny").state_dict(), path)
    parameters = Parameters(checkpoint=str(path), device="cpu", map_max_points=1000)
    model = load_network(parameters)
    weights = model.memory_bytes()["weights"]
    settings = MemorySettings(
        model.config, 480, 640, dtype=model.dtype, pending_limit=model.pending_limit
    )
    enough = int(settings.plan().total / (1 - HEADROOM)) + 2 * 1024**2
    for free, fits in ((enough, True), (enough - weights // 2, False)):
        monkeypatch.setattr(device_memory, "available_memory", lambda _device, free=free: free)
        if fits:
            load_network(parameters)
        else:
            with pytest.raises(MemoryPlanError, match="exceeds"):
                load_network(parameters)
