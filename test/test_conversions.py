# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Camera messages to RGB: every encoding, padding, byte order, garbage; both message families."""

import array
import struct
import subprocess
import sys
import zlib

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rosbags.typesys import Stores, get_typestore
from sensor_msgs.msg import CompressedImage, Image

from lingbot_map_ros.errors import InputError
from lingbot_map_ros.ros import cv_bridge_variant
from lingbot_map_ros.ros.conversions import (
    SUPPORTED_ENCODINGS,
    UnsupportedEncodingError,
    compressed_to_rgb,
    image_to_rgb,
)
from lingbot_map_ros.ros.intensity_window import IntensityWindow

CONTRACT = [
    *("rgb8", "bgr8", "rgba8", "bgra8", "mono8", "mono16", "16UC1", "8UC1", "8UC3", "8UC4"),
    *("bayer_rggb8", "bayer_bggr8", "bayer_gbrg8", "bayer_grbg8"),
    *("yuv422", "yuv422_yuy2", "nv12"),
]
STORE = get_typestore(Stores.ROS2_HUMBLE)
H, W = 24, 32


def picture(height=H, width=W):
    """Smooth colours, so that chroma subsampling and demosaicing lose little."""
    v, u = np.mgrid[0:height, 0:width].astype(np.float64)
    channels = (60 + 150 * u / width, 40 + 120 * v / height, 200 - 100 * u / width)
    return np.stack(channels, -1).astype(np.uint8)


def packed_rows(rgb, encoding):
    """Rows [rows, bytes] of the picture, written from the definitions of the encodings."""
    gray = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)
    alpha = np.full_like(gray, 77)[..., None]
    name = encoding.lower()
    if name.startswith("bayer_"):
        pattern = name[6:10]
        mosaic = np.empty_like(gray)
        for index, colour in enumerate(pattern):
            row, column = divmod(index, 2)
            mosaic[row::2, column::2] = rgb[row::2, column::2, "rgb".index(colour)]
        return mosaic.astype(np.uint16) << 8 if name.endswith("16") else mosaic
    if name in ("yuv422", "uyvy", "yuv422_yuy2", "yuyv"):
        y, u, v = yuv(rgb)
        u, v = (u[:, ::2] + u[:, 1::2]) / 2, (v[:, ::2] + v[:, 1::2]) / 2
        parts = [u, y[:, ::2], v, y[:, 1::2]]
        if name in ("yuv422_yuy2", "yuyv"):
            parts = [y[:, ::2], u, y[:, 1::2], v]
        return np.rint(np.stack(parts, -1)).astype(np.uint8).reshape(rgb.shape[0], -1)
    if name in ("nv12", "nv21"):
        y, u, v = yuv(rgb)
        u, v = ((c[::2, ::2] + c[1::2, ::2] + c[::2, 1::2] + c[1::2, 1::2]) / 4 for c in (u, v))
        chroma = np.stack((u, v) if name == "nv12" else (v, u), -1)
        return np.rint(np.concatenate((y, chroma.reshape(-1, rgb.shape[1])))).astype(np.uint8)
    wide = rgb.astype(np.uint16) << 8
    return {
        "rgb8": rgb,
        "bgr8": rgb[..., ::-1],
        "8uc3": rgb[..., ::-1],
        "rgba8": np.concatenate((rgb, alpha), -1),
        "bgra8": np.concatenate((rgb[..., ::-1], alpha), -1),
        "8uc4": np.concatenate((rgb[..., ::-1], alpha), -1),
        "mono8": gray,
        "8uc1": gray,
        "mono16": gray.astype(np.uint16) << 8 | 0x5A,
        "16uc1": gray.astype(np.uint16) << 8,
        "rgb16": wide,
        "bgr16": wide[..., ::-1],
        "rgba16": np.concatenate((wide, alpha.astype(np.uint16)), -1),
        "bgra16": np.concatenate((wide[..., ::-1], alpha.astype(np.uint16)), -1),
    }[name]


def yuv(rgb):
    """BT.601 limited range, as cameras send it."""
    r, g, b = (rgb[..., i].astype(np.float64) / 255 for i in range(3))
    y = 16 + 65.481 * r + 128.553 * g + 24.966 * b
    u = 128 - 37.797 * r - 74.203 * g + 112.0 * b
    v = 128 + 112.0 * r - 93.786 * g - 18.214 * b
    return y, u, v


