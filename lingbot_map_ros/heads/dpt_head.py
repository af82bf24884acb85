# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Depth head: dense prediction transformer over four aggregator outputs."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lingbot_map_ros.layers.precision import LayerNorm, place_weights_

FRAMES_PER_GROUP = 2


class DepthMaps(NamedTuple):
    """``depth`` along the optical axis and ``confidence`` (at least 1), each ``[N, H, W]``."""

    depth: Tensor
    confidence: Tensor


@lru_cache(maxsize=64)
def _waves(length: int, span: float, quarter: int, device: torch.device) -> Tensor:
    """Sines and cosines ``[2 * quarter, length]`` along one side, amplitude 0.1."""
    position = torch.linspace(-span * (length - 1) / length, span * (length - 1) / length, length)
    omega = 100.0 ** -(torch.arange(quarter, dtype=torch.float64) / quarter)
    angle = omega[:, None] * position.double()[None]
    return (0.1 * torch.cat((angle.sin(), angle.cos()))).float().to(device)


def add_positions_(x: Tensor, aspect: float) -> Tensor:
    """Add sines and cosines over the image plane to ``x [N, channels, height, width]`` in place.

    The first half of the channels varies along the width, the other along the height. ``aspect`` is
    the input image's width over its height, whatever the size of the map.
    """
    channels, height, width = x.shape[1:]
    diagonal = (aspect**2 + 1) ** 0.5
    across = _waves(width, aspect / diagonal, channels // 4, x.device)
    down = _waves(height, 1 / diagonal, channels // 4, x.device)
    half = channels // 2
    x[:, :half] += across[:, None, :].to(x.dtype)
    x[:, half:] += down[:, :, None].to(x.dtype)
    return x


class ResidualConvUnit(nn.Module):
    """Two 3x3 convolutions around ``relu(x)``; the shortcut is relu(x), as the weights expect."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(features, features, 3, padding=1)
        self.conv2 = nn.Conv2d(features, features, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[N, features, h, w]`` to the same shape."""
        x = F.relu(x)
        return self.conv2(F.relu(self.conv1(x))) + x


class FusionBlock(nn.Module):
    """Adds a finer skip connection to the coarse path and enlarges the sum."""

    def __init__(self, features: int, *, has_skip: bool) -> None:
        super().__init__()
        if has_skip:
            self.resConfUnit1 = ResidualConvUnit(features)
        self.resConfUnit2 = ResidualConvUnit(features)
        self.out_conv = nn.Conv2d(features, features, 1)

    def forward(self, path: Tensor, skip: Tensor | None, size: tuple[int, int]) -> Tensor:
        """Fuse ``path`` and ``skip`` (``[N, features, h, w]``) and resize to ``size``."""
        if skip is not None:
            path = path + self.resConfUnit1(skip)
        return self.out_conv(_resize(self.resConfUnit2(path), size))


class _Output(nn.Sequential):
    """Layers whose last one may be kept in another dtype."""

    def forward(self, x: Tensor) -> Tensor:
        *layers, last = self
        for layer in layers:
            x = layer(x)
        out: Tensor = last(x.to(next(last.parameters()).dtype))
        return out


class _Scratch(nn.Module):
    """Holds the layers that checkpoints name ``scratch.*``."""

    def __init__(self, channels: Sequence[int], features: int) -> None:
        super().__init__()
        for i, width in enumerate(channels, 1):
            conv = nn.Conv2d(width, features, 3, padding=1, bias=False)
            self.add_module(f"layer{i}_rn", conv)
            self.add_module(f"refinenet{i}", FusionBlock(features, has_skip=i < len(channels)))
        self.output_conv1 = nn.Conv2d(features, features // 2, 3, padding=1)
        self.output_conv2 = _Output(
            nn.Conv2d(features // 2, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 2, 1)
        )


class DPTHead(nn.Module):
    """Depth and confidence for every pixel; ``dim`` is the width of the aggregator's outputs."""

    def __init__(
        self,
        dim: int,
        *,
        features: int = 256,
        channels: Sequence[int] = (256, 512, 1024, 1024),
        patch_size: int = 14,
        num_special: int = 6,
    ) -> None:
        super().__init__()
        self.patch_size = patch_size
        self.num_special = num_special
        self.norm = LayerNorm(dim)
        self.projects = nn.ModuleList(nn.Conv2d(dim, width, 1) for width in channels)
        self.resize_layers = nn.ModuleList(
            (
                nn.ConvTranspose2d(channels[0], channels[0], 4, stride=4),
                nn.ConvTranspose2d(channels[1], channels[1], 2, stride=2),
                nn.Identity(),
                nn.Conv2d(channels[3], channels[3], 3, stride=2, padding=1),
            )
        )
        self.scratch = _Scratch(channels, features)

    def fine_layers(self) -> tuple[nn.Module, ...]:
        """Layers of the largest maps, which take most of the time; but for the last, cheap one."""
        names = ("refinenet1", "output_conv1", "output_conv2.0")
        return tuple(self.scratch.get_submodule(name) for name in names)

    def place_(self, device: torch.device, dtype: torch.dtype) -> None:
        """Move to ``device``, on a GPU channels last, and compute the fine layers in ``dtype``.

        The others stay float32, which GPUs since Ampere multiply as TensorFloat-32: every layer
        adds its share of rounding, and the output is the logarithm of the depth, where that is a
        relative error.
        """
        place_weights_(self, device, torch.float32)
        for layer in self.fine_layers():
            layer.to(dtype)
        for module in self.modules() if device.type == "cuda" else ():
            if isinstance(module, nn.Conv2d | nn.ConvTranspose2d):
                module.weight.data = module.weight.contiguous(memory_format=torch.channels_last)

    def forward(self, outputs: Sequence[Tensor], height: int, width: int) -> DepthMaps:
        """Predict from four outputs ``[B, S, P, dim]`` of images ``height x width``.

        Returns maps ``[B * S, height, width]``. Frames are independent and go through in groups, to
        bound memory.
        """
        tokens = [output.flatten(0, 1)[:, self.num_special :] for output in outputs]
        groups = [
            self._predict([t[i : i + FRAMES_PER_GROUP] for t in tokens], height, width)
            for i in range(0, tokens[0].shape[0], FRAMES_PER_GROUP)
        ]
        return DepthMaps(*(torch.cat(maps) for maps in zip(*groups, strict=True)))

    def _predict(self, tokens: list[Tensor], height: int, width: int) -> DepthMaps:
        grid = (height // self.patch_size, width // self.patch_size)
        aspect = width / height
        scratch = self.scratch
        skips = []
        for i, x in enumerate(tokens):
            x = self.norm(x).transpose(1, 2).unflatten(2, grid)
            x = add_positions_(self.projects[i](x), aspect)
            skips.append(getattr(scratch, f"layer{i + 1}_rn")(self.resize_layers[i](x)))
        path = skips[-1]
        for i in range(len(skips), 0, -1):
            skip = None if i == len(skips) else skips[i - 1]
            size = skips[i - 2].shape[-2:] if i > 1 else (2 * path.shape[-2], 2 * path.shape[-1])
            block = getattr(scratch, f"refinenet{i}")
            if i == 1:
                path, skip = (x.to(block.out_conv.weight.dtype) for x in (path, skips[0]))
            path = block(path, skip, tuple(size))
        path = _resize(scratch.output_conv1(path), (height, width))
        raw = scratch.output_conv2(add_positions_(path, aspect)).float()
        return DepthMaps(raw[:, 0].exp(), 1 + raw[:, 1].exp())


def _resize(x: Tensor, size: tuple[int, int]) -> Tensor:
    return F.interpolate(x, size=size, mode="bilinear", align_corners=True)
