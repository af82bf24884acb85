# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: names, layouts, damage, digests and the memory that loading takes."""

import hashlib
import json
import logging
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from lingbot_map_ros.aggregator.base import ViTConfig
from lingbot_map_ros.errors import CheckpointError, ConfigurationError, LingbotMapError
from lingbot_map_ros.models.checkpoint import load_model
from lingbot_map_ros.models.config import PRESETS, GCTConfig
from lingbot_map_ros.models.gct_stream import GCTStream
from lingbot_map_ros.models.quantize import dequantize, quantize, save_quantized
from lingbot_map_ros.models.random_weights import randomize_

DATA = Path(__file__).parent / "data"


@pytest.fixture(scope="module")
def tiny():
    return load_model("random:tiny")


@pytest.fixture(scope="module")
def state(tiny):
    return tiny.state_dict()


def run(model):
    model.reset()
    torch.manual_seed(0)
    return model.step(torch.rand(3, 3, 28, 42))


def test_vitl_has_exactly_the_released_tensors():
    with torch.device("meta"):
        model = GCTStream(GCTConfig.preset("vitl"), device="meta")
    released = json.loads((DATA / "state_dict_vitl.json").read_text())
    assert {k: list(v.shape) for k, v in model.state_dict().items()} == released
    assert sum(p.numel() for p in model.parameters()) == 1_157_943_540
    assert len(released) == 1342


@pytest.mark.parametrize("layout", ["bare", "model", "module", "compiled"])
def test_pt_layouts(tiny, state, layout, tmp_path):
    path = tmp_path / "weights.pt"
    content = {
        "bare": state,
        "model": {"model": state, "epoch": 3},
        "module": {f"module.{k}": v for k, v in state.items()},
        "compiled": {
            k.replace("frame_blocks.", "frame_blocks._orig_mod."): v for k, v in state.items()
        },
    }[layout]
    torch.save(content, path)
    loaded = load_model(path)
    assert loaded.config == GCTConfig.preset("tiny")
    assert torch.equal(run(loaded).pose_enc, run(tiny).pose_enc)


@pytest.mark.parametrize("stored", [torch.float16, torch.bfloat16])
def test_half_precision_weights_grow_only_where_they_are_placed(tiny, state, stored, tmp_path):
    path = tmp_path / "weights.safetensors"
    save_file({name: tensor.to(stored) for name, tensor in state.items()}, path)
    in_file = load_model(path, device=torch.device("meta"))
    assert {p.dtype for p in in_file.parameters()} == {stored}
    rounded = GCTStream(tiny.config, attention_backend="sdpa")
    rounded.load_state_dict({name: t.to(stored).float() for name, t in state.items()})
    placed = in_file.place(torch.device("cpu"), torch.float32)
    assert {p.dtype for p in placed.parameters()} == {torch.float32}
    assert torch.equal(run(placed).pose_enc, run(rounded).pose_enc)
    assert torch.equal(run(placed).depth, run(rounded).depth)
    mixed = load_model(path, dtype="bfloat16")
    assert mixed.aggregator.camera_token.dtype == torch.float32
    assert mixed.aggregator.global_blocks[0].attn.qkv.weight.dtype == torch.bfloat16
    assert {p.dtype for p in mixed.camera_head.parameters()} == {torch.float32}
    assert torch.isfinite(run(mixed).depth).all()


def test_safetensors_with_its_own_configuration(tiny, state, tmp_path):
    path = tmp_path / "weights.safetensors"
    config = {**tiny.config.to_dict(), "sliding_window": 7}
    save_file(state, path, {"config": json.dumps(config)})
    loaded = load_model(path)
    assert loaded.config.sliding_window == 7
    assert torch.equal(run(loaded).depth, run(tiny).depth)
    assert load_model(path, sliding_window=5, max_keyframes=None).config.sliding_window == 5
    assert load_model(path, model="tiny").config.sliding_window == 4


def test_quantised_file(tiny, state, tmp_path):
    path = tmp_path / "weights.safetensors"
    save_quantized(path, state, tiny.config.to_dict())
    loaded = load_model(path)
    assert loaded.config == tiny.config
    for name, tensor in loaded.state_dict().items():
        error = (tensor - state[name]).abs().amax()
        assert error <= state[name].abs().amax() / 127, name
    assert path.stat().st_size < 0.3 * sum(4 * t.numel() for t in state.values())


