# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Exported files: what other programs read in them, and that a failure leaves no trace."""

import os
import resource
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from lingbot_map_ros.errors import ExportError
from lingbot_map_ros.geometry.poses import invert, make_pose
from lingbot_map_ros.mapping.export import CameraView, write_colmap, write_ply, write_tum

STAMP = 1_764_465_071_123_456_789


def cloud(n, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 3)).astype(np.float32), rng.integers(0, 256, (n, 3), np.uint8)


def random_poses(n):
    R = Rotation.random(n, random_state=1).as_matrix()
    return make_pose(R, np.random.default_rng(1).normal(0, 10, (n, 3)))


def test_ply_has_the_layout_its_header_promises(tmp_path):
    xyz, rgb = cloud(1000)
    assert write_ply(tmp_path / "map.ply", xyz, rgb) == 1000
    header, body = (tmp_path / "map.ply").read_bytes().split(b"end_header\n", 1)
    assert header.decode() == (
        "ply\nformat binary_little_endian 1.0\nelement vertex 1000\n"
        "property float x\nproperty float y\nproperty float z\n"
        "property uchar red\nproperty uchar green\nproperty uchar blue\n"
    )
    vertices = np.frombuffer(body, [("xyz", "<f4", 3), ("rgb", "u1", 3)])
    np.testing.assert_array_equal(vertices["xyz"], xyz)
    np.testing.assert_array_equal(vertices["rgb"], rgb)


def test_an_empty_map_is_a_valid_file(tmp_path):
    write_ply(tmp_path / "map.ply", *cloud(0))
    assert b"element vertex 0" in (tmp_path / "map.ply").read_bytes()


def test_tum_keeps_every_nanosecond_and_the_pose(tmp_path):
    poses = random_poses(20)
    stamps = STAMP + np.arange(20) * 33_333_333
    write_tum(tmp_path / "t.tum", stamps, poses)
    lines = (tmp_path / "t.tum").read_text().splitlines()
    assert [int(line.split()[0].replace(".", "")) for line in lines] == stamps.tolist()
    assert lines[0].startswith("1764465071.123456789 ")
    read = np.loadtxt(tmp_path / "t.tum")
    back = make_pose(Rotation.from_quat(read[:, 4:]).as_matrix(), read[:, 1:4])
    np.testing.assert_allclose(back, poses, atol=1e-8)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(back, invert(poses), atol=1e-8)


def test_stamps_near_and_below_zero(tmp_path):
    write_tum(tmp_path / "t.tum", np.array([-1, 0, 7]), random_poses(3))
    stamps = [line.split()[0] for line in (tmp_path / "t.tum").read_text().splitlines()]
    assert stamps == ["-0.000000001", "0.000000000", "0.000000007"]


def test_colmap_projects_a_point_to_its_pixel(tmp_path):
    K = np.array([[300.0, 0, 160], [0, 310, 120], [0, 0, 1]])
    poses = random_poses(3)
    views = [CameraView(STAMP + i, T, K, (240, 320)) for i, T in enumerate(poses)]
    views.append(CameraView(STAMP + 3, poses[0], K * [[1.1], [1.1], [1]], (240, 320)))
    xyz, rgb = cloud(5)
    assert write_colmap(tmp_path / "model", views, xyz, rgb) == 4
    cameras = [line.split() for line in (tmp_path / "model/cameras.txt").read_text().splitlines()]
    assert [camera[:4] for camera in cameras] == [
        ["1", "PINHOLE", "320", "240"],
        ["2", "PINHOLE", "320", "240"],
    ]
    images = (tmp_path / "model/images.txt").read_text().split("\n")
    assert images[1::2] == [""] * 4
    number, *pose, camera, name = images[2].split()
    assert (number, camera, name) == ("2", "1", f"{STAMP + 1}.png")
    qw, qx, qy, qz, *t = map(float, pose)
    in_camera = np.array([0.3, -0.2, 2.0])
    in_world = poses[1][:3, :3] @ in_camera + poses[1][:3, 3]
    back = Rotation.from_quat([qx, qy, qz, qw]).as_matrix() @ in_world + t
    np.testing.assert_allclose(back, in_camera, atol=1e-9)
    fx, fy, cx, cy = map(float, cameras[0][4:])
    # The pixel at our (160, 120) covers COLMAP's [160, 161), so its centre is at 160.5.
    assert (fx, fy, cx, cy) == (300, 310, 160.5, 120.5)
    points = np.loadtxt(tmp_path / "model/points3D.txt")
    np.testing.assert_array_equal(points[:, 0], np.arange(1, 6))
    np.testing.assert_allclose(points[:, 1:4], xyz, atol=1e-6)
    np.testing.assert_array_equal(points[:, 4:7], rgb)


