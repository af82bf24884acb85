# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The bag reader on real bags: both storages, every compression, cut, damaged, without metadata."""

import os
import random
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

import apsw
import numpy as np
import pytest
from bag_factory import (
    PERIOD_NS,
    START_NS,
    camera_messages,
    cut,
    image_message,
    picture,
    storage_file,
    write_messages,
)

from lingbot_map_ros.errors import SourceError
from lingbot_map_ros.replay.bag import Bag, decode

TOPIC = "/camera/image_raw"
VARIANTS = [
    ("mcap", "none"),
    ("mcap", "message"),
    ("mcap", "file"),
    ("mcap", "storage"),
    ("sqlite3", "none"),
    ("sqlite3", "message"),
    ("sqlite3", "file"),
]


def read_stamps(bag, topic=TOPIC):
    return [record.stamp_ns for record in bag.messages([topic])]


def snapshot(directory):
    return {p.name: (p.stat().st_mtime_ns, p.read_bytes()) for p in sorted(directory.iterdir())}


def noisy_images(count, height=96, width=128):
    """Images that do not compress, so that a share of the bytes is a share of the frames."""
    rng = np.random.default_rng(0)
    for index in range(count):
        stamp = START_NS + index * PERIOD_NS
        image = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
        yield TOPIC, stamp, image_message(index, stamp, image)


@pytest.mark.parametrize(("storage", "compression"), VARIANTS)
@pytest.mark.parametrize("single_file", [False, True])
def test_reads_every_message_as_written(tmp_path, storage, compression, single_file):
    path = write_messages(tmp_path / "bag", camera_messages(12), storage, compression)
    before = snapshot(path)
    with Bag(storage_file(path) if single_file else path) as bag:
        records = list(bag.messages([TOPIC]))
        assert bag.damage == []
        assert bag.topics[TOPIC].count == 12
        assert bag.topics["/camera/camera_info"].msgtype == "sensor_msgs/msg/CameraInfo"
        assert (bag.start_ns, bag.end_ns) == (START_NS, START_NS + 11 * PERIOD_NS)
    for index, record in enumerate(records):
        message = decode(record)
        assert record.stamp_ns == START_NS + index * PERIOD_NS
        np.testing.assert_array_equal(message.data.reshape(48, 64, 3), picture(index))
    assert len(records) == 12
    assert snapshot(path) == before


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
def test_start_and_stop_bound_the_time_of_recording(tmp_path, storage):
    path = write_messages(tmp_path / "bag", camera_messages(10), storage)
    with Bag(path) as bag:
        window = START_NS + 2 * PERIOD_NS, START_NS + 5 * PERIOD_NS
        stamps = [r.stamp_ns for r in bag.messages([TOPIC], *window)]
    assert stamps == [START_NS + index * PERIOD_NS for index in (2, 3, 4)]


@pytest.mark.parametrize(("storage", "compression"), VARIANTS)
@pytest.mark.parametrize("keep_metadata", [False, True])
def test_a_bag_cut_at_60_percent_gives_95_percent_of_what_is_left(
    tmp_path, storage, compression, keep_metadata
):
    count = 200
    path = write_messages(tmp_path / "bag", noisy_images(count), storage, compression)
    cut(storage_file(path), 0.6)
    if not keep_metadata:
        (path / "metadata.yaml").unlink()
    before = snapshot(path)
    with Bag(path) as bag:
        stamps = read_stamps(bag)
        text = " ".join(bag.damage)
        assert bag.topics[TOPIC].count == len(stamps)
    assert stamps == [START_NS + index * PERIOD_NS for index in range(len(stamps))]
    assert len(stamps) >= 0.95 * 0.6 * count
    assert "cut off" in text
    assert ("200 messages readable" in text) == keep_metadata
    assert snapshot(path) == before


@pytest.mark.parametrize("count", [40, 600, 1500])
def test_sqlite_rows_survive_whatever_becomes_of_the_inner_pages(tmp_path, count):
    """With 600 rows of one a leaf page, the inner page of the first rows lies behind the cut."""
    messages = noisy_images(count, 48, 109)
    path = write_messages(tmp_path / "bag", messages, "sqlite3")
    cut(storage_file(path), 0.6)
    with Bag(path) as bag:
        stamps = read_stamps(bag)
    assert stamps == [START_NS + index * PERIOD_NS for index in range(len(stamps))]
    assert len(stamps) >= 0.95 * 0.6 * count


