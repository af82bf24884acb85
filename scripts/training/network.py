# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The network as it is trained: initial weights, whole-clip forward, losses, optimisers."""

from pathlib import Path

import torch
import torch._dynamo
from safetensors.torch import load_file
from torch import Tensor, nn

from lingbot_map_ros.heads import dpt_head
from lingbot_map_ros.models.clip import ClipMask, forward_clip
from lingbot_map_ros.models.config import GCTConfig
from lingbot_map_ros.models.gct_stream import GCTStream
from lingbot_map_ros.models.quantize import dequantize

from .losses import PatchPoints, Targets, depth_losses, pose_losses

LAYER_SCALE = 0.3
TYPICAL_FOV = (0.85, 1.25)
BACKBONE_RATE = 0.12


def initial_model(config: GCTConfig, backbone: Path | None, device: torch.device) -> GCTStream:
    """Model to start from: the backbone's weights where there are any, the rest at random.

    The published initialisation suits hundreds of thousands of steps; here LayerScale starts
    larger, the special tokens differ from the start, and the pose starts at a plausible camera.
    """
    model = GCTStream(config, attention_backend="sdpa", device=device)
    model.requires_grad_(True)
    aggregator, head = model.aggregator, model.camera_head
    with torch.no_grad():
        for block in (*aggregator.frame_blocks, *aggregator.global_blocks, *head.trunk):
            block.ls1.gamma.fill_(LAYER_SCALE)
            block.ls2.gamma.fill_(LAYER_SCALE)
        for token in (aggregator.camera_token, aggregator.register_token, aggregator.scale_token):
            token.normal_(std=0.5)
        last = head.pose_branch.fc2
        last.weight.mul_(0.1)
        # Each of the iterations adds its part.
        start = torch.tensor([0, 0, 0, 0, 0, 0, 1, *TYPICAL_FOV], device=device)
        last.bias.copy_(start / head.num_iterations)
        if backbone is not None:
            state = dequantize(load_file(backbone))
            missing, unexpected = aggregator.patch_embed.load_state_dict(state, strict=False)
            if unexpected or set(missing) - {"register_tokens", "mask_token"}:
                raise ValueError(f"{backbone} is no backbone of this preset: {missing, unexpected}")
            aggregator.patch_embed.register_tokens.normal_(std=0.02)
    for name, parameter in model.named_parameters():
        if name.endswith("mask_token"):
            parameter.requires_grad_(False)
    return model


class ClipTrainer(nn.Module):
    """Model and training-only heads in one module, so that DDP sees one forward."""

    def __init__(self, model: GCTStream) -> None:
        super().__init__()
        self.model = model
        # The groups bound the memory of inference; a training step's frames fit at once.
        dpt_head.FRAMES_PER_GROUP = 1 << 20
        config = model.config
        self.points = PatchPoints(2 * config.embed_dim, len(config.selected_layers)).to(
            model.device
        )

    def forward(
        self, images: Tensor, mask: ClipMask, target: Targets, depth_frames: Tensor
    ) -> dict[str, Tensor]:
        """Losses of clips ``images [B, S, 3, H, W]``; depth is trained on ``depth_frames``."""
        clip = forward_clip(self.model, images, mask, depth_frames)
        true_depth = target.depth.flatten(0, 1)[depth_frames]
        losses = pose_losses(clip.poses.float(), target)
        losses |= depth_losses(clip.depth.float(), clip.confidence.float(), true_depth)
        losses["points"] = self.points(clip.outputs, target, self.model.aggregator.num_special)
        return losses


def compile_blocks(model: GCTStream) -> None:
    """Compile each kind of transformer block once; all blocks of a kind share the code."""
    # One entry for every kind of block, length of clip and mode.
    torch._dynamo.config.recompile_limit = 64
    aggregator = model.aggregator
    for block in (
        *aggregator.patch_embed.blocks,
        *aggregator.frame_blocks,
        *aggregator.global_blocks,
    ):
        block.compile(dynamic=False)


class Optimisers:
    """Muon for the matrices of the aggregator and camera trunk, AdamW for everything else.

    The backbone, which is trained already, moves slower.
    """

    def __init__(self, trainer: ClipTrainer, rate: float) -> None:
        model = trainer.model
        matrices, backbone, rest = [], [], []
        backbone_ids = {id(p) for p in model.aggregator.patch_embed.parameters()}
        blocks = (
            *model.aggregator.frame_blocks,
            *model.aggregator.global_blocks,
            *model.camera_head.trunk,
        )
        matrix_ids = {id(p) for block in blocks for p in block.parameters() if p.ndim == 2}
        for parameter in trainer.parameters():
            if not parameter.requires_grad:
                continue
            if id(parameter) in matrix_ids:
                matrices.append(parameter)
            elif id(parameter) in backbone_ids:
                backbone.append(parameter)
            else:
                rest.append(parameter)
        muon = torch.optim.Muon(
            matrices, lr=rate, weight_decay=0.05, adjust_lr_fn="match_rms_adamw"
        )
        groups = [
            {"params": rest, "lr": rate, "base": rate},
            {"params": backbone, "lr": rate * BACKBONE_RATE, "base": rate * BACKBONE_RATE},
        ]
        fused = model.device.type == "cuda"
        adam = torch.optim.AdamW(groups, betas=(0.9, 0.98), weight_decay=0.02, fused=fused)
        muon.param_groups[0]["base"] = rate
        self.optimisers = (muon, adam)

    def step(self, factor: float) -> None:
        """Update with all learning rates times ``factor``, and clear the gradients."""
        for optimiser in self.optimisers:
            for group in optimiser.param_groups:
                group["lr"] = group["base"] * factor
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)

    def state_dict(self) -> list[dict]:
        """States of both."""
        return [optimiser.state_dict() for optimiser in self.optimisers]

    def load_state_dict(self, states: list[dict]) -> None:
        """Inverse of ``state_dict``."""
        for optimiser, state in zip(self.optimisers, states):
            optimiser.load_state_dict(state)
