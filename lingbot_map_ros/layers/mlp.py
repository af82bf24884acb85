# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Two-layer perceptron with the exact (erf) GELU."""

from torch import Tensor, nn
from torch.nn import functional as F

from lingbot_map_ros.layers.precision import Linear


class Mlp(nn.Module):
    """``fc2(gelu(fc1(x)))``."""

    def __init__(self, dim: int, hidden_dim: int, out_dim: int | None = None) -> None:
        super().__init__()
        self.fc1 = Linear(dim, hidden_dim)
        self.fc2 = Linear(hidden_dim, out_dim or dim)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``x [..., dim]`` to ``[..., out_dim]``."""
        return self.fc2(F.gelu(self.fc1(x)))