def test_quantisation_is_exact_on_its_own_grid():
    weight = torch.randint(-127, 128, (64, 64)).float()
    weight[:, 0] = 127
    assert torch.equal(dequantize(quantize({"a.weight": weight / 16}))["a.weight"], weight / 16)
    stored = quantize({"a.weight": weight})
    del stored["a.weight.int8_scale"]
    with pytest.raises(CheckpointError, match="no scale"):
        dequantize(stored)


def test_unused_heads_are_ignored_with_one_line(state, tmp_path, caplog):
    extra = {f"{head}_head.x": torch.zeros(1) for head in ("point", "local_point", "track")}
    extra |= {"aggregator._resnet_mean": torch.zeros(3), "aggregator._resnet_std": torch.zeros(3)}
    torch.save({**state, **extra}, tmp_path / "w.pt")
    with caplog.at_level(logging.INFO):
        load_model(tmp_path / "w.pt")
    assert [r.message for r in caplog.records if "unused heads" in r.message] == [
        "w.pt: 5 tensors of unused heads ignored"
    ]


def broken(state, kind):
    state = dict(state)
    name = "aggregator.frame_blocks.1.mlp.fc1.weight"
    if kind == "missing":
        del state[name]
    elif kind == "shape":
        state[name] = state[name][:-1]
    elif kind == "unexpected":
        state["surprise"] = torch.zeros(1)
    elif kind == "stage-1":
        del state["aggregator.scale_token"]
    return state


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("missing", "missing aggregator.frame_blocks.1.mlp.fc1.weight"),
        ("shape", r"is \[511, 128\] instead of \[512, 128\]"),
        ("unexpected", "unexpected surprise"),
        ("stage-1", "stage-1"),
    ],
)
def test_a_checkpoint_of_another_model(state, kind, message, tmp_path):
    torch.save(broken(state, kind), tmp_path / "w.pt")
    with pytest.raises(CheckpointError, match=message):
        load_model(tmp_path / "w.pt", model="tiny")
    with pytest.raises(CheckpointError):
        load_model(tmp_path / "w.pt")


def test_another_preset_is_refused(state, tmp_path):
    torch.save(state, tmp_path / "w.pt")
    with pytest.raises(CheckpointError, match="does not fit this model"):
        load_model(tmp_path / "w.pt", model="small")
    with pytest.raises(ConfigurationError, match="none of vitl, small, tiny"):
        load_model(tmp_path / "w.pt", model="large")


def test_mask_token_may_be_missing(tmp_path):
    """Small relative of the released model: the only tensor that inference never reads."""
    config = replace(
        PRESETS["tiny"], vit=ViTConfig(depth=1, num_heads=2, img_size=56), max_keyframes=8
    )
    state = randomize_(GCTStream(config)).state_dict()
    del state["aggregator.patch_embed.mask_token"]
    path = tmp_path / "w.safetensors"
    save_file(state, path, {"config": json.dumps(config.to_dict())})
    assert torch.isfinite(run(load_model(path)).depth).all()


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
@pytest.mark.parametrize("fraction", [0.0, 0.5, 0.99])
def test_a_truncated_file(state, suffix, fraction, tmp_path):
    whole = tmp_path / f"whole.{suffix}"
    torch.save(state, whole) if suffix == "pt" else save_file(state, whole)
    cut = tmp_path / f"cut.{suffix}"
    cut.write_bytes(whole.read_bytes()[: int(whole.stat().st_size * fraction)])
    with pytest.raises(CheckpointError, match="cut"):
        load_model(cut)


class Exploit:
    def __reduce__(self):
        return (Path.touch, (Path("exploited"),))


def test_a_pickle_that_runs_code_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"model": Exploit()}, tmp_path / "w.pt")
    with pytest.raises(CheckpointError):
        load_model(tmp_path / "w.pt")
    (tmp_path / "plain.pt").write_bytes(pickle.dumps(Exploit()))
    with pytest.raises(CheckpointError):
        load_model(tmp_path / "plain.pt")
    assert not (tmp_path / "exploited").exists()


