# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What cameras do to images at random: exposure, colour, contrast, vignette, blur, noise, JPEG."""

import torch
from torch import Tensor
from torch.nn import functional as F

from .jpeg import compress


def _uniform(shape: tuple[int, ...], low: float, high: float, like: Tensor) -> Tensor:
    return low + (high - low) * torch.rand(shape, device=like.device)


def augment(images: Tensor, chosen: Tensor) -> Tensor:
    """Alter the clips ``chosen [B]`` (bool) of ``images [B, S, 3, H, W]`` in [0, 1].

    The camera is the same throughout a clip: only exposure and white balance drift within it, and
    noise is new in every frame.
    """
    batch, frames, _, height, width = images.shape
    per_clip = (batch, 1, 1, 1, 1)
    # Below zero the blend sharpens, as cameras do.
    strength = _uniform((batch,), -0.8, 1.2, images)
    x = _blur(_blur(images, strength.sign() * strength**2), (2 * strength - 1).clamp(min=0))
    per_channel = 0.1 * torch.randn(batch, 1, 3, 1, 1, device=x.device)
    x = x.clamp(0, 1) ** torch.exp(_uniform(per_clip, -0.45, 0.45, x) + per_channel)
    # Sensors and lamps mix colours: a random matrix near the identity.
    mixing = torch.eye(3, device=x.device) + 0.12 * torch.randn(batch, 3, 3, device=x.device)
    x = torch.einsum("bij,bsjhw->bsihw", mixing / mixing.sum(2, keepdim=True), x)
    balance = torch.exp(0.12 * torch.randn(batch, 1, 3, 1, 1, device=x.device))
    time = torch.linspace(-1, 1, frames, device=x.device)[None, :, None, None, None]
    drift = torch.exp(0.1 * torch.randn(per_clip, device=x.device) * time)
    flicker = torch.exp(
        0.03 * _uniform(per_clip, 0, 1, x) * torch.randn(batch, frames, 1, 1, 1, device=x.device)
    )
    exposure = torch.exp(_uniform(per_clip, -0.5, 0.45, x)) * drift * flicker
    grey = x.mean(2, keepdim=True)
    saturation = _uniform(per_clip, 0, 1.5, x)
    # One clip in ten comes from a monochrome camera.
    saturation = torch.where(torch.rand(per_clip, device=x.device) < 0.1, 0, saturation)
    x = (grey + saturation * (x - grey)) * balance * exposure
    middle = x.mean((1, 2, 3, 4), keepdim=True)
    x = middle + (x - middle) * torch.exp(_uniform(per_clip, -0.3, 0.3, x))
    v = torch.linspace(-1, 1, height, device=x.device)[:, None]
    u = torch.linspace(-1, 1, width, device=x.device)
    x = x * (1 - _uniform(per_clip, 0, 0.35, x) * (u * u + v * v) / 2)
    shot = _uniform(per_clip, 0, 0.06, x) * _uniform(per_clip, 0, 1, x)
    noise = (0.3 + x.clamp(0, 1).sqrt()) * shot
    x = (x + noise * torch.randn_like(x)).clamp(0, 1)
    # Half the cameras send raw images.
    x = compress(x, _uniform((batch,), -0.8, 0.8, x).clamp(min=0))
    return torch.where(chosen.view(-1, 1, 1, 1, 1), x, images)


def _blur(images: Tensor, strength: Tensor) -> Tensor:
    """Blend each clip ``[B, ...]`` with its 3x3 binomial blur by ``strength [B]``."""
    flat = images.flatten(0, 1)
    kernel = torch.tensor([1.0, 2.0, 1.0], device=images.device) / 4
    kernel = (kernel[:, None] * kernel).expand(3, 1, 3, 3)
    soft = F.conv2d(F.pad(flat, (1, 1, 1, 1), mode="replicate"), kernel, groups=3)
    return torch.lerp(images, soft.view_as(images), strength.view(-1, 1, 1, 1, 1))
