# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Network input from files (exact) and from cameras (close to it, and geometrically right)."""

import io
import json
from pathlib import Path
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
import torch
from PIL import Image

from lingbot_map_ros.errors import ConfigurationError, InputError, SourceError
from lingbot_map_ros.streaming.camera_model import (
    MAX_FIELD_OF_VIEW,
    CameraModel,
    CameraModelError,
    undistortion,
)
from lingbot_map_ros.streaming.image_files import resized_part
from lingbot_map_ros.streaming.preprocessing import (
    Preprocessor,
    load_image,
    network_crop,
    network_size,
    preprocess_file,
    resize_image,
)

GOLDEN = Path(__file__).parent / "data" / "golden"


def config(image_size=518, image_height=0):
    return SimpleNamespace(image_size=image_size, image_height=image_height, patch_size=14)


def scene(height, width, seed=0):
    """Smooth structure plus edges and a little noise, as a camera would see."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 255, (height // 20 + 2, width // 20 + 2, 3), dtype=np.uint8)
    image = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_CUBIC).astype(np.float32)
    image[height // 3 : height // 2, width // 4 : width // 2] = (255, 20, 90)
    return np.clip(image + rng.normal(0, 3, image.shape), 0, 255).astype(np.uint8)


def golden_items():
    cases = json.loads((GOLDEN / "manifest.json").read_text())["cases"]
    return next(case for case in cases if case["name"] == "preprocess")["config"]["items"]


@pytest.mark.parametrize("index", range(8))
def test_files_reproduce_the_golden_vectors_exactly(index):
    item = golden_items()[index]
    with np.load(GOLDEN / "layers" / "preprocess.npz") as vectors:
        data, want = vectors[f"in.file{index}"].tobytes(), vectors[f"out.image{index}"]
    got = preprocess_file(data, item["image_size"], item["crop_mode"])
    np.testing.assert_array_equal(got.numpy(), want.astype(np.float32) / 255)


def test_an_image_of_the_network_size_passes_the_live_path_unchanged():
    for item, mode in ((0, "crop"), (5, "crop"), (6, "pad"), (7, "pad")):
        size = golden_items()[item]["image_size"]
        with np.load(GOLDEN / "layers" / "preprocess.npz") as vectors:
            image = resize_image(load_image(vectors[f"in.file{item}"].tobytes()), size, mode)
        got = Preprocessor(*image.shape[:2], config(size))(image)
        np.testing.assert_array_equal(
            got.numpy(), image.transpose(2, 0, 1).astype(np.float32) / 255
        )


@pytest.mark.parametrize("size", [(480, 640), (1080, 1920), (270, 480), (376, 1241)])
def test_the_live_path_is_close_to_the_exact_one(size):
    image = scene(*size)
    want = resize_image(image, 518).astype(np.float32) / 255
    got = Preprocessor(*size, config())(image).permute(1, 2, 0).numpy()
    assert got.shape == want.shape
    assert np.abs(got - want).mean() < 1 / 255
    assert np.abs(got - want).max() < 4 / 255


@pytest.mark.parametrize("name", [None, "plumb_bob", "equidistant"])
@pytest.mark.parametrize("model", [(518, 0), (224, 168)])
def test_the_float_path_of_other_devices_is_close_to_the_one_in_bytes(name, model):
    image = scene(480, 640)
    prepare = Preprocessor(480, 640, config(*model), camera=CAMERAS.get(name))
    pixels = torch.from_numpy(image).permute(2, 0, 1)[None].float()
    error = (prepare._resample_floats(pixels) / 255).clamp(0, 1) - prepare(image)
    assert error.abs().mean() < 1 / 255


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("name", [None, "plumb_bob", "equidistant"])
def test_the_gpu_gives_what_the_cpu_gives(name):
    image = scene(480, 640)
    camera = CAMERAS.get(name)
    want = Preprocessor(480, 640, config(), camera=camera)(image)
    got = Preprocessor(480, 640, config(), "cuda", camera)(image)
    assert got.device.type == "cuda"
    assert (got.cpu() - want).abs().mean() < 1 / 255


@pytest.mark.parametrize(
    ("image", "model", "want"),
    [
        ((480, 640), (518, 0), (392, 518)),
        ((378, 504), (504, 0), (378, 504)),
        ((1080, 1920), (518, 0), (294, 518)),
        ((640, 480), (518, 0), (518, 392)),
        ((500, 500), (518, 0), (518, 518)),
        ((480, 640), (224, 168), (168, 224)),
        ((1080, 1920), (224, 168), (168, 224)),
        ((1920, 1080), (224, 168), (224, 168)),
        ((21, 777), (518, 0), (14, 518)),
    ],
)
def test_network_size(image, model, want):
    assert network_size(*image, config(*model)) == want


@pytest.mark.parametrize("image", [(13, 300), (15, 1500), (1500, 15), (0, 640), (480, 0)])
def test_an_image_without_a_patch_is_refused(image):
    with pytest.raises(InputError):
        network_size(*image, config())


@pytest.mark.parametrize("image", [(1, 1), (64, 2), (13, 13), (13, 64)])
def test_an_image_that_is_smaller_than_a_patch_is_refused(image):
    with pytest.raises(InputError, match="too small"):
        network_size(*image, config())
    with pytest.raises(InputError, match="too small"):
        resize_image(np.zeros((*image, 3), np.uint8))


@pytest.mark.parametrize("model", [(500, 0), (0, 0), (224, 100), (224, 238), (224, -14)])
def test_sizes_of_partial_patches_are_refused(model):
    with pytest.raises(ConfigurationError):
        network_size(480, 640, config(*model))


def test_models_of_fixed_size_see_the_middle_with_square_pixels():
    assert network_crop(480, 640, config()) == (0, 0, 480, 640)
    assert network_crop(1080, 1920, config(224, 168)) == (0, 240, 1080, 1440)
    assert network_crop(640, 360, config(224, 168)) == (80, 0, 480, 360)
    image = scene(108, 192)
    image[:, :24], image[:, -24:] = 255, 255
    image[:, 24:-24] = 50
    got = Preprocessor(108, 192, config(224, 168))(image)
    assert got.shape == (3, 168, 224)
    torch.testing.assert_close(got, torch.full_like(got, 50 / 255))


def test_read_only_padded_and_reversed_images_are_taken():
    image = scene(96, 128)
    prepare = Preprocessor(96, 128, config(126))
    want = prepare(image)
    frozen = image.copy()
    frozen.setflags(write=False)
    padded = np.zeros((96, 140, 3), np.uint8)
    padded[:, :128] = image
    for variant in (frozen, padded[:, :128], np.ascontiguousarray(image[..., ::-1])[..., ::-1]):
        torch.testing.assert_close(prepare(variant), want, rtol=0, atol=0)


def test_the_result_does_not_share_memory_with_the_image():
    image = scene(98, 126)
    got = Preprocessor(98, 126, config(126))(image)
    before = got.clone()
    image[:] = 0
    torch.testing.assert_close(got, before, rtol=0, atol=0)


@pytest.mark.parametrize(
    "image",
    [
        np.zeros((480, 640), np.uint8),
        np.zeros((480, 640, 4), np.uint8),
        np.zeros((480, 640, 3), np.float32),
        [[[0, 0, 0]]],
        None,
    ],
)
def test_what_is_no_image_is_refused(image):
    for prepare in (Preprocessor(480, 640, config()), resize_image):
        with pytest.raises(InputError, match="an image must be"):
            prepare(image)


def test_an_image_of_another_size_is_refused():
    with pytest.raises(InputError, match="480, 640, 3"):
        Preprocessor(480, 640, config())(np.zeros((480, 641, 3), np.uint8))


def test_unreadable_files(tmp_path):
    buffer = io.BytesIO()
    Image.fromarray(scene(60, 80)).save(buffer, "PNG")
    broken = bytearray(buffer.getvalue())
    broken[200:260] = bytes(60)
    cut = tmp_path / "cut.png"
    cut.write_bytes(buffer.getvalue()[: len(buffer.getvalue()) // 2])
    for source in (tmp_path / "none.png", cut, bytes(broken), b"", b"no image"):
        with pytest.raises(SourceError):
            preprocess_file(source)


@pytest.mark.parametrize(("height", "width"), [(480, 640), (640, 480)])
def test_the_part_that_a_resize_keeps(height, width):
    rows = np.arange(height) * (255 / height)
    image = np.repeat(np.round(rows).astype(np.uint8)[:, None, None], width, 1).repeat(3, 2)
    seen = resize_image(image)[:, 0, 0] * (height / 255)
    top, left, kept, across = resized_part(height, width, 518)
    centres = top + (np.arange(len(seen)) + 0.5) * (kept / len(seen)) - 0.5
    np.testing.assert_allclose(seen, centres, atol=3)
    assert (left, across) == (0, width)


@pytest.mark.parametrize(("height", "width"), [(10, 1000), (1, 518)])
def test_files_without_a_patch_are_refused(height, width):
    with pytest.raises(InputError):
        resize_image(np.zeros((height, width, 3), np.uint8))
    with pytest.raises(InputError):
        resize_image(np.zeros((width, height, 3), np.uint8), mode="pad")
    with pytest.raises(ConfigurationError):
        resize_image(np.zeros((100, 100, 3), np.uint8), 500)


K = np.array([[420.0, 0, 331], [0, 424, 229], [0, 0, 1]])
CAMERAS = {
    "plumb_bob": CameraModel(640, 480, K, (-0.32, 0.11, 0.001, -0.0008, -0.02), "plumb_bob"),
    "pincushion": CameraModel(640, 480, K, (0.15, -0.02, 0, 0), "plumb_bob"),
    "rational_polynomial": CameraModel(
        640, 480, K, (1.2, 0.4, 1e-4, -2e-4, 0.01, 1.55, 0.72, 0.07), "rational_polynomial"
    ),
    "equidistant": CameraModel(
        640,
        480,
        np.array([[285.0, 0, 322], [0, 286, 236], [0, 0, 1]]),
        (-0.01, 0.02, -0.015, 0.004),
        "equidistant",
    ),
    "off centre": CameraModel(640, 480, np.array([[420.0, 0, 350], [0, 420, 240], [0, 0, 1]])),
}


def pixel_to_ray(camera, pixels):
    """Rays through camera pixels by OpenCV's inverse, which shares no code with the maps."""
    points = pixels.reshape(-1, 1, 2).astype(np.float64)
    D = np.array(camera.D)
    if camera.model == "equidistant":
        return cv2.fisheye.undistortPoints(points, camera.K, D).reshape(-1, 2)
    criteria = (cv2.TERM_CRITERIA_COUNT | cv2.TERM_CRITERIA_EPS, 200, 1e-12)
    # OpenCV 5 has merged the function with a criterion into the other one.
    undistort = getattr(cv2, "undistortPointsIter", cv2.undistortPoints)
    eye = np.eye(3)
    return undistort(points, camera.K, D, R=eye, P=eye, criteria=criteria).reshape(-1, 2)


