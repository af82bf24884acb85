# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What JPEG does to images, on the GPU and for many at once: blocks lose their fine cosines."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

_BLOCK = 8
# Luminance, and two differences of colour (ITU-R BT.601).
_YCC = ((0.299, 0.587, 0.114), (-0.168736, -0.331264, 0.5), (0.5, -0.418688, -0.081312))
# Quantisation steps at quality 50, of 255: they grow with the frequency, and more for colour.
_STEP, _SLOPE, _COLOUR = 10.0, 8.0, 1.7


def compress(images: Tensor, coarseness: Tensor) -> Tensor:
    """Quantise ``images [B, S, 3, H, W]`` in [0, 1] as JPEG does.

    ``coarseness [B]`` multiplies the quantisation steps: 1 is about quality 50, 0 changes nothing.
    """
    height, width = images.shape[-2:]
    matrix = torch.tensor(_YCC)
    # On the GPU an inverse makes the CPU wait for it.
    back = torch.linalg.inv(matrix).to(images.device)
    matrix = matrix.to(images.device)
    ycc = torch.einsum("ij,bsjhw->bsihw", matrix, images)
    edges = (0, -width % _BLOCK, 0, -height % _BLOCK)
    padded = F.pad(ycc.flatten(0, 1), edges, mode="replicate").unflatten(0, images.shape[:2])
    blocks = padded.unflatten(-1, (-1, _BLOCK)).unflatten(-3, (-1, _BLOCK))
    basis = _cosines(images.device)
    spectrum = torch.einsum("ui,bschiwj,vj->bschuwv", basis, blocks, basis)
    step = coarseness.view(-1, 1, 1, 1, 1, 1, 1) * _steps(images.device)
    coarse = torch.where(step > 0, (spectrum / step.clamp(min=1e-6)).round() * step, spectrum)
    blocks = torch.einsum("ui,bschuwv,vj->bschiwj", basis, coarse, basis)
    ycc = blocks.flatten(-2).flatten(-3, -2)[..., :height, :width]
    return torch.einsum("ij,bsjhw->bsihw", back, ycc).clamp(0, 1)


def _cosines(device: torch.device) -> Tensor:
    """Orthonormal cosine transform ``[frequency, place]``."""
    index = torch.arange(_BLOCK, device=device)
    waves = torch.cos(math.pi / _BLOCK * index[:, None] * (index + 0.5)) * math.sqrt(2 / _BLOCK)
    return torch.where(index[:, None] == 0, math.sqrt(1 / _BLOCK), waves)


def _steps(device: torch.device) -> Tensor:
    """Quantisation steps ``[3, 1, frequency, 1, frequency]`` of values in [0, 1]."""
    index = torch.arange(_BLOCK, device=device)
    luminance = (_STEP + _SLOPE * (index[:, None] + index)) / 255
    channels = torch.tensor([1.0, _COLOUR, _COLOUR], device=device)
    return (channels[:, None, None] * luminance)[:, None, :, None]
