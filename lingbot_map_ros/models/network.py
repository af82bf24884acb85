# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The parts of the network, the device that they live on, and the caches that they take there."""

import torch
from torch import nn
from typing_extensions import Self

from lingbot_map_ros.aggregator.stream import AggregatorStream
from lingbot_map_ros.errors import ConfigurationError
from lingbot_map_ros.heads.camera_cache import CameraCache
from lingbot_map_ros.heads.camera_head import CameraHead
from lingbot_map_ros.heads.dpt_head import DPTHead
from lingbot_map_ros.integers import is_integer
from lingbot_map_ros.layers.precision import place_weights_
from lingbot_map_ros.models.config import GCTConfig
from lingbot_map_ros.models.frame_runner import FrameRunner


def use_sdpa_of(attention_backend: str) -> bool | None:
    """``use_sdpa`` for the name of a back end; ``ConfigurationError`` for an unknown one."""
    choices = {"auto": None, "flashinfer": False, "sdpa": True}
    if attention_backend not in choices:
        raise ConfigurationError(
            f"attention_backend '{attention_backend}' is none of {', '.join(choices)}"
        )
    return choices[attention_backend]


class Network(nn.Module):
    """Aggregator, camera head and depth head.

    Parameters
    ----------
    config
        Sizes and streaming defaults.
    attention_backend
        ``auto``, ``flashinfer`` or ``sdpa``.
    pending_limit
        Frames that may wait for commit or rollback at a time.
    cache_dtype
        Of the cached keys and values; the compute dtype by default.
    kernel
        FlashInfer's attention kernel (see ``KERNELS``); ``auto`` measures which is the fastest.
    compile
        Compile what lies between the attention calls, on a GPU that Triton serves. The first frames
        take up to a minute then; later starts find the result in PyTorch's cache.
    """

    def __init__(
        self,
        config: GCTConfig,
        *,
        attention_backend: str = "auto",
        pending_limit: int = 16,
        cache_dtype: torch.dtype | None = None,
        kernel: str = "auto",
        compile: bool = True,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        if not is_integer(pending_limit) or pending_limit < 1:
            raise ConfigurationError(
                f"pending_limit={pending_limit} must be at least 1, and an integer"
            )
        self.config = config
        self.pending_limit = pending_limit
        self.capacity = config.max_keyframes + pending_limit
        self.aggregator = AggregatorStream(
            depth=config.depth,
            num_heads=config.num_heads,
            head_dim=config.head_dim,
            use_sdpa=use_sdpa_of(attention_backend),
            device=device,
            dtype=dtype,
            mlp_ratio=config.mlp_ratio,
            patch_size=config.patch_size,
            vit=config.vit,
            selected_layers=config.selected_layers,
            enable_3d_rope=config.enable_3d_rope,
            disable_global_rope=config.disable_global_rope,
            scale_frames=config.num_scale_frames,
            sliding_window=config.sliding_window,
            max_total_frames=self.capacity + 1,  # A frame that will be skipped stands there too.
            pending_frames=pending_limit,
            kernel=kernel,
            cache_dtype=cache_dtype,
        )
        self.camera_head = CameraHead(
            2 * config.embed_dim,
            config.camera_num_heads,
            trunk_depth=config.camera_trunk_depth,
            num_iterations=config.camera_iterations,
            mlp_ratio=config.mlp_ratio,
            enable_3d_rope=config.enable_camera_3d_rope,
            rope_theta=config.camera_rope_theta,
        )
        self.depth_head = DPTHead(
            2 * config.embed_dim,
            features=config.depth_features,
            channels=config.depth_channels,
            patch_size=config.patch_size,
            num_special=self.aggregator.num_special,
        )
        self._compile = compile
        self._fast: FrameRunner | None = None
        self.eval()
        self.place(torch.device(device), dtype)

    def place(self, device: torch.device, dtype: torch.dtype) -> Self:
        """Move to ``device`` with matrix products in ``dtype``; the camera head stays float32.

        So do most layers of the depth head. Drops all caches. Raises ``BackendUnavailableError``
        when the back end cannot run there.
        """
        self.aggregator.place(device, dtype)
        self.camera_head.cache = self._fast = None
        if device.type == "meta":
            return self
        place_weights_(self.camera_head, device, torch.float32)
        self.depth_head.place_(device, dtype)
        return self.to(device)

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self.aggregator.device

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the trunk's matrix products."""
        return self.aggregator.dtype

    @property
    def precision(self) -> str:
        """In what matrix products and attention are computed, and keys and values are cached."""
        parts = {"products": self.dtype, "cache": self.aggregator.cache_dtype or self.dtype}
        return ", ".join(f"{k} {str(v).removeprefix('torch.')}" for k, v in parts.items())

    def allocate(self, height: int, width: int) -> CameraCache:
        """Take the caches for images ``height x width`` now rather than in the first call.

        Returns the camera head's. Raises ``InputError`` for a size that is no multiple of the patch
        or differs from that of the running stream.
        """
        rows, columns = self.aggregator.patch_embed.grid(height, width)
        self.aggregator.allocate(self.aggregator.num_special + rows * columns)
        return self.camera_head.allocate(self.capacity + 1, self.device)

    def memory_bytes(self) -> dict[str, int]:
        """Bytes taken by weights and allocated caches."""
        cache, camera = self.aggregator.kv_cache, self.camera_head.cache
        return {
            "weights": sum(p.numel() * p.element_size() for p in self.parameters()),
            "kv_cache": cache.nbytes if cache is not None else 0,
            "camera_cache": camera.nbytes if camera is not None else 0,
        }

    def _runner(self) -> FrameRunner:
        if self._fast is None:
            self._fast = FrameRunner(
                self.aggregator, self.camera_head, self.depth_head, compile=self._compile
            )
        return self._fast
