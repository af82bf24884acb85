# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Images of another size than was assumed: planned for, warmed up for, or refused in one line."""

import pytest
import torch
from diagnostic_msgs.msg import DiagnosticStatus
from nav_msgs.msg import Odometry
from node_harness import (
    LOSSLESS,
    SCALE_FRAMES,
    Camera,
    Client,
    NodeProcess,
    feed,
    image_message,
    qos_profile_sensor_data,
    view,
    wait_until,
)
from sensor_msgs.msg import CameraInfo

from lingbot_map_ros.errors import InputError, MemoryPlanError
from lingbot_map_ros.ros.camera_info import image_size
from lingbot_map_ros.ros.image_fit import ImageFit
from lingbot_map_ros.ros.network import load_network
from lingbot_map_ros.ros.parameters import Parameters

TIGHT = {"memory_limit_gb": 0.029, "map_max_points": 1000, "dtype": "float32"}
"""The tiny model fits with images of 4:3 (25 MB), and not with square ones (29 MB)."""
ROOMY = Parameters(checkpoint="random:tiny", dtype="float32")


LOADS_UNTIL_TOLD = """
import sys, time
from lingbot_map_ros.ros import loading
from lingbot_map_ros.ros.node import main

load = loading.load_session

def load_session(parameters, image_size):
    end = time.monotonic() + 60
    while image_size() is None and time.monotonic() < end:
        time.sleep(0.02)
    return load(parameters, image_size)

loading.load_session = load_session
sys.exit(main(sys.argv))
"""
"""Weights that take longer to load than camera_info takes to arrive."""


def caches(model):
    return {name: size for name, size in model.memory_bytes().items() if name != "weights"}


def test_the_caches_are_those_of_the_size_that_is_required():
    model = load_network(ROOMY)
    fit = ImageFit(model, ROOMY, (480, 640))
    assert caches(model) == {"kv_cache": 0, "camera_cache": 0}
    fit.require(480, 640)
    narrow = caches(model)
    model.step(torch.rand(SCALE_FRAMES, 3, 84, 112))
    fit.require(96, 128)  # the network sees the same: the stream goes on
    assert model.num_frames == SCALE_FRAMES
    model.reset()
    fit.require(128, 128)
    assert caches(model)["kv_cache"] > narrow["kv_cache"]
    model.step(torch.rand(SCALE_FRAMES, 3, 112, 112))
    model.reset()
    fit.require(480, 640)
    assert caches(model) == narrow


def test_a_size_that_does_not_fit_is_refused_and_changes_nothing():
    parameters = Parameters(checkpoint="random:tiny", **TIGHT)
    with pytest.raises(MemoryPlanError, match="exceeds"):
        load_network(parameters, (128, 128))
    model = load_network(parameters)
    fit = ImageFit(model, parameters, (480, 640))
    fit.require(480, 640)
    before = caches(model)
    for _ in range(2):
        with pytest.raises(MemoryPlanError, match="exceeds"):
            fit.require(128, 128)
    for size, reason in (((20, 640), "too narrow"), ((1, 1), "too small"), ((2, 64), "too small")):
        with pytest.raises(InputError, match=reason):
            fit.require(*size)
    assert caches(model) == before
    fit.require(480, 640)
    model.step(torch.rand(SCALE_FRAMES, 3, 84, 112))


@pytest.mark.parametrize(
    ("fields", "size"),
    [
        ({"height": 480, "width": 640}, (480, 640)),
        ({"height": 480, "width": 640, "binning_x": 2, "binning_y": 2}, (240, 320)),
        ({"height": 480}, None),
        ({"height": 1, "width": 1}, None),
        ({}, None),
    ],
)
def test_camera_info_tells_the_size(fields, size):
    assert image_size(CameraInfo(**fields)) == size


@pytest.fixture
def client():
    client = Client("fit_client")
    yield client
    client.close()


def test_a_camera_whose_images_do_not_fit_is_said_and_another_one_works(client):
    node = NodeProcess(**LOSSLESS, **TIGHT)
    try:
        camera = Camera(client)
        camera.connect()
        results = client.record(Odometry, "~/odometry")
        for index in range(4):
            camera.send(image_message(view(index, (128, 128))))
        status = client.wait_for_state("waiting for images; last error: ")
        assert status.level == DiagnosticStatus.WARN
        assert "exceeds" in status.message and "would fit" in status.message
        assert status.figures["skipped: error"] == "4" and not results
        assert "Traceback" not in node.log
        camera.gathering = SCALE_FRAMES - 1
        feed(camera, results, 4)
        client.wait_for_state("tracking")
        assert node.log.count("ready for images of") == 1
        assert node.log.count("memory plan") == 1
    finally:
        code, _ = node.stop()
    assert code == 0, node.log


def test_the_network_is_made_ready_for_the_size_that_camera_info_tells(client):
    publisher = client.publisher(CameraInfo, "/camera_info", qos_profile_sensor_data)
    message = CameraInfo(height=128, width=128)
    sending = client.repeat(publisher, message)
    node = NodeProcess(program=LOADS_UNTIL_TOLD, **LOSSLESS)
    try:
        camera = Camera(client)
        camera.connect()
        results = client.record(Odometry, "~/odometry")
        for index in range(SCALE_FRAMES):
            camera.send(image_message(view(index, (128, 128))))
        wait_until(lambda: len(results) == SCALE_FRAMES, 20)
        sizes = [
            line.split("ready for images of ")[1]
            for line in node.log.splitlines()
            if "ready for images of " in line
        ]
        assert [size.split(",")[0] for size in sizes] == ["128x128"]
    finally:
        sending.cancel()
        node.stop()
