# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Procedural textures: tileable squares that carry detail at every scale, drawn in numpy.

Each has a motif (noise, checker, stripes, bricks, planks, patches, terrazzo, cells or lines of
made-up text) under fractal noise, so that no surface is blank from near or from far.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

SIZE = 256
Image = NDArray[Any]
Rng = np.random.Generator


@lru_cache(maxsize=4)
def procedural_bank(seed: int, count: int) -> NDArray[np.uint8]:
    """Draw ``count`` tileable textures, uint8 [count,256,256,3]; motif i is ``i % len(MOTIFS)``.

    The result is shared between calls and read-only.
    """
    rng = np.random.default_rng([seed, 0x7E])
    images = [_colour(rng, MOTIFS[i % len(MOTIFS)]) for i in range(count)]
    bank = np.clip(np.stack(images) * 255.0 + 0.5, 0, 255).astype(np.uint8)
    bank.flags.writeable = False
    return bank


def texture_ids(motif: Callable[[Rng], Image], count: int) -> NDArray[np.int64]:
    """Indices of one motif in a bank of ``count`` textures."""
    return np.arange(MOTIFS.index(motif), count, len(MOTIFS))


def fractal(rng: Rng, slope: float = 1.0, lowest: float = 1.0) -> Image:
    """Periodic noise [256,256] with amplitude falling as frequency**-slope, mean 0, deviation 1."""
    fy, fx = np.fft.fftfreq(SIZE) * SIZE, np.fft.rfftfreq(SIZE) * SIZE
    frequency = np.hypot(fy[:, None], fx[None])
    band = np.where(frequency >= lowest, np.maximum(frequency, 1.0) ** -slope, 0.0)
    noise = np.fft.irfft2(np.fft.rfft2(rng.standard_normal((SIZE, SIZE))) * band, s=(SIZE, SIZE))
    return (noise / noise.std()).astype(np.float32)


def noise(rng: Rng) -> Image:
    """Plaster: fractal noise alone."""
    return 0.5 + 0.22 * fractal(rng, rng.uniform(0.8, 1.3))