@pytest.mark.parametrize("name", CAMERAS)
@pytest.mark.parametrize("model", [(518, 0), (224, 168)])
def test_undistorted_images_reproject(name, model):
    """A dot at a known ray lies where the reported intrinsics of the network's input say."""
    camera = CAMERAS[name]
    prepare = Preprocessor(480, 640, config(*model), camera=camera)
    h, w = prepare.size
    assert prepare.undistorts
    fx, fy, cx, cy = prepare.intrinsics[[0, 1, 0, 1], [0, 1, 2, 2]]
    assert (cx, cy) == pytest.approx((w / 2, h / 2), abs=1e-6)
    v, u = np.mgrid[0:480, 0:640]
    for spot in ((120.0, 90.0), (330.0, 240.0), (560.0, 400.0), (90.0, 420.0), (480.0, 60.0)):
        blob = np.exp(-((u - spot[0]) ** 2 + (v - spot[1]) ** 2) / (2 * 6.0**2))
        image = np.repeat(np.rint(255 * blob).astype(np.uint8)[..., None], 3, -1)
        ray = pixel_to_ray(camera, np.array([spot]))[0]
        want = ray * (fx, fy) + (cx, cy)
        if not (12 < want[0] < w - 12 and 12 < want[1] < h - 12):
            continue
        # Around the peak only: distortion makes the far flanks lopsided.
        out = prepare(image)[0].numpy() - 0.6
        out[out < 0] = 0
        y, x = np.mgrid[0:h, 0:w]
        got = np.array([(out * x).sum(), (out * y).sum()]) / out.sum()
        assert np.abs(got - want).max() < 0.3, (name, spot, got, want)


