# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Checkpoint files: finding, verifying and reading them."""

import hashlib
import json
import logging
import pickle
import zipfile
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from lingbot_map_ros.errors import CheckpointError, ConfigurationError
from lingbot_map_ros.models.config import GCTConfig
from lingbot_map_ros.models.quantize import load_quantized

logger = logging.getLogger(__name__)

HUB = "hf://"
BUILTIN = "builtin:"
WEIGHTS = Path(__file__).parents[1] / "weights"


def locate(spec: str | Path) -> Path:
    """Local file of a checkpoint, fetched from the hub for ``hf://OWNER/REPO/FILE``.

    Raises ``CheckpointError`` if there is none.
    """
    text = str(spec)
    if text.startswith(HUB):
        return fetch(text)
    if text.startswith(BUILTIN):
        path = WEIGHTS / f"{text.removeprefix(BUILTIN)}.safetensors"
        shipped = ", ".join(sorted(p.stem for p in WEIGHTS.glob("*.safetensors"))) or "none"
        if not path.is_file():
            raise CheckpointError(
                f"the package ships no weights '{text}' (shipped: {shipped}); name a checkpoint "
                "file or hf://OWNER/REPO/FILE"
            )
        return path
    path = Path(text).expanduser()
    if not path.is_file():
        raise CheckpointError(f"checkpoint {path} is no file; check the path")
    if path.suffix not in (".pt", ".pth", ".safetensors"):
        raise CheckpointError(f"checkpoint {path} is neither .pt nor .safetensors")
    return path


def expected_digest(spec: str | Path) -> str:
    """SHA-256 recorded for shipped weights; empty for every other checkpoint.

    Raises ``CheckpointError`` if the record is missing: the installation is incomplete then.
    """
    name = str(spec).removeprefix(BUILTIN)
    if name == str(spec):
        return ""
    record = WEIGHTS / "SHA256SUMS"
    try:
        lines = [line.split() for line in record.read_text(encoding="ascii").splitlines()]
        return next(digest for digest, file in lines if file == f"{name}.safetensors")
    except (OSError, ValueError, StopIteration) as error:
        raise CheckpointError(
            f"{record} does not tell the digest of '{spec}'; install the package again"
        ) from error


def fetch(spec: str) -> Path:
    """Download ``hf://OWNER/REPO/FILE`` (or find it in the hub's cache).

    Raises ``CheckpointError`` that says what to do when the hub cannot be reached.
    """
    parts = spec.removeprefix(HUB).split("/", 2)
    if len(parts) != 3 or not all(parts):
        raise CheckpointError(f"'{spec}' is not of the form hf://OWNER/REPO/FILE")
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import HfHubHTTPError
    except ImportError as error:
        raise CheckpointError(
            "hf:// checkpoints need the package huggingface_hub (pip install huggingface_hub)"
        ) from error
    try:
        return Path(hf_hub_download(f"{parts[0]}/{parts[1]}", parts[2]))
    # The hub client raises its own, its HTTP library's and the socket's errors.
    except (HfHubHTTPError, OSError, ValueError, RuntimeError) as error:
        raise CheckpointError(
            f"cannot fetch {spec} ({type(error).__name__}: {error}); if this machine is offline, "
            "download the file elsewhere, copy it here and give its path as checkpoint"
        ) from error


def verify(path: Path, expected: str = "") -> str:
    """Log the file's SHA-256 and compare it with ``expected`` if given; returns the digest.

    Raises ``CheckpointError`` when they differ.
    """
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while chunk := file.read(1 << 22):
                digest.update(chunk)
    except OSError as error:
        raise CheckpointError(f"cannot read checkpoint {path}: {error}") from error
    found = digest.hexdigest()
    logger.info("checkpoint %s, SHA-256 %s", path, found)
    if expected and found != expected.strip().lower():
        raise CheckpointError(
            f"checkpoint {path} was altered or is another file: SHA-256 {found} instead of "
            f"{expected}; fetch it again, or correct checkpoint_sha256"
        )
    return found


def read_checkpoint(path: Path) -> tuple[dict[str, Tensor], GCTConfig | None]:
    """Memory-mapped tensors by name, and the configuration if the file carries one.

    ``.pt`` files are always read with ``weights_only=True``: they cannot run code. Raises
    ``CheckpointError`` for a damaged or unreadable file.
    """
    try:
        if path.suffix == ".safetensors":
            return _read_safetensors(path)
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except (
        SafetensorError,
        ConfigurationError,
        OSError,
        RuntimeError,
        ValueError,
        KeyError,
    ) as error:
        raise CheckpointError(
            f"cannot read checkpoint {path}: {error}; the file may be truncated, fetch it again"
        ) from error
    except (pickle.UnpicklingError, EOFError, zipfile.BadZipFile) as error:
        raise CheckpointError(
            f"{path} is damaged or holds more than tensors ({error}); only plain state dicts are "
            "loaded, because others could run code"
        ) from error
    if isinstance(content, dict) and isinstance(content.get("model"), dict):
        content = content["model"]
    if not isinstance(content, dict) or not all(isinstance(v, Tensor) for v in content.values()):
        raise CheckpointError(f"{path} is no state dict: expected tensors by name")
    return content, None


def _read_safetensors(path: Path) -> tuple[dict[str, Tensor], GCTConfig | None]:
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata() or {}
        if "quantization" not in metadata:
            config = metadata.get("config")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return tensors, GCTConfig.from_dict(json.loads(config)) if config else None
    tensors, values = load_quantized(path)
    return tensors, GCTConfig.from_dict(values)
