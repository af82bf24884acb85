# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What is said of a silent topic: as the ROS graph is now, and again when it has changed."""

import re
import time
from types import SimpleNamespace

import pytest
from node_harness import Client, image_message, qos_profile_sensor_data, view, wait_until
from sensor_msgs.msg import CompressedImage, Image

from lingbot_map_ros.ros import trouble
from lingbot_map_ros.ros.input import Input
from lingbot_map_ros.ros.mailbox import Mailbox
from lingbot_map_ros.ros.parameters import Parameters
from lingbot_map_ros.ros.trouble import REPEAT_S, REVIEW_S, Cause, Trouble
from lingbot_map_ros.ros.watchdog import Watchdog

SHORT = {"no_input_timeout": 0.1, "use_camera_info": False}


@pytest.fixture
def client(monkeypatch):
    monkeypatch.setattr(trouble, "REVIEW_S", 0.0)
    client = Client("watched")
    yield client
    client.close()


@pytest.fixture
def camera_side():
    client = Client("camera_side")
    yield client
    client.close()


def watch(client, **fields):
    """Watch an input of the client's node; returns it, its silence now, and what was logged."""
    parameters = Parameters(**SHORT, **fields)
    source = Input(client.node, parameters, Mailbox(), on_restart=None)
    source.start()
    said = []
    logger = SimpleNamespace(warning=said.append, info=said.append)
    node = SimpleNamespace(
        get_logger=lambda: logger,
        **{
            name: getattr(client.node, name)
            for name in (
                *("count_publishers", "get_publishers_info_by_topic", "get_clock", "get_name"),
                *("get_namespace", "get_topic_names_and_types"),
                "get_publisher_names_and_types_by_node",
            )
        },
    )
    watchdog = Watchdog(node, source, SimpleNamespace(busy_for=0.0))

    def silence():
        watchdog.check(parameters, None)
        return watchdog.silence

    return source, silence, said


def becomes(silence, words):
    return wait_until(lambda: words in (text := silence()) and text, 20, words)


def test_what_is_published_later_is_named_then(client, camera_side, monkeypatch):
    monkeypatch.setattr(trouble, "REPEAT_S", 0.0)
    _, silence, said = watch(client)
    becomes(silence, "nobody publishes it. No other topic carries images")
    camera_side.publisher(Image, "/camera/image_raw")
    becomes(silence, "remap with image:=/camera/image_raw")
    assert silence().startswith("no image on /image for ")
    wanted = camera_side.publisher(CompressedImage, "/image")
    becomes(silence, "None of them sends sensor_msgs/msg/Image: set image_transport or remap image")
    camera_side.node.destroy_publisher(wanted)
    becomes(silence, "remap with image:=/camera/image_raw")
    logged = iter(said)
    for words in ("nobody publishes it", "remap with", "None of them sends", "remap with"):
        assert any(words in text for text in logged), (words, said)


def test_a_compressed_topic_is_remapped_by_the_name_of_its_raw_one(client, camera_side):
    _, silence, _ = watch(client, image_transport="compressed")
    becomes(silence, "No other topic carries compressed images")
    camera_side.publisher(CompressedImage, "/camera/image_raw/compressed")
    text = becomes(silence, "Topics of this type: /camera/image_raw/compressed")
    assert text.endswith("remap with image:=/camera/image_raw")


def test_advice_fits_what_is_set(client, camera_side):
    camera_side.publisher(Image, "/image")
    _, silence, _ = watch(client)
    assert "set image_qos: reliable" in becomes(silence, "QoS and type match. Raw images")
    _, silence, _ = watch(client, image_qos="reliable")
    becomes(silence, "QoS and type match. Does it send anything (ros2 topic hz /image), and from")


def test_of_a_camera_that_was_heard_nothing_is_advised_that_this_refutes(client, camera_side):
    source, silence, said = watch(client)
    publisher = camera_side.publisher(Image, "/image", qos_profile_sensor_data)
    sending = camera_side.repeat(publisher, image_message(view(0)))
    wait_until(lambda: source.images.total, 20, "an image")
    sending.cancel()
    text = becomes(silence, "QoS and type match. Does it still send anything")
    assert re.search(r" s, after [1-9]\d* images?: ", text)
    assert text.startswith("no image on /image for ") and said[-1].startswith("no image on /image")
    camera_side.node.destroy_publisher(publisher)
    camera_side.publisher(Image, "/rear/image_raw")
    text = becomes(silence, "nobody publishes it any more")
    assert "remap" not in text and "ROS_DOMAIN_ID" not in text


def test_an_input_that_is_started_anew_has_heard_nothing(client):
    source, silence, said = watch(client)
    becomes(silence, "nobody publishes it")
    source.stop()
    source.start()
    silence()
    assert not any("images come in" in text for text in said)


def test_a_cause_is_kept_up_to_date_and_logged_when_it_has_changed(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    wrong = Trouble()

    def look(seconds, text, kind=""):
        now[0] = 100.0 + seconds
        return wrong.go_on(lambda: Cause(text, kind))

    assert look(0, "a") == wrong.text == "a"
    assert look(REVIEW_S / 2, "b") == "" and wrong.text == "a"
    assert look(REVIEW_S, "b") == "" and wrong.text == "b"
    assert look(REPEAT_S, "b") == "b"
    assert look(REPEAT_S + REVIEW_S, "a") == "" and wrong.text == "a"
    assert look(2 * REPEAT_S, "b") == look(3 * REPEAT_S, "b") == "", "it is as it was said"
    assert look(4 * REPEAT_S, "5 s behind", "behind") == "5 s behind"
    assert look(5 * REPEAT_S, "6 s behind", "behind") == "" and wrong.text == "6 s behind"
    assert look(6 * REPEAT_S, "1 s ahead", "ahead") == "1 s ahead"
    assert wrong.end() and not wrong.end() and wrong.text == ""
    assert look(6 * REPEAT_S, "1 s ahead", "ahead") == "1 s ahead", "it begins anew"
