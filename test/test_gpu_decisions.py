# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What is decided for a GPU, tried without one: back ends, recorded graphs, shared memory."""

import sys
import weakref
from types import SimpleNamespace

import pytest
import torch

from lingbot_map_ros.errors import BackendUnavailableError
from lingbot_map_ros.layers import attention_backends, attention_tuning
from lingbot_map_ros.layers.attention_backends import (
    GatherSdpaBackend,
    build_backend,
    flashinfer_obstacles,
)
from lingbot_map_ros.layers.flashinfer_backend import FlashInferBackend, Kernel, Problem
from lingbot_map_ros.layers.page_table import PageLayout, PageTable
from lingbot_map_ros.models import frame_runner
from lingbot_map_ros.models.config import GCTConfig
from lingbot_map_ros.models.gct_stream import GCTStream
from lingbot_map_ros.streaming import device_memory
from lingbot_map_ros.streaming.device_memory import available_memory, shares_host_memory

LAYOUT = PageLayout(
    tokens_per_frame=30, num_special=6, scale_frames=2, window=4, max_frames=20, pending_frames=2
)
GPU = torch.device("cuda", 0)


def build(name, kernel="auto"):
    return build_backend(
        name,
        layout=LAYOUT,
        num_heads=2,
        head_dim=64,
        dtype=torch.bfloat16,
        cache_dtype=torch.bfloat16,
        device=GPU,
        kernel=kernel,
    )


@pytest.fixture
def broken_flashinfer(monkeypatch):
    """A GPU, and a FlashInfer that is installed but was built for another PyTorch."""
    monkeypatch.setattr(attention_backends, "flashinfer_obstacles", lambda *_: [])
    monkeypatch.setattr(attention_backends, "usable_kernels", lambda *_: ("paged_fa2",))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "a GPU")
    monkeypatch.setitem(sys.modules, "flashinfer", None)


@pytest.mark.parametrize("kernel", ["auto", "paged_fa2"])
def test_auto_goes_on_without_a_flashinfer_that_does_not_run(broken_flashinfer, caplog, kernel):
    assert isinstance(build("auto", kernel), GatherSdpaBackend)
    assert "cannot be imported" in caplog.text


def test_a_chosen_flashinfer_that_does_not_run_is_an_error(broken_flashinfer):
    with pytest.raises(BackendUnavailableError, match=r"imported.*attention_backend: sdpa"):
        build("flashinfer")


def test_a_single_kernel_is_tried_too(broken_flashinfer, monkeypatch, tmp_path, caplog):
    """As an eight-bit cache leaves but one: better found now than in the first frame."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "flashinfer", SimpleNamespace(__version__="1"))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)

    def does_not_compile(problem, kernel):
        raise RuntimeError("no nvcc")

    monkeypatch.setattr(attention_tuning, "_full_window", does_not_compile)
    assert isinstance(build("auto"), GatherSdpaBackend)
    assert "no nvcc" in caplog.text and not list(tmp_path.rglob("*.json"))


@pytest.mark.parametrize(("capability", "obstacle"), [((7, 2), True), ((8, 7), False)])
def test_gpus_too_old_for_flashinfer_are_not_asked(monkeypatch, capability, obstacle):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    obstacles = flashinfer_obstacles(GPU, torch.float16, 64)
    assert any("7.5" in text for text in obstacles) == obstacle


def test_a_frame_keeps_its_buffers_whatever_is_asked_in_between(monkeypatch):
    """A recorded graph reads them at every replay."""
    made = []

    class Wrapper:
        """Stands for one of FlashInfer's, with the buffers that it owns."""

        def __init__(self, workspace, **buffers):
            made.append(self)

        def plan(self, *arguments, **options):
            self.planned = arguments

        def run(self, q, *keys, **options):
            return self

    names = ("BatchPrefillWithPagedKVCacheWrapper", "BatchPrefillWithRaggedKVCacheWrapper")
    monkeypatch.setitem(sys.modules, "flashinfer", SimpleNamespace(**dict.fromkeys(names, Wrapper)))
    event = SimpleNamespace(synchronize=lambda: None, record=lambda stream: None)
    monkeypatch.setattr(torch.cuda, "Event", lambda: event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    device = torch.device("cpu")
    problem = Problem(LAYOUT, 2, 64, torch.float32, torch.float32, device)
    kv, q = torch.zeros(2, LAYOUT.num_pages, LAYOUT.page_size, 2, 64), torch.zeros(30, 2, 64)
    for kernel in ("dense_fa2", "paged_fa2"):
        backend = FlashInferBackend(problem, Kernel(kernel))
        tables = [PageTable.empty(LAYOUT).append()]
        tables.append(tables[-1].append())
        backend.plan(tables[0], 30)
        frame = backend.run(q, kv)
        for queries in (5, 7, 5):
            backend.plan(tables[0], queries)
            assert backend.run(q[:queries], kv) is not frame
        backend.plan(tables[1], 30)
        assert backend.run(q, kv) is frame, kernel
    assert len(made) == 8


def test_recorded_frames_go_with_the_buffers_that_they_read(monkeypatch):
    """Landscape and portrait have as many tokens, and so one cache, but inputs of their own."""
    config = GCTConfig.preset("tiny")
    model = GCTStream(config)
    held = []

    class Graphs:
        """Holds what a recorded graph would read."""

        def __init__(self, device):
            self.buffers = {}

        def run(self, key, function):
            inputs = model.aggregator.inputs
            held.append(self.buffers.setdefault(key, inputs) is inputs)
            return function()

    monkeypatch.setattr(frame_runner, "FrameGraphs", Graphs)
    monkeypatch.setattr(GatherSdpaBackend, "capturable", True)
    for height, width in ((56, 84), (84, 56), (56, 84)):
        model.reset()
        images = torch.rand(config.num_scale_frames, 3, height, width)
        model.step(images)
        model.step(images[:1])
        model.step(images[:1], "skip", depth=False)
    assert held == [True] * 6
    old = weakref.ref(model.aggregator.kv_cache)
    model.reset()
    model.step(torch.rand(config.num_scale_frames, 3, 70, 84))
    assert old() is None, "the pools of two sizes lie side by side"


def test_a_gpu_without_memory_of_its_own_takes_what_the_system_would_give_back(monkeypatch):
    free = 10**8
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free, 8 * 10**9))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 0)
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda _: 1.0)
    monkeypatch.setattr(device_memory, "_available_host_memory", lambda: 3 * 10**9)
    properties = SimpleNamespace(is_integrated=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    assert not shares_host_memory(GPU) and shares_host_memory(torch.device("cpu"))
    assert available_memory(GPU) == free
    properties.is_integrated = 1
    assert shares_host_memory(GPU)
    assert available_memory(GPU) == 3 * 10**9
    assert available_memory(GPU, limit_gb=1) == 10**9
