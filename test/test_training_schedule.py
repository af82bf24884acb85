# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""When training does what: courses, the learning rate, the time of a call, the command line."""

import math

import pytest
from torch.distributed.run import get_args_parser
from train_small import make_parser
from training.schedule import (
    CONTINUED,
    FROM_BACKBONE,
    WARM_UP_STEPS,
    draw_lesson,
    rate_factor,
)
from training.timetable import Timetable


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def test_courses_end_with_streams_longer_than_the_window():
    final = FROM_BACKBONE.stage(1.0)
    assert final is FROM_BACKBONE.stages[-1]
    for stage in (final, CONTINUED.stage(0.0)):
        longest = max(stage.lessons, key=lambda lesson: lesson.weight)
        assert longest.layout.frames > 4 * longest.layout.window
        assert max(lesson.max_stride for lesson in stage.lessons) == 8, "photographs of a walk"
    assert draw_lesson(final, 3, 360) == draw_lesson(final, 3, 360)
    assert draw_lesson(final, 3, 10).layout.frames == 10


def test_a_continued_training_ends_with_images_as_they_are_beside_altered_ones():
    assert CONTINUED.stage(0.0).altered == 1
    assert 0 < CONTINUED.stage(1.0).altered < 1


def test_only_a_continued_training_has_clouds_and_fewer_at_its_end():
    shares = [CONTINUED.stage(k / 100).clouds for k in range(101)]
    assert 0 < shares[-1] < shares[0] < 1 and shares == sorted(shares, reverse=True)
    maps = [stage.openarena for stage in CONTINUED.stages]
    assert min(maps) > 0 and max(maps) < 1, "clouds take the place of rooms, not of maps"
    assert all(stage.clouds == 0 for stage in FROM_BACKBONE.stages)


def test_the_rate_rises_and_comes_down():
    rates = [rate_factor(10 * k, k / 100) for k in range(101)]
    top = rates.index(max(rates))
    assert rates[:top] == sorted(rates[:top]) and rates[top:] == sorted(rates[top:], reverse=True)
    assert top == pytest.approx(WARM_UP_STEPS / 10, abs=1)
    assert rates[0] < 0.01 and max(rates) > 0.9 and rates[-1] < 0.02


@pytest.mark.parametrize("seconds_a_step", [0.05, 0.27, 3.0])
def test_the_rate_has_come_down_when_the_time_is_up(seconds_a_step):
    """Whatever the speed and the length of set-up and of the tasks at the end."""
    clock = Clock()
    times = Timetable(clock.now, 570.0, 0.0, clock)
    clock.now += 45
    times.begin()
    step, evaluated = 0, 0.0
    while True:
        progress = times.progress(None)
        if times.over() or progress >= 1:
            break
        if clock.now - evaluated > 150:
            evaluated = clock.now
            with times.task("evaluate"):
                clock.now += 4
        clock.now += seconds_a_step
        step += 1
    assert rate_factor(step + WARM_UP_STEPS, progress) < 0.012
    for name, duration in (("export", 7), ("save", 5)):
        with times.task(name):
            clock.now += duration
    assert times.has_time_for("evaluate")
    with times.task("evaluate"):
        clock.now += 4
    assert 545 < clock.now - 1000 <= 570


def test_slow_tasks_are_reckoned_with_once_measured():
    clock = Clock()
    times = Timetable(clock.now, 300.0, 0.0, clock)
    times.begin()
    before = times.progress(None)
    with times.task("evaluate"):
        clock.now += 60
    clock.now = 1000 + 235
    assert before == 0 and times.over()
    clock.now += 10
    assert not times.has_time_for("evaluate")


def test_several_calls_share_one_schedule():
    """The second call goes on where the first stopped, and the last ends with a low rate."""
    clock = Clock()
    first = Timetable(clock.now, 570.0, 0.0, clock)
    clock.now += 40
    first.begin()
    clock.now += 480
    assert first.progress(1000.0) == pytest.approx(0.48)
    second = Timetable(clock.now, 570.0, first.spent(), clock)
    clock.now += 25
    assert second.progress(1000.0) == pytest.approx(0.505), "the set-up counts until begin()"
    second.begin()
    assert second.progress(1000.0) == pytest.approx(0.48)
    clock.now += 520
    assert second.progress(1000.0) == 1.0
    # Without a total the last call ends the schedule by itself.
    clock.now -= 20
    assert second.progress(None) > 0.95


def test_a_call_that_is_too_short_ends_at_once():
    clock = Clock()
    times = Timetable(clock.now, 10.0, 0.0, clock)
    times.begin()
    assert times.over() and times.progress(None) == 1.0
    assert math.isfinite(times.spent())


def test_no_option_is_taken_by_torchrun():
    """Options behind the script's name reach the script, also as prefixes of torchrun's."""
    options = []
    for action in make_parser()._actions:
        if action.option_strings and action.dest != "help":
            options += [action.option_strings[-1], *([] if action.nargs == 0 else ["1"])]
    given = ["--nproc-per-node", "2", "train_small.py", *options]
    parsed = get_args_parser().parse_args(given)
    assert parsed.training_script == "train_small.py"
    assert parsed.training_script_args == options
    names = [name for name in get_args_parser()._option_string_actions if name.startswith("--")]
    for option in options:
        if option.startswith("--"):
            assert not any(name.startswith(option) for name in names), option


def test_abbreviated_options_are_refused(capsys):
    with pytest.raises(SystemExit):
        make_parser().parse_args(["--output", "x", "--total", "5"])
    assert "unrecognized arguments" in capsys.readouterr().err
