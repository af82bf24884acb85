# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The reference's windowed mode against its golden vectors."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lingbot_map_ros.errors import ConfigurationError
from lingbot_map_ros.geometry.stitching import Window, align_window, stitch, window_spans

LAYERS = Path(__file__).parent / "data" / "golden" / "layers"
ARRAYS = ("pose_enc", "depth", "depth_conf", "is_keyframe")


@pytest.fixture(scope="module")
def case():
    with np.load(LAYERS / "window_align.npz") as file:
        return {key: file[key] for key in file}


@pytest.fixture
def windows(case):
    return [Window(*(case[f"in.{name}{i}"] for name in ARRAYS)) for i in range(3)]


def check(got, want):
    np.testing.assert_allclose(got, want, atol=2e-5, rtol=2e-4)


def test_golden_window_align(case, windows):
    joined, transforms = stitch(windows, overlap=3)
    check(joined.pose_enc, case["out.pose_enc"])
    check(joined.depth, case["out.depth"])
    check(joined.confidence, case["out.depth_conf"])
    np.testing.assert_array_equal(joined.is_keyframe, case["out.is_keyframe"])
    check([t.scale for t in transforms], case["out.chunk_scales"])
    check(np.stack([t.R for t in transforms]), case["out.chunk_transforms"][:, :3, :3])
    check(np.stack([t.t for t in transforms]), case["out.chunk_transforms"][:, :3, 3])


def test_a_single_window_comes_out_with_unit_quaternions(windows):
    joined, transforms = stitch(windows[:1], overlap=3)
    assert len(transforms) == 1
    np.testing.assert_array_equal(joined.depth, windows[0].depth)
    np.testing.assert_allclose(np.linalg.norm(joined.pose_enc[:, 3:7], axis=-1), 1, atol=1e-6)


def test_windows_that_share_no_keyframe_are_aligned_by_their_first_frame(windows, caplog):
    bare = replace(windows[1], is_keyframe=np.zeros(7, bool))
    first = stitch(windows[:1], 3)[0]
    transform = align_window(first, bare, 3)
    assert "no keyframe" in caplog.text
    np.testing.assert_allclose(
        transform.apply(bare.pose_enc[0, :3]), first.pose_enc[4, :3], atol=1e-5
    )


def test_the_last_of_several_shared_keyframes_is_the_anchor(windows):
    first = stitch(windows[:1], 3)[0]
    shared = replace(first, is_keyframe=np.ones(7, bool))
    transform = align_window(shared, windows[1], 3)
    centres = transform.apply(windows[1].pose_enc[:3, :3])
    apart = np.linalg.norm(centres - first.pose_enc[4:, :3], axis=-1)
    assert apart[2] < 1e-6
    assert apart[:2].min() > 1e-3


def test_unusable_depth_leaves_the_scale_and_wild_depth_is_bounded(windows):
    broken = replace(windows[1], depth=np.full_like(windows[1].depth, np.nan))
    assert align_window(windows[0], broken, 3).scale == 1
    tiny = replace(windows[1], depth=np.full_like(windows[1].depth, 1e-6))
    assert align_window(windows[0], tiny, 3).scale == 1000


@pytest.mark.parametrize("overlap", [0, 8])
def test_an_overlap_that_the_windows_do_not_have_is_refused(windows, overlap):
    with pytest.raises(ConfigurationError, match="cannot share"):
        align_window(windows[0], windows[1], overlap)


def test_spans_of_the_golden_run():
    assert window_spans(20, 6, 3, 2, 2) == ([(0, 9), (5, 14), (10, 19), (15, 20)], 4)


@given(
    st.integers(1, 200), st.integers(1, 40), st.integers(1, 8), st.integers(1, 5), st.integers(0, 9)
)
@settings(max_examples=200, deadline=None)
def test_windows_lose_no_frame(total, window_size, scale_frames, interval, overlap_keyframes):
    try:
        spans, overlap = window_spans(total, window_size, scale_frames, interval, overlap_keyframes)
    except ConfigurationError:
        return
    assert overlap >= max(scale_frames, interval)
    assert sum(end - start - overlap for start, end in spans) + overlap == total
    kept = [i for start, end in spans[:-1] for i in range(start, end - overlap)]
    assert kept + list(range(*spans[-1])) == list(range(total))


@pytest.mark.parametrize(
    "settings_, reason",
    [
        ((20, 3, 3, 1, 3), "exceed"),
        ((20, 4, 3, 1, 4), "shorter"),
        ((20, 9, 1, 3, 0), "no keyframe"),
        ((20, 9, 0, 1, 3), "at least 1"),
    ],
)
def test_settings_that_would_lose_frames_are_refused(settings_, reason):
    with pytest.raises(ConfigurationError, match=reason):
        window_spans(*settings_)
