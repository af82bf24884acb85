# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Helpers of the node's tests: the node in a process of its own, and a client of it in this one."""

import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from rcl_interfaces.srv import SetParameters
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.parameter import Parameter
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy, qos_profile_sensor_data
from sensor_msgs.msg import Image
from std_srvs.srv import SetBool, Trigger

REPOSITORY = Path(__file__).parents[1]
SIZE = (96, 128)
"""Height and width of the test images."""
SCALE_FRAMES = 3
"""Of the tiny model."""
LATCHED = QoSProfile(
    depth=1,
    reliability=ReliabilityPolicy.RELIABLE,
    durability=DurabilityPolicy.TRANSIENT_LOCAL,
)
RELIABLE = QoSProfile(depth=50)
LOSSLESS = {"drop_policy": "all", "image_qos": "reliable"}
"""Parameters with which every image counts."""


def wait_until(condition: Callable[[], Any], timeout: float = 15.0, what: str = "") -> Any:
    """Return the first true value of ``condition``; fail when there is none within ``timeout``."""
    end = time.monotonic() + timeout
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError(f"not within {timeout} s: {what or condition}")


class NodeProcess:
    """``map_node`` in a process of its own, with the tiny random model."""

    def __init__(
        self, *remaps: str, program: str = "", namespace: str = "", **parameters: Any
    ) -> None:
        parameters = {"checkpoint": "random:tiny", "depth_confidence_min": 0.0, **parameters}
        command = [sys.executable, *(("-c", program) if program else _MODULE), "--ros-args"]
        for name, value in parameters.items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            command += ["-p", f"{name}:={text}"]
        for remap in remaps:
            command += ["-r", remap]
        if namespace:
            command += ["-r", f"__ns:={namespace}"]
        handle, name = tempfile.mkstemp(suffix=".log", prefix="map_node_")
        self._log = Path(name)
        with os.fdopen(handle, "w") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, cwd=REPOSITORY
            )

    @property
    def log(self) -> str:
        """What the process printed so far."""
        return self._log.read_text()

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        """Identifier of the process."""
        return self._process.pid

    def footprint(self) -> SimpleNamespace:
        """What the process holds: threads, file descriptors, resident bytes."""
        process = Path("/proc", str(self.pid))
        return SimpleNamespace(
            threads=len(list((process / "task").iterdir())),
            descriptors=len(list((process / "fd").iterdir())),
            resident=int((process / "statm").read_text().split()[1]) * resource.getpagesize(),
        )

    def assert_grew_no_further_than(self, before: SimpleNamespace) -> None:
        """Compare with an earlier footprint; what is open for a moment only does not count."""

        def small() -> bool:
            now = self.footprint()
            return now.threads <= before.threads and now.descriptors <= before.descriptors

        wait_until(small, 10, f"no more threads and descriptors than {before}")
        assert self.footprint().resident < before.resident + 30e6

    def send(self, number: int) -> None:
        """Send a signal and go on."""
        self._process.send_signal(number)

    def wait(self, timeout: float) -> int:
        """Wait for the process to end by itself; returns its exit code."""
        return self._process.wait(timeout)

    def stop(self, number: int = signal.SIGINT, timeout: float = 10.0) -> tuple[int, float]:
        """Signal the process; returns its exit code and the seconds that it took to end."""
        began = time.monotonic()
        if self.running:
            self._process.send_signal(number)
        try:
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"signal {number} was not obeyed:\n{self.log}") from None
        return code, time.monotonic() - began


_MODULE = ("-m", "lingbot_map_ros.ros.node")


