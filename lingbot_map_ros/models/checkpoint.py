# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""From a checkpoint's name to a model that is ready to run."""

import logging
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lingbot_map_ros.errors import CheckpointError
from lingbot_map_ros.models.checkpoint_file import (
    expected_digest,
    locate,
    read_checkpoint,
    verify,
)
from lingbot_map_ros.models.config import PRESETS, GCTConfig
from lingbot_map_ros.models.gct_stream import GCTStream
from lingbot_map_ros.models.placement import resolve_device, resolve_dtype
from lingbot_map_ros.models.random_weights import randomize_
from lingbot_map_ros.wording import counted

logger = logging.getLogger(__name__)

RANDOM = "random:"
_CONFIG_OVERRIDES = frozenset(
    ("num_scale_frames", "sliding_window", "max_keyframes", "camera_iterations", "image_size")
)
_IGNORED = ("point_head.", "local_point_head.", "track_head.")
_IGNORED_BUFFERS = ("aggregator._resnet_mean", "aggregator._resnet_std")
_OPTIONAL = "aggregator.patch_embed.mask_token"
_STAGE_ONE = "aggregator.scale_token"
_LISTED = 8


def load_model(
    spec: str | Path,
    *,
    model: str = "auto",
    sha256: str = "",
    device: str | torch.device = "cpu",
    dtype: str | torch.dtype = torch.float32,
    **overrides: Any,
) -> GCTStream:
    """Build the network of a checkpoint.

    Parameters
    ----------
    spec
        A path (``.pt``, ``.safetensors``), ``hf://OWNER/REPO/FILE``, ``builtin:NAME``, or
        ``random:PRESET`` for seeded random weights.
    model
        Preset that the checkpoint belongs to; ``auto`` reads it from the file.
    sha256
        Expected digest of the file; when empty, shipped weights are held against the digest that
        the package records, and other files are not checked.
    device, dtype
        Where to run and in what the trunk's matrix products are computed; ``auto`` is resolved.
    overrides
        Streaming defaults of ``GCTConfig`` (``num_scale_frames``, ``sliding_window``,
        ``max_keyframes``, ``camera_iterations``, ``image_size``) and arguments of ``GCTStream``;
        None keeps the model's own value.

    Raises
    ------
    CheckpointError
        If the file is missing, truncated, altered or belongs to another model.
    ConfigurationError
        For an unknown preset, device or dtype, or settings that cannot work.
    """
    place = resolve_device(device) if isinstance(device, str) else device
    compute = resolve_dtype(dtype, place) if isinstance(dtype, str) else dtype
    overrides = {name: value for name, value in overrides.items() if value is not None}
    replaced = {name: overrides.pop(name) for name in _CONFIG_OVERRIDES & set(overrides)}
    if isinstance(spec, str) and spec.startswith(RANDOM):
        config = _with(GCTConfig.preset(spec.removeprefix(RANDOM)), replaced)
        logger.warning("random weights of model '%s': the output means nothing", spec)
        network = randomize_(GCTStream(config, **overrides))
        return network.place(place, compute)
    path = locate(spec)
    verify(path, sha256 or expected_digest(spec))
    state, own_config = read_checkpoint(path)
    state = select_tensors(state, path)
    config = own_config if model == "auto" and own_config else _preset(model, state, path)
    # Parameters on the meta device take the file's memory-mapped tensors: no second copy.
    with torch.device("meta"):
        network = GCTStream(_with(config, replaced), device="meta", **overrides)
    assign_state(network, state, path)
    return network.place(place, compute)


def select_tensors(state: dict[str, Tensor], path: Path) -> dict[str, Tensor]:
    """Tensors of the model, by their names in it; heads that the model lacks are left out."""
    renamed = {
        name.removeprefix("module.").replace("_orig_mod.", ""): tensor
        for name, tensor in state.items()
    }
    ignored = [n for n in renamed if n.startswith(_IGNORED) or n in _IGNORED_BUFFERS]
    if ignored:
        logger.info("%s: %s of unused heads ignored", path.name, counted(len(ignored), "tensor"))
    return {name: tensor for name, tensor in renamed.items() if name not in ignored}


def assign_state(network: GCTStream, state: dict[str, Tensor], path: Path) -> None:
    """Give ``network`` the tensors of ``state`` without copying them.

    Raises ``CheckpointError`` that lists what is missing, unexpected or of another shape; the
    network is unchanged then.
    """
    expected = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    if _OPTIONAL in expected and _OPTIONAL not in state:
        state = {**state, _OPTIONAL: torch.zeros(expected[_OPTIONAL])}
    if _STAGE_ONE not in state:
        raise CheckpointError(
            f"{path} has no '{_STAGE_ONE}': it is a stage-1 (bidirectional) or foreign checkpoint "
            "and cannot stream; use lingbot-map-long.pt or lingbot-map.pt"
        )
    problems = _mismatches(expected, state)
    if problems:
        listed = "; ".join(problems[:_LISTED])
        more = f"; and {len(problems) - _LISTED} more" if len(problems) > _LISTED else ""
        differences = counted(len(problems), "difference")
        raise CheckpointError(
            f"{path} does not fit this model ({differences}): {listed}{more}. Choose the preset it "
            "was made for with the parameter 'model'"
        )
    # Half-precision weights stay so until they are placed: no second, larger copy on the host.
    network.load_state_dict(state, assign=True)
    network.requires_grad_(False)


def _mismatches(expected: dict[str, tuple[int, ...]], state: dict[str, Tensor]) -> list[str]:
    missing = [f"missing {name}" for name in expected if name not in state]
    unexpected = [f"unexpected {name}" for name in state if name not in expected]
    shapes = [
        f"{name} is {list(state[name].shape)} instead of {list(shape)}"
        for name, shape in expected.items()
        if name in state and tuple(state[name].shape) != shape
    ]
    return missing + unexpected + shapes


def _preset(model: str, state: dict[str, Tensor], path: Path) -> GCTConfig:
    """Preset by name, or the one whose tensors the file holds."""
    if model != "auto":
        return GCTConfig.preset(model)
    for config in PRESETS.values():
        with torch.device("meta"):
            network = GCTStream(config, device="meta")
        expected = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
        expected.pop(_OPTIONAL, None)
        if all(name in state and tuple(state[name].shape) == expected[name] for name in expected):
            return config
    # None fits: the largest preset's differences are what a user of a released file needs to see.
    logger.info("%s matches no preset; comparing with 'vitl'", path.name)
    return GCTConfig.preset("vitl")


def _with(config: GCTConfig, replaced: dict[str, Any]) -> GCTConfig:
    return GCTConfig.from_dict({**config.to_dict(), **replaced})
