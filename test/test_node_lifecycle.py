# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Lifecycle, start-up, failure to start, signals, and the multi-threaded executor."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from diagnostic_msgs.msg import DiagnosticStatus
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
from nav_msgs.msg import Odometry
from node_harness import REPOSITORY, SCALE_FRAMES, Camera, Client, NodeProcess, feed, wait_until

PROMPT_S = 8.0
"""Within this a signal is obeyed: the slow ways take a minute, a busy machine delays by seconds."""

MULTI_THREADED = """
import rclpy, sys
from rclpy.executors import MultiThreadedExecutor, ExternalShutdownException
from lingbot_map_ros.ros.node import MapNode
rclpy.init(args=sys.argv)
node = MapNode()
executor = MultiThreadedExecutor(4)
executor.add_node(node)
try:
    executor.spin()
except (KeyboardInterrupt, ExternalShutdownException):
    pass
executor.shutdown(timeout_sec=2.0)
node.destroy_node()
rclpy.try_shutdown()
"""

SLOW_TO_LOAD = """
import sys, time
from lingbot_map_ros.ros import loading
from lingbot_map_ros.ros.node import main

def load_session(*_):
    import torch
    time.sleep(60)

loading.load_session = load_session
sys.exit(main(sys.argv))
"""

WITHOUT_TORCH = """
import importlib.util, sys
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "torch" else find(name, *rest)
from lingbot_map_ros.ros.node import main
sys.exit(main(sys.argv))
"""


@pytest.fixture(scope="module")
def client():
    client = Client("lifecycle_client")
    yield client
    client.close()


def ask(client, kind, service, **fields):
    caller = client.node.create_client(kind, client.name(f"~/{service}"))
    assert caller.wait_for_service(30)
    future = caller.call_async(kind.Request(**fields))
    wait_until(future.done, 40, service)
    client.node.destroy_client(caller)
    return future.result()


def change(client, transition):
    return ask(client, ChangeState, "change_state", transition=Transition(id=transition)).success


def state(client):
    return ask(client, GetState, "get_state").current_state.label


def threads(pid):
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"Threads:\s+(\d+)", text).group(1))


def test_every_transition_by_a_lifecycle_manager(client):
    node = NodeProcess(autostart=False, drop_policy="all", image_qos="reliable")
    try:
        assert state(client) == "unconfigured"
        assert client.wait_for_state("unconfigured").level == DiagnosticStatus.OK
        counts = []
        camera = Camera(client)
        results = client.record(Odometry, "~/odometry")
        for _ in range(2):
            began = time.monotonic()
            assert change(client, Transition.TRANSITION_CONFIGURE)
            assert time.monotonic() - began < PROMPT_S
            answer = client.call("reset")
            assert not answer.success or answer.message.startswith("session")
            client.wait_for_state("inactive")
            assert client.call("reset").success
            assert change(client, Transition.TRANSITION_ACTIVATE)
            camera.connect()
            camera.gathering = SCALE_FRAMES - 1
            feed(camera, results, 4)
            assert change(client, Transition.TRANSITION_DEACTIVATE)
            assert state(client) == "inactive"
            wait_until(lambda: not camera.publisher.get_subscription_count(), 5)
            assert change(client, Transition.TRANSITION_CLEANUP)
            client.wait_for_state("unconfigured")
            names = {name for name, _ in client.node.get_topic_names_and_types()}
            wait_until(lambda: not client.node.count_publishers("/lingbot_map/odometry"), 5, names)
            counts.append(threads(node.pid))
        assert counts[1] <= counts[0]
        assert change(client, Transition.TRANSITION_UNCONFIGURED_SHUTDOWN)
        client.wait_for_state("finalized")
    finally:
        code, _ = node.stop()
    assert code == 0, node.log
    assert "Traceback" not in node.log


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_are_obeyed_while_loading(client, number):
    node = NodeProcess(program=SLOW_TO_LOAD)
    assert client.wait_for_state("loading").level == DiagnosticStatus.OK
    for name in ("reset", "save_map"):
        answer = client.call(name)
        assert not answer.success
        assert "still loading" in answer.message
    code, seconds = node.stop(number)
    assert code == 0, node.log
    assert seconds < PROMPT_S
    assert "Traceback" not in node.log
    assert "Failed to publish log message" not in node.log


