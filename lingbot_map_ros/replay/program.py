# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What `replay` does, from opening the recording to the last file."""

import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol

from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from lingbot_map_ros.errors import ConfigurationError
from lingbot_map_ros.replay import outputs, report
from lingbot_map_ros.replay.bag import Bag
from lingbot_map_ros.replay.evaluation import Evaluation, EvaluationError, evaluate, find_evo
from lingbot_map_ros.replay.inputs import Inputs, open_inputs
from lingbot_map_ros.replay.options import Options
from lingbot_map_ros.replay.runner import Runner
from lingbot_map_ros.replay.stream import Stream, open_stream

EXIT_FAILED, EXIT_DAMAGED, EXIT_NOT_EVALUATED = 1, 3, 4
_REFRESH_S = 0.5


class StopRequest(Protocol):
    """Tells whether, and by which signal, the run is to end after the present frame."""

    number: int


def replay(options: Options, stop: StopRequest) -> int:
    """Process the recording and write everything; returns the exit code.

    Raises
    ------
    LingbotMapError
        For an input, a setting or an output that cannot work.
    """
    if options.ground_truth:
        find_evo()
    with ExitStack() as stack, logging_redirect_tqdm():
        bag = None if options.bag is None else stack.enter_context(Bag(options.bag))
        _keep_out_of(options)
        inputs = open_inputs(options, bag, stack)
        outputs.make_folder(options.output)
        stream = open_stream(options.parameters, inputs.source.size)
        outputs.remove_old(options.output)
        truth = inputs.write_truth(options.output / outputs.TRUTH)
        result = _run(options, inputs, stream, [] if bag is None else bag.damage, truth, stop)
    _say(options.output, result)
    return int(result["exit_code"])


def _run(
    options: Options,
    inputs: Inputs,
    stream: Stream,
    damage: list[str],
    truth: Path | None,
    stop: StopRequest,
) -> dict[str, Any]:
    runner = Runner(stream, inputs)
    began = time.perf_counter()
    with tqdm(total=inputs.source.expected, unit="frame", mininterval=_REFRESH_S) as bar:
        for _ in runner.run():
            bar.update()
            if stop.number:
                break
    seconds = time.perf_counter() - began
    runner.finish()
    result = report.describe(options, runner, seconds, damage)
    outputs.write_results(options.output, runner, colmap=options.colmap)
    evaluation = _evaluate(truth, options.output / outputs.TRAJECTORY, result)
    outputs.draw(options.output, runner, result["unit"], evaluation, truth)
    usual = "complete" if result["frames"]["poses"] else "failed"
    result["status"] = "interrupted" if stop.number else usual
    result["exit_code"] = _exit_code(result, stop)
    outputs.write_report(options.output, result)
    return result


def _evaluate(truth: Path | None, estimate: Path, result: dict[str, Any]) -> Evaluation | None:
    """Compare with the truth and note the outcome in ``result``."""
    if truth is None:
        return None
    try:
        evaluation = evaluate(truth, estimate)
    except EvaluationError as error:
        result["evaluation_error"] = str(error)
        return None
    result["evaluation"] = evaluation.summary
    return evaluation


def _keep_out_of(options: Options) -> None:
    """Refuse to write into the recording itself."""
    recording = options.bag or options.images
    if recording is None or not recording.is_dir():
        return
    home, output = recording.resolve(), options.output.resolve()
    if home == output or home in output.parents:
        raise ConfigurationError(
            f"--output {options.output} lies in {recording}, which is only read; choose another"
        )


def _exit_code(result: dict[str, Any], stop: StopRequest) -> int:
    if stop.number:
        return 128 + stop.number
    if not result["frames"]["poses"]:
        return EXIT_FAILED
    if result["damage"]:
        return EXIT_DAMAGED
    return EXIT_NOT_EVALUATED if "evaluation_error" in result else 0


def _say(folder: Path, result: dict[str, Any]) -> None:
    for sentence in result["damage"]:
        print(f"damaged: {sentence}", file=sys.stderr)
    for sentence in result["notes"]:
        print(f"note: {sentence}", file=sys.stderr)
    if "evaluation_error" in result:
        print(f"not evaluated: {result['evaluation_error']}", file=sys.stderr)
    if not result["frames"]["poses"]:
        print("replay: no frame got a pose", file=sys.stderr)
    for line in report.lines(result):
        print(line)
    print(f"{result['status']}: {folder}")
