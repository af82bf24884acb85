# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""One implementation for numpy arrays and torch tensors.

The two libraries share the names that geometry needs, so a function asks for the namespace of its
argument and computes with that. Torch is never imported for a caller that brings numpy arrays.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

Array: TypeAlias = Any
"""A numpy array or a torch tensor; results are of the kind of the arguments."""


def namespace(x: Array, dtype: DTypeLike = np.float64) -> tuple[ModuleType, Array]:
    """Return the library that computes with `x`, and `x` as one of its arrays.

    Tensors stay as they are; anything else becomes a numpy array of `dtype` (None: its own).
    """
    if type(x).__module__.partition(".")[0] == "torch":
        import torch

        return torch, x
    return np, np.asarray(x, dtype=dtype)
