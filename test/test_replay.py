# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""`replay` from end to end with a tiny model of random weights."""

import csv
import itertools
import json
import math
import re
import signal
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from bag_factory import (
    PERIOD_NS,
    START_NS,
    camera_messages,
    cut,
    image_message,
    odometry_message,
    picture,
    pose_stamped_message,
    static_transform_message,
    storage_file,
    write_messages,
)
from PIL import Image

from lingbot_map_ros.mapping.scale import ScaleEstimator
from lingbot_map_ros.replay import cli, plots, program
from lingbot_map_ros.replay.evaluation import Evaluation, read_tum
from lingbot_map_ros.replay.options import SHARED, parse
from lingbot_map_ros.replay.play_bag import parse_arguments
from lingbot_map_ros.ros.parameters import Parameters
from lingbot_map_ros.ros.stamps import RESTART_FRAMES
from lingbot_map_ros.streaming.image_files import preprocess_file
from lingbot_map_ros.streaming.preprocessing import Preprocessor

TINY = ["--checkpoint", "random:tiny"]
COUNT = 12
FILES = {
    "trajectory.tum", "keyframes.tum", "map.ply", "timings.csv", "report.json",
    "trajectory.png", "map.png", "depth.png",
}  # fmt: skip


def run(*arguments):
    return cli.main([*map(str, arguments), *TINY])


def report_of(folder):
    return json.loads((folder / "report.json").read_text())


def read_ply(path):
    head, _, body = path.read_bytes().partition(b"end_header\n")
    count = int(head.split(b"element vertex ")[1].split()[0])
    assert len(body) == count * 15
    return np.frombuffer(body, np.dtype([("xyz", "<f4", 3), ("rgb", "u1", 3)]))


@pytest.fixture(scope="module")
def bag(tmp_path_factory):
    return write_messages(tmp_path_factory.mktemp("replay") / "bag", camera_messages(COUNT))


def test_a_bag_becomes_trajectory_map_report_and_pictures(bag, tmp_path, capsys):
    folder = tmp_path / "out"
    assert run("--bag", bag, "--output", folder) == 0
    assert {path.name for path in folder.iterdir()} == FILES
    report = report_of(folder)
    assert report["status"] == "complete" and report["exit_code"] == 0
    assert set(report["files"]) == FILES
    assert report["frames"]["processed"] == report["frames"]["expected"] == COUNT
    assert report["calibration"] == "camera_info, no distortion"
    poses = report["frames"]["poses"]
    assert poses + report["frames"]["withheld"] == COUNT
    stamps, positions = read_tum(folder / "trajectory.tum")
    assert len(stamps) == poses
    np.testing.assert_allclose(positions[0], 0, atol=1e-6)
    assert stamps[0] == pytest.approx(START_NS * 1e-9, abs=1e-6)
    points = read_ply(folder / "map.ply")
    assert len(points) == report["map"]["points"] > 100
    with (folder / "timings.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [int(row["stamp_ns"]) for row in rows] == [
        START_NS + index * PERIOD_NS for index in range(COUNT)
    ]
    assert [int(row["results"]) for row in rows][:4] == [0, 0, 3, 1]
    assert all(float(row["model_ms"]) > 0 for row in rows)
    for name in ("trajectory.png", "map.png", "depth.png"):
        with Image.open(folder / name) as image:
            image.load()
            assert min(image.size) > 150
    shown = capsys.readouterr()
    assert f"{COUNT} frames in" in shown.out and f"complete: {folder}" in shown.out
    assert f"{COUNT}/{COUNT}" in shown.err and "frame/s" in shown.err