def test_not_a_state_dict(tmp_path):
    torch.save({"a": 1}, tmp_path / "w.pt")
    with pytest.raises(CheckpointError, match="no state dict"):
        load_model(tmp_path / "w.pt")


def test_sha256_is_logged_and_checked(state, tmp_path, caplog):
    path = tmp_path / "w.safetensors"
    save_file(state, path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    with caplog.at_level(logging.INFO):
        load_model(path, sha256=digest.upper())
    assert digest in caplog.text
    with pytest.raises(CheckpointError, match="altered"):
        load_model(path, sha256="0" * 64)


def test_shipped_weights_that_were_altered(tiny, state, monkeypatch, tmp_path):
    monkeypatch.setattr("lingbot_map_ros.models.checkpoint_file.WEIGHTS", tmp_path)
    path = tmp_path / "own.safetensors"
    save_quantized(path, state, tiny.config.to_dict())
    with pytest.raises(CheckpointError, match="install the package again"):
        load_model("builtin:own")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    (tmp_path / "SHA256SUMS").write_text(f"{digest}  own.safetensors\n")
    assert load_model("builtin:own").config == tiny.config
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match="altered"):
        load_model("builtin:own")


def test_shipped_weights_are_the_recorded_ones():
    assert load_model("builtin:small").config.image_size == 210


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("nowhere.pt", "is no file"),
        ("builtin:nothing", "ships no weights"),
        ("hf://owner/file.pt", "not of the form"),
        ("random:huge", "none of"),
    ],
)
def test_bad_names(spec, message):
    with pytest.raises(LingbotMapError, match=message):
        load_model(spec)


def test_a_file_of_another_kind(tmp_path):
    (tmp_path / "w.onnx").touch()
    with pytest.raises(CheckpointError, match=r"neither \.pt nor"):
        load_model(tmp_path / "w.onnx")


def test_hub_offline_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    code = (
        "from lingbot_map_ros.models.checkpoint import load_model\n"
        "load_model('hf://nobody/nothing/weights.pt')"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    last = result.stderr.strip().splitlines()[-1]
    assert "CheckpointError: cannot fetch hf://nobody/nothing/weights.pt" in result.stderr
    assert "give its path as checkpoint" in last


def test_hub_file_is_taken_from_the_cache(tiny, state, monkeypatch, tmp_path):
    """What ``hf_hub_download`` returns is loaded like any other file."""
    path = tmp_path / "w.safetensors"
    save_file(state, path)
    calls = []
    monkeypatch.setattr(
        "huggingface_hub.hf_hub_download", lambda *args: calls.append(args) or str(path)
    )
    loaded = load_model("hf://owner/repo/folder/w.safetensors")
    assert calls == [("owner/repo", "folder/w.safetensors")]
    assert torch.equal(run(loaded).pose_enc, run(tiny).pose_enc)


PEAK = """
import resource, sys
from dataclasses import replace
from lingbot_map_ros.models.checkpoint import load_model
from lingbot_map_ros.models.config import PRESETS
from lingbot_map_ros.models.gct_stream import GCTStream
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
PRESETS["wide"] = replace(PRESETS["tiny"], embed_dim=768, num_heads=12, camera_num_heads=12)
if sys.argv[1] == "write":
    import torch
    from safetensors.torch import save_file
    state = GCTStream(PRESETS["wide"]).state_dict()
    torch.save(state, sys.argv[2] + ".pt")
    save_file(state, sys.argv[2] + ".safetensors")
else:
    load_model("random:tiny")
    before = peak()
    model = load_model(sys.argv[2], model="wide")
    sum(float(p.sum()) for p in model.parameters())  # touches every page
    print((peak() - before) / sum(p.numel() * 4 for p in model.parameters()))
"""


def run_peak(*args):
    return subprocess.run(
        [sys.executable, "-c", PEAK, *map(str, args)], capture_output=True, text=True, check=True
    ).stdout


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    stem = tmp_path_factory.mktemp("wide") / "w"
    run_peak("write", stem)
    return stem


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_loading_takes_one_set_of_weights(wide, suffix):
    """Peak memory while loading is at most 1.1 times the weights (memory-mapped, assigned)."""
    assert float(run_peak("load", wide.with_suffix(f".{suffix}"))) <= 1.1
