# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What is compiled for a frame; on a CPU, by a compiler that only counts."""

from itertools import pairwise

import pytest
import torch

from lingbot_map_ros.models import frame_runner
from lingbot_map_ros.models.config import GCTConfig
from lingbot_map_ros.models.gct_stream import GCTStream

pytestmark = pytest.mark.skipif(
    not hasattr(torch.compiler, "set_stance"), reason="this PyTorch compiles nothing of ours"
)
SIZES = ((84, 112), (112, 112), (112, 84), (70, 112), (98, 112), (84, 112))


@pytest.fixture
def compiled(monkeypatch):
    """The graphs that were compiled, as on a GPU."""
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    compile_ = torch.compile
    monkeypatch.setattr(frame_runner, "compile_obstacle", lambda device: "")
    monkeypatch.setattr(torch, "compile", lambda f, **how: compile_(f, backend=backend, **how))
    torch.compiler.reset()
    yield graphs
    torch.compiler.reset()


def compiled_in_a_stream(model, graphs, size):
    """How many graphs are compiled for the scale frames, the first frame, and those after it."""
    model.reset()
    counts = [len(graphs)]
    for frames in (model.config.num_scale_frames, 1, 1, 1):
        model.step(torch.rand(frames, 3, *size))
        counts.append(len(graphs))
    return [after - before for before, after in pairwise(counts)]


@pytest.mark.parametrize("placed", [True, False])
def test_blocks_are_compiled_for_every_image_size(compiled, placed):
    model = GCTStream(GCTConfig.preset("small"))
    counts = []
    for size in SIZES:
        if placed:
            model.place(model.device, model.dtype)
        counts.append(compiled_in_a_stream(model, compiled, size))
    scale, first, *later = counts[0]
    assert first > 0 and [scale, *later] == [0, 0, 0]
    assert counts == [counts[0]] * len(SIZES)


def test_a_new_stream_of_the_same_size_compiles_nothing(compiled):
    model = GCTStream(GCTConfig.preset("tiny"))
    assert sum(compiled_in_a_stream(model, compiled, (84, 112))) > 0
    assert sum(compiled_in_a_stream(model, compiled, (84, 112))) == 0
