# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Room in the network for the size of the camera's images."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from lingbot_map_ros.ros.network import held_memory, plan_memory, release, warm_up
from lingbot_map_ros.ros.parameters import Parameters
from lingbot_map_ros.streaming.preprocessing import network_size

if TYPE_CHECKING:
    import torch

    from lingbot_map_ros.models.gct_stream import GCTStream

logger = logging.getLogger(__name__)


class ImageFit:
    """Plans, and warms the network up, for images of the size that comes.

    Caches and kernels are those of one size of the network's input, which follows from the aspect
    of the camera images. Images of another aspect get a plan of their own before anything of the
    old is given up.

    Parameters
    ----------
    model, parameters
        The network, and how it was loaded.
    planned
        Height and width of the images that its memory was planned for.
    """

    def __init__(self, model: GCTStream, parameters: Parameters, planned: tuple[int, int]) -> None:
        self._model = model
        self._parameters = parameters
        self._planned = network_size(*planned, model.config)
        self._size: tuple[int, int] | None = None

    @property
    def device(self) -> torch.device:
        """Where the network runs."""
        return self._model.device

    def require(self, height: int, width: int) -> None:
        """Make the network ready for images of height x width, between two streams.

        Raises
        ------
        MemoryPlanError
            They do not fit; the network is as before.
        InputError
            No image of this size can be processed.
        """
        size = network_size(height, width, self._model.config)
        if size == self._size:
            return
        began = time.monotonic()
        model, resized = self._model, self._size is not None
        if size != self._planned:
            plan_memory(
                model,
                self._parameters,
                model.device,
                model.dtype,
                (height, width),
                held=held_memory(model),
            )
            self._planned = size
        if resized:
            model.place(model.device, model.dtype)
            release()
        warm_up(model, *size, depth_every=self._parameters.depth_every)
        self._size = size
        logger.info(
            "ready for images of %dx%d, which the network sees as %dx%d (%.1f s)",
            *(width, height, size[1], size[0], time.monotonic() - began),
        )