def message(rgb, encoding, padding=0, bigendian=False, cut_last=False):
    rows = packed_rows(rgb, encoding)
    if bigendian:
        rows = rows.astype(rows.dtype.newbyteorder(">"))
    raw = np.ascontiguousarray(rows).view(np.uint8).reshape(rows.shape[0], -1)
    step = raw.shape[1] + padding
    padded = np.full((raw.shape[0], step), 0xEE, np.uint8)
    padded[:, : raw.shape[1]] = raw
    data = padded.tobytes()
    msg = Image(height=rgb.shape[0], width=rgb.shape[1], encoding=encoding, step=step)
    msg.is_bigendian = int(bigendian)
    msg.data = array.array("B", data[: len(data) - padding] if cut_last else data)
    return msg


def expected(rgb, encoding):
    name = encoding.lower()
    if name in ("mono8", "mono16", "8uc1"):
        return np.repeat(cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)[..., None], 3, -1)
    return rgb


def tolerance(encoding):
    """Subsampled and demosaiced colours differ a little; at edges demosaicing repeats pixels."""
    if encoding.startswith("bayer"):
        return 25
    return 8 if encoding.startswith(("yuv", "uyvy", "yuyv", "nv")) else 0


@pytest.fixture(autouse=True, params=["PyPI cv_bridge", "no cv_bridge"])
def variant(request, monkeypatch):
    """With the ROS 1 port really installed, and without any cv_bridge."""
    if request.param == "no cv_bridge":
        monkeypatch.setitem(sys.modules, "cv_bridge", None)
    else:
        pytest.importorskip("cv_bridge")
    cv_bridge_variant.is_ros2.cache_clear()
    yield
    cv_bridge_variant.is_ros2.cache_clear()


def test_the_table_holds_every_encoding_of_the_contract():
    assert set(CONTRACT) <= set(SUPPORTED_ENCODINGS)


@pytest.mark.parametrize("bigendian", [False, True])
@pytest.mark.parametrize("padding", [0, 5])
@pytest.mark.parametrize("encoding", [e for e in SUPPORTED_ENCODINGS if e != "16UC1"])
def test_every_encoding(encoding, padding, bigendian):
    rgb = picture()
    got = image_to_rgb(message(rgb, encoding, padding, bigendian))
    assert got.dtype == np.uint8 and got.shape == (H, W, 3)
    error = np.abs(got.astype(int) - expected(rgb, encoding).astype(int))
    assert error.max() <= tolerance(encoding)


@settings(max_examples=150, deadline=None)
@given(
    encoding=st.sampled_from([e for e in SUPPORTED_ENCODINGS if e[:3] not in ("bay", "16U")]),
    half_height=st.integers(1, 9),
    half_width=st.integers(1, 9),
    padding=st.integers(0, 67),
    bigendian=st.booleans(),
    cut_last=st.booleans(),
    as_rosbags=st.booleans(),
)
def test_padding_and_byte_order(
    encoding, half_height, half_width, padding, bigendian, cut_last, as_rosbags
):
    rgb = np.full((2 * half_height, 2 * half_width, 3), (180, 90, 40), np.uint8)
    msg = message(rgb, encoding, padding, bigendian, cut_last)
    got = image_to_rgb(through_rosbags(msg) if as_rosbags else msg)
    error = np.abs(got.astype(int) - expected(rgb, encoding).astype(int))
    assert error.max() <= (2 if tolerance(encoding) else 0)


def through_rosbags(msg):
    """Serialise with rclpy's type support, read with rosbags: its dataclasses, read-only data."""
    from rclpy.serialization import serialize_message

    return STORE.deserialize_cdr(serialize_message(msg), "sensor_msgs/msg/Image")


@pytest.mark.parametrize("encoding", CONTRACT)
def test_messages_of_rosbags_give_the_same(encoding):
    msg = message(picture(), encoding, 3)
    np.testing.assert_array_equal(image_to_rgb(through_rosbags(msg)), image_to_rgb(msg))


@pytest.mark.parametrize("padding", [0, 8])
def test_rgb8_is_a_view(padding):
    msg = message(picture(), "rgb8", padding)
    view = image_to_rgb(msg)
    msg.data[0] = 99
    assert view[0, 0, 0] == 99


@pytest.mark.parametrize("encoding", ["RGB8", "Mono8", "8uc3", "16uc1"])
def test_encoding_names_in_another_case(encoding):
    assert image_to_rgb(message(picture(), encoding)).shape == (H, W, 3)


def test_an_unknown_encoding_lists_the_known_ones():
    msg = message(picture(), "rgb8")
    for encoding in ("32FC1", "8UC2", "", "rgb9", "two\nlines"):
        msg.encoding = encoding
        with pytest.raises(UnsupportedEncodingError) as error:
            image_to_rgb(msg)
        assert all(name in str(error.value) for name in CONTRACT)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("encoding", CONTRACT)