@pytest.mark.parametrize("share", [0.15, 0.3, 0.9, 0.999])
@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
def test_any_cut_is_read_up_to_the_cut(tmp_path, storage, share):
    path = write_messages(tmp_path / "bag", noisy_images(100), storage)
    cut(storage_file(path), share)
    with Bag(path) as bag:
        stamps = read_stamps(bag)
        assert bag.damage
    assert stamps == [START_NS + index * PERIOD_NS for index in range(len(stamps))]
    assert len(stamps) >= 0.95 * share * 100 - 1


def test_small_compressed_frames_in_one_chunk_survive_the_cut(tmp_path):
    """All frames fit into one chunk: the half chunk is used as far as it goes."""
    path = write_messages(tmp_path / "bag", camera_messages(60, "jpg"), "mcap", "none")
    cut(storage_file(path), 0.6)
    with Bag(path) as bag:
        stamps = read_stamps(bag)
    assert len(stamps) >= 0.5 * 60


@pytest.mark.parametrize(
    "content", [None, "", "[1, 2", "rosbag2_bagfile_information: 3", "\x00\x01"]
)
@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
def test_missing_or_bad_metadata_is_rebuilt(tmp_path, storage, content):
    path = write_messages(tmp_path / "bag", camera_messages(5), storage)
    metadata = path / "metadata.yaml"
    metadata.unlink() if content is None else metadata.write_text(content)
    with Bag(path) as bag:
        assert len(read_stamps(bag)) == 5
        assert len(bag.damage) == 1
        assert "rebuilt from the storage" in bag.damage[0]
        assert "\n" not in bag.damage[0]
    assert metadata.exists() == (content is not None)


@pytest.mark.parametrize(("storage", "compression"), [("mcap", "none"), ("mcap", "storage")])
def test_a_hole_in_an_mcap_costs_only_the_chunks_it_touches(tmp_path, storage, compression):
    path = write_messages(tmp_path / "bag", noisy_images(200), storage, compression)
    file = storage_file(path)
    data = bytearray(file.read_bytes())
    middle = len(data) // 2
    data[middle : middle + 80_000] = random.Random(1).randbytes(80_000)
    file.write_bytes(data)
    with Bag(path) as bag:
        stamps = read_stamps(bag)
        assert bag.damage
    assert len(set(stamps)) == len(stamps) >= 160
    assert stamps[-1] == START_NS + 199 * PERIOD_NS


