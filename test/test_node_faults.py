# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Faults inside a running node: errors and stalls in a step, a service storm, a kill in a save."""

import signal
import time

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticStatus
from nav_msgs.msg import Odometry
from node_harness import SCALE_FRAMES, Camera, Client, NodeProcess, feed, stamp_of, wait_until
from std_srvs.srv import SetBool, Trigger

PROGRAM = """
import sys, time
from lingbot_map_ros.ros.node import main
from lingbot_map_ros.streaming import session

step = session.StreamingSession.step
calls = 0

def faulty(self, image, stamp_ns):
    global calls
    calls += 1
    if calls == 6:
        import torch
        raise torch.OutOfMemoryError("CUDA out of memory (simulated)")
    if calls == 8:
        time.sleep(3.5)
    return step(self, image, stamp_ns)

session.StreamingSession.step = faulty
sys.exit(main(sys.argv))
"""


@pytest.fixture(scope="module")
def client():
    client = Client("fault_client")
    yield client
    client.close()


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("maps")


@pytest.fixture(scope="module")
def node(directory):
    process = NodeProcess(
        program=PROGRAM,
        drop_policy="all",
        image_qos="reliable",
        stall_timeout=1.0,
        output_directory=directory,
    )
    yield process
    process.stop(signal.SIGKILL)


@pytest.fixture(scope="module")
def camera(client, node):
    camera = Camera(client)
    camera.connect()
    camera.gathering = SCALE_FRAMES - 1
    return camera


@pytest.fixture(scope="module")
def results(client, camera):
    return client.record(Odometry, "~/odometry")


def test_an_error_in_a_step_costs_one_frame_and_is_said(client, camera, results, node):
    feed(camera, results, 5)
    camera.send()
    status = client.wait_for_state("tracking; last error: CUDA out of memory")
    assert status.level == DiagnosticStatus.WARN
    assert status.figures["skipped: error"] == "1"
    assert len(results) == 5
    feed(camera, results, 1)
    assert client.wait_for_state("tracking").figures["last error"] == ""


def test_a_stall_is_an_error_with_the_worker_s_stack(client, camera, results, node):
    seen = len(results)
    for _ in range(12):
        camera.send()
        time.sleep(0.2)
    status = client.wait_for_state("error: no result for")
    assert status.level == DiagnosticStatus.ERROR
    assert "in faulty" in status.figures["worker stack"]
    assert node.log.count("no result for") == 1
    wait_until(lambda: len(results) >= seen + 12, 20)
    client.wait_for_state("tracking")
    assert "the worker goes on" in node.log


def test_a_thousand_calls_from_eight_clients_while_streaming(client, camera, results, node):
    before = node.footprint()
    names = (
        "reset",
        "execute_deferred_eviction",
        "rollback_last_frame",
        "save_trajectory",
        "defer_eviction",
        "pause",
    )
    switches = ("defer_eviction", "pause")
    clients = [
        client.node.create_client(
            SetBool if (name := names[i % 6]) in switches else Trigger, client.name(f"~/{name}")
        )
        for i in range(8)
    ]
    assert all(caller.wait_for_service(10) for caller in clients)
    futures = []
    for index in range(125):
        for caller in clients:
            kind = caller.srv_type
            data = {"data": index % 2 == 0} if kind is SetBool else {}
            futures.append(caller.call_async(kind.Request(**data)))
        camera.send()
        time.sleep(0.02)
    wait_until(lambda: all(f.done() for f in futures), 60, "answers")
    answers = [f.result() for f in futures]
    assert len(answers) == 1000
    assert all(answer.message for answer in answers)
    assert not any("internal error" in answer.message for answer in answers)
    for caller in clients:
        client.node.destroy_client(caller)
    assert client.call("pause", False).success
    assert client.call("defer_eviction", False).success
    assert client.call("reset").success
    camera.gathering = SCALE_FRAMES - 1
    first = feed(camera, results, 3)[-3]
    p = first.pose.pose.position
    assert np.allclose([p.x, p.y, p.z], 0.0, atol=1e-6)
    assert node.running
    node.assert_grew_no_further_than(before)


def test_a_kill_in_mid_save_leaves_no_half_file(client, camera, results, node, directory):
    feed(camera, results, 3)
    for file in directory.iterdir():
        file.unlink()
    service = client.node.create_client(Trigger, client.name("~/save_map"))
    assert service.wait_for_service(10)
    for _ in range(3):
        service.call_async(Trigger.Request())
    time.sleep(0.02)
    node.send(signal.SIGKILL)
    node.wait(10)
    for path in directory.glob("map_*.ply"):
        header, body = path.read_bytes().split(b"end_header\n")
        count = int(header.split(b"element vertex ")[1].split()[0])
        assert len(body) == 15 * count
    assert stamp_of(results[-1]) == camera.sent[-1]
