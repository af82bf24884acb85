# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Products of small matrices in float32, whatever precision matrix products are set to.

Training multiplies in TF32 and bfloat16, which would put the truth wrong by a part in a thousand.
"""

from torch import Tensor


def product(a: Tensor, b: Tensor) -> Tensor:
    """Matrices ``[..., n, m]`` times ``[..., m, k]``."""
    return (a[..., :, :, None] * b[..., None, :, :]).sum(-2)


def apply(matrix: Tensor, vectors: Tensor) -> Tensor:
    """Matrices ``[..., n, m]`` times vectors ``[..., m]``."""
    return (matrix * vectors[..., None, :]).sum(-1)
