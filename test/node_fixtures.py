# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""One running node a module (lossless, so that every image counts) and a client of it.

A test module takes them with ``pytest_plugins = ["node_fixtures"]``. It may set ``PARAMETERS``, and
faults that happen on demand (`orders`) with ``FAULTY = True``.
"""

import pytest
from nav_msgs.msg import Odometry
from node_harness import LOSSLESS, SCALE_FRAMES, Camera, Client, NodeProcess, Orders

DEFAULTS = {"map_rate_hz": 5.0, "pending_limit": 4, "stall_timeout": 60.0}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("maps")


@pytest.fixture(scope="module")
def client():
    client = Client()
    yield client
    client.close()


@pytest.fixture(scope="module")
def orders(tmp_path_factory):
    return Orders(tmp_path_factory.mktemp("orders") / "fault")


@pytest.fixture(scope="module")
def node(request, client, directory, orders):
    parameters = getattr(request.module, "PARAMETERS", DEFAULTS)
    faulty = getattr(request.module, "FAULTY", False)
    process = NodeProcess(
        program=orders.program if faulty else "",
        output_directory=directory,
        **LOSSLESS,
        **parameters,
    )
    yield process
    code, _ = process.stop()
    assert code == 0, process.log
    assert faulty or "Traceback" not in process.log


@pytest.fixture(scope="module")
def camera(node, client):
    camera = Camera(client)
    camera.connect()
    camera.gathering = SCALE_FRAMES - 1
    return camera


@pytest.fixture(scope="module")
def odometry(client, camera):
    return client.record(Odometry, "~/odometry")


@pytest.fixture
def fresh(client, odometry, camera):
    """Begin a session of its own; returns the list of odometry messages."""
    assert client.call("reset").success
    camera.gathering = SCALE_FRAMES - 1
    return odometry