def test_destroyed_framing_of_an_mcap_without_index_is_resynchronised(tmp_path):
    path = write_messages(tmp_path / "bag", noisy_images(200), "mcap")
    file = storage_file(path)
    data = bytearray(file.read_bytes()[: int(file.stat().st_size * 0.9)])
    chunk = data.index(b"\x06", len(data) // 3)
    for start in range(len(data) // 3, len(data)):
        if data[start] == 6 and data[start + 6 : start + 9] == b"\0\0\0":
            chunk = start
            break
    data[chunk : chunk + 9] = b"\xff" * 9
    file.write_bytes(data)
    with Bag(path) as bag:
        stamps = read_stamps(bag)
        assert any("unreadable from byte" in text for text in bag.damage)
    assert len(stamps) >= 140
    assert stamps[-1] >= START_NS + 175 * PERIOD_NS


def test_a_hole_in_a_sqlite_bag_costs_only_the_rows_it_touches(tmp_path):
    path = write_messages(tmp_path / "bag", noisy_images(100), "sqlite3")
    file = storage_file(path)
    data = bytearray(file.read_bytes())
    middle = len(data) // 2 // 4096 * 4096
    data[middle : middle + 3 * 4096] = random.Random(2).randbytes(3 * 4096)
    file.write_bytes(data)
    with Bag(path) as bag:
        stamps = read_stamps(bag)
    assert len(stamps) >= 95
    assert stamps[-1] == START_NS + 99 * PERIOD_NS


def test_the_inner_pages_of_a_sqlite_bag_may_be_garbage(tmp_path):
    path = write_messages(tmp_path / "bag", noisy_images(100), "sqlite3")
    file = storage_file(path)
    data = bytearray(file.read_bytes())
    inner = [p for p in range(0, len(data), 4096) if data[p] == 5 and p]
    assert inner
    for page in inner:
        data[page : page + 64] = b"\xff" * 64
    file.write_bytes(data)
    with Bag(path) as bag:
        assert len(read_stamps(bag)) == 100
        assert bag.damage


def test_an_unfinished_write_ahead_journal_is_read_and_left_alone(tmp_path):
    path = write_messages(tmp_path / "bag", camera_messages(5), "sqlite3")
    file = storage_file(path)
    database = apsw.Connection(str(file))
    database.execute("PRAGMA journal_mode=WAL").fetchall()
    row = "SELECT topic_id, timestamp + 1000000000, data FROM messages"
    database.execute(f"INSERT INTO messages (topic_id, timestamp, data) {row}").fetchall()
    killed = tmp_path / "killed"
    shutil.copytree(path, killed, ignore=shutil.ignore_patterns("*-shm"))
    database.close()
    before = snapshot(killed)
    with Bag(killed) as bag:
        assert len(read_stamps(bag)) == 10
    assert snapshot(killed) == before


def test_a_split_bag_is_read_in_order_and_names_a_missing_part(tmp_path):
    messages = list(camera_messages(12))
    parts = [write_messages(tmp_path / f"p{i}", messages[i * 8 : i * 8 + 8]) for i in range(3)]
    bag_path = tmp_path / "bag"
    bag_path.mkdir()
    for index, part in enumerate(parts):
        shutil.copy(storage_file(part), bag_path / f"bag_{9 + index}.mcap")
    with Bag(bag_path) as bag:
        assert read_stamps(bag) == [START_NS + i * PERIOD_NS for i in range(12)]
    (bag_path / "metadata.yaml").write_text(
        "rosbag2_bagfile_information:\n  relative_file_paths: [bag_9.mcap, bag_12.mcap]\n"
        "  topics_with_message_count: []\n"
    )
    with Bag(bag_path) as bag:
        assert len(read_stamps(bag)) == 4
        assert bag.damage == ["bag_12.mcap is named in metadata.yaml and is missing"]


def test_what_is_no_bag_is_refused_in_one_line(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.mcap").write_text("not a bag at all" * 100)
    (tmp_path / "text.db3").write_text("not a bag at all" * 100)
    (tmp_path / "nothing.mcap").write_bytes(b"")
    (tmp_path / "nothing.db3").write_bytes(b"")
    (tmp_path / "notes.txt").write_text("x")
    for name in [
        "absent",
        "empty",
        "text.mcap",
        "text.db3",
        "nothing.mcap",
        "nothing.db3",
        "notes.txt",
        "a" * 300,
        "/dev/null",
    ]:
        with pytest.raises(SourceError) as caught:
            Bag(tmp_path / name)
        assert name in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
def test_random_damage_never_raises_anything_but_source_error(tmp_path, storage):
    path = write_messages(tmp_path / "bag", noisy_images(12, 24, 32), storage)
    file = storage_file(path)
    whole = file.read_bytes()
    rng = random.Random(5)
    for _ in range(60):
        data = bytearray(whole[: rng.randrange(1, len(whole) + 1)])
        for _ in range(rng.randrange(6)):
            at = rng.randrange(len(data))
            data[at : at + 8] = rng.randbytes(min(8, len(data) - at))
        file.write_bytes(data)
        try:
            with Bag(path) as bag:
                for record in bag.messages(list(bag.topics)):
                    try:
                        decode(record)
                    except SourceError:
                        continue
        except SourceError:
            continue


@contextmanager
def as_nobody():
    """Root, who reads every file, is somebody else in the body."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


@pytest.mark.parametrize("storage", ["mcap", "sqlite3"])
def test_an_unreadable_file_is_named(storage):
    with tempfile.TemporaryDirectory() as folder:  # tmp_path is its owner's alone
        Path(folder).chmod(0o755)
        path = write_messages(Path(folder) / "bag", camera_messages(2), storage)
        storage_file(path).chmod(0)
        with as_nobody(), pytest.raises(SourceError, match="Permission denied"):
            Bag(path)


def test_a_truncated_message_is_a_source_error(tmp_path):
    path = write_messages(tmp_path / "bag", camera_messages(1))
    with Bag(path) as bag:
        (record,) = bag.messages([TOPIC])
    with pytest.raises(SourceError, match=TOPIC):
        decode(record._replace(data=record.data[:40]))
    with pytest.raises(SourceError, match="no/msg/Such"):
        decode(record._replace(msgtype="no/msg/Such"))