@pytest.mark.parametrize("delay", [0.3, 0.8, 1.3, 1.8])
def test_signals_are_obeyed_whenever_they_come(delay):
    """Also when nothing of the node runs yet, and in mid-import of PyTorch."""
    node = NodeProcess()
    time.sleep(delay)
    _, seconds = node.stop(signal.SIGINT)
    assert seconds < PROMPT_S, node.log


@pytest.mark.parametrize("program", ["map_node", "play_bag", "demo", "make_demo_bag"])
def test_an_interrupt_during_the_imports_is_quiet(program, tmp_path):
    for name in ("rclpy", "rosbags", "ament_index_python", "numpy"):
        (tmp_path / name).mkdir()
        slow = "import os, time\nos.write(1, b'importing')\ntime.sleep(30)\n"
        (tmp_path / name / "__init__.py").write_text(slow)
    path = os.pathsep.join([str(tmp_path), str(REPOSITORY), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, REPOSITORY / "bin" / program],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout.read(9) == b"importing"
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=10)
    assert (process.returncode, errors) == (-signal.SIGINT, b"")


INTERRUPTED_MESSAGE = """
import os, signal, sys
import rclpy
from lingbot_map_ros.ros import node
def spin(executor):
    if "signal" in sys.argv:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            [None for _ in range(1_000_000)]
        except KeyboardInterrupt:
            pass
    raise RuntimeError("Unable to convert call argument '0' to Python object")
node.SingleThreadedExecutor.spin = spin
sys.exit(node.main(sys.argv[:1]))
"""


@pytest.mark.parametrize("cause", ["signal", "fault"])
def test_an_interrupt_that_a_messages_conversion_swallows_is_none_of_a_fault(cause):
    command = [sys.executable, "-c", INTERRUPTED_MESSAGE, cause]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert ("Unable to convert" in ended.stderr) == (cause == "fault"), ended.stderr
    assert (ended.returncode == 0) == (cause == "signal")


def test_sigterm_twice_in_mid_stream_ends_cleanly(client):
    node = NodeProcess(drop_policy="all", image_qos="reliable")
    camera = Camera(client)
    camera.connect()
    for _ in range(10):
        camera.send()
    time.sleep(0.2)
    node.send(signal.SIGTERM)
    time.sleep(0.05)
    code, seconds = node.stop(signal.SIGINT)
    assert code == 0, node.log
    assert seconds < PROMPT_S
    assert "Traceback" not in node.log


def test_a_missing_checkpoint_is_an_error_that_can_be_mended(client):
    node = NodeProcess(checkpoint="/nowhere/model.pt")
    try:
        status = client.wait_for_state("error")
        assert status.level == DiagnosticStatus.ERROR
        assert "/nowhere/model.pt" in status.message
        assert node.log.count("ros2 lifecycle set /lingbot_map configure &&") == 1
        assert state(client) == "unconfigured"
        assert client.set_parameter("checkpoint", "random:tiny").successful
        assert change(client, Transition.TRANSITION_CONFIGURE)
        client.wait_for_state("inactive")
    finally:
        code, _ = node.stop()
    assert code == 0


def test_parameters_that_cannot_work_end_the_start_with_one_sentence():
    for parameters, sentence in (
        ({"keyframe_mode": "never"}, "keyframe_mode must be one of interval, motion, manual"),
        ({"scale": 2}, "write a decimal point"),
    ):
        node = NodeProcess(**parameters)
        assert node.wait(20) == 1
        assert sentence in node.log
        assert "Traceback" not in node.log