def keys(value):
    """All keys of nested dictionaries; those of the settings are parameters."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from () if key == "settings" else keys(item)


def test_every_key_of_the_report_is_described(bag, tmp_path):
    """Unevaluated; `test_replay_evaluation` has the keys of an evaluation."""
    assert run("--bag", bag, "--output", tmp_path / "out") == 0
    text = (Path(__file__).parents[1] / "docs" / "replay.md").read_text()
    missing = [key for key in keys(report_of(tmp_path / "out")) if f"`{key}`" not in text]
    assert not missing


def test_colmap_model_on_request(bag, tmp_path):
    assert run("--bag", bag, "--output", tmp_path, "--colmap") == 0
    files = {f"colmap/{name}.txt" for name in ("cameras", "images", "points3D")}
    assert set(report_of(tmp_path)["files"]) == FILES | files
    images = (tmp_path / "colmap/images.txt").read_text().splitlines()[::2]
    assert len(images) == len((tmp_path / "keyframes.tum").read_text().splitlines())
    # World-to-camera: the first camera is the origin of the map, whose x is its forward axis.
    w, x, y, z, *translation = map(float, images[0].split()[1:8])
    np.testing.assert_allclose(np.abs([w, x, y, z]), 0.5, atol=1e-6)
    np.testing.assert_allclose(translation, 0, atol=1e-6)
    assert images[0].split()[9] == f"{START_NS}.png"
    points = (tmp_path / "colmap/points3D.txt").read_text().splitlines()
    assert len(points) == len(read_ply(tmp_path / "map.ply"))


def test_a_colmap_model_of_a_folder_is_one_of_its_files(tmp_path):
    images = tmp_path / "images"
    images.mkdir()
    names = [f"photo{index}.png" for index in range(5)] + ["the last.png"]
    for index, name in enumerate(names):
        Image.fromarray(picture(index, 60, 80)).save(images / name)
    assert run("--images", images, "--output", tmp_path / "out", "--colmap") == 0
    listed = (tmp_path / "out/colmap/images.txt").read_text().splitlines()[::2]
    named = [line.split(maxsplit=9)[9] for line in listed]
    assert named[:5] == names[:5]
    assert len(named[5].split()) == 1 and named[5].endswith("000.png")  # by its stamp
    for line in (tmp_path / "out/colmap/cameras.txt").read_text().splitlines():
        _, kind, width, height, _, _, cx, cy = line.split()
        assert (kind, width, height) == ("PINHOLE", "80", "60")
        assert (float(cx), float(cy)) == pytest.approx((40, 30), abs=0.5)
    with (tmp_path / "out/timings.csv").open() as file:
        assert [row["file"] for row in csv.DictReader(file)] == names


def test_files_without_a_pose_are_named(tmp_path):
    images = tmp_path / "images"
    images.mkdir()
    black = range(16, 22)
    for index in range(24):
        image = picture(index, 60, 80)
        Image.fromarray(image * 0 if index in black else image).save(images / f"{index}.png")
    assert run("--images", images, "--output", tmp_path / "out") == 0
    (note,) = [text for text in report_of(tmp_path / "out")["notes"] if "no pose" in text]
    assert "no pose for 6 frames (16.png, 17.png, 18.png, 19.png, 20.png, ...), because" in note


def test_a_failure_before_the_first_frame_keeps_the_last_results(bag, tmp_path):
    (tmp_path / "report.json").write_text("earlier")
    wrong = ["--bag", str(bag), "--output", str(tmp_path), "--checkpoint", "absent.pt"]
    assert cli.main(wrong) == 1
    assert (tmp_path / "report.json").read_text() == "earlier"


def test_the_same_input_gives_the_same_files(bag, tmp_path):
    for name in ("a", "b"):
        assert run("--bag", bag, "--output", tmp_path / name) == 0
    for name in ("trajectory.tum", "keyframes.tum", "map.ply"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_the_report_says_why_a_map_stays_nearly_empty(bag, tmp_path, capsys):
    assert run("--bag", bag, "--output", tmp_path, "--depth-confidence-min", "900") == 0
    (note,) = report_of(tmp_path)["notes"]
    assert "only 0.0% of the depth reaches depth_confidence_min 900" in note
    assert f"note: {note}" in capsys.readouterr().err


@pytest.mark.parametrize(("keyframes", "several"), [(9, True), (64, False)])
def test_window_switches_are_marked_on_the_trajectory(
    bag, tmp_path, monkeypatch, keyframes, several
):
    drawn = {}
    monkeypatch.setattr(plots, "_save", lambda figure, path: drawn.setdefault(path.name, figure))
    run("--bag", bag, "--output", tmp_path / "out", "--max-keyframes", keyframes)
    report = report_of(tmp_path / "out")
    assert (report["frames"]["windows"] > 1) == several
    with (tmp_path / "out" / "timings.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["results"] != "0"]
    switched = [
        row["stamp_ns"] for a, row in itertools.pairwise(rows) if a["window"] != row["window"]
    ]
    assert len(switched) == report["frames"]["windows"] - 1
    stamps, positions = read_tum(tmp_path / "out" / "trajectory.tum")
    first = np.isin(
        np.rint(stamps * 1e9 / PERIOD_NS), [int(stamp) // PERIOD_NS for stamp in switched]
    )
    for axes, columns in zip(drawn["trajectory.png"].axes, ([0, 1], [0, 2]), strict=True):
        marks = [line for line in axes.lines if line.get_label() == "window switch"]
        assert len(marks) == several
        for line in marks:
            np.testing.assert_allclose(line.get_xydata(), positions[first][:, columns], atol=1e-5)


def test_a_clock_that_was_set_back_does_not_mix_the_poses(tmp_path):
    def messages():
        for index in range(36):
            time = START_NS + index * PERIOD_NS
            yield "/image", time, image_message(index, time - (index >= 20) * 20 * PERIOD_NS)

    assert run("--bag", write_messages(tmp_path / "bag", messages()), "--output", tmp_path) == 3
    stamps, _ = read_tum(tmp_path / "trajectory.tum")
    assert np.count_nonzero(np.diff(stamps) < 0) == 1
    report = report_of(tmp_path)
    assert report["frames"]["left_out"] == RESTART_FRAMES - 1
    # 1.9 s and 0.6 s, less what a frame without a pose takes away
    assert 2.2 < report["trajectory"]["seconds"] < 2.6


def test_a_cut_bag_is_replayed_as_far_as_it_goes(tmp_path, capsys):
    path = write_messages(tmp_path / "bag", camera_messages(20), "sqlite3")
    cut(storage_file(path), 0.6)
    before = storage_file(path).read_bytes()
    assert run("--bag", path, "--output", tmp_path / "out") == 3
    report = report_of(tmp_path / "out")
    assert report["exit_code"] == 3 and report["status"] == "complete"
    assert report["frames"]["processed"] >= 10
    assert any("20 messages readable" in text for text in report["damage"])
    assert "damaged: " in capsys.readouterr().err
    assert {item.name for item in path.iterdir()} == {"metadata.yaml", storage_file(path).name}
    assert storage_file(path).read_bytes() == before


def truth_messages(count):
    """A camera that looks along x of its base and drives an arc, with odometry that knows."""
    looking_ahead = (-0.5, 0.5, -0.5, 0.5)
    yield (
        "/tf_static",
        START_NS,
        static_transform_message("base_link", "camera", (0.2, 0, 0.5), looking_ahead),
    )
    for index, message in enumerate(camera_messages(count)):
        if index % 2:
            yield message
            angle = 0.05 * (index // 2)
            position = (3 * math.sin(angle), 3 - 3 * math.cos(angle), 0)
            turn = (0, 0, math.sin(angle / 2), math.cos(angle / 2))
            yield "/truth", message[1], odometry_message(message[1], position, turn)


def test_ground_truth_from_a_topic_or_a_file_is_compared(tmp_path, capsys, monkeypatch):
    path = write_messages(tmp_path / "bag", truth_messages(COUNT))
    first, second = tmp_path / "first", tmp_path / "second"
    assert run("--bag", path, "--output", first, "--ground-truth", "/truth") == 0
    report = report_of(first)
    assert set(report["files"]) == FILES | {"ground_truth.tum", "errors.png"}
    evaluation = report["evaluation"]
    assert evaluation["poses"] == report["frames"]["poses"]
    assert 1.0 < evaluation["path_length"] < 2.0
    assert evaluation["ate"]["se3"]["rmse"] >= evaluation["ate"]["sim3"]["rmse"] > 0
    assert "ATE" in capsys.readouterr().out
    _, positions = read_tum(first / "ground_truth.tum")
    np.testing.assert_allclose(positions[0], [0.2, 0, 0.5], atol=1e-6)
    truth = tmp_path / "truth.tum"
    truth.write_bytes((first / "ground_truth.tum").read_bytes())
    stamps = read_tum(truth)[0]
    known = Evaluation(evaluation, stamps, np.ones(len(stamps)), np.eye(4))
    compared = []
    monkeypatch.setattr(program, "evaluate", lambda *paths: compared.append(paths) or known)
    assert run("--bag", path, "--output", second, "--ground-truth", truth) == 0
    assert compared == [(truth, second / "trajectory.tum")]
    assert report_of(second)["evaluation"] == evaluation


def test_a_truth_that_cannot_be_compared_leaves_everything_else(bag, tmp_path, capsys):
    truth = tmp_path / "truth.tum"
    truth.write_text("1.0 0 0 0 0 0 0 1\n2.0 1 0 0 0 0 0 1\n3.0 1 1 0 0 0 0 1\n")
    assert run("--bag", bag, "--output", tmp_path / "out", "--ground-truth", truth) == 4
    assert set(report_of(tmp_path / "out")["files"]) == FILES
    assert "not evaluated: evo: " in capsys.readouterr().err


def test_odometry_gives_metres(tmp_path, monkeypatch):
    """The way of the data; how well the scale is found is tested with the estimator itself."""
    seen = []

    def add(self, model_T, metric_T, stamp_ns):
        seen.append((model_T, metric_T, stamp_ns))
        self.scale, self.settled = 2.5, True

    monkeypatch.setattr(ScaleEstimator, "add", add)
    path = write_messages(tmp_path / "bag", truth_messages(COUNT))
    plain, metric = tmp_path / "plain", tmp_path / "metric"
    assert run("--bag", path, "--output", plain) == 0
    assert not seen
    assert run("--bag", path, "--output", metric, "--scale-source", "odometry") == 0
    report = report_of(metric)
    assert report["unit"] == "m" and report["scale"] == 2.5
    assert len(seen) == report["frames"]["poses"]
    np.testing.assert_allclose(seen[0][1][:3, 3], [0.2, 0, 0.5], atol=1e-6)
    np.testing.assert_allclose(seen[0][1][:3, 2], [1, 0, 0], atol=1e-6)
    _, small = read_tum(plain / "trajectory.tum")
    _, large = read_tum(metric / "trajectory.tum")
    np.testing.assert_allclose(large, 2.5 * small, atol=1e-5)
    np.testing.assert_allclose(
        np.sort(read_ply(metric / "map.ply")["xyz"], axis=0),
        np.sort(2.5 * read_ply(plain / "map.ply")["xyz"], axis=0),
        rtol=1e-4, atol=1e-4,
    )  # fmt: skip


def test_poses_that_are_no_odometry_are_refused(tmp_path, capsys):
    def messages():
        for topic, stamp, message in truth_messages(2):
            yield topic, stamp, message
            yield "/pose", stamp, pose_stamped_message(stamp, (0, 0, 0))

    path = write_messages(tmp_path / "bag", messages())
    arguments = ["--bag", path, "--output", tmp_path / "out", "--scale-source", "odometry"]
    assert run(*arguments, "--odom", "/pose") == 1
    assert capsys.readouterr().err == (
        "replay: /pose is geometry_msgs/msg/PoseStamped; topics of type Odometry: /truth\n"
    )


@pytest.mark.parametrize("seconds", ["0", "-1", "inf"])
@pytest.mark.parametrize("program", [parse, parse_arguments])
def test_a_duration_of_nothing_is_refused(capsys, program, seconds):
    recording = ["--bag", "x", "--output", "y"] if program is parse else ["x"]
    with pytest.raises(SystemExit) as caught:
        program([*recording, "--duration", seconds])
    assert caught.value.code == 2
    assert f"--duration: {seconds} is not a number above 0" in capsys.readouterr().err


def test_odometry_that_gives_no_scale_says_why(tmp_path, capsys):
    path = write_messages(tmp_path / "bag", truth_messages(6))
    run("--bag", path, "--output", tmp_path / "out", "--scale-source", "odometry")
    assert report_of(tmp_path / "out")["unit"] != "m"
    assert re.search(
        r"the odometry did not settle the scale: the robot moved 0\.\d m of the 1 m needed; "
        "lengths are in model units",
        capsys.readouterr().err,
    )


def test_a_folder_and_a_video_are_replayed(tmp_path):
    images = tmp_path / "images"
    images.mkdir()
    video = cv2.VideoWriter(
        str(tmp_path / "clip.avi"), cv2.VideoWriter_fourcc(*"MJPG"), 10.0, (64, 48)
    )
    for index in range(6):
        Image.fromarray(picture(index)).save(images / f"{index}.png")
        video.write(picture(index)[..., ::-1])
    video.release()
    assert run("--images", images, "--output", tmp_path / "a") == 0
    assert run("--video", tmp_path / "clip.avi", "--output", tmp_path / "b") == 0
    for name in ("a", "b"):
        report = report_of(tmp_path / name)
        assert report["frames"]["processed"] == 6
        assert report["calibration"] == "by the network"
        assert report["trajectory"]["seconds"] == pytest.approx(0.5)


def test_files_reach_the_network_exactly_as_the_contract_prepares_them(tmp_path, monkeypatch):
    images = tmp_path / "images"
    images.mkdir()
    for index in range(4):
        Image.fromarray(picture(index, 90, 160)).save(images / f"{index}.png")
    inputs = []
    original = Preprocessor.__call__

    def note(self, image):
        inputs.append(original(self, image))
        return inputs[-1]

    monkeypatch.setattr(Preprocessor, "__call__", note)
    assert run("--images", images, "--output", tmp_path / "out") == 0
    assert len(inputs) == 4
    for index, given in enumerate(inputs):
        expected = preprocess_file(images / f"{index}.png", 112)
        assert torch.equal(given.reshape(expected.shape).cpu(), expected)


def test_images_of_another_size_are_left_out_and_named(tmp_path):
    def messages():
        for index in range(8):
            stamp = START_NS + index * PERIOD_NS
            size = (96, 64) if index == 5 else (48, 64)
            yield "/image", stamp, image_message(index, stamp, picture(index, *size))

    path = write_messages(tmp_path / "bag", messages())
    assert run("--bag", path, "--output", tmp_path / "out") == 3
    report = report_of(tmp_path / "out")
    assert report["frames"]["processed"] == 7 and report["frames"]["left_out"] == 1
    assert "size changed from 64x48 to 64x96" in report["damage"][0]
    assert "session" not in report["damage"][0]


def test_odd_images_of_a_folder_are_left_out_and_named(tmp_path, capsys):
    images = tmp_path / "images"
    images.mkdir()
    for index in range(8):
        size = {0: (64, 48), 5: (96, 128)}.get(index, (48, 64))
        Image.fromarray(picture(index, *size)).save(images / f"{index}.png")
    assert run("--images", images, "--output", tmp_path / "out") == 3
    report = report_of(tmp_path / "out")
    assert report["frames"]["processed"] == 7 and report["frames"]["left_out"] == 1
    (sentence,) = report["damage"]
    assert "1 of 8 images is of another shape" in sentence and "0.png (48x64)" in sentence
    assert sentence in capsys.readouterr().err


def test_too_short_a_recording_says_how_many_frames_a_stream_needs(tmp_path, capsys):
    path = write_messages(tmp_path / "bag", camera_messages(2))
    assert run("--bag", path, "--output", tmp_path / "out") == 1
    shown = capsys.readouterr().err
    assert "too few images at the end to start a stream: 2 of 3" in shown
    assert "no frame got a pose" in shown and "complete" not in shown
    assert report_of(tmp_path / "out")["frames"]["poses"] == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_complete_files_for_what_was_done(tmp_path, number):
    path = write_messages(tmp_path / "bag", camera_messages(400))
    folder = tmp_path / "out"
    command = [sys.executable, "-m", "lingbot_map_ros.replay.cli", "--bag", path, *TINY]
    process = subprocess.Popen(
        [*map(str, command), "--output", str(folder)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1,
    )  # fmt: skip
    shown = ""
    while "/400" not in shown or " 0/400" in shown[-60:]:
        piece = process.stderr.read(1)
        assert piece, shown
        shown += piece
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number, err
    report = report_of(folder)
    assert report["status"] == "interrupted"
    assert 0 < report["frames"]["processed"] < 400
    assert len(read_tum(folder / "trajectory.tum")[0]) == report["frames"]["poses"] > 0
    assert len(read_ply(folder / "map.ply")) == report["map"]["points"]
    assert {item.name for item in folder.iterdir()} == FILES
    assert "Traceback" not in err and "interrupted: " in out


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--bag", "absent", "--output", "out"], 1, "there is no bag at absent"),
        (["--bag", "BAG", "--output", "BAG/out"], 1, "only read"),
        (["--bag", "BAG", "--output", "out", "--topic", "/no"], 1, "image topics: /camera/image"),
        (["--bag", "BAG", "--output", "out", "--ground-truth", "no.tum"], 1, "no.tum is no file"),
        (["--bag", "BAG", "--output", "out", "--scale-source", "odometry"], 1, "--odom"),
        (["--bag", "BAG", "--output", "out", "--odom", "/o"], 2, "add that"),
        (["--bag", "BAG", "--output", "out", "--scale", "2.0"], 2, "--scale-source fixed: add"),
        (["--bag", "BAG", "--output", "out", "--checkpoint", "no.pt"], 1, "no.pt"),
        (["--bag", "BAG", "--output", "out", "--image-size", "100"], 2, "multiple of 14"),
        (["--bag", "BAG", "--output", "out", "--start-offset", "60"], 1, "60 lies behind the end"),
        (["--images", "BAG", "--output", "out"], 1, "holds no image"),
        (["--video", "BAG", "--output", "out"], 1, "no video"),
        (["--video", 300 * "x", "--output", "out"], 1, "File name too long"),
        (["--bag", "BAG", "--output", "out", "--checkpoint", 300 * "x"], 1, "File name too long"),
    ],
)
def test_mistakes_are_one_line(bag, tmp_path, monkeypatch, capsys, arguments, code, text):
    monkeypatch.chdir(tmp_path)
    assert cli.main([str(a).replace("BAG", str(bag)) for a in arguments]) == code
    shown = capsys.readouterr().err
    (line,) = [line for line in shown.splitlines() if line.startswith("replay: ")]
    assert text in line


def test_settings_have_the_names_and_defaults_of_the_node():
    options = parse(["--bag", "x", "--output", "y", "--ros-args", "-r", "a:=b"])
    assert options.parameters == Parameters()
    assert options.changed == {}
    changed = parse(
        ["--bag", "x", "--output", "y", "--keyframe-mode", "motion", "--keyframe-motion-px", "7.5",
         "--no-use-camera-info", "--base-to-camera", "0", "0", "1", "0", "0", "0", "1",
         "--rate", "5", "--start-offset", "1.5", "--duration", "3"]
    )  # fmt: skip
    assert changed.changed == {
        "keyframe_mode": "motion",
        "keyframe_motion_px": 7.5,
        "use_camera_info": False,
        "base_to_camera": (0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0),
    }
    assert (changed.span.start_offset, changed.span.duration, changed.span.rate) == (1.5, 3.0, 5.0)
    assert set(SHARED) <= set(Parameters.__dataclass_fields__)
    with pytest.raises(SystemExit) as caught:
        parse(["--bag", "x", "--output", "y", "--keyframe-mode", "manual"])
    assert caught.value.code == 2
