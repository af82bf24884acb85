# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Sim(3): the group, the least-squares fit, and the robust fit over shared keyframes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from lingbot_map_ros.geometry.alignment import KeyframeView, align_keyframes
from lingbot_map_ros.geometry.poses import encode_pose, make_pose, rotation_angle
from lingbot_map_ros.geometry.sim3 import IDENTITY, AlignmentError, Sim3, umeyama
from lingbot_map_ros.geometry.stitching import Window, align_window

seeds = st.integers(0, 2**32 - 1)


def random_sim3(rng, spread=10.0):
    R = Rotation.random(random_state=rng.integers(2**31)).as_matrix()
    return Sim3(float(np.exp(rng.uniform(-1.5, 1.5))), R, rng.normal(0, spread, 3))


def assert_same(a, b, atol=1e-9):
    assert a.scale == pytest.approx(b.scale, rel=atol)
    np.testing.assert_allclose(a.R, b.R, atol=atol)
    np.testing.assert_allclose(a.t, b.t, atol=atol * 100)


@given(seeds)
@settings(max_examples=100, deadline=None)
def test_group_laws(seed):
    rng = np.random.default_rng(seed)
    a, b, c = (random_sim3(rng) for _ in range(3))
    x = rng.normal(size=(5, 3))
    assert_same(a.compose(a.inverse()), IDENTITY)
    assert_same(a.inverse().compose(a), IDENTITY)
    assert_same(a.compose(b).compose(c), a.compose(b.compose(c)))
    assert_same(a.compose(IDENTITY), a)
    np.testing.assert_allclose(a.compose(b).apply(x), a.apply(b.apply(x)), atol=1e-8)


@given(seeds)
@settings(max_examples=50, deadline=None)
def test_a_moved_camera_sees_the_moved_point_at_scaled_depth(seed):
    rng = np.random.default_rng(seed)
    sim = random_sim3(rng)
    T = make_pose(Rotation.random(random_state=seed % 2**31).as_matrix(), rng.normal(size=3))
    in_camera = rng.normal(size=3)
    in_world = (T @ [*in_camera, 1])[:3]
    moved = sim.apply_pose(T)
    np.testing.assert_allclose(
        moved @ [*(sim.scale * in_camera), 1], [*sim.apply(in_world), 1], atol=1e-8
    )
    np.testing.assert_allclose(np.linalg.det(moved[:3, :3]), 1)


@given(seeds, st.integers(3, 40))
@settings(max_examples=100, deadline=None)
def test_umeyama_recovers_a_sim3(seed, n):
    rng = np.random.default_rng(seed)
    truth, x = random_sim3(rng), rng.normal(size=(n, 3))
    assert_same(umeyama(x, truth.apply(x), rng.uniform(0.5, 2, n)), truth, atol=1e-6)


def test_umeyama_weights_and_fixed_scale():
    rng = np.random.default_rng(0)
    truth, x = random_sim3(rng), rng.normal(size=(20, 3))
    y = truth.apply(x)
    y[0] += 100
    weights = np.ones(20)
    weights[0] = 0
    assert_same(umeyama(x, y, weights), truth, atol=1e-9)
    rigid = Sim3(1.0, truth.R, truth.t)
    assert_same(umeyama(x, rigid.apply(x), with_scale=False), rigid)
    assert umeyama(x, truth.apply(x), with_scale=False).scale == 1


def test_umeyama_never_mirrors_and_refuses_a_line():
    x = np.random.default_rng(0).normal(size=(30, 3))
    assert np.linalg.det(umeyama(x, x * [1, 1, -1]).R) == pytest.approx(1)
    line = np.arange(5.0)[:, None] * [1, 2, 3]
    with pytest.raises(AlignmentError, match="line"):
        umeyama(line, line)
    with pytest.raises(AlignmentError):
        umeyama(np.ones((1, 3)), np.ones((1, 3)))


def shared_keyframes(rng, n, noise, size=(18, 24)):
    """Views of n keyframes in two worlds, and the Sim(3) from the current to the reference one.

    The scene is about 5 deep in the reference world; noise is a fraction of that, and radians.
    """
    truth = random_sim3(rng)
    inverse = truth.inverse()
    reference, current = [], []
    for i in range(n):
        R = Rotation.from_rotvec(rng.normal(0, 0.3, 3)).as_matrix()
        T = make_pose(R, np.array([0.3 * i, 0, 0.1 * i]) + rng.normal(0, 0.05, 3))
        depth = rng.uniform(3, 7, size)
        confidence = rng.uniform(1, 5, size).astype(np.float32)
        reference.append(KeyframeView(T, depth.astype(np.float32), confidence))
        seen = inverse.apply_pose(T)
        seen[:3, 3] += rng.normal(0, noise * 5, 3) * inverse.scale
        seen[:3, :3] = seen[:3, :3] @ Rotation.from_rotvec(rng.normal(0, noise, 3)).as_matrix()
        ratio = np.exp(rng.normal(0, noise)) * np.exp(rng.normal(0, 3 * noise, size))
        seen_depth = (depth * inverse.scale * ratio).astype(np.float32)
        current.append(KeyframeView(seen, seen_depth, confidence))
    return truth, reference, current