def test_tf_over_odometry_is_refused_at_configure_without_metres(client):
    node = NodeProcess(tf_mode="map", keyframe_intervall=3)
    try:
        status = client.wait_for_state("error: tf_mode: map joins somebody's odometry")
        assert node.log.count("ros2 param set /lingbot_map PARAMETER VALUE") == 1
        assert node.log.count("keyframe_intervall does not exist and is ignored; did you mean") == 1
        assert status.level == DiagnosticStatus.ERROR
        assert not change(client, Transition.TRANSITION_CONFIGURE)
        assert state(client) == "unconfigured"
        assert client.set_parameter("scale_source", "odometry").successful
        for name, integers in (("scale", 2), ("base_to_camera", [0, 0, 0, 0, 0, 0, 1])):
            refused = client.set_parameter(name, integers)
            assert not refused.successful and f"{name}: write a decimal point" in refused.reason
        for name, value, hint in (
            ("scale", "two", "; scale is of type double, not string"),
            ("keyframe_interval", "3", "; keyframe_interval is of type integer, not string"),
            ("checkpoint", 5, "; checkpoint is of type string, not integer"),
            ("reset_on_time_jump", 1, "; reset_on_time_jump is of type bool, not integer"),
            ("keyframe_intervall", 3, "parameter keyframe_intervall does not exist; did you mean"),
        ):
            refused = client.set_parameter(name, value)
            assert not refused.successful and hint in refused.reason
        assert change(client, Transition.TRANSITION_CONFIGURE)
        assert not client.set_parameter("scale_source", "none").successful
    finally:
        code, _ = node.stop()
    assert code == 0, node.log


def test_without_torch_one_sentence_names_interpreter_and_command():
    node = NodeProcess(program=WITHOUT_TORCH)
    assert node.wait(20) == 1
    assert f"PyTorch is not installed for {sys.executable}" in node.log
    assert f"{sys.executable} -m pip install torch" in node.log
    assert "Traceback" not in node.log


def test_the_node_does_not_import_torch_before_it_is_configured():
    code = "import sys, lingbot_map_ros.ros.node; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY).returncode == 0


def test_a_multi_threaded_executor_works_as_well(client):
    node = NodeProcess(program=MULTI_THREADED, drop_policy="all", image_qos="reliable")
    try:
        camera = Camera(client)
        camera.connect()
        results = client.record(Odometry, "~/odometry")
        time.sleep(0.5)
        camera.gathering = SCALE_FRAMES - 1
        feed(camera, results, 6)
        assert client.call("defer_eviction", True).success
        feed(camera, results, 2)
        assert client.call("rollback_last_frame").success
        assert client.call("execute_deferred_eviction").success
        assert client.call("defer_eviction", False).success
        assert client.call("reset").success
        camera.gathering = SCALE_FRAMES - 1
        feed(camera, results, 3)
        client.wait_for_state("tracking")
    finally:
        node.stop()
    assert "Traceback" not in node.log.replace("KeyboardInterrupt", "")


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--help"], 0, "usage: map_node"),
        (["--ros-args", "--params-file", "/nowhere.yaml"], 1, "/nowhere.yaml"),
        (["--ros-args", "-r", "image"], 1, "image"),
    ],
)
def test_a_command_line_that_ros_does_not_take(arguments, code, text):
    command = [sys.executable, "-m", "lingbot_map_ros.ros.node", *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.returncode == code
    assert text in result.stdout + result.stderr
    assert "Traceback" not in result.stderr


def test_the_readme_calls_services_without_the_ros2_command(client, tmp_path):
    """Its code, as it stands there, first the second block: that one needs the first's function."""
    text = (REPOSITORY / "README.md").read_text().split("### Without a ROS distribution")[1]
    first, second = (part.split("```")[0] for part in text.split("```python\n")[1:3])
    helper, calls = first.split("threshold = ")
    node = NodeProcess(autostart=False, output_directory=tmp_path)
    try:
        client.wait_for_state("unconfigured")
        code = f"{helper}{second}threshold = {calls}"
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, capture_output=True, text=True, timeout=90)
        assert done.returncode == 0, done.stderr
        answers = done.stdout.splitlines()
        assert [line.split()[0] for line in answers] == [
            *("change_state", "change_state", "set_parameters", "save_map")
        ]
        assert all("success=True" in line for line in answers[:2])
        assert "successful=True" in answers[2]
        assert client.wait_for_state("waiting")
    finally:
        code, _ = node.stop()
    assert code == 0, node.log