@pytest.mark.parametrize("name", CAMERAS)
def test_undistortion_maps_lead_into_the_camera_image_and_leave_no_empty_pixel(name):
    camera = CAMERAS[name]
    found = undistortion(camera, (320.0, 240.0))
    v, u = np.mgrid[0:480:9, 0:640:9]
    rays = np.stack((u, v, np.ones_like(u)), -1).reshape(-1, 3) @ np.linalg.inv(found.K).T
    want = camera.project(rays[:, :2])
    assert np.abs(found.map_x[::9, ::9].reshape(-1) - want[:, 0]).max() < 0.02
    assert np.abs(found.map_y[::9, ::9].reshape(-1) - want[:, 1]).max() < 0.02
    np.testing.assert_allclose(pixel_to_ray(camera, want), rays[:, :2], atol=1e-4)
    assert found.map_x.min() > -0.05 and found.map_x.max() < 639.05
    assert found.map_y.min() > -0.05 and found.map_y.max() < 479.05
    edge = min(
        *(found.map_x.min(), 639 - found.map_x.max()),
        *(found.map_y.min(), 479 - found.map_y.max()),
    )
    limited = np.isclose(2 * np.arctan(320 / found.K[0, 0]), MAX_FIELD_OF_VIEW)
    assert limited or edge < 1.0, "the view is the widest that the camera image allows"


