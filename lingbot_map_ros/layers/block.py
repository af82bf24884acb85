# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Pre-norm transformer block with LayerScale."""

import torch
from torch import Tensor, nn

from lingbot_map_ros.layers.attention import Attend, Attention, full_attention
from lingbot_map_ros.layers.mlp import Mlp
from lingbot_map_ros.layers.precision import LayerNorm
from lingbot_map_ros.layers.rope import RotaryTable


class LayerScale(nn.Module):
    """Learned factor for each channel of a residual branch."""

    def __init__(self, dim: int, init_value: float) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.full((dim,), init_value))

    def forward(self, x: Tensor) -> Tensor:
        """Scale ``x [..., dim]``."""
        return x * self.gamma


class Block(nn.Module):
    """``x += ls1(attn(norm1(x)))``, then ``x += ls2(mlp(norm2(x)))``."""

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        mlp_ratio: float = 4.0,
        qk_norm: bool = False,
        eps: float = 1e-5,
        layer_scale: float = 0.01,
    ) -> None:
        super().__init__()
        self.norm1 = LayerNorm(dim, eps=eps)
        self.attn = Attention(dim, num_heads, qk_norm=qk_norm)
        self.ls1 = LayerScale(dim, layer_scale)
        self.norm2 = LayerNorm(dim, eps=eps)
        self.mlp = Mlp(dim, round(dim * mlp_ratio))
        self.ls2 = LayerScale(dim, layer_scale)

    def forward(
        self, x: Tensor, rope: RotaryTable | None = None, attend: Attend = full_attention
    ) -> Tensor:
        """Map ``x [B, N, dim]`` to the same shape; the residual stream stays float32."""
        return self.after(x, attend(*self.before(x, rope)))

    def before(self, x: Tensor, rope: RotaryTable | None) -> tuple[Tensor, Tensor, Tensor]:
        """Everything before the attention: its queries, keys and values."""
        return self.attn.project(self.norm1(x), rope)

    def after(self, x: Tensor, attended: Tensor) -> Tensor:
        """Everything behind the attention."""
        x = x + self.ls1(self.attn.merge_heads(attended))
        return x + self.ls2(self.mlp(self.norm2(x)))

    def compile_halves(self) -> None:
        """Compile what lies before and behind the attention; blocks of a kind share the code."""
        for half in {"before", "after"} - self.__dict__.keys():
            setattr(self, half, torch.compile(getattr(self, half), dynamic=False))
