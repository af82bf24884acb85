# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Telling the three things called cv_bridge apart, by really having them on the path."""

import importlib.metadata
import sys
import textwrap

import numpy as np
import pytest
from sensor_msgs.msg import Image

from lingbot_map_ros.errors import InputError
from lingbot_map_ros.ros import cv_bridge_variant
from lingbot_map_ros.ros.conversions import UnsupportedEncodingError, image_to_rgb


@pytest.fixture(autouse=True)
def forget(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "cv_bridge"]:
        monkeypatch.delitem(sys.modules, name)
    cv_bridge_variant.is_ros2.cache_clear()
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "cv_bridge"]:
        del sys.modules[name]
    cv_bridge_variant.is_ros2.cache_clear()


def install(path, version, body):
    """Put a package with metadata as ament_cmake_python installs it in front of the path."""
    (path / "cv_bridge").mkdir()
    (path / "cv_bridge" / "__init__.py").write_text(textwrap.dedent(body))
    if version:
        info = path / f"cv_bridge-{version}-py3.11.egg-info"
        info.mkdir()
        (info / "PKG-INFO").write_text(
            f"Metadata-Version: 2.1\nName: cv-bridge\nVersion: {version}\n"
        )


ANSWERS = """
    import numpy as np
    class CvBridgeError(TypeError):
        pass
    class CvBridge:
        def imgmsg_to_cv2(self, msg, desired_encoding):
            if msg.encoding == "32FC3":
                raise CvBridgeError("not a color format")
            return np.full((msg.height, msg.width, 3), 7, np.uint8)
"""


def exotic(encoding="nv24"):
    return Image(height=2, width=2, step=2, encoding=encoding, data=bytes(12))


def test_the_port_on_pypi_is_bypassed():
    pytest.importorskip("cv_bridge")
    assert importlib.metadata.version("cv-bridge").startswith("1.")
    assert not cv_bridge_variant.is_ros2()
    with pytest.raises(UnsupportedEncodingError):
        image_to_rgb(exotic())
    msg = Image(height=1, width=2, step=6, encoding="16UC1", data=bytes([0, 0, 255, 255, 9, 9]))
    assert image_to_rgb(msg)[0, :, 0].tolist() == [19, 236], "the port gives half of the image"


@pytest.mark.parametrize(
    ("version", "ros2"),
    [("1.16.2", False), ("2.2.1", True), ("3.2.1", True), ("4.1.0", True), ("", False)],
)
def test_versions(tmp_path, monkeypatch, version, ros2):
    install(tmp_path, version, ANSWERS)
    monkeypatch.syspath_prepend(tmp_path)
    assert cv_bridge_variant.is_ros2() is ros2


def test_the_metadata_of_another_copy_does_not_count(tmp_path, monkeypatch):
    """ROS 2's own in front without metadata, or its metadata without its module."""
    install(tmp_path, "4.1.0", ANSWERS)
    front = tmp_path / "front"
    front.mkdir()
    install(front, "", ANSWERS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.syspath_prepend(front)
    assert not cv_bridge_variant.is_ros2()


def test_ros2s_own_reads_what_the_table_lacks(tmp_path, monkeypatch):
    install(tmp_path, "4.1.0", ANSWERS)
    monkeypatch.syspath_prepend(tmp_path)
    np.testing.assert_array_equal(image_to_rgb(exotic()), np.full((2, 2, 3), 7))
    with pytest.raises(InputError):
        image_to_rgb(exotic("32FC3"))


def test_ros2s_own_never_sees_the_encodings_of_the_table(tmp_path, monkeypatch):
    install(tmp_path, "4.1.0", ANSWERS)
    monkeypatch.syspath_prepend(tmp_path)
    msg = Image(height=1, width=1, step=3, encoding="rgb8", data=bytes([1, 2, 3]))
    assert image_to_rgb(msg).tolist() == [[[1, 2, 3]]]


def test_one_that_cannot_be_imported_counts_as_absent(tmp_path, monkeypatch):
    install(tmp_path, "3.2.1", "raise ImportError('numpy.core.multiarray failed to import')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UnsupportedEncodingError):
        image_to_rgb(exotic())