class Orders:
    """Tells a node that runs `program` which fault the next frames have (``faulty_node.py``)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.give("")

    @property
    def program(self) -> str:
        """Text of the program: the node with faults by these orders."""
        file = Path(__file__).with_name("faulty_node.py")
        return (
            f"import runpy, sys; sys.argv.insert(1, {str(self.path)!r}); "
            f"runpy.run_path({str(file)!r}, run_name='__main__')"
        )

    def give(self, fault: str) -> None:
        """Order a fault; an empty one ends it."""
        aside = self.path.with_suffix(".new")
        aside.write_text(fault)
        aside.replace(self.path)


class Client:
    """A ROS node of the test, spinning in a thread of its own."""

    def __init__(self, name: str = "test_client", prefix: str = "/lingbot_map") -> None:
        self.prefix = prefix
        self.context = Context()
        rclpy.init(context=self.context)
        self.node = rclpy.create_node(name, context=self.context)
        self._executor = SingleThreadedExecutor(context=self.context)
        self._executor.add_node(self.node)
        self._thread = threading.Thread(target=self._spin, daemon=True)
        self._thread.start()
        self.diagnostics = self.record(DiagnosticArray, "/diagnostics")

    def close(self) -> None:
        """Leave the graph."""
        self._executor.shutdown(timeout_sec=2.0)
        self._thread.join(2.0)
        self.node.destroy_node()
        rclpy.shutdown(context=self.context)

    def record(self, message_type: Any, topic: str, qos: Any = RELIABLE) -> list:
        """Subscribe; returns the list that messages are appended to. ``~`` is the node's name."""
        messages: list = []
        self.node.create_subscription(message_type, self.name(topic), messages.append, qos)
        self._executor.wake()
        return messages

    def publisher(self, message_type: Any, topic: str, qos: Any = RELIABLE) -> Any:
        """Create a publisher."""
        return self.node.create_publisher(message_type, topic, qos)

    def repeat(self, publisher: Any, message: Any) -> Any:
        """Publish a message again and again, until ``cancel()`` of what is returned.

        Best effort may lose one, and the other side need not know this one yet when this one knows
        the other.
        """
        timer = self.node.create_timer(0.05, lambda: publisher.publish(message))
        self._executor.wake()
        return timer

    def name(self, topic: str) -> str:
        """Resolve ``~`` to the node under test."""
        return topic.replace("~", self.prefix)

    def call(self, service: str, data: bool | None = None, timeout: float = 20.0) -> Any:
        """Call a service of the node under test and return its response."""
        kind = Trigger if data is None else SetBool
        request = kind.Request() if data is None else kind.Request(data=data)
        return self.ask(kind, service, request, timeout)

    def call_async(self, service: str) -> Any:
        """Call a service without arguments; returns the future of its response."""
        client = self.node.create_client(Trigger, self.name(f"~/{service}"))
        assert client.wait_for_service(20), f"no service {service}"
        return client.call_async(Trigger.Request())

    def ask(self, kind: Any, service: str, request: Any, timeout: float = 20.0) -> Any:
        """Call a service of any type and return its response."""
        client = self.node.create_client(kind, self.name(f"~/{service}"))
        try:
            assert client.wait_for_service(timeout), f"no service {service}"
            future = client.call_async(request)
            wait_until(future.done, timeout, f"answer of {service}")
            return future.result()
        finally:
            self.node.destroy_client(client)

    def set_parameter(self, name: str, value: Any) -> Any:
        """Set a parameter of the node under test; returns whether and why not."""
        message = Parameter(name, value=value).to_parameter_msg()
        request = SetParameters.Request(parameters=[message])
        return self.ask(SetParameters, "set_parameters", request).results[0]

    def status(self, timeout: float = 20.0) -> Any:
        """Return the next diagnostic status of the node, with its values as a dictionary."""
        seen = len(self.diagnostics)

        def newest() -> Any:
            for msg in self.diagnostics[seen:]:
                for status in msg.status:
                    if status.name.startswith(self.prefix.lstrip("/")):
                        return status
            return None

        status = wait_until(newest, timeout, "diagnostics")
        figures = {value.key: value.value for value in status.values}
        return SimpleNamespace(message=status.message, level=status.level, figures=figures)

    def wait_for(self, holds: Callable[[Any], bool], what: str, timeout: float = 40.0) -> Any:
        """Wait for a diagnostic status of which ``holds`` is true.

        The next one may have been made, and may tell, from before what was seen or done last.
        """
        last = None
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            last = self.status(timeout)
            if holds(last):
                return last
        raise AssertionError(f"{what} did not come; last: {last}")

    def wait_for_state(self, state: str, timeout: float = 40.0) -> Any:
        """Wait until the diagnostics' message begins with ``state``."""
        return self.wait_for(lambda s: s.message.startswith(state), f"state '{state}'", timeout)

    def wait_for_figures(self, expected: dict[str, str], timeout: float = 40.0) -> Any:
        """Wait until the diagnostics hold these values."""
        return self.wait_for(
            lambda s: expected.items() <= s.figures.items(), str(expected), timeout
        )

    def _spin(self) -> None:
        try:
            self._executor.spin()
        except Exception:
            if self.context.ok():
                raise


