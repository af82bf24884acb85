# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Multi-head attention whose visible keys are the caller's choice.

The layer projects, normalises and rotates; *what* the queries attend to is an injected function, so
that frame blocks (all tokens of a frame), the paged cache and masked training share one layer.
"""

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F

from lingbot_map_ros.layers.precision import LayerNorm, Linear
from lingbot_map_ros.layers.rope import RotaryTable, rotate

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(q, k, v), each ``[B, heads, N, head_dim]``, to the attention output of the same shape."""


def full_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attend to every given token, scale 1/sqrt(head_dim)."""
    return F.scaled_dot_product_attention(q, k, v)


class Attention(nn.Module):
    """Attention with fused ``qkv``, optional q/k norm and rotary positions."""

    def __init__(self, dim: int, num_heads: int, *, qk_norm: bool = False) -> None:
        super().__init__()
        self.num_heads = num_heads
        head_dim = dim // num_heads
        self.qkv = Linear(dim, 3 * dim)
        self.q_norm = LayerNorm(head_dim) if qk_norm else nn.Identity()
        self.k_norm = LayerNorm(head_dim) if qk_norm else nn.Identity()
        self.proj = Linear(dim, dim)

    def project(self, x: Tensor, rope: RotaryTable | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values ``[B, heads, N, head_dim]`` of ``x [B, N, dim]``."""
        qkv = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        q, k = self.q_norm(q), self.k_norm(k)
        if rope is not None:
            q, k = rotate(q, rope), rotate(k, rope)
        return q.to(v.dtype), k.to(v.dtype), v

    def merge_heads(self, out: Tensor) -> Tensor:
        """Map attention outputs ``[B, heads, N, head_dim]`` to ``[B, N, dim]``."""
        return self.proj(out.transpose(1, 2).flatten(2))

    def forward(
        self, x: Tensor, rope: RotaryTable | None = None, attend: Attend = full_attention
    ) -> Tensor:
        """Map ``x [B, N, dim]`` to ``[B, N, dim]``."""
        return self.merge_heads(attend(*self.project(x, rope)))
