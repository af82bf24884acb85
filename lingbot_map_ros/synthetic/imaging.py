# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What a real camera adds: shutter time, exposure that adapts and drifts, blur, vignette, noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

Array = NDArray[np.float64]
BLUR_RADIUS = 2


@dataclass(frozen=True)
class Imaging:
    """Camera behaviour during one clip.

    Attributes
    ----------
    shutter:
        Exposure time in seconds, centred on the stamp of the frame.
    brightness, adaptation:
        Mean display value aimed at, and how much of a change of the scene's brightness the
        automatic exposure takes back (0 nothing, 1 everything).
    drift:
        [F] factor on the exposure of each frame.
    blur:
        Standard deviation of the lens blur in pixels of an image 640 wide.
    vignette, read_noise, shot_noise:
        Loss at the corners, noise independent of and growing with the brightness.
    """

    shutter: float
    brightness: float
    adaptation: float
    drift: Array
    blur: float
    vignette: float
    read_noise: float
    shot_noise: float


def sample_imaging(rng: np.random.Generator, frames: int, fps: float, difficulty: float) -> Imaging:
    """Draw the behaviour of a camera; difficulty 0 is close to an ideal one."""
    seconds = np.arange(frames) / fps
    waves = [
        rng.normal() * np.sin(seconds * 2 * np.pi * f + rng.uniform(0, 6.3))
        for f in rng.uniform(0.03, 0.4, 3)
    ]
    return Imaging(
        shutter=rng.uniform(0.001, 0.002 + 0.018 * difficulty),
        brightness=rng.uniform(0.40 - 0.08 * difficulty, 0.44 + 0.06 * difficulty),
        adaptation=rng.uniform(0.4, 1.0),
        drift=np.exp(0.1 * difficulty * np.sum(waves, 0)),
        blur=rng.uniform(0.4, 0.5 + 1.1 * difficulty),
        vignette=rng.uniform(0.0, 0.3) * difficulty,
        read_noise=rng.uniform(0.001, 0.002 + 0.012 * difficulty),
        shot_noise=rng.uniform(0.002, 0.004 + 0.02 * difficulty),
    )


def expose(
    colour: Tensor, clips: list[Imaging], reference: Tensor, first: int, generator: torch.Generator
) -> Tensor:
    """Images [B,F,3,H,W] in [0,1] from shaded colour [B,F,H,W,3].

    ``reference`` [B] is the mean colour of frame 0, ``first`` the number of the first frame given.
    """
    frames, height, width = colour.shape[1:4]
    device = colour.device

    def constant(values: list[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float32, device=device)

    image = colour.permute(0, 1, 4, 2, 3)
    mean = colour.mean((2, 3, 4)).clamp(min=1e-6)
    adaptation = constant([c.adaptation for c in clips])[:, None]
    drift = torch.stack([torch.from_numpy(c.drift[first : first + frames]) for c in clips])
    gain = (reference[:, None] / mean) ** adaptation / reference[:, None]
    gain = gain * constant([c.brightness for c in clips])[:, None]
    gain = gain * drift.to(device, torch.float32)
    vignette = constant([c.vignette for c in clips])[:, None, None]
    across, down = (torch.linspace(-1, 1, n, device=device).square() for n in (width, height))
    fall = 1.0 - vignette * (across[None, None] + down[None, :, None]) / 2
    image = image * gain[:, :, None, None, None] * fall[:, None, None]
    image = _blur(image, constant([max(0.3, c.blur * width / 640) for c in clips]))
    read = constant([c.read_noise for c in clips])[:, None, None, None, None]
    shot = constant([c.shot_noise for c in clips])[:, None, None, None, None]
    sigma = (read.square() + shot.square() * image.clamp(0, 1)).sqrt()
    noise = torch.randn(image.shape, generator=generator, device=device)
    return (image + sigma * noise).clamp(0.0, 1.0)


def _blur(image: Tensor, sigma: Tensor) -> Tensor:
    """Separable Gaussian blur of [B,F,3,H,W] with a deviation [B] of its own for each clip."""
    reach = torch.arange(-BLUR_RADIUS, BLUR_RADIUS + 1, device=image.device)
    weights = torch.exp(-0.5 * (reach / sigma[:, None]).square())
    weights = (weights / weights.sum(1, keepdim=True)).T[..., None, None, None, None]
    height, width = image.shape[-2:]
    padding = (BLUR_RADIUS,) * 4
    padded = pad(image.flatten(0, 1), padding, mode="replicate").unflatten(0, image.shape[:2])
    rows = weights[0] * padded[..., :height, :]
    for k in range(1, len(weights)):
        rows = rows + weights[k] * padded[..., k : k + height, :]
    blurred = weights[0] * rows[..., :width]
    for k in range(1, len(weights)):
        blurred = blurred + weights[k] * rows[..., k : k + width]
    return blurred
