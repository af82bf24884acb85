# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Bags of the synthetic world, read back by rosbags."""

import io

import numpy as np
import pytest
from PIL import Image

from lingbot_map_ros.errors import ExportError
from lingbot_map_ros.geometry.poses import make_pose, quaternion_to_matrix
from lingbot_map_ros.synthetic.bag import STORAGES, main, write_sequence
from lingbot_map_ros.synthetic.bag_messages import START_NS
from lingbot_map_ros.synthetic.camera import lens
from lingbot_map_ros.synthetic.sequence import make_sequence

rosbag2 = pytest.importorskip("rosbags.rosbag2")
FRAMES = 4


@pytest.fixture(scope="module")
def sequence():
    return make_sequence(11, FRAMES, 64, 48, camera=lens("equidistant", 64, 48))


def read(path):
    """Messages of each topic, with their receive stamps."""
    from rosbags.highlevel import AnyReader

    topics = {}
    with AnyReader([path]) as reader:
        for connection, stamp, raw in reader.messages():
            message = reader.deserialize(raw, connection.msgtype)
            topics.setdefault(connection.topic, []).append((stamp, message))
    return topics


def pose_of(translation, rotation):
    q = np.array([rotation.x, rotation.y, rotation.z, rotation.w])
    t = np.array([translation.x, translation.y, translation.z])
    return make_pose(quaternion_to_matrix(q), t)


@pytest.mark.parametrize("storage", STORAGES)
def test_round_trip(tmp_path, sequence, storage):
    bag = tmp_path / "bag"
    write_sequence(bag, sequence, storage=storage, compressed=True, tf=True)
    topics = read(bag)
    assert {name: len(messages) for name, messages in topics.items()} == {
        "/tf_static": 1,
        "/tf": FRAMES,
        "/camera/image_raw": FRAMES,
        "/camera/image_raw/compressed": FRAMES,
        "/camera/camera_info": FRAMES,
        "/ground_truth": FRAMES,
        "/odom": FRAMES,
    }
    mount = topics["/tf_static"][0][1].transforms[0]
    assert (mount.header.frame_id, mount.child_frame_id) == ("base_link", "camera_optical")
    camera_in_base = pose_of(mount.transform.translation, mount.transform.rotation)
    for k in range(FRAMES):
        stamp, image = topics["/camera/image_raw"][k]
        assert stamp == START_NS + sequence.stamps_ns[k]
        assert image.header.stamp.sec * 10**9 + image.header.stamp.nanosec == stamp
        pixels = image.data.reshape(image.height, image.step)[:, : 3 * image.width]
        np.testing.assert_array_equal(pixels.reshape(48, 64, 3), sequence.images[k])
        jpeg = np.asarray(Image.open(io.BytesIO(topics["/camera/image_raw/compressed"][k][1].data)))
        assert np.abs(jpeg.astype(int) - sequence.images[k]).mean() < 8
        info = topics["/camera/camera_info"][k][1]
        assert info.distortion_model == "equidistant" and (info.width, info.height) == (64, 48)
        np.testing.assert_allclose(info.d, sequence.camera.distortion)
        np.testing.assert_allclose(info.k.reshape(3, 3), sequence.intrinsics)
        truth = topics["/ground_truth"][k][1]
        assert (truth.header.frame_id, truth.child_frame_id) == ("world", "base_link")
        base = pose_of(truth.pose.pose.position, truth.pose.pose.orientation)
        np.testing.assert_allclose(base @ camera_in_base, sequence.poses[k], atol=1e-9)
        if k == 0:
            np.testing.assert_allclose(base[2], [0, 0, 1, 0], atol=1e-9)
            first = base
        odom = topics["/odom"][k][1].pose.pose
        np.testing.assert_allclose(
            first @ pose_of(odom.position, odom.orientation), base, atol=1e-9
        )


def test_static_transforms_are_latched(tmp_path, sequence):
    write_sequence(tmp_path / "bag", sequence)
    with rosbag2.Reader(tmp_path / "bag") as reader:
        qos = {c.topic: c.ext.offered_qos_profiles for c in reader.connections}
    assert qos["/tf_static"][0].durability.name == "TRANSIENT_LOCAL"


def test_given_mount(tmp_path, sequence):
    mount = np.eye(4)
    mount[:3, :3] = [[0, 0, 1], [-1, 0, 0], [0, -1, 0]]
    mount[:3, 3] = [0.2, 0.05, 0.4]
    write_sequence(tmp_path / "bag", sequence, mount=mount)
    transform = read(tmp_path / "bag")["/tf_static"][0][1].transforms[0].transform
    np.testing.assert_allclose(pose_of(transform.translation, transform.rotation), mount, atol=1e-9)


def test_program(tmp_path, capsys):
    bag, truth = tmp_path / "a" / "bag", tmp_path / "truth.tum"
    arguments = ["--output", str(bag), "--frames", "2", "--size", "48x32", "--kind", "loop"]
    arguments += ["--storage", "sqlite3", "--ground-truth-tum", str(truth)]
    assert main(arguments) == 0
    rows = np.loadtxt(truth)
    assert rows.shape == (2, 8)
    assert rows[1, 0] - rows[0, 0] == pytest.approx(0.1, abs=1e-6)
    topics = read(bag)
    assert "/tf" not in topics and "/camera/image_raw/compressed" not in topics
    assert main(arguments) == 1
    assert "exists already" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--output", str(bag), "--size", "huge"])


def test_failure_leaves_nothing(tmp_path, sequence):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(ExportError, match="cannot write"):
        write_sequence(blocked / "bag", sequence)
    with pytest.raises(ExportError, match="storage"):
        write_sequence(tmp_path / "bag", sequence, storage="floppy")
    assert list(tmp_path.iterdir()) == [blocked]
