# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Bags, folders and videos as sources of frames, and the poses that a bag holds besides."""

import math
from pathlib import Path

import cv2
import numpy as np
import pytest
from bag_factory import (
    PERIOD_NS,
    START_NS,
    camera_info_message,
    camera_messages,
    compressed_message,
    image_message,
    odometry_message,
    picture,
    static_transform_message,
    write_messages,
)
from PIL import Image

from lingbot_map_ros.errors import SourceError
from lingbot_map_ros.geometry.poses import make_pose, quaternion_to_matrix
from lingbot_map_ros.replay.bag import Bag
from lingbot_map_ros.replay.bag_poses import read_poses, static_transform
from lingbot_map_ros.replay.bag_source import BagSource
from lingbot_map_ros.replay.image_source import FolderSource, VideoSource
from lingbot_map_ros.replay.natural import natural_key
from lingbot_map_ros.replay.source import Span
from lingbot_map_ros.ros.stamps import RESUME_FRAMES
from lingbot_map_ros.streaming.image_files import image_size, load_image

TOPIC = "/camera/image_raw"
EVERYTHING = Span()


@pytest.mark.parametrize("form", ["raw", "png", "jpg"])
def test_a_bag_gives_rgb_with_the_stamps_and_calibration_of_its_camera(tmp_path, form):
    with Bag(write_messages(tmp_path / "bag", camera_messages(6, form))) as bag:
        source = BagSource(bag, "", EVERYTHING)
        frames = list(source.frames())
    assert [frame.stamp_ns for frame in frames] == [START_NS + i * PERIOD_NS for i in range(6)]
    assert source.expected == 6
    assert source.frame_id == "camera" and source.size == (48, 64)
    assert source.camera is not None and source.camera.width == 64
    assert source.losses.frames == 0
    for index, frame in enumerate(frames):
        assert frame.image.shape == (48, 64, 3) and frame.image.dtype == np.uint8
        difference = np.abs(frame.image.astype(int) - picture(index)).mean()
        assert difference <= (3.0 if form == "jpg" else 0.0)


def test_span_and_rate_choose_frames_by_time(tmp_path):
    with Bag(write_messages(tmp_path / "bag", camera_messages(40))) as bag:
        source = BagSource(bag, "", Span(start_offset=1.0, duration=2.0, rate=5.0))
        stamps = [frame.stamp_ns for frame in source.frames()]
    assert stamps == [START_NS + i * PERIOD_NS for i in range(10, 30, 2)]
    assert source.expected == 10


def test_the_topic_must_be_clear(tmp_path):
    messages = [*camera_messages(2), *camera_messages(3, "png", "/right/image/compressed")]
    with Bag(write_messages(tmp_path / "bag", messages)) as bag:
        with pytest.raises(SourceError) as several:
            BagSource(bag, "", EVERYTHING)
        assert "/camera/image_raw (2), /right/image/compressed (3)" in str(several.value)
        with pytest.raises(SourceError, match="no image topic /left"):
            BagSource(bag, "/left", EVERYTHING)
        assert len(list(BagSource(bag, "/right/image/compressed", EVERYTHING).frames())) == 3
    only = [("/info", START_NS, camera_info_message(START_NS))]
    with (
        Bag(write_messages(tmp_path / "info", only)) as bag,
        pytest.raises(SourceError, match="no image topic: /info"),
    ):
        BagSource(bag, "", EVERYTHING)
    (tmp_path / "info" / "metadata.yaml").unlink()
    with (
        Bag(write_messages(tmp_path / "nothing", [])) as bag,
        pytest.raises(SourceError, match=r"no image topic: it is empty$"),
    ):
        BagSource(bag, "", EVERYTHING)
    with (
        Bag(tmp_path / "info") as bag,
        pytest.raises(SourceError, match=r"/info; metadata\.yaml is missing"),
    ):
        BagSource(bag, "", EVERYTHING)


def test_unusable_images_are_left_out_and_named(tmp_path):
    def messages():
        for index in range(8):
            stamp = START_NS + index * PERIOD_NS
            message = compressed_message(index, stamp)
            if index == 2:
                message.data = message.data[:40]
            if index == 4:
                message.data = np.empty(0, np.uint8)
            if index == 6:
                message.header.stamp.sec -= 5
            yield "/cam/compressed", stamp, message

    with Bag(write_messages(tmp_path / "bag", messages())) as bag:
        source = BagSource(bag, "", EVERYTHING)
        assert len(list(source.frames())) == 5
    assert source.losses.frames == 3
    assert len(source.losses.sentences) == 3
    assert "not later" in source.losses.sentences[2]


