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
from lingbot_map_ros.models.quantize import dequantize, load_quantized

from .losses import Targets, depth_losses, pose_losses
from .readouts import AuxiliaryHeads

LAYER_SCALE = 0.3
TYPICAL_FOV = (0.85, 1.25)


def continued_model(config: GCTConfig, weights: Path, device: torch.device) -> GCTStream:
    """Model with exported weights, ready to be trained on."""
    model = GCTStream(config, attention_backend="sdpa", device=device)
    state, _ = load_quantized(weights)
    model.load_state_dict(state)
    return _trainable(model)


def _trainable(model: GCTStream) -> GCTStream:
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not name.endswith("mask_token"))
    return model


def initial_model(config: GCTConfig, backbone: Path | None, device: torch.device) -> GCTStream:
    """Model to start from: the backbone's weights where there are any, the rest at random.

    The published initialisation suits hundreds of thousands of steps; here LayerScale starts
    larger, the special tokens differ from the start, and the pose starts at a plausible camera.
    """
    model = GCTStream(config, attention_backend="sdpa", device=device)
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
    return _trainable(model)


class ClipTrainer(nn.Module):
    """Model and training-only heads in one module, so that DDP sees one forward."""

    def __init__(self, model: GCTStream) -> None:
        super().__init__()
        self.model = model
        # The groups bound the memory of inference; a training step's frames fit at once.
        dpt_head.FRAMES_PER_GROUP = 1 << 20
        config = model.config
        self.auxiliary = AuxiliaryHeads(2 * config.embed_dim, len(config.selected_layers)).to(
            model.device
        )

    def forward(
        self,
        images: Tensor,
        mask: ClipMask,
        target: Targets,
        depth_frames: Tensor,
        teaching: float = 1.0,
    ) -> dict[str, Tensor]:
        """Losses of clips ``images [B, S, 3, H, W]``; depth is trained on ``depth_frames``.

        ``teaching`` scales the gradients that go from the read-outs back into the network.
        """
        clip = forward_clip(self.model, images, mask, depth_frames)
        true_depth = target.depth.flatten(0, 1)[depth_frames]
        losses = pose_losses(clip.poses.float(), target)
        losses |= depth_losses(clip.depth.float(), clip.confidence.float(), true_depth)
        outputs = [torch.lerp(output.detach(), output, teaching) for output in clip.outputs]
        losses |= self.auxiliary(outputs, target, mask.previous, self.model.aggregator.num_special)
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
