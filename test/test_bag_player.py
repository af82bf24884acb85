# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""`play_bag` in a process of its own, against a real rclpy subscriber."""

import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from bag_factory import (
    PERIOD_NS,
    START_NS,
    camera_messages,
    cut,
    picture,
    static_transform_message,
    storage_file,
    write_messages,
)

rclpy = pytest.importorskip("rclpy")

from nav_msgs.msg import Odometry  # noqa: E402
from rclpy.executors import SingleThreadedExecutor  # noqa: E402
from rclpy.qos import QoSProfile, ReliabilityPolicy  # noqa: E402
from rosgraph_msgs.msg import Clock  # noqa: E402
from sensor_msgs.msg import CameraInfo, Image  # noqa: E402

from lingbot_map_ros.ros.pacing import Flight  # noqa: E402

TOPIC = "/camera/image_raw"


@pytest.fixture(scope="module")
def context():
    context = rclpy.Context()
    rclpy.init(context=context)
    yield context
    context.try_shutdown()


class Listener:
    """A node that collects what is played and, if told to, answers images."""

    def __init__(self, context, reliable=True, answer=0.0, skip=()):
        self.node = rclpy.create_node("listener", context=context)
        self.executor = SingleThreadedExecutor(context=context)
        self.executor.add_node(self.node)
        reliability = ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT
        qos = QoSProfile(depth=1000, reliability=reliability)
        self.images, self.infos, self.clock, self.arrivals = [], [], [], []
        self.held, self.most_held = 0, 0
        self._answer, self._skip, self._due = answer, skip, []
        self.node.create_subscription(Image, TOPIC, self._on_image, qos)
        self.node.create_subscription(CameraInfo, "/camera/camera_info", self.infos.append, qos)
        self.node.create_subscription(Clock, "/clock", self._on_clock, qos)
        self.answers = self.node.create_publisher(Odometry, "/map/odometry", 10)

    def _on_image(self, message):
        self.images.append(message)
        self.arrivals.append(time.monotonic())
        if self._answer and len(self.images) - 1 not in self._skip:
            self._due.append((time.monotonic() + self._answer, message.header))
            self.most_held = max(self.most_held, len(self._due))

    def _on_clock(self, message):
        self.clock.append(message.clock.sec * 10**9 + message.clock.nanosec)

    def stamps(self):
        return [m.header.stamp.sec * 10**9 + m.header.stamp.nanosec for m in self.images]

    def listen_to(self, process, seconds=60.0):
        deadline = time.monotonic() + seconds
        grace = None
        while time.monotonic() < deadline:
            self.executor.spin_once(timeout_sec=0.005)
            while self._due and self._due[0][0] <= time.monotonic():
                self.answers.publish(Odometry(header=self._due.pop(0)[1]))
            if process.poll() is not None:
                grace = grace or time.monotonic() + 0.3
                if time.monotonic() > grace:
                    return process.communicate()
        process.kill()
        raise AssertionError(f"the player did not end: {process.communicate()}")

    def close(self):
        self.executor.shutdown()
        self.node.destroy_node()