def test_the_first_image_that_the_network_can_take_tells_size_and_frame(tmp_path):
    before = START_NS - PERIOD_NS
    tiny = TOPIC, before, image_message(0, before, np.zeros((2, 4, 3), np.uint8))
    with Bag(write_messages(tmp_path / "bag", [tiny, *camera_messages(3)])) as bag:
        source = BagSource(bag, "", EVERYTHING)
        assert source.size == (48, 64) and source.camera is not None


def test_a_stamp_far_ahead_costs_one_image_and_a_gap_none(tmp_path):
    def messages():
        for index in range(6):
            time = START_NS + index * PERIOD_NS + (3600 * 10**9 if index > 3 else 0)
            yield TOPIC, time, image_message(index, time + (7200 * 10**9 if index == 2 else 0))

    with Bag(write_messages(tmp_path / "bag", messages())) as bag:
        source = BagSource(bag, "", EVERYTHING)
        frames = list(source.frames())
    assert [frame.image[0, 0, 2] // 7 for frame in frames] == [0, 1, 3, 4, 5]
    assert source.losses.frames == 1
    assert "lies 7200.0 s ahead of the time" in source.losses.sentences[0]


@pytest.mark.parametrize(("stray", "ahead"), [(0, 7200), (0, 5), (8, 5)])
def test_a_stamp_that_only_later_ones_tell_to_be_stray_costs_few_images(tmp_path, stray, ahead):
    def messages():
        for index in range(20):
            time = START_NS + index * PERIOD_NS
            yield TOPIC, time, image_message(index, time + (index == stray) * ahead * 10**9)

    with Bag(write_messages(tmp_path / "bag", messages())) as bag:
        source = BagSource(bag, "", EVERYTHING)
        frames = list(source.frames())
        thinned = list(BagSource(bag, "", Span(rate=5.0)).frames())
    taken = [*range(stray + 1), *range(stray + RESUME_FRAMES, 20)]
    assert [frame.image[0, 0, 2] // 7 for frame in frames] == taken
    assert source.losses.frames == RESUME_FRAMES - 1
    assert len(thinned) == len(taken[stray + 1 :: 2]) + stray // 2 + 1
    back = [text for text in source.losses.sentences if "the stamps go back by" in text]
    assert len(back) == (stray == 0)


def test_images_without_a_stamp_get_the_time_of_recording(tmp_path):
    stamped = [(TOPIC, START_NS + i * PERIOD_NS, image_message(i, 0)) for i in range(3)]
    with Bag(write_messages(tmp_path / "bag", stamped)) as bag:
        frames = list(BagSource(bag, "", EVERYTHING).frames())
    assert [frame.stamp_ns for frame in frames] == [START_NS + i * PERIOD_NS for i in range(3)]


def test_a_calibration_of_another_size_is_noted_and_not_used(tmp_path):
    info = "/camera/camera_info", START_NS, camera_info_message(START_NS, 480, 640)
    messages = [info, (TOPIC, START_NS + 1, image_message(0, START_NS))]
    with Bag(write_messages(tmp_path / "bag", messages)) as bag:
        source = BagSource(bag, "", EVERYTHING)
        assert source.camera is None
        assert "/camera/camera_info is not used" in source.losses.notes[0]
        assert BagSource(bag, "", EVERYTHING, use_camera_info=False).losses.notes == []


def test_odometry_is_interpolated_and_static_transforms_are_chained(tmp_path):
    half = math.sqrt(0.5)

    def messages():
        yield (
            "/tf_static",
            START_NS,
            static_transform_message("base_link", "mast", (0, 0, 1), (0, 0, half, half)),
        )
        yield (
            "/tf_static",
            START_NS + 1,
            static_transform_message("mast", "camera", (0.5, 0, 0), (0, 0, 0, 1)),
        )
        for index in range(5):
            stamp = START_NS + index * PERIOD_NS
            turn = (0, 0, math.sin(index / 20), math.cos(index / 20))
            yield "/odom", stamp, odometry_message(stamp, (index, 0, 0), turn)
        stamp = START_NS + 5 * PERIOD_NS
        yield "/odom", stamp, odometry_message(stamp, (math.nan, 0, 0))

    with Bag(write_messages(tmp_path / "bag", messages())) as bag:
        log = read_poses(bag, "/odom")
        mount = static_transform(bag, "base_link", "camera")
        back = static_transform(bag, "camera", "base_link")
        assert static_transform(bag, "base_link", "elsewhere") is None
        with pytest.raises(
            SourceError, match=r"/tf_static is .*TFMessage; topics of type Odometry, .*: /odom"
        ):
            read_poses(bag, "/tf_static")
    assert len(log.stamps) == 5 and log.frame_id == "base_link"
    between = log.at(START_NS + 5 * PERIOD_NS // 2)
    expected = quaternion_to_matrix(np.array([0, 0, math.sin(0.125), math.cos(0.125)]))
    np.testing.assert_allclose(between, make_pose(expected, np.array([2.5, 0, 0])), atol=1e-6)
    assert log.at(START_NS - 1) is None and log.at(START_NS + 10 * PERIOD_NS) is None
    np.testing.assert_allclose(mount[:3, 3], [0, 0.5, 1], atol=1e-12)
    np.testing.assert_allclose(mount @ back, np.eye(4), atol=1e-12)


def test_a_folder_is_read_in_natural_order_with_exif_orientation(tmp_path):
    for index in (2, 10, 1):
        Image.fromarray(picture(index)).save(tmp_path / f"frame_{index}.png")
    turned = Image.fromarray(np.rot90(picture(11)))
    exif = Image.Exif()
    exif[0x0112] = 6
    turned.save(tmp_path / "frame_11.png", exif=exif)
    (tmp_path / "frame_12.png").write_bytes(b"no image")
    (tmp_path / "notes.txt").write_text("x")
    source = FolderSource(tmp_path, EVERYTHING)
    frames = list(source.frames())
    assert [frame.stamp_ns for frame in frames] == [i * PERIOD_NS for i in range(4)]
    for frame, index in zip(frames, (1, 2, 10, 11), strict=True):
        np.testing.assert_array_equal(frame.image, picture(index))
    assert source.losses.frames == 1 and "frame_12.png" in source.losses.sentences[0]
    assert source.size == (48, 64)


def test_a_folder_has_the_size_of_most_of_its_images(tmp_path):
    sizes = {0: (64, 48), 3: (64, 48), 5: (96, 128), 7: (49, 64), **dict.fromkeys((8, 9), (30, 30))}
    for index in range(12):
        Image.fromarray(picture(index, *sizes.get(index, (48, 64)))).save(tmp_path / f"{index}.png")
    turned = Image.fromarray(np.rot90(picture(12)))
    turned.getexif()[0x0112] = 6
    turned.save(tmp_path / "12.jpg", exif=turned.getexif())
    source = FolderSource(tmp_path, EVERYTHING)
    assert source.size == (48, 64) and source.expected == 8
    frames = list(source.frames())
    assert [frame.image.shape for frame in frames] == [(48, 64, 3)] * 8
    kept = [1, 2, 4, 5, 6, 10, 11, 12]
    assert [frame.stamp_ns for frame in frames] == [i * PERIOD_NS for i in kept]
    np.testing.assert_array_equal(frames[0].image, picture(1))
    assert source.losses.frames == 5
    assert source.losses.sentences == [
        "5 of 13 images are of another shape than the 7 of 64x48 pixels and are left out: "
        "0.png (48x64), 3.png (48x64), 7.png (64x49), 8.png (30x30), 9.png (30x30)"
    ]


def test_many_odd_images_are_counted_and_the_first_named(tmp_path):
    for index in range(20):
        Image.fromarray(picture(index, *((48, 64), (64, 48))[index % 3 == 0])).save(
            tmp_path / f"{index}.png"
        )
    (sentence,) = FolderSource(tmp_path, EVERYTHING).losses.sentences
    assert sentence.startswith("7 of 20 images") and sentence.endswith("12.png (48x64) and 2 more")


def test_the_size_of_a_file_is_that_of_the_loaded_image(tmp_path):
    for orientation in range(1, 9):
        for suffix in ("jpg", "png", "tif"):
            path = tmp_path / f"{orientation}.{suffix}"
            exif = Image.Exif()
            exif[0x0112] = orientation
            Image.fromarray(picture(0)).save(path, exif=exif)
            assert image_size(path) == load_image(path).shape[:2]
    unknown_kind = b"DDS " + (124).to_bytes(4, "little") + bytes(120)
    for content in (b"no image", unknown_kind):
        path.write_bytes(content)
        for read in (image_size, load_image):
            with pytest.raises(SourceError, match="cannot be read"):
                read(path)


def test_names_that_are_times_are_the_stamps(tmp_path):
    names = ["1305031102.175304", "1305031102.211214", "1305031102.243211"]
    for index, name in enumerate(names):
        Image.fromarray(picture(index)).save(tmp_path / f"{name}.png")
    stamps = [frame.stamp_ns for frame in FolderSource(tmp_path, EVERYTHING).frames()]
    assert stamps == [1305031102175304000, 1305031102211214000, 1305031102243211000]
    span = Span(start_offset=0.03, duration=0.02)
    assert len(list(FolderSource(tmp_path, span).frames())) == 1


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_16_bit_images_that_use_few_bits_are_said(tmp_path, channels):
    (tmp_path / "0.png").write_bytes(b"no image")
    for index in range(1, 4):
        values = picture(index).astype(np.uint16) << 4
        values = np.insert(values, 3, 65535, axis=-1)[..., :channels]
        cv2.imwrite(str(tmp_path / f"{index}.png"), values)
    (note,) = FolderSource(tmp_path, EVERYTHING).losses.notes
    largest = int(values[..., :3].max())
    assert f"is {largest} of 65535" in note and note.endswith("the values of all by 16")


def test_16_bit_images_that_are_bright_or_black_have_no_note(tmp_path):
    cv2.imwrite(str(tmp_path / "0.png"), np.zeros((48, 64), np.uint16))
    assert FolderSource(tmp_path, EVERYTHING).losses.notes == []
    cv2.imwrite(str(tmp_path / "1.png"), picture(1)[..., 0].astype(np.uint16) << 8)
    assert FolderSource(tmp_path, EVERYTHING).losses.notes == []
    Image.fromarray(picture(0) // 20).save(tmp_path / "1.png")
    assert FolderSource(tmp_path, EVERYTHING).losses.notes == []


def test_files_of_one_stamp_are_left_out_and_named(tmp_path):
    names = ["1700000000.0", "1700000000.1", "1700000000.10", "1700000000.100", "1700000000.2"]
    for index, name in enumerate(names):
        Image.fromarray(picture(index)).save(tmp_path / f"{name}.png")
    source = FolderSource(tmp_path, EVERYTHING)
    assert [frame.file for frame in source.frames()] == [f"{names[i]}.png" for i in (0, 1, 4)]
    assert source.losses.frames == 2
    assert source.losses.sentences == [
        "2 of 5 images have the stamp of another and are left out: 1700000000.10.png "
        "(as 1700000000.1.png), 1700000000.100.png (as 1700000000.1.png)"
    ]
    thinned = FolderSource(tmp_path, Span(rate=5.0))
    assert thinned.expected == 2 and thinned.losses.frames == 0


@pytest.fixture
def video(tmp_path):
    path = tmp_path / "clip.avi"
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"MJPG"), 20.0, (64, 48))
    for index in range(30):
        writer.write(picture(index)[..., ::-1])
    writer.release()
    return path


def test_a_video_gives_every_frame_or_every_nth(video):
    source = VideoSource(video, EVERYTHING)
    frames = list(source.frames())
    source.close()
    assert source.expected == len(frames) == 30 and source.size == (48, 64)
    assert [frame.stamp_ns for frame in frames] == [index * 50_000_000 for index in range(30)]
    assert np.abs(frames[20].image.astype(int) - picture(20)).mean() < 4
    thinned = VideoSource(video, Span(start_offset=0.5, duration=0.6, rate=7.0))
    assert [frame.stamp_ns for frame in thinned.frames()] == [
        round(index * 5e7) for index in (10, 13, 16, 19)
    ]
    assert thinned.losses.sentences == []


def test_a_start_behind_the_end_is_refused(tmp_path, video):
    late = Span(start_offset=60.0)
    with Bag(write_messages(tmp_path / "bag", camera_messages(11))) as bag:
        with pytest.raises(SourceError, match=r"60 lies behind the end of .*bag, which is 1\.0 s"):
            BagSource(bag, "", late)
        assert len(list(BagSource(bag, "", Span(start_offset=1.0)).frames())) == 1
    with pytest.raises(SourceError, match=r"clip\.avi, which is 1\.5 s"):
        VideoSource(video, late)
    (tmp_path / "folder").mkdir()
    Image.fromarray(picture(0)).save(tmp_path / "folder" / "a.png")
    with pytest.raises(SourceError, match=r"folder, which is 0\.0 s"):
        FolderSource(tmp_path / "folder", late)


def test_a_cut_video_is_read_up_to_the_cut_and_named(video):
    data = video.read_bytes()
    video.write_bytes(data[: int(len(data) * 0.6)])
    try:
        source = VideoSource(video, EVERYTHING)
    except SourceError:
        return  # some OpenCV builds refuse such a file, which is said too
    assert 12 <= len(list(source.frames())) < 30
    assert "damaged or cut off" in source.losses.sentences[0]


def test_what_is_no_source_is_refused_in_one_line(tmp_path):
    (tmp_path / "text.mp4").write_text("no video")
    (tmp_path / "empty").mkdir()
    for make, name in (
        (FolderSource, "absent"),
        (FolderSource, "empty"),
        (VideoSource, "absent.mp4"),
        (VideoSource, "text.mp4"),
    ):
        with pytest.raises(SourceError, match=name) as caught:
            make(tmp_path / name, EVERYTHING)
        assert "\n" not in str(caught.value)


def test_files_are_ordered_as_a_person_would_number_them():
    names = ["a2", "a10", "1.png", "01.png", "²1.png", "10.png", "9.png", "a", "b1"]
    expected = ["01.png", "1.png", "9.png", "10.png", "a", "a2", "a10", "b1", "²1.png"]
    for order in (names, names[::-1]):
        assert [path.name for path in sorted(map(Path, order), key=natural_key)] == expected
