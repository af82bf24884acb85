# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Camera poses: the network's encoding, quaternions (xyzw), rigid transforms.

Every pose matrix is camera-to-world with optical axes (x right, y down, z forward).

Each function takes numpy arrays or torch tensors with any leading batch axes and answers in kind.
Tensors keep dtype and device; anything else is computed in numpy float64.
"""

from __future__ import annotations

import numpy as np

from lingbot_map_ros.geometry.arrays import Array, namespace


def make_pose(R: Array, t: Array) -> Array:
    """Join rotation [..., 3, 3] and translation [..., 3] to a pose matrix [..., 4, 4]."""
    xp, R = namespace(R)
    _, t = namespace(t)
    shape = (*R.shape[:-2], 4, 4)
    T = np.zeros(shape) if xp is np else R.new_zeros(shape)
    T[..., :3, :3], T[..., :3, 3] = R, t
    T[..., 3, 3] += 1  # A GPU would have to be waited for to set it to a number.
    return T


def invert(T: Array) -> Array:
    """Invert rigid transforms [..., 4, 4]."""
    _, T = namespace(T)
    R_inv = T[..., :3, :3].swapaxes(-1, -2)
    return make_pose(R_inv, -(R_inv @ T[..., :3, 3:])[..., 0])


def nearest_rotation(M: Array) -> Array:
    """Return the rotation closest to each M [..., 3, 3] (Frobenius norm); never a reflection."""
    xp, M = namespace(M)
    U, _, Vt = xp.linalg.svd(M)
    sign = xp.ones_like(M[..., 0])
    sign[..., 2] = xp.sign(xp.linalg.det(U @ Vt))
    return (U * sign[..., None, :]) @ Vt


def rotation_angle(R: Array) -> Array:
    """Return the angle [...] in [0, pi] rad by which R [..., 3, 3] (or a pose's R) turns."""
    xp, R = namespace(R)
    skew = xp.stack(
        (R[..., 2, 1] - R[..., 1, 2], R[..., 0, 2] - R[..., 2, 0], R[..., 1, 0] - R[..., 0, 1]), -1
    )
    trace = R[..., 0, 0] + R[..., 1, 1] + R[..., 2, 2]
    # atan2 keeps small angles exact, where acos of the trace alone loses half of the digits.
    return xp.arctan2(xp.sqrt((skew * skew).sum(-1)), trace - 1)


@np.errstate(divide="ignore", invalid="ignore")
def quaternion_to_matrix(q: Array) -> Array:
    """Rotation matrices [..., 3, 3] of quaternions xyzw [..., 4] of any length; zero gives NaN."""
    xp, q = namespace(q)
    # No matrix product, which training would compute in bfloat16.
    products = q[..., :, None] * q[..., None, :] * (2 / (q * q).sum(-1))[..., None, None]
    xx, yy, zz = (products[..., i, i] for i in range(3))
    xy, xz, yz = (products[..., i, j] for i, j in ((0, 1), (0, 2), (1, 2)))
    xw, yw, zw = (products[..., i, 3] for i in range(3))
    entries = (
        *(1 - (yy + zz), xy - zw, xz + yw),
        *(xy + zw, 1 - (xx + zz), yz - xw),
        *(xz - yw, yz + xw, 1 - (xx + yy)),
    )
    return xp.stack(entries, -1).reshape((*q.shape[:-1], 3, 3))


def matrix_to_quaternion(R: Array) -> Array:
    """Quaternions xyzw [..., 4] with w >= 0 of rotation matrices [..., 3, 3]."""
    xp, R = namespace(R)
    m00, m01, m02, m10, m11, m12, m20, m21, m22 = (R[..., i, j] for i in range(3) for j in range(3))
    squares = xp.stack(
        (1 + m00 + m11 + m22, 1 + m00 - m11 - m22, 1 - m00 + m11 - m22, 1 - m00 - m11 + m22), -1
    )
    w, x, y, z = (root[..., None] for root in _unstack(xp.sqrt(squares.clip(0))))
    # Dividing by the largest component is stable; ties take the first of w, x, y, z.
    from_w = xp.stack((m21 - m12, m02 - m20, m10 - m01, w[..., 0] ** 2), -1) / (2 * w.clip(0.1))
    from_x = xp.stack((x[..., 0] ** 2, m10 + m01, m02 + m20, m21 - m12), -1) / (2 * x.clip(0.1))
    from_y = xp.stack((m10 + m01, y[..., 0] ** 2, m12 + m21, m02 - m20), -1) / (2 * y.clip(0.1))
    from_z = xp.stack((m20 + m02, m21 + m12, z[..., 0] ** 2, m10 - m01), -1) / (2 * z.clip(0.1))
    q = xp.where((y >= z), from_y, from_z)
    q = xp.where((x >= y) & (x >= z), from_x, q)
    q = xp.where((w >= x) & (w >= y) & (w >= z), from_w, q)
    return xp.where(q[..., 3:] < 0, -q, q)


def decode_pose(pose_enc: Array) -> tuple[Array, Array]:
    """Decode [tx ty tz qx qy qz qw fov_h fov_w] ([..., 9]).

    Returns camera-to-world matrices [..., 4, 4] and fields of view (vertical, horizontal) [..., 2]
    in rad. The quaternion need not be normalised. See `is_valid_pose` for what is not a pose.
    """
    _, pose_enc = namespace(pose_enc)
    R = quaternion_to_matrix(pose_enc[..., 3:7])
    return make_pose(R, pose_enc[..., :3]), pose_enc[..., 7:9]


def is_valid_pose(pose_enc: Array) -> Array:
    """Tell ([...] bool) which encodings [..., 9] are finite, with a rotation and a real lens.

    The network's ReLU can give a field of view of 0, that is an infinite focal length.
    """
    xp, pose_enc = namespace(pose_enc)
    fov = pose_enc[..., 7:9]
    finite = xp.isfinite(pose_enc).all(-1)
    has_rotation = (pose_enc[..., 3:7] ** 2).sum(-1) > 1e-12
    return finite & has_rotation & (fov > 1e-3).all(-1) & (fov < np.pi - 1e-3).all(-1)


@np.errstate(divide="ignore")
def intrinsics_from_fov(fov: Array, size: tuple[int, int]) -> Array:
    """Pinhole matrices K [..., 3, 3] in pixels of an image of `size` (H, W).

    `fov` [..., 2] is (vertical, horizontal) in rad. Pixel centres lie at integers and the principal
    point at (W/2, H/2), half a pixel off the image's middle: the weights were trained so.
    """
    xp, fov = namespace(fov)
    H, W = size
    focal = xp.tan(fov / 2)
    zero, one = xp.zeros_like(fov[..., 0]), xp.ones_like(fov[..., 0])
    entries = (
        *((W / 2) / focal[..., 1], zero, one * (W / 2)),
        *(zero, (H / 2) / focal[..., 0], one * (H / 2)),
        *(zero, zero, one),
    )
    return xp.stack(entries, -1).reshape((*fov.shape[:-1], 3, 3))


def encode_pose(T: Array, K: Array, size: tuple[int, int]) -> Array:
    """Encode poses T [..., 4, 4] and pinhole matrices K [..., 3, 3] of images (H, W) as [..., 9].

    Inverse of `decode_pose` and `intrinsics_from_fov`; quaternions come out with unit length and
    w >= 0. The principal point is not encoded.
    """
    xp, T = namespace(T)
    _, K = namespace(K)
    H, W = size
    fov = xp.stack(
        (2 * xp.arctan((H / 2) / K[..., 1, 1]), 2 * xp.arctan((W / 2) / K[..., 0, 0])), -1
    )
    return xp.concatenate((T[..., :3, 3], matrix_to_quaternion(T[..., :3, :3]), fov), -1)


def _unstack(x: Array) -> list[Array]:
    return [x[..., i] for i in range(x.shape[-1])]
