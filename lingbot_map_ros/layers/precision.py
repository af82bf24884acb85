# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Mixed precision in one place: matrix products in the weights' dtype, everything else in float32.

The residual stream, norms, LayerScale and rotary angles are float32 whatever the weights are, so
that a bfloat16 model needs neither autocast nor a float32 master copy.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Linear(nn.Linear):
    """Linear layer that computes in the dtype of its weight."""

    def forward(self, x: Tensor) -> Tensor:
        """Map ``x [..., in]`` to ``[..., out]`` in the weight's dtype."""
        return F.linear(x.to(self.weight.dtype), self.weight, self.bias)


class LayerNorm(nn.LayerNorm):
    """Layer norm over the last axis with float32 statistics and float32 output."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise ``x [..., dim]``; returns float32."""
        return F.layer_norm(x.float(), self.normalized_shape, self.weight, self.bias, self.eps)


def place_weights_(module: nn.Module, device: torch.device, dtype: torch.dtype) -> None:
    """Move to ``device``: linear layers and convolutions as ``dtype``, everything else as float32.

    One after the other, each cast on its way, so that the peak is one set of weights and not two.
    """
    for child in module.modules():
        if isinstance(child, nn.Linear | nn.Conv2d | nn.ConvTranspose2d):
            child.to(device, dtype)
        else:
            for parameter in child.parameters(recurse=False):
                parameter.data = parameter.data.float()
    module.to(device)
