# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""One image of another size is a stray one; several in a row are another size."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lingbot_map_ros.ros.size_guard import CHANGED_FRAMES, MIXED_FRAMES, OtherSizeError, SizeGuard

USUAL, STRAY = (480, 640), (121, 161)


def taken(guard, size):
    """Whether an image is taken; a change is carried out, as the node does."""
    try:
        if guard.changes(*size):
            guard.settle(*size)
    except OtherSizeError:
        return False
    return True


def test_the_first_size_is_taken_and_a_stray_one_costs_only_itself():
    guard = SizeGuard()
    sizes = [USUAL, STRAY, USUAL, STRAY, (10, 20), STRAY, USUAL]
    assert [taken(guard, size) for size in sizes] == [size == USUAL for size in sizes]
    assert guard.size == USUAL
    with pytest.raises(OtherSizeError, match="161x121 among images of 640x480"):
        guard.changes(*STRAY)


def test_a_new_size_is_taken_when_enough_came_in_a_row():
    guard = SizeGuard()
    assert taken(guard, USUAL)
    refused = [False] * (CHANGED_FRAMES - 1)
    assert [taken(guard, STRAY) for _ in range(CHANGED_FRAMES + 1)] == [*refused, True, True]
    assert [taken(guard, USUAL) for _ in range(CHANGED_FRAMES)] == [*refused, True]


def test_a_new_size_that_cannot_be_taken_is_asked_for_with_every_image():
    guard = SizeGuard()
    assert taken(guard, USUAL)
    for _ in range(CHANGED_FRAMES - 1):
        assert not taken(guard, STRAY)
    assert [guard.changes(*STRAY) for _ in range(3)] == [True] * 3
    assert not guard.changes(*USUAL)


@given(st.lists(st.integers(0, 2), max_size=40))
def test_the_size_changes_only_to_that_of_the_last_few_images(kinds):
    guard, sizes = SizeGuard(), [(1 + kind, 1) for kind in kinds]
    for number, size in enumerate(sizes):
        before = guard.size
        taken(guard, size)
        if before not in (None, guard.size):
            of_one = set(sizes[number - CHANGED_FRAMES + 1 : number + 1]) == {guard.size}
            assert of_one or before not in sizes[number - MIXED_FRAMES + 1 : number + 1]


@pytest.mark.parametrize("others", [[STRAY, (10, 20)], [STRAY, STRAY, (10, 20), (30, 30)]])
def test_images_of_ever_other_sizes_are_not_skipped_for_ever(others):
    guard = SizeGuard()
    assert taken(guard, USUAL)
    sizes = (others * MIXED_FRAMES)[:MIXED_FRAMES]
    assert [taken(guard, size) for size in sizes] == [False] * (MIXED_FRAMES - 1) + [True]
    assert guard.size == sizes[-1]
    # what alternates goes on with every other image
    assert taken(guard, sizes[-1]) and not taken(guard, USUAL) and taken(guard, sizes[-1])
