# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A node under stress: a stall, a service storm, a slow and a faulty map, a kill in a save."""

import signal
import time

import numpy as np
from diagnostic_msgs.msg import DiagnosticStatus
from nav_msgs.msg import Odometry
from node_harness import LOSSLESS, SCALE_FRAMES, Camera, Client, NodeProcess, feed, wait_until
from std_srvs.srv import SetBool, Trigger

pytest_plugins = ["node_fixtures"]
FAULTY = True
PARAMETERS = {"stall_timeout": 1.0, "no_input_timeout": 60.0}


def test_a_stall_is_an_error_with_the_worker_s_stack(client, camera, odometry, node, orders):
    feed(camera, odometry, 2)
    seen = len(odometry)
    orders.give("slow step")
    camera.send()
    wait_until(lambda: "slow step begins" in node.log, 5)
    orders.give("")
    for _ in range(11):
        camera.send()
        time.sleep(0.2)
    status = client.wait_for_state("error: no result for")
    assert status.level == DiagnosticStatus.ERROR
    assert "in slow" in status.figures["worker stack"]
    assert node.log.count("no result for") == 1
    wait_until(lambda: len(odometry) >= seen + 12, 20)
    client.wait_for_state("tracking")
    assert "the worker goes on" in node.log


def test_a_thousand_calls_from_eight_clients_while_streaming(client, camera, odometry, node):
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
    first = feed(camera, odometry, 3)[-3]
    p = first.pose.pose.position
    assert np.allclose([p.x, p.y, p.z], 0.0, atol=1e-6)
    assert node.running
    node.assert_grew_no_further_than(before)


def test_poses_do_not_wait_for_a_slow_map_and_a_save_waits_for_all_of_it(
    client, camera, fresh, orders, directory
):
    feed(camera, fresh, 1)
    orders.give("held map")
    feed(camera, fresh, 8)
    client.wait_for(lambda s: int(s.figures["map: results waiting"]) > 0, "waiting results")
    saved = client.call_async("save_trajectory")
    time.sleep(1.0)
    assert not saved.done()
    orders.give("")
    wait_until(saved.done, 20)
    answer = saved.result()
    assert f"{SCALE_FRAMES + 8} poses" in answer.message
    client.wait_for_figures({"map: results waiting": "0"})


def test_a_reset_behind_a_slow_map_leaves_nothing_of_it(client, camera, fresh, orders):
    orders.give("held map")
    feed(camera, fresh, 3)
    answers = [client.call_async("save_trajectory")]
    time.sleep(1.0)
    answers.append(client.call_async("reset"))
    time.sleep(1.0)
    orders.give("")
    wait_until(lambda: all(answer.done() for answer in answers), 20)
    saved, reset = (answer.result() for answer in answers)
    assert saved.success and f"{SCALE_FRAMES} poses" in saved.message
    assert reset.success
    client.wait_for_figures({"map points": "0"})
    empty = client.call("save_trajectory")
    assert not empty.success and "no pose came yet" in empty.message


def test_a_fault_in_the_map_is_said_and_ends_nothing(client, camera, fresh, orders, node):
    feed(camera, fresh, 2)
    failed = int(client.status().figures["map: results failed"])
    orders.give("fault in the map")
    feed(camera, fresh, 3)
    status = client.wait_for_figures({"map: results failed": str(failed + 3)})
    assert status.level == DiagnosticStatus.WARN
    assert status.message == "tracking; last error: the map: planned fault"
    assert "the map failed: planned fault" in node.log
    orders.give("")
    feed(camera, fresh, 1)
    client.wait_for(lambda s: s.message == "tracking", "rest")
    assert client.call("save_trajectory").success


def test_a_kill_in_mid_save_leaves_no_half_file(tmp_path):
    client = Client("kill_client", prefix="/kill_map")
    names = ("__node:=kill_map", "image:=kill_image")
    node = NodeProcess(*names, output_directory=tmp_path, **LOSSLESS)
    try:
        camera = Camera(client, "/kill_image")
        camera.connect()
        camera.gathering = SCALE_FRAMES - 1
        feed(camera, client.record(Odometry, "~/odometry"), 3)
        service = client.node.create_client(Trigger, client.name("~/save_map"))
        assert service.wait_for_service(10)
        for _ in range(3):
            service.call_async(Trigger.Request())
        time.sleep(0.02)
    finally:
        node.send(signal.SIGKILL)
        node.wait(10)
        client.close()
    for path in tmp_path.glob("map_*.ply"):
        header, body = path.read_bytes().split(b"end_header\n")
        count = int(header.split(b"element vertex ")[1].split()[0])
        assert len(body) == 15 * count
