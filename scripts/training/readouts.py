# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Read-outs that only training has: where patches lie and were, and how the camera moved."""

import torch
from torch import Tensor, nn

from .losses import Targets, conjugate, relative_motion, turn

PATCH = 14


class AuxiliaryHeads(nn.Module):
    """Linear read-outs of the aggregator's tokens that only training uses.

    Each patch tells where the centres of its quarters lie in the world and where they were in
    keyframes before, the last and one further back; each camera token tells the motion since the
    last. That makes the blocks learn to find and to chain correspondences, which the poses alone
    teach slowly, and to find them over the distances that depth needs.
    """

    QUARTERS = 4
    KEYFRAMES_BACK = (1, 6)

    def __init__(self, dim: int, layers: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.camera_norm = nn.LayerNorm(dim)
        self.columns = 4 + 2 * len(self.KEYFRAMES_BACK)
        outputs = self.columns * self.QUARTERS
        self.patches = nn.ModuleList(nn.Linear(dim, outputs) for _ in range(layers))
        self.cameras = nn.ModuleList(nn.Linear(dim, 6) for _ in range(layers))

    def forward(
        self, outputs: list[Tensor], target: Targets, previous: Tensor, num_special: int
    ) -> dict[str, Tensor]:
        """Losses of ``outputs [B, S, P, dim]``; ``previous [S]`` as of a ``ClipLayout``."""
        depth, points = patch_points(target)
        known = (depth > 0).float()
        flows = [
            _flow(target, points, depth, frame, exists)
            for frame, exists in _keyframes_back(previous, self.KEYFRAMES_BACK)
        ]
        later = torch.arange(len(previous), device=previous.device)
        moved, turned = relative_motion(target.translation, target.quaternion, previous, later)
        vector = 2 * turned[..., :3] * torch.where(turned[..., 3:] < 0, -1, 1)
        motion = torch.cat((moved, vector), dim=-1)
        total = {"points": [], "flow": [], "motion": []}
        for output, patch_head, camera_head in zip(outputs, self.patches, self.cameras):
            raw = patch_head(self.norm(output[:, :, num_special:].float())).float()
            raw = raw.unflatten(-1, (self.QUARTERS, self.columns))
            place = (raw[..., :3] - points).abs().sum(-1) / depth.clamp(min=0.2)
            log_depth = (raw[..., 3] - depth.clamp(min=1e-3).log()).abs()
            # An error of a whole depth is wrong, and more is not more wrong.
            error = place / (1 + 0.5 * place) + log_depth
            total["points"].append((error * known).sum() / known.sum().clamp(min=1))
            for (flow, seen), read in zip(flows, raw[..., 4:].split(2, dim=-1)):
                shift = (read - flow).abs().sum(-1)
                shift = shift / (1 + 0.1 * shift)
                total["flow"].append((shift * seen).sum() / seen.sum().clamp(min=1))
            read = camera_head(self.camera_norm(output[:, :, 0].float())).float()
            total["motion"].append((read - motion).abs().sum(-1).mean())
        return {name: torch.stack(values).mean() for name, values in total.items()}


def _keyframes_back(previous: Tensor, steps: tuple[int, ...]) -> list[tuple[Tensor, Tensor]]:
    """For each number of steps the keyframe ``[S]`` so many before, and whether there is one."""
    frame = torch.arange(len(previous), device=previous.device)
    exists = torch.ones_like(frame, dtype=torch.bool)
    found = []
    for step in range(1, max(steps) + 1):
        exists = exists & (frame > 0)
        frame = previous[frame]
        if step in steps:
            found.append((frame, exists))
    return found


def _flow(
    target: Targets, points: Tensor, depth: Tensor, earlier: Tensor, exists: Tensor
) -> tuple[Tensor, Tensor]:
    """Way in patches from each quarter to its place in a frame before, and whether it is seen."""
    height, width = target.depth.shape[-2:]
    back = conjugate(target.quaternion[:, earlier])[:, :, None, None]
    centre = target.translation[:, earlier][:, :, None, None]
    before = turn(back.expand(*depth.shape, 4), points - centre)
    now = turn(
        conjugate(target.quaternion)[:, :, None, None].expand(*depth.shape, 4),
        points - target.translation[:, :, None, None],
    )
    slope = torch.tan(target.fov / 2).flip(-1)[:, None, None, None]

    def project(p: Tensor) -> Tensor:
        """Image coordinates in [-1, 1] (x, y)."""
        return p[..., :2] / p[..., 2:].clamp(min=1e-3) / slope

    place = project(before)
    seen = (depth > 0) & (before[..., 2] > 0.02) & (place.abs() < 1).all(-1)
    seen = seen & exists[:, None, None]
    half = torch.tensor([width, height], device=depth.device) / 2 / PATCH
    return ((place - project(now)) * half).clamp(-20, 20), seen.float()


def patch_points(target: Targets, patch: int = PATCH) -> tuple[Tensor, Tensor]:
    """Depth ``[B, S, patches, 4]`` and points ``[..., 3]`` at the centres of patch quarters."""
    height, width = target.depth.shape[-2:]
    device = target.depth.device
    half = patch // 2
    v = torch.arange(half // 2, height, half, device=device)
    u = torch.arange(half // 2, width, half, device=device)
    depth = target.depth[:, :, v][..., u]
    focal = torch.tensor([height, width], device=device) / 2 / torch.tan(target.fov / 2)
    y = (v - height / 2)[None, :, None] / focal[:, 0, None, None]
    x = (u - width / 2)[None, None, :] / focal[:, 1, None, None]
    rays = torch.stack(torch.broadcast_tensors(x, y, torch.ones_like(x * y)), -1)[:, None]
    q = target.quaternion[:, :, None, None].expand(*depth.shape, 4)
    points = turn(q, rays * depth[..., None]) + target.translation[:, :, None, None]
    both = torch.cat((depth[..., None], points), -1)
    rows, columns = height // patch, width // patch
    both = both.unflatten(2, (rows, 2)).unflatten(4, (columns, 2))
    both = both.permute(0, 1, 2, 4, 3, 5, 6).flatten(4, 5).flatten(2, 3)
    return both[..., 0], both[..., 1:]