def test_names_of_files_that_are_no_text_are_written_as_they_are(tmp_path):
    name = os.fsdecode(b"f\xfcr.jpg")
    view = CameraView(STAMP, np.eye(4), np.eye(3), (24, 42), name)
    write_colmap(tmp_path, [view], np.empty((0, 3), np.float32), np.empty((0, 3), np.uint8))
    assert (tmp_path / "images.txt").read_bytes().splitlines()[0].endswith(b" f\xfcr.jpg")


def test_a_view_of_a_cut_out_part_becomes_one_of_the_whole_image():
    K = np.array([[50.0, 0, 20], [0, 60, 10], [0, 0, 1]])
    view = CameraView(STAMP, np.eye(4), K, (24, 42), "a.png")
    whole = view.uncropped((30.0, 40.0, 240.0, 420.0), (300, 500))
    assert (whole.stamp_ns, whole.size, whole.file) == (STAMP, (300, 500), "a.png")
    # ten pixels of the whole image are one of the part, and edges fall on edges
    np.testing.assert_allclose(
        whole.K, [[500, 0, 20.5 * 10 - 0.5 + 40], [0, 600, 10.5 * 10 - 0.5 + 30], [0, 0, 1]]
    )


def writers(directory):
    xyz, rgb = cloud(20_000)
    poses = random_poses(2000)
    stamps = np.arange(2000)
    view = CameraView(1, poses[0], np.eye(3), (2, 2))
    return {
        "ply": lambda: write_ply(directory / "map.ply", xyz, rgb),
        "tum": lambda: write_tum(directory / "map.tum", stamps, poses),
        "colmap": lambda: write_colmap(directory, [view], xyz, rgb),
    }


@pytest.mark.parametrize("kind", ["ply", "tum", "colmap"])
def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path, kind):
    for name in ("map.ply", "map.tum", "cameras.txt", "images.txt", "points3D.txt"):
        (tmp_path / name).write_text("old")
    before = sorted(tmp_path.iterdir())
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(ExportError, match=r"(?s)cannot write .*too large; nothing was changed"):
            writers(tmp_path)[kind]()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert sorted(tmp_path.iterdir()) == before
    assert all(path.read_text() == "old" for path in before)
    writers(tmp_path)[kind]()
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("kind", ["ply", "tum", "colmap"])
def test_a_directory_that_cannot_be_made_is_named(tmp_path, kind):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ExportError, match="file"):
        writers(tmp_path / "file" / "below")[kind]()
    assert sorted(tmp_path.iterdir()) == [tmp_path / "file"]


def test_a_target_that_is_a_directory_is_refused(tmp_path):
    (tmp_path / "map.ply").mkdir()
    with pytest.raises(ExportError, match=r"map\.ply"):
        write_ply(tmp_path / "map.ply", *cloud(3))
    assert sorted(tmp_path.iterdir()) == [tmp_path / "map.ply"]


def test_missing_directories_are_made_and_files_are_readable_by_others(tmp_path):
    write_ply(tmp_path / "a" / "b" / "map.ply", *cloud(3))
    umask = os.umask(0)
    os.umask(umask)
    assert (tmp_path / "a" / "b" / "map.ply").stat().st_mode & 0o777 == 0o666 & ~umask


def test_kill_9_during_a_save_leaves_no_half_file(tmp_path):
    path = tmp_path / "map.ply"
    xyz, rgb = cloud(1000)
    write_ply(path, xyz, rgb)
    program = (
        "import sys, numpy as np; from pathlib import Path\n"
        "from lingbot_map_ros.mapping.export import write_ply\n"
        "small, large = (np.zeros((n, 3), np.float32) for n in (1000, 401_000))\n"
        "print('ready', flush=True)\n"
        "while True:\n"
        "    for xyz in (small, large):\n"
        "        write_ply(Path(sys.argv[1]), xyz, xyz.astype(np.uint8))\n"
    )
    for delay in (0.005, 0.05, 0.11):
        child = subprocess.Popen(
            [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True
        )
        child.stdout.readline()
        time.sleep(delay)
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        content = path.read_bytes()
        header, body = content.split(b"end_header\n", 1)
        promised = int(header.split(b"element vertex ")[1].split(b"\n")[0])
        assert len(body) == 15 * promised


def test_a_reader_never_sees_a_half_written_file(tmp_path):
    path = tmp_path / "map.ply"
    clouds = [cloud(n) for n in (10, 20_000)]
    write_ply(path, *clouds[0])
    sizes, stop = set(), threading.Event()

    def read():
        while not stop.is_set():
            sizes.add(len(path.read_bytes()))

    reader = threading.Thread(target=read)
    reader.start()
    for i in range(30):
        write_ply(path, *clouds[i % 2])
    stop.set()
    reader.join()
    assert len(sizes) <= 2
