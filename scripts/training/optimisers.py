# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Muon for the network's matrices and convolutions, AdamW for vectors and training's read-outs.

AdamW's first steps have one sign for whole rows, which add up over their hundreds of inputs: in one
step at a rate of 4e-5 a trained backbone lost a third of its depth's accuracy and its field of
view. Muon bounds what an update does to any input.
"""

from collections import defaultdict

import torch
from torch import Tensor, nn

from .network import ClipTrainer

MUON_DECAY, ADAM_DECAY = 0.05, 0.02
MOMENTUM = 0.95
# Coefficients of the quintic Newton-Schulz iteration towards the nearest orthogonal matrix.
_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5
# Makes an update as large as AdamW's usual one, so that both share a learning rate.
_ADAM_RMS = 0.2


class BatchedMuon:
    """Muon over all matrices of one shape and one rate at a time.

    ``torch.optim.Muon`` goes through them one by one, which costs more time to launch than to
    compute. ``parameters`` come with the rate of each, relative to that of ``step``; the kernels of
    a convolution are the rows of a matrix.
    """

    def __init__(self, parameters: list[tuple[nn.Parameter, float]]) -> None:
        alike: dict[tuple[torch.Size, float], list[nn.Parameter]] = defaultdict(list)
        for parameter, rate in parameters:
            alike[parameter.shape, rate].append(parameter)
        self._groups = [(group, rate) for (_, rate), group in alike.items()]
        self._momenta = [torch.zeros_like(torch.stack(list(group))) for group, _ in self._groups]

    @torch.no_grad()
    def step(self, rate: float, sound: Tensor) -> None:
        """Update by ``rate``; not at all where ``sound`` (bool, on the device) is false."""
        moving = sound.float()
        for (group, relative), momentum in zip(self._groups, self._momenta):
            gradient = torch.stack([p.grad for p in group if p.grad is not None])
            gradient = torch.where(sound, gradient, 0)
            momentum.lerp_(gradient, (1 - MOMENTUM) * moving)
            update = moving * _orthogonal(gradient.lerp(momentum, MOMENTUM).flatten(2))
            size = _ADAM_RMS * max(update.shape[-2:]) ** 0.5
            step = rate * relative
            torch._foreach_mul_(group, 1 - step * MUON_DECAY * moving)
            torch._foreach_add_(group, list(update.view_as(gradient).unbind(0)), alpha=-step * size)

    def state_dict(self) -> dict:
        """Momenta."""
        return {"momenta": self._momenta}

    def load_state_dict(self, state: dict) -> None:
        """Inverse of ``state_dict``."""
        for mine, other in zip(self._momenta, state["momenta"]):
            mine.copy_(other)


def _orthogonal(matrices: Tensor) -> Tensor:
    """Nearest orthogonal matrices to ``[N, rows, columns]``, roughly."""
    a, b, c = _NEWTON_SCHULZ
    # Few CPUs multiply bfloat16 in hardware.
    x = matrices.bfloat16() if matrices.is_cuda else matrices
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(_ITERATIONS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.mT if tall else x).float()


class Optimisers:
    """Both optimisers; the backbone, which is trained already, moves slower."""

    def __init__(self, trainer: ClipTrainer, rate: float, backbone_rate: float) -> None:
        matrices: list[tuple[nn.Parameter, float]] = []
        vectors: list[nn.Parameter] = []
        backbone: list[nn.Parameter] = []
        for name, parameter in trainer.named_parameters():
            if not parameter.requires_grad:
                continue
            slow = name.startswith("model.aggregator.patch_embed.")
            trained = not name.startswith("auxiliary.")
            if trained and name.endswith(".weight") and parameter.ndim >= 2:
                matrices.append((parameter, backbone_rate if slow else 1.0))
            else:
                (backbone if slow else vectors).append(parameter)
        self.rate = rate
        self.muon = BatchedMuon(matrices)
        self._cuda = trainer.model.device.type == "cuda"
        self.adam = torch.optim.AdamW(
            [
                {"params": vectors, "base": rate},
                {"params": backbone, "base": rate * backbone_rate},
            ],
            lr=rate,
            betas=(0.9, 0.98),
            weight_decay=ADAM_DECAY,
            fused=self._cuda,
        )
        self.parameters = [*(parameter for parameter, _ in matrices), *backbone, *vectors]

    def step(self, factor: float, sound: Tensor) -> None:
        """Update with the learning rates times ``factor`` and clear the gradients.

        ``sound``: whether the gradients are finite; if not, nothing moves. It stays on the device.
        """
        self.muon.step(self.rate * factor, sound)
        for group in self.adam.param_groups:
            group["lr"] = group["base"] * factor
        if self._cuda:
            # What a GradScaler sets: the fused kernel then leaves the step out by itself.
            self.adam.grad_scale, self.adam.found_inf = None, (~sound).float()
            self.adam.step()
        elif sound:
            self.adam.step()
        self.adam.zero_grad(set_to_none=True)
        for parameter in self.parameters:
            parameter.grad = None

    def state_dict(self) -> list[dict]:
        """States of both."""
        return [self.muon.state_dict(), self.adam.state_dict()]

    def load_state_dict(self, states: list[dict]) -> None:
        """Inverse of ``state_dict``."""
        self.muon.load_state_dict(states[0])
        self.adam.load_state_dict(states[1])
