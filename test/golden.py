# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Golden vectors: cases by name, their arrays as float32 tensors, and the comparison."""

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from lingbot_map_ros.aggregator.base import ViTConfig
from lingbot_map_ros.models.config import GCTConfig

ROOT = Path(__file__).parent / "data" / "golden"


@dataclass
class Case:
    """One case of the manifest; ``arrays`` maps names such as ``in.x`` to tensors."""

    spec: dict[str, Any]
    arrays: dict[str, Tensor]

    @property
    def config(self) -> dict[str, Any]:
        return self.spec["config"]

    @property
    def weights(self) -> dict[str, Tensor]:
        return {k[2:]: v for k, v in self.arrays.items() if k.startswith("w.")}

    def __getitem__(self, name: str) -> Tensor:
        return self.arrays[name]

    def check(self, got: Tensor, name: str, factor: float = 1.0) -> None:
        """Fail unless ``got`` equals array ``name`` within the manifest's tolerance."""
        tolerance = self.spec["tolerance"]
        torch.testing.assert_close(
            got.to(torch.float64),
            self.arrays[name].to(torch.float64),
            atol=tolerance["atol"] * factor,
            rtol=tolerance["rtol"] * factor,
        )


@lru_cache
def manifest() -> dict[str, dict[str, Any]]:
    """Cases by name."""
    return {c["name"]: c for c in json.loads((ROOT / "manifest.json").read_text())["cases"]}


def load_arrays(path: Path) -> dict[str, Tensor]:
    """Arrays of an npz; float16 holds exact values and becomes float32."""
    with np.load(path) as file:
        arrays = {name: torch.from_numpy(file[name]) for name in file.files}
    return {k: v.float() if v.dtype == torch.float16 else v for k, v in arrays.items()}


def load_case(name: str, root: Path = ROOT) -> Case:
    """Case ``name`` with its arrays."""
    spec = manifest()[name]
    return Case(spec, load_arrays(root / spec["file"]))


def load_clip(case: Case, root: Path = ROOT) -> Tensor:
    """Images ``[S, 3, H, W]`` in [0, 1] of a model case."""
    return load_arrays(root / case.spec["clip"])["images"].float() / 255


def load_weights(case: Case, root: Path = ROOT) -> dict[str, Tensor]:
    """State dict of a model case in float32."""
    return {k: v.float() for k, v in load_file(root / case.spec["weights"]).items()}


def model_config(config: dict[str, Any]) -> GCTConfig:
    """``GCTConfig`` of a model case."""
    embed, camera, depth = config["patch_embed"], config["camera_head"], config["depth_head"]
    vit = None
    if embed["type"] == "vit":
        vit = ViTConfig(
            depth=embed["depth"],
            num_heads=embed["num_heads"],
            num_register_tokens=embed["num_register_tokens"],
            img_size=embed["img_size"],
        )
    return GCTConfig(
        embed_dim=config["embed_dim"],
        depth=config["depth"],
        num_heads=config["num_heads"],
        mlp_ratio=config["mlp_ratio"],
        patch_size=config["patch_size"],
        vit=vit,
        selected_layers=tuple(config["selected_layers"]),
        enable_3d_rope=config["enable_3d_rope"],
        camera_trunk_depth=camera["trunk_depth"],
        camera_num_heads=camera["num_heads"],
        camera_iterations=camera["num_iterations"],
        depth_features=depth["features"],
        depth_channels=tuple(depth["out_channels"]),
        num_scale_frames=config["kv_cache_scale_frames"],
        sliding_window=config["kv_cache_sliding_window"],
        max_keyframes=config["max_frame_num"],
    )