def scene_shift(a, b, reference, current):
    """Largest distance between where two transforms put the scene, relative to its depth of 5."""
    ahead = np.array([v.T @ [0, 0, np.median(v.depth), 1] for v in current])[:, :3]
    return np.linalg.norm(a.apply(ahead) - b.apply(ahead), axis=-1).max() / 5


@given(seeds, st.integers(1, 12))
@settings(max_examples=60, deadline=None)
def test_exact_keyframes_give_the_exact_transform(seed, n):
    truth, reference, current = shared_keyframes(np.random.default_rng(seed), n, noise=0)
    fit, quality = align_keyframes(reference, current)
    assert scene_shift(fit, truth, reference, current) < 1e-5
    assert quality.inliers == tuple(range(n))
    assert quality.inlier_ratio == 1
    assert quality.relative_error < 1e-5


@given(seeds, st.integers(4, 12))
@settings(max_examples=60, deadline=None)
def test_noise_averages_out(seed, n):
    noise = 0.003
    truth, reference, current = shared_keyframes(np.random.default_rng(seed), n, noise)
    fit, quality = align_keyframes(reference, current)
    assert scene_shift(fit, truth, reference, current) < 6 * noise
    assert quality.relative_error < 10 * noise


KINDS = ["rotated", "shifted", "flipped", "scaled", "inverted", "elsewhere", "slightly off", "nan"]


def plant_outlier(view, kind, rng):
    T, depth = view.T.copy(), view.depth.copy()
    if kind == "rotated":
        T[:3, :3] = T[:3, :3] @ Rotation.from_rotvec([0, 0.5, 0]).as_matrix()
    elif kind == "shifted":
        T[:3, 3] += 3
    elif kind == "flipped":
        T[:3, :3] = T[:3, :3] @ np.diag([-1.0, -1, 1])
    elif kind == "scaled":
        depth *= 3
    elif kind == "inverted":
        T = np.linalg.inv(T)
    elif kind == "elsewhere":
        T = make_pose(Rotation.random(random_state=1).as_matrix(), rng.normal(0, 1e4, 3))
        depth *= 1e3
    elif kind == "slightly off":
        T[:3, :3] = T[:3, :3] @ Rotation.from_rotvec([0.03, 0, 0]).as_matrix()
    elif kind == "nan":
        T[0, 0] = np.nan
        depth[:] = np.nan
    return KeyframeView(T, depth, view.confidence)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [4, 5, 8])
@pytest.mark.parametrize("side", ["reference", "current"])
def test_one_outlier_moves_the_scene_by_less_than_a_percent(kind, n, side):
    for seed in range(8):
        rng = np.random.default_rng(seed)
        _, reference, current = shared_keyframes(rng, n, noise=0.002)
        clean, _ = align_keyframes(reference, current)
        bad = seed % n
        views = reference if side == "reference" else current
        good = views[bad]
        views[bad] = plant_outlier(good, kind, rng)
        fit, quality = align_keyframes(reference, current)
        views[bad] = good
        assert scene_shift(fit, clean, reference, current) < 0.01
        if kind != "slightly off":
            assert bad not in quality.inliers
        assert rotation_angle(fit.R @ clean.R.T) < 0.01


@pytest.mark.parametrize("n, outliers", [(8, 3), (12, 5)])
def test_a_minority_of_outliers_is_rejected(n, outliers):
    rng = np.random.default_rng(5)
    _, reference, current = shared_keyframes(rng, n, noise=0.002)
    clean, _ = align_keyframes(reference, current)
    spoilt = list(current)
    for i in range(outliers):
        spoilt[2 * i] = plant_outlier(current[2 * i], KINDS[i], rng)
    fit, quality = align_keyframes(reference, spoilt)
    assert scene_shift(fit, clean, reference, current) < 0.01
    assert len(quality.inliers) <= n - outliers


@pytest.mark.parametrize("seed", range(10))
def test_outliers_that_agree_with_each_other_are_still_a_minority(seed):
    rng = np.random.default_rng(seed)
    _, reference, current = shared_keyframes(rng, 9, noise=0.002)
    clean, _ = align_keyframes(reference, current)
    turn = Rotation.from_rotvec(rng.normal(0, 0.05, 3)).as_matrix()
    shift = make_pose(turn, rng.normal(0, 0.5, 3))
    spoilt = [KeyframeView(shift @ v.T, v.depth, v.confidence) for v in current[:4]] + current[4:]
    fit, quality = align_keyframes(reference, spoilt)
    assert scene_shift(fit, clean, reference, current) < 0.01
    assert set(quality.inliers) <= {4, 5, 6, 7, 8}