def start_player(*arguments):
    command = [sys.executable, "-m", "lingbot_map_ros.replay.play_bag", *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture
def bag(tmp_path):
    return write_messages(tmp_path / "bag", camera_messages(20))


def test_plays_every_message_in_its_own_time_with_the_clock(context, bag):
    listener = Listener(context)
    process = start_player(bag, "--rate", 2)
    out, err = listener.listen_to(process)
    listener.close()
    assert process.returncode == 0, err
    assert "played 40 messages, 20 images" in out
    assert listener.stamps() == [START_NS + i * PERIOD_NS for i in range(20)]
    assert len(listener.infos) == 20
    pixels = np.frombuffer(listener.images[7].data, np.uint8).reshape(48, 64, 3)
    np.testing.assert_array_equal(pixels, picture(7))
    assert 0.5 < listener.arrivals[-1] - listener.arrivals[0] < 5.0
    assert listener.clock == sorted(listener.clock)
    assert listener.clock[-1] == START_NS + 19 * PERIOD_NS
    assert len(listener.clock) > 30


def test_best_effort_loops_and_a_part_of_the_bag(context, bag):
    listener = Listener(context, reliable=False)
    process = start_player(
        bag, "--qos", "best_effort", "--loop", 2, "--rate", 5, "--start-offset", 0.5,
        "--duration", 0.4, "--topics", TOPIC,
    )  # fmt: skip
    out, err = listener.listen_to(process)
    listener.close()
    assert process.returncode == 0, err
    assert "played 8 messages, 8 images" in out
    played = iter([START_NS + i * PERIOD_NS for i in (5, 6, 7, 8)] * 2)
    # Best effort promises the order only, on a busy machine.
    assert len(listener.stamps()) >= 4 and all(stamp in played for stamp in listener.stamps())
    assert listener.infos == []


def test_paced_playing_holds_an_image_until_the_last_is_answered_or_given_up(context, bag):
    listener = Listener(context, answer=0.01, skip=(3, 19))
    process = start_player(
        bag, "--rate", 0, "--pace-by", "/map/odometry", "--pace-window", 1, "--pace-timeout", 0.5
    )
    out, err = listener.listen_to(process)
    listener.close()
    assert process.returncode == 0
    assert "20 images, 2 without an answer" in out
    assert err.count("no answer to the image") == 2
    assert listener.most_held == 1
    assert len(listener.stamps()) == 20


def test_images_that_nobody_answers_cost_the_patience_once(context, bag):
    """As blank ones at the start, which a node lets wait however many there are."""
    listener = Listener(context, answer=0.01, skip=tuple(range(3, 15)))
    process = start_player(
        bag, "--rate", 0, "--pace-by", "/map/odometry", "--pace-window", 1, "--pace-timeout", 3
    )
    began = time.monotonic()
    out, err = listener.listen_to(process)
    listener.close()
    assert process.returncode == 0
    assert "20 images, 12 without an answer" in out and len(listener.stamps()) == 20
    assert err.count("no answer to the image") == 1
    assert time.monotonic() - began < 12 * 3, "not the whole patience for each"


def test_an_answer_settles_the_images_before_it():
    """Images that get no answer of their own (gathered, withheld) must not stop the player."""
    flight = Flight()
    for stamp in (10, 20, 30, 40):
        flight.send(stamp)
    flight.answer(30)
    flight.answer(30)
    flight.answer(99)
    assert (len(flight), flight.unanswered) == (1, 2)
    assert flight.give_up() == 40
    assert (len(flight), flight.unanswered) == (0, 3)


def test_a_window_of_images_is_on_its_way(context, bag):
    """With unanswered images inside the window nothing times out, and nothing is lost."""
    listener = Listener(context, answer=0.05, skip=(0, 1, 2, 7, 8))
    process = start_player(
        bag, "--rate", 0, "--pace-by", "/map/odometry", "--pace-window", 4, "--pace-timeout", 20
    )
    out, err = listener.listen_to(process)
    listener.close()
    assert process.returncode == 0
    assert "20 images, 5 without an answer" in out
    assert "no answer to the image" not in err
    assert listener.stamps() == [START_NS + i * PERIOD_NS for i in range(20)]


def test_images_that_nobody_reads_are_not_waited_for(context, tmp_path):
    """The same images as JPEG, or another camera's: they would fill the window for ever."""
    both = [*camera_messages(12), *camera_messages(12, "png", f"{TOPIC}/compressed")]
    bag = write_messages(tmp_path / "bag", sorted(both, key=lambda message: message[1]))
    listener = Listener(context, answer=0.02, skip=(0, 1))
    process = start_player(
        bag, "--rate", 0, "--pace-by", "/map/odometry", "--pace-window", 3, "--pace-timeout", 5
    )
    out, err = listener.listen_to(process)
    listener.close()
    assert process.returncode == 0, err
    assert "24 images, 2 without an answer" in out
    assert "no answer to the image" not in err


def test_a_node_that_still_loads_is_waited_for(context, bag):
    """It publishes answers already, and does not subscribe to images yet."""
    listener = Listener(context)
    listener.node.destroy_subscription(next(listener.node.subscriptions))
    process = start_player(
        bag, "--rate", 0, "--wait", 5, "--pace-by", "/map/odometry", "--pace-window", 8,
        "--pace-timeout", 0.2,
    )  # fmt: skip
    out, err = listener.listen_to(process)
    listener.close()
    assert process.returncode == 0, err
    assert "20 images, 20 without an answer" in out, err


def play_paced(bag, listener):
    """Output and errors of a player with three images on their way, which ends well."""
    process = start_player(
        bag, "--rate", 0, "--wait", 30, "--pace-by", "/map/odometry", "--pace-window", 3,
        "--pace-timeout", 20,
    )  # fmt: skip
    out, err = listener.listen_to(process)
    listener.close()
    assert process.returncode == 0, err
    return out, err


def test_a_viewer_of_another_camera_is_not_taken_for_the_node(context, tmp_path):
    """Its images get no answers, and those of the node, which begins to read later, do."""
    other = "/other/image_raw"
    both = [*camera_messages(12), *camera_messages(12, topic=other)]
    bag = write_messages(tmp_path / "bag", sorted(both, key=lambda message: message[1]))
    viewer, seen = rclpy.create_node("viewer", context=context), []
    viewer.create_subscription(Image, other, seen.append, 1000)
    listener = Listener(context, answer=0.02, skip=(0, 1))
    listener.executor.add_node(viewer)
    listener.node.destroy_subscription(next(listener.node.subscriptions))
    subscribe = listener.node.create_timer(3.0, lambda: begin())

    def begin():
        subscribe.cancel()
        listener.node.create_subscription(Image, TOPIC, listener._on_image, 1000)

    out, err = play_paced(bag, listener)
    viewer.destroy_node()
    assert "24 images, 2 without an answer" in out, err
    assert "no answer to the image" not in err
    assert len(listener.stamps()) == len(seen) == 12
    assert listener.most_held <= 3


def test_a_node_between_the_bag_and_the_one_that_answers(context, bag):
    listener = Listener(context, answer=0.02, skip=(0, 1))
    listener.node.destroy_subscription(next(listener.node.subscriptions))
    relay = rclpy.create_node("relay", context=context)
    relay.create_subscription(Image, TOPIC, listener._on_image, 1000)
    listener.executor.add_node(relay)
    out, err = play_paced(bag, listener)
    relay.destroy_node()
    assert "20 images, 2 without an answer" in out, err
    assert "does not subscribe" not in err and "nobody" not in err


def test_arguments_that_ros_does_not_take(bag):
    process = start_player(bag, "--ros-args", "--params-file", "/nowhere.yaml")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "play_bag: ROS does not take '--params-file /nowhere.yaml'" in err
    assert "Traceback" not in err


def test_says_when_nobody_subscribes(bag):
    process = start_player(bag, "--wait", 0.5, "--rate", 0, "--loop", 1)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 0
    assert f"nobody subscribes to {TOPIC}" in err


def test_says_when_the_reliability_does_not_match(context, bag):
    listener = Listener(context)
    process = start_player(bag, "--wait", 6, "--rate", 0, "--qos", "best_effort")
    _, err = listener.listen_to(process)
    listener.close()
    assert "want reliable messages" in err
    assert listener.images == []


def test_a_remapped_topic_and_a_latched_tf(context, tmp_path):
    tf_message = pytest.importorskip("tf2_msgs.msg").TFMessage
    transform = static_transform_message("base", "camera", (0, 0, 1), (0, 0, 0, 1))
    messages = [("/tf_static", START_NS, transform), *camera_messages(5, topic="/front/image")]
    path = write_messages(tmp_path / "tf_bag", messages)
    listener = Listener(context)
    transforms = []
    qos = QoSProfile(depth=1, durability=rclpy.qos.DurabilityPolicy.TRANSIENT_LOCAL)
    listener.node.create_subscription(tf_message, "/tf_static", transforms.append, qos)
    process = start_player(path, "--rate", 2, "--ros-args", "-r", f"/front/image:={TOPIC}")
    listener.listen_to(process)
    listener.close()
    assert len(listener.images) == 5
    assert transforms[0].transforms[0].child_frame_id == "camera"


def test_a_damaged_bag_is_played_as_far_as_it_goes(context, bag):
    cut(storage_file(bag), 0.6)
    listener = Listener(context)
    process = start_player(bag, "--rate", 10)
    _, err = listener.listen_to(process)
    listener.close()
    assert process.returncode == 3
    assert "damaged:" in err
    assert listener.stamps() == [START_NS + i * PERIOD_NS for i in range(len(listener.images))]
    assert len(listener.images) >= 11


def test_stops_at_sigint(context, bag):
    listener = Listener(context)
    process = start_player(bag, "--rate", 0.1)
    while len(listener.images) < 2:
        listener.executor.spin_once(timeout_sec=0.1)
    process.send_signal(signal.SIGINT)
    _, err = listener.listen_to(process, 5)
    listener.close()
    assert process.returncode == 130
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["absent"], 1, "play_bag: there is no bag at absent"),
        (["BAG", "--topics", "/none"], 1, "has no topic /none; it has /camera/camera_info"),
        (["BAG", "--rate", "-1"], 2, "--rate"),
    ],
)
def test_mistakes_are_one_line(bag, arguments, code, text):
    process = start_player(*(str(bag) if a == "BAG" else a for a in arguments))
    _, err = process.communicate(timeout=30)
    assert process.returncode == code
    assert text in err
    assert "Traceback" not in err