class Camera:
    """Publishes images of a picture that the camera pans over."""

    def __init__(
        self, client: Client, topic: str = "/image", qos: Any = RELIABLE, kind: Any = Image
    ) -> None:
        self.publisher = client.publisher(kind, topic, qos)
        self.stamp_ns = 1_000_000_000_000
        self.sent: list[int] = []
        self.gathering = 0
        """Images that will get no answer of their own, because a session gathers them."""

    def connect(self, timeout: float = 40.0) -> None:
        """Wait for a subscriber."""
        wait_until(self.publisher.get_subscription_count, timeout, "subscriber of image")

    def send(self, msg: Any = None, step_ns: int = 100_000_000) -> int:
        """Publish ``msg``, or the next view, at the next stamp; returns the stamp."""
        self.stamp_ns += step_ns
        msg = msg or image_message(view(len(self.sent)))
        msg.header.stamp.sec, msg.header.stamp.nanosec = divmod(self.stamp_ns, 1_000_000_000)
        msg.header.frame_id = msg.header.frame_id or "camera"
        self.publisher.publish(msg)
        self.sent.append(self.stamp_ns)
        return self.stamp_ns


def view(index: int, size: tuple[int, int] = SIZE) -> np.ndarray:
    """Picture ``index`` of a slow pan, uint8 RGB [H, W, 3]."""
    height, width = size
    v, u = np.mgrid[:height, :width].astype(np.float64)
    u = u + index
    pattern = (np.sin(u / 5), np.cos(v / 7 + u / 11), np.sin((u + v) / 9))
    return np.stack([127.5 + 100 * channel for channel in pattern], -1).astype(np.uint8)


def image_message(pixels: np.ndarray, encoding: str = "rgb8") -> Image:
    """``sensor_msgs/Image`` of [H, W] or [H, W, C] pixels."""
    msg = Image(height=pixels.shape[0], width=pixels.shape[1], encoding=encoding)
    msg.step = int(pixels.strides[0])
    msg.data.frombytes(np.ascontiguousarray(pixels).tobytes())
    return msg


def stamp_of(msg: Any) -> int:
    """Nanoseconds of a message's header."""
    return msg.header.stamp.sec * 1_000_000_000 + msg.header.stamp.nanosec


def feed(camera: Camera, results: list, count: int, timeout: float = 30.0) -> list:
    """Send images, each after the answer to the last, until ``count`` more results came."""
    start = len(results)
    while len(results) < start + count:
        stamp = camera.send()
        if camera.gathering:
            camera.gathering -= 1
        else:
            wait_until(
                lambda at=stamp: results and stamp_of(results[-1]) == at, timeout, "a result"
            )
    return results[start:]


__all__ = [
    "LATCHED",
    "LOSSLESS",
    "RELIABLE",
    "REPOSITORY",
    "SCALE_FRAMES",
    "SIZE",
    "Camera",
    "Client",
    "NodeProcess",
    "Orders",
    "feed",
    "image_message",
    "qos_profile_sensor_data",
    "stamp_of",
    "view",
    "wait_until",
]