@pytest.mark.parametrize(
    "damage",
    [
        {"height": 0},
        {"width": 0},
        {"step": 0},
        {"step": W // 2},
        {"step": 2**32 - 1},
        {"height": 2**32 - 1},
        {"width": 2**32 - 1, "step": 2**32 - 1},
        {"data": b""},
        {"data": bytes(17)},
    ],
)
def test_garbage_is_an_input_error(encoding, damage):
    msg = message(picture(), encoding)
    for name, value in damage.items():
        setattr(msg, name, value)
    with pytest.raises(InputError):
        image_to_rgb(msg)


@settings(max_examples=300, deadline=None)
@given(
    encoding=st.sampled_from([*SUPPORTED_ENCODINGS, "32FC1", "", "é"]),
    height=st.integers(0, 9),
    width=st.integers(0, 9),
    step=st.integers(0, 80),
    bigendian=st.integers(0, 255),
    data=st.binary(max_size=900),
)
def test_any_message_gives_an_image_or_an_input_error(
    encoding, height, width, step, bigendian, data
):
    msg = Image(height=height, width=width, step=step, encoding=encoding, data=data)
    msg.is_bigendian = bigendian
    try:
        rgb = image_to_rgb(msg)
    except InputError:
        return
    assert rgb.shape == (height, width, 3) and rgb.dtype == np.uint8


@pytest.mark.parametrize(("encoding", "height", "width"), [("yuv422", 4, 5), ("nv12", 5, 4)])
def test_subsampled_images_of_odd_size(encoding, height, width):
    msg = Image(height=height, width=width, step=2 * width, encoding=encoding, data=bytes(400))
    with pytest.raises(InputError):
        image_to_rgb(msg)


def counts_message(counts):
    msg = Image(height=counts.shape[0], width=counts.shape[1], encoding="16UC1")
    msg.step = 2 * counts.shape[1]
    msg.data = array.array("B", counts.astype("<u2").tobytes())
    return msg


def test_raw_counts_use_the_gray_levels_whatever_the_bit_depth():
    ramp = np.linspace(0.2, 0.8, 64 * 48).reshape(48, 64)
    for full_scale in (255, 4095, 16383, 65535):
        rgb = image_to_rgb(counts_message(ramp * full_scale))
        assert rgb.max() - rgb.min() > 190
        assert (np.diff(rgb[..., 0].reshape(-1).astype(int)) >= 0).all()


def test_raw_counts_do_not_flicker():
    rng = np.random.default_rng(0)
    still = rng.integers(7000, 9000, (48, 64))
    hot = still.copy()
    hot[:16, :24] = 16000
    window = IntensityWindow()
    before = image_to_rgb(counts_message(still), window).astype(int)
    after = image_to_rgb(counts_message(hot), window).astype(int)
    alone = image_to_rgb(counts_message(hot)).astype(int)
    assert np.abs(after - before)[16:].mean() < 12
    assert np.abs(alone - before)[16:].mean() > 60
    for _ in range(500):
        settled = image_to_rgb(counts_message(hot), window).astype(int)
    assert np.abs(settled - alone).max() <= 1


def test_a_flat_image_of_raw_counts():
    rgb = image_to_rgb(counts_message(np.full((4, 4), 1234)))
    assert (rgb == rgb[0, 0, 0]).all()


def compressed(rgb, extension, format_name, bits=8):
    pixels = rgb if rgb.ndim == 2 else cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR)
    if bits == 16:
        pixels = pixels.astype(np.uint16) << 8
    return CompressedImage(format=format_name, data=cv2.imencode(extension, pixels)[1].tobytes())


def test_compressed_images():
    rgb = picture(48, 64)
    gray = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)
    for message_, want, limit in (
        (compressed(rgb, ".png", "rgb8; png compressed bgr8"), rgb, 0),
        (compressed(rgb, ".png", "png", 16), rgb, 0),
        (compressed(rgb, ".jpg", "rgb8; jpeg compressed bgr8"), rgb, 12),
        (compressed(gray, ".png", "mono8; png compressed"), gray[..., None], 0),
        (compressed(gray, ".png", "mono16; png compressed", 16), gray[..., None], 0),
        (compressed(gray, ".jpg", "jpeg"), gray[..., None], 6),
    ):
        got = compressed_to_rgb(message_)
        assert got.shape == (48, 64, 3) and got.dtype == np.uint8
        assert np.abs(got.astype(int) - want.astype(int)).max() <= limit
        raw = memoryview(bytes(message_.data))
        view = STORE.types["sensor_msgs/msg/CompressedImage"](
            header=None, format=message_.format, data=np.frombuffer(raw, np.uint8)
        )
        np.testing.assert_array_equal(compressed_to_rgb(view), got)


