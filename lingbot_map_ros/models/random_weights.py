# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Seeded random weights in which every part of the network matters.

Freshly built networks hide mistakes: LayerScale near zero mutes the blocks and the heads' outputs
barely depend on the image. Here every residual branch counts, depth spans about 0.5 to 5 and poses
are of order 1, so that a difference between two implementations is a difference of their outputs.
"""

import torch
from torch import Tensor, nn

from lingbot_map_ros.layers.block import LayerScale
from lingbot_map_ros.models.gct_stream import GCTStream

LAYER_SCALE = 0.3
LOG_DEPTH_MEAN, LOG_DEPTH_STD = 0.45, 0.5
POSE_STD = 0.25
FIELD_OF_VIEW = (0.9, 1.1)


@torch.no_grad()
def randomize_(model: GCTStream, seed: int = 0) -> GCTStream:
    """Fill ``model`` with random weights, deterministic for a seed, device and dtype; returns it.

    Runs the network once on a random image to scale the last layers of the heads, and resets it.
    """
    generator = torch.Generator(model.device).manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Conv2d | nn.ConvTranspose2d):
            fan_in = module.weight[0].numel()
            if isinstance(module, nn.ConvTranspose2d):
                fan_in = module.weight.shape[0]  # With stride = kernel each output has one tap.
            _fill(module.weight, fan_in**-0.5, generator)
            if module.bias is not None:
                _fill(module.bias, 0.02, generator)
        elif isinstance(module, nn.LayerNorm):
            _fill(module.weight, 0.1, generator, mean=1.0)
            _fill(module.bias, 0.02, generator)
        elif isinstance(module, LayerScale):
            _fill(module.gamma, 0.1 * LAYER_SCALE, generator, mean=LAYER_SCALE)
        for name, parameter in module.named_parameters(recurse=False):
            if name.endswith(("_token", "_tokens", "pos_embed")):
                _fill(parameter, 0.5, generator)
    _scale_heads(model, generator)
    return model


def _fill(tensor: Tensor, std: float, generator: torch.Generator, mean: float = 0.0) -> None:
    values = torch.randn(tensor.shape, generator=generator, device=tensor.device)
    tensor.copy_(values * std + mean)


def _scale_heads(model: GCTStream, generator: torch.Generator) -> None:
    """Bring pose increments and log depth to the wanted size on a random image."""
    model.reset()
    last_pose = model.camera_head.pose_branch.fc2
    last_pose.weight.mul_(POSE_STD)
    iterations = model.camera_head.num_iterations
    neutral = torch.tensor([0.0] * 6 + [1.0, *FIELD_OF_VIEW], device=model.device)
    last_pose.bias.copy_(neutral / iterations)
    patch = model.config.patch_size
    image = torch.rand((1, 3, 4 * patch, 6 * patch), generator=generator, device=model.device)
    prediction = model.step(image)
    model.reset()
    if prediction.depth is None or prediction.confidence is None:
        return
    parameters = model.depth_head.state_dict()
    weight, bias = (parameters[f"scratch.output_conv2.2.{name}"] for name in ("weight", "bias"))
    for channel, raw in enumerate((prediction.depth.log(), (prediction.confidence - 1).log())):
        factor = LOG_DEPTH_STD / raw.std().clamp(min=1e-6)
        weight[channel] *= factor
        bias[channel] = LOG_DEPTH_MEAN - (raw.mean() - bias[channel]) * factor