def test_a_fisheye_of_more_than_half_a_sphere_gets_a_usable_view():
    K = np.array([[190.0, 0, 320], [0, 190, 240], [0, 0, 1]])
    found = undistortion(CameraModel(640, 480, K, (0.01, 0, 0, 0), "equidistant"), (320.0, 240.0))
    fov = 2 * np.arctan(320 / found.K[0, 0])
    assert fov == pytest.approx(MAX_FIELD_OF_VIEW)
    assert np.isfinite(found.map_x).all()


def test_a_folding_polynomial_does_not_fool_the_search():
    """Barrel distortion fitted near the centre only comes back into the image far outside."""
    camera = CameraModel(640, 480, K, (-0.45, 0.0, 0.0, 0.0), "plumb_bob")
    found = undistortion(camera, (320.0, 240.0))
    assert (np.diff(found.map_x, axis=1) > 0).all()
    assert (np.diff(found.map_y, axis=0) > 0).all()


def test_a_centred_pinhole_is_not_resampled():
    camera = CameraModel(640, 480, np.array([[500.0, 0, 319.5], [0, 500, 239.5], [0, 0, 1]]))
    prepare = Preprocessor(480, 640, config(518), camera=camera)
    assert not prepare.undistorts
    scale = 518 / 640
    assert prepare.intrinsics[0, 0] == pytest.approx(500 * scale)
    assert prepare.intrinsics[0, 2] == pytest.approx(320 * scale - 0.5)
    assert Preprocessor(480, 640, config(518)).intrinsics is None


def test_calibrations_are_compared_by_their_numbers():
    again = CameraModel(640, 480, K.copy(), list(CAMERAS["pincushion"].D), "plumb_bob")
    assert again == CAMERAS["pincushion"] and hash(again) == hash(CAMERAS["pincushion"])
    assert again != CAMERAS["plumb_bob"] and again != 1


def bad_camera(**changes):
    values = {"width": 640, "height": 480, "K": K, "D": (0.1, 0, 0, 0, 0), "model": "plumb_bob"}
    return CameraModel(**{**values, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"K": np.zeros((3, 3))},
        {"K": np.full((3, 3), np.nan)},
        {"K": np.eye(2)},
        {"D": (np.nan, 0, 0, 0, 0)},
        {"D": (0.1, 0.2)},
        {"D": (0.1,) * 8},
        {"model": "thin_prism"},
        {"model": "equidistant"},
        {"width": 0},
        {"width": 200},
    ],
)
def test_calibrations_that_cannot_be_right(changes):
    with pytest.raises(CameraModelError):
        bad_camera(**changes)


def test_a_calibration_of_another_size_is_refused():
    with pytest.raises(CameraModelError):
        Preprocessor(240, 320, config(), camera=CAMERAS["plumb_bob"])


def test_a_hopeless_distortion_is_refused():
    with pytest.raises(CameraModelError):
        undistortion(bad_camera(D=(-1e9, 0, 0, 0)), (320.0, 240.0))


@pytest.mark.parametrize("suffix", ["png", "tif", "pgm"])
def test_of_16_bits_the_upper_eight_are_shown(tmp_path, suffix):
    levels = scene(60, 80)
    grey = tmp_path / f"grey.{suffix}"
    cv2.imwrite(str(grey), levels[..., 0].astype(np.uint16) * 256 + 77)
    np.testing.assert_array_equal(load_image(grey), np.repeat(levels[..., :1], 3, axis=-1))
    colour = tmp_path / "colour.png"
    cv2.imwrite(str(colour), levels[..., ::-1].astype(np.uint16) * 256 + 77)
    np.testing.assert_array_equal(load_image(colour), levels)


@pytest.mark.parametrize("kind", [np.float32, np.int32])
def test_images_of_32_bits_are_levels_from_0_to_255(tmp_path, kind):
    levels = scene(60, 80)[..., 0].astype(kind)
    file = tmp_path / "image.tif"
    for shown in (levels, np.zeros_like(levels)):
        Image.fromarray(shown).save(file)
        np.testing.assert_array_equal(load_image(file)[..., 1], shown)
    wrong = {levels.max() * 257: levels * 257, levels.max() - 300: levels - 300}
    if kind is np.float32:
        wrong[1] = levels / levels.max()
    for largest, values in wrong.items():
        Image.fromarray(values.astype(kind)).save(file)
        text = f"image.tif holds values from .* to {largest:.3g} in 32 bits, where 0 to 255"
        with pytest.raises(SourceError, match=text.replace("+", "\\+")):
            load_image(file)


def test_an_image_without_a_number_is_refused(tmp_path):
    file = tmp_path / "image.tif"
    Image.fromarray(np.full((60, 80), np.nan, np.float32)).save(file)
    with pytest.raises(SourceError, match="holds no number"):
        load_image(file)