def checker(rng: Rng) -> Image:
    """Tiles in two or more tones, each square a little different, with joints."""
    n = int(rng.choice([4, 8]))
    tone = (np.indices((n, n)).sum(0) % 2) * rng.uniform(0.2, 0.6)
    image = _repeat(tone + rng.uniform(0, 0.35, (n, n)))
    return _joints(image, SIZE // n, SIZE // n, 2, rng.uniform(0.1, 0.9))


def stripes(rng: Rng) -> Image:
    """Stripes of uneven width."""
    edges = np.sort(rng.choice(SIZE, int(rng.integers(10, 36)), replace=False))
    tones = rng.uniform(0.1, 0.95, len(edges) + 1)
    tones[-1] = tones[0]
    line = tones[np.searchsorted(edges, np.arange(SIZE), side="right")]
    warp = np.rint(2.5 * fractal(rng, 1.8)).astype(int)
    return line[(np.arange(SIZE)[None] + warp) % SIZE].astype(np.float32)


def bricks(rng: Rng) -> Image:
    """Bricks in running bond."""
    rows, columns = int(rng.choice([8, 16])), int(rng.choice([4, 8]))
    tones = rng.uniform(0.35, 0.8, (rows, columns))
    return _bond(tones, rng.uniform(0.05, 0.95), 3 if rows == 8 else 2)


def planks(rng: Rng) -> Image:
    """Wooden boards with grain along them."""
    rows = int(rng.choice([4, 8]))
    grain = fractal(rng, 0.9)
    grain = np.fft.irfft(np.fft.rfft(grain, axis=1) * _grain_filter(), n=SIZE, axis=1)
    image = _bond(rng.uniform(0.35, 0.75, (rows, 2)), 0.12, 1)
    return (image + 0.13 * grain / grain.std()).astype(np.float32)


def patches(rng: Rng) -> Image:
    """Overlapping rectangles of many sizes, like a pin board or a cluttered shelf."""
    image = np.full((SIZE, SIZE), rng.uniform(0.2, 0.8), np.float32)
    for size in np.geomspace(120, 6, 70):
        w, h = (size * rng.uniform(0.5, 1.4, 2)).astype(int) + 2
        x, y = rng.integers(0, SIZE, 2)
        rows, columns = (y + np.arange(h)) % SIZE, (x + np.arange(w)) % SIZE
        image[np.ix_(rows, columns)] = rng.uniform(0.05, 0.95)
    return image


def terrazzo(rng: Rng) -> Image:
    """Chips of many sizes in a ground."""
    image = np.full((SIZE, SIZE), rng.uniform(0.3, 0.7), np.float32)
    grid = np.arange(SIZE)
    for radius in np.geomspace(22, 2.0, 130):
        x, y = rng.integers(0, SIZE, 2)
        dx, dy = (((grid - c + SIZE // 2) % SIZE) - SIZE // 2 for c in (x, y))
        slant, stretch = rng.uniform(-0.7, 0.7), rng.uniform(0.5, 1.0)
        reach = np.abs(dx[None] + slant * dy[:, None]) + np.abs(dy[:, None]) / stretch
        image[reach < radius] = rng.uniform(0.05, 0.95)
    return image


def cells(rng: Rng) -> Image:
    """Stone paving: nearest-site cells, dark where two sites are equally near."""
    count = int(rng.integers(25, 70))
    sites = rng.uniform(0, SIZE, (count, 2))
    grid = np.arange(SIZE)[:, None]
    half = SIZE / 2
    dy, dx = (((grid - sites[:, k] + half) % SIZE) - half for k in (0, 1))
    distance = np.hypot(dy[:, None, :], dx[None, :, :])
    first, second = np.moveaxis(np.partition(distance, 1, -1)[..., :2], -1, 0)
    tone = rng.uniform(0.25, 0.85, count)[distance.argmin(-1)]
    return np.where(second - first < 2.5, 0.1, tone).astype(np.float32)


def text(rng: Rng) -> Image:
    """A printed page: lines of made-up letters, headings and picture blocks."""
    dark = rng.random() < 0.3
    image = np.full((SIZE, SIZE), 0.95, np.float32)
    row = 6
    while row < SIZE - 12:
        scale = int(rng.choice([1, 2, 2, 3, 5], p=[0.3, 0.25, 0.25, 0.12, 0.08]))
        if row + 7 * scale > SIZE - 4:
            break
        column = 6
        while column + 6 * scale < SIZE - 6 and rng.random() > 0.02:
            if rng.random() < 0.82:
                glyph = np.kron(rng.random((7, 5)) < 0.45, np.ones((scale, scale)))
                box = image[row : row + 7 * scale, column : column + 5 * scale]
                box[glyph > 0] = rng.choice([0.05, 0.05, 0.35])
            column += 6 * scale
        row += (7 + int(rng.integers(2, 6))) * scale
    for _ in range(int(rng.integers(0, 4))):
        x, y = rng.integers(6, SIZE - 90, 2)
        w, h = rng.integers(30, 84, 2)
        image[y : y + h, x : x + w] = np.kron(rng.uniform(0.1, 0.9, (4, 4)), np.ones((21, 21)))[
            :h, :w
        ]
    return 1.0 - image if dark else image


MOTIFS: tuple[Callable[[Rng], Image], ...] = (
    noise,
    checker,
    text,
    stripes,
    bricks,
    patches,
    planks,
    terrazzo,
    cells,
)


def _repeat(tones: NDArray[np.float64]) -> Image:
    n, m = tones.shape
    return np.kron(tones, np.ones((SIZE // n, SIZE // m))).astype(np.float32)


def _joints(image: Image, height: int, width: int, thickness: int, tone: float) -> Image:
    rows, columns = np.arange(SIZE) % height, np.arange(SIZE) % width
    return np.where((rows < thickness)[:, None] | (columns < thickness)[None], tone, image)


def _bond(tones: NDArray[np.float64], joint: float, thickness: int) -> Image:
    """Lay rows of blocks, every second row shifted by half a block."""
    height, width = SIZE // tones.shape[0], SIZE // tones.shape[1]
    image = _joints(_repeat(tones), height, width, thickness, joint)
    odd = (np.arange(SIZE) // height) % 2 == 1
    image[odd] = np.roll(image[odd], width // 2, axis=1)
    return image


def _grain_filter() -> NDArray[np.float64]:
    return np.exp(-np.arange(SIZE // 2 + 1) / 4.0)


def _colour(rng: Rng, motif: Callable[[Rng], Image]) -> Image:
    """Lay a motif out between two colours, under noise of every octave in brightness and hue."""
    level = motif(rng) + rng.uniform(0.03, 0.09) * fractal(rng, 0.75)
    level = np.clip(level, 0.0, 1.0)[..., None]
    dark, light = _palette(rng)
    image = dark + (light - dark) * level
    hue = np.stack([fractal(rng, 1.1) for _ in range(3)], -1)
    return (image * (1.0 + 0.06 * hue)).astype(np.float32)


def _palette(rng: Rng) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A dark and a light colour of related, mostly muted hues."""
    tint = rng.uniform(0.0, 1.0, 3)
    saturation = rng.uniform(0.05, 0.5) * rng.uniform(0.4, 1.0)
    light = (1 - saturation) + saturation * tint
    dark = light * rng.uniform(0.6, 1.0, 3)
    return dark / dark.max() * rng.uniform(0.12, 0.35), light / light.max() * rng.uniform(0.7, 0.97)