def test_compressed_bayer_and_raw_counts_are_what_their_format_says():
    rgb = picture(48, 64)
    mosaic = packed_rows(rgb, "bayer_grbg8")
    got = compressed_to_rgb(compressed(mosaic, ".png", "bayer_grbg8; png compressed bayer_grbg8"))
    assert np.abs(got[2:-2, 2:-2].astype(int) - rgb[2:-2, 2:-2].astype(int)).max() < 8
    counts = np.tile(np.linspace(1000, 3000, 64).astype(np.uint16), (48, 1))
    data = cv2.imencode(".png", counts)[1].tobytes()
    got = compressed_to_rgb(CompressedImage(format="16UC1; png compressed", data=data))
    assert int(got.max()) - int(got.min()) > 190


def test_transparent_png():
    bgra = np.dstack((picture()[..., ::-1], np.full((H, W), 9, np.uint8)))
    data = cv2.imencode(".png", bgra)[1].tobytes()
    np.testing.assert_array_equal(
        compressed_to_rgb(CompressedImage(format="png", data=data)), picture()
    )


@pytest.mark.parametrize("extension", [".jpg", ".png"])
def test_corrupt_compressed_images(extension):
    rgb = cv2.resize(picture(), (320, 240))
    good = compressed(rgb, extension, extension[1:]).data.tobytes()
    for data in (b"", b"\xff\xd8", good[:40], good[: len(good) // 2], good[:-30], bytes(500)):
        with pytest.raises(InputError):
            compressed_to_rgb(CompressedImage(format=extension[1:], data=data))
    padded = CompressedImage(format=extension[1:], data=good + bytes(64))
    assert compressed_to_rgb(padded).shape == (240, 320, 3)


@pytest.mark.parametrize("sides", [(8193, 8192), (20_000, 20_000)])
@pytest.mark.parametrize("extension", ["png", "jpg"])
def test_an_image_that_unpacks_to_gigabytes_is_refused_by_its_header(sides, extension, monkeypatch):
    data = bytearray(cv2.imencode(f".{extension}", picture())[1].tobytes())
    if extension == "png":
        data[16:24] = struct.pack(">II", *sides)
        data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    else:
        at = data.index(b"\xff\xc0") + 5
        data[at : at + 4] = struct.pack(">HH", *sides)
    monkeypatch.setattr(cv2, "imdecode", lambda *_: pytest.fail("it was unpacked"))
    with pytest.raises(InputError, match="too large"):
        compressed_to_rgb(CompressedImage(format=extension, data=bytes(data)))


def test_a_header_that_only_promises_is_no_image():
    data = b"DDS " + struct.pack("<I", 124) + bytes(120)
    with pytest.raises(InputError):
        compressed_to_rgb(CompressedImage(format="jpeg", data=data))


def test_compressed_images_of_other_types():
    for pixels in (np.zeros((4, 4), np.float32), np.zeros((4, 4, 3), np.float32)):
        data = cv2.imencode(".tiff", pixels)[1].tobytes()
        with pytest.raises(InputError, match="float32"):
            compressed_to_rgb(CompressedImage(format="tiff", data=data))


def test_data_that_is_no_buffer():
    types = STORE.types
    for data in (None, [1, 2, 3], "text"):
        raw = types["sensor_msgs/msg/Image"](None, 1, 1, "rgb8", 0, 3, data)
        with pytest.raises(InputError):
            image_to_rgb(raw)
        with pytest.raises(InputError):
            compressed_to_rgb(types["sensor_msgs/msg/CompressedImage"](None, "jpeg", data))


@settings(max_examples=150, deadline=None)
@given(data=st.binary(max_size=300), position=st.integers(0, 600), byte=st.integers(0, 255))
def test_any_compressed_data_gives_an_image_or_an_input_error(data, position, byte):
    damaged = bytearray(compressed(picture(), ".jpg", "jpeg").data.tobytes())
    damaged[position % len(damaged)] = byte
    for candidate in (data, bytes(damaged)):
        try:
            rgb = compressed_to_rgb(CompressedImage(format="jpeg", data=candidate))
        except InputError:
            continue
        assert rgb.ndim == 3 and rgb.shape[2] == 3 and rgb.dtype == np.uint8


def test_importing_the_conversions_needs_neither_rclpy_nor_cv_bridge():
    code = (
        "import sys; sys.modules['rclpy'] = sys.modules['cv_bridge'] = None; "
        "import lingbot_map_ros.ros.conversions; print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "False"
