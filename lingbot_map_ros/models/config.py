# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Sizes of the network and the streaming defaults that it was trained with."""

from dataclasses import asdict, dataclass, field, fields
from typing import Any

from lingbot_map_ros.aggregator.base import ViTConfig
from lingbot_map_ros.errors import ConfigurationError
from lingbot_map_ros.integers import require_integers


@dataclass(frozen=True)
class GCTConfig:
    """Configuration of a ``GCTStream``; the defaults are those of the released checkpoints.

    ``vit=None`` embeds patches by a single convolution. ``image_size`` is the longer side of the
    network's own input and ``image_height`` its height where that is fixed (0: by the camera's
    aspect). The last group are the stream's defaults, carried by the checkpoint.
    """

    embed_dim: int = 1024
    depth: int = 24
    num_heads: int = 16
    mlp_ratio: float = 4.0
    patch_size: int = 14
    vit: ViTConfig | None = field(default_factory=ViTConfig)
    selected_layers: tuple[int, ...] = (4, 11, 17, 23)
    enable_3d_rope: bool = True
    disable_global_rope: bool = False

    camera_trunk_depth: int = 4
    camera_num_heads: int = 16
    camera_iterations: int = 4
    enable_camera_3d_rope: bool = False
    camera_rope_theta: float = 10000.0

    depth_features: int = 256
    depth_channels: tuple[int, int, int, int] = (256, 512, 1024, 1024)

    image_size: int = 518
    image_height: int = 0
    num_scale_frames: int = 8
    sliding_window: int = 64
    max_keyframes: int = 320

    def __post_init__(self) -> None:
        require_integers(self)
        if self.embed_dim % self.num_heads or 2 * self.embed_dim % self.camera_num_heads:
            raise ConfigurationError(
                f"embed_dim={self.embed_dim} is not a multiple of its {self.num_heads} heads, or "
                f"twice of it of the camera head's {self.camera_num_heads}"
            )
        if self.num_scale_frames < 1 or self.sliding_window < 1:
            raise ConfigurationError("num_scale_frames and sliding_window must be at least 1")
        if self.max_keyframes <= self.num_scale_frames:
            raise ConfigurationError(
                f"max_keyframes={self.max_keyframes} must exceed num_scale_frames="
                f"{self.num_scale_frames}, or no frame can follow the scale frames"
            )
        if self.camera_iterations < 1:
            raise ConfigurationError("camera_iterations must be at least 1")

    @property
    def head_dim(self) -> int:
        """Features of an attention head of the aggregator."""
        return self.embed_dim // self.num_heads

    @staticmethod
    def preset(name: str) -> "GCTConfig":
        """Preset by name; ``ConfigurationError`` lists them for an unknown one."""
        if name not in PRESETS:
            raise ConfigurationError(f"model '{name}' is none of {', '.join(PRESETS)}")
        return PRESETS[name]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for a checkpoint's metadata."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "GCTConfig":
        """Inverse of ``to_dict``; ``ConfigurationError`` for unknown names or wrong types."""
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(values) - known):
            raise ConfigurationError(f"unknown fields of a model configuration: {unknown}")
        values = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
        try:
            if isinstance(values.get("vit"), dict):
                values["vit"] = ViTConfig(**values["vit"])
            return cls(**values)
        except TypeError as error:
            raise ConfigurationError(f"not a model configuration: {error}") from error


PRESETS = {
    "vitl": GCTConfig(),
    "small": GCTConfig(
        embed_dim=384,
        depth=6,
        num_heads=6,
        vit=ViTConfig(depth=7, num_heads=6),
        selected_layers=(1, 3, 4, 5),
        camera_trunk_depth=1,
        camera_num_heads=6,
        depth_features=64,
        depth_channels=(48, 96, 192, 192),
        image_size=210,
        image_height=126,
        num_scale_frames=4,
        sliding_window=16,
        max_keyframes=128,
    ),
    "tiny": GCTConfig(
        embed_dim=128,
        depth=4,
        num_heads=2,
        vit=None,
        selected_layers=(0, 1, 2, 3),
        camera_trunk_depth=1,
        camera_num_heads=2,
        depth_features=32,
        depth_channels=(16, 24, 32, 40),
        image_size=112,
        num_scale_frames=3,
        sliding_window=4,
        max_keyframes=32,
    ),
}