@pytest.mark.parametrize("untrusted", ["unsure", "far", "broken"])
def test_untrusted_depth_has_no_say_in_the_scale(untrusted):
    rng = np.random.default_rng(2)
    truth, reference, current = shared_keyframes(rng, 6, noise=0, size=(60, 80))
    for a, b in zip(reference, current, strict=True):
        # Scattered ratios, so that a few wrong pixels already move their median.
        b.depth[:] *= np.exp(rng.normal(0, 0.1, b.depth.shape))
        if untrusted == "unsure":
            b.depth[b.confidence <= np.percentile(b.confidence, 30)] *= 3
        elif untrusted == "far":
            a.depth[:5] *= 10
            b.depth[:5] *= 40
        else:
            b.depth[:5] = np.inf
            b.depth[5:10] = -1
            b.depth[10:15] = np.nan
            a.depth[15:20] = 0
    fit, _ = align_keyframes(reference, current)
    assert fit.scale == pytest.approx(truth.scale, rel=0.008)


def test_equal_confidence_everywhere_is_no_confidence_at_all():
    rng = np.random.default_rng(2)
    truth, reference, current = shared_keyframes(rng, 4, noise=0)
    same = [KeyframeView(v.T, v.depth, np.ones_like(v.depth)) for v in current]
    assert align_keyframes(reference, same)[0].scale == pytest.approx(truth.scale, rel=1e-4)
    none = [KeyframeView(v.T, v.depth, None) for v in current]
    assert align_keyframes(reference, none)[0].scale == pytest.approx(truth.scale, rel=1e-4)


def test_keyframes_without_depth_still_vote_for_the_pose():
    truth, reference, current = shared_keyframes(np.random.default_rng(3), 5, noise=0)
    bare = [current[0]] + [KeyframeView(v.T, None, None) for v in current[1:]]
    fit, quality = align_keyframes(reference, bare)
    assert scene_shift(fit, truth, reference, current) < 1e-5
    assert len(quality.inliers) == 5
    with pytest.raises(AlignmentError, match="new segment"):
        align_keyframes(reference, [KeyframeView(v.T, None, None) for v in current])
    with pytest.raises(AlignmentError):
        align_keyframes([], [])
    with pytest.raises(AlignmentError):
        align_keyframes(reference, [KeyframeView(v.T * np.nan, v.depth, None) for v in current])


def baseline(reference, current):
    """The reference's rule on the same keyframes."""
    windows = []
    for views in (reference, current):
        poses = np.stack([view.T for view in views])
        K = np.diag([30.0, 30, 1])
        windows.append(
            Window(
                encode_pose(poses, np.tile(K, (len(poses), 1, 1)), (18, 24)),
                np.stack([view.depth for view in views]),
                np.stack([view.confidence for view in views]),
                np.ones(len(poses), bool),
            )
        )
    return align_window(*windows, overlap=len(reference))


def test_all_keyframes_together_beat_the_single_anchor_of_the_baseline():
    errors = []
    for seed in range(20):
        truth, *views = shared_keyframes(np.random.default_rng(seed), 8, noise=0.01)
        fits = align_keyframes(*views)[0], baseline(*views)
        errors.append([scene_shift(fit, truth, *views) for fit in fits])
    robust, single = np.median(errors, 0)
    assert robust < 0.6 * single


def test_a_broken_last_keyframe_ruins_the_baseline_only():
    rng = np.random.default_rng(1)
    truth, reference, current = shared_keyframes(rng, 8, noise=0.001)
    spoilt = [*current[:-1], plant_outlier(current[-1], "rotated", rng)]
    assert scene_shift(baseline(reference, spoilt), truth, reference, current) > 0.1
    assert scene_shift(align_keyframes(reference, spoilt)[0], truth, reference, current) < 0.01


def test_large_images_are_thinned_without_harm():
    truth, reference, current = shared_keyframes(
        np.random.default_rng(8), 4, noise=0.001, size=(378, 504)
    )
    fit, _ = align_keyframes(reference, current)
    assert fit.scale == pytest.approx(truth.scale, rel=0.003)


def test_the_quality_tells_a_good_fit_from_a_bad_one():
    rng = np.random.default_rng(4)
    _, *good = shared_keyframes(rng, 8, noise=0.001)
    _, *bad = shared_keyframes(rng, 8, noise=0.1)
    good_quality, bad_quality = align_keyframes(*good)[1], align_keyframes(*bad)[1]
    assert good_quality.relative_error < 0.02 < 0.1 < bad_quality.relative_error
    assert good_quality.scene_depth == pytest.approx(5, rel=0.1)
