# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The reader of Doom maps, on two rooms made here."""

import dataclasses
import struct
import sys
from pathlib import Path

import doom_wad
import numpy as np
import pytest
from doom_wad import SIDE, STEP, images, level, wad, wad_of

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts" / "data"
sys.path.insert(0, str(SCRIPTS))

from doom_files import Wad, WadImages  # noqa: E402
from doom_level import ExtendedNodesError, read_level  # noqa: E402
from doom_maps import UNITS_PER_METRE, material_image, read_doom_map  # noqa: E402
from openarena_maps import compact  # noqa: E402

NO_EMBREE = "embreex, which casts the rays, has no wheel for this machine"
ROOM, HIGH, CEILING = SIDE / UNITS_PER_METRE, STEP / UNITS_PER_METRE, 4.0


def open_wad(folder, data):
    path = folder / "freedoom1.wad"
    path.write_bytes(data)
    return Wad(path)


def read(folder, **of_level):
    wad_file = open_wad(folder, wad_of(level(**of_level), images()))
    return read_doom_map(read_level("E1M1", wad_file.maps()["E1M1"]), WadImages(wad_file))


def faces_of(mesh, material):
    """Corners ``[T, 3, 5]`` (x, y, z, u, v) of the triangles of a material."""
    chosen = mesh.triangles[mesh.texture_ids == mesh.texture_names.index(material)]
    return np.concatenate([mesh.positions, mesh.uv], axis=1)[chosen]


def between_rooms(mesh):
    """Corners ``[N, 5]`` of the wall where the rooms meet."""
    faces = faces_of(mesh, "wall/WALL")
    return faces[(faces[..., 0] == ROOM).all(1)].reshape(-1, 5)


def test_rooms_have_floors_at_their_heights_and_a_ceiling_where_there_is_no_sky(tmp_path):
    mesh = read(tmp_path)
    faces = faces_of(mesh, "flat/FLOOR")
    edges = np.diff(faces[..., :3], axis=1)
    areas = np.linalg.norm(np.cross(edges[:, 0], edges[:, 1]), axis=1) / 2
    for height, first in ((0, 0), (HIGH, ROOM), (CEILING, 0)):
        flat = (faces[..., 2] == height).all(1)
        assert areas[flat].sum() == pytest.approx(ROOM**2)
        assert faces[flat][..., 0].min() == first
        assert faces[flat][..., 0].max() == first + ROOM
    assert areas.sum() == pytest.approx(3 * ROOM**2)
    assert mesh.texture_names == ["flat/FLOOR", "wall/WALL"]


def test_rays_end_at_the_walls_and_leave_through_the_sky_alone(tmp_path):
    render = pytest.importorskip("openarena_render", reason=NO_EMBREE, exc_type=ImportError)
    mesh = compact(read(tmp_path))
    pixels = np.zeros((len(mesh.texture_names), 128, 128, 3), np.uint8)
    scene = render.MapScene(dataclasses.asdict(mesh), pixels)
    low, over, high = [4, 4, 0.5], [4, 4, 1.5], [12, 4, 1.5]
    rays = [
        (low, [1, 0, 0], 4),  # the step
        (over, [1, 0, 0], 12),
        (over, [-1, 0, 0], 4),
        (over, [0, 1, 0], 4),
        (over, [0, 0, -1], 1.5),
        (over, [0, 0, 1], 2.5),
        (high, [0, 0, -1], 0.5),
        (high, [0, 0, 1], np.inf),
    ]
    origins, directions, distances = (np.array(part, float) for part in zip(*rays))
    np.testing.assert_allclose(scene.distance(origins, directions), distances, rtol=1e-5)
    sphere = np.random.default_rng(0).normal(size=(20_000, 3))
    sphere /= np.linalg.norm(sphere, axis=1, keepdims=True)
    far = scene.distance(np.tile(np.array([4, 4, 1.3]), (len(sphere), 1)), sphere)
    through_sky = np.isinf(far)
    # From the first room the sky begins above where its ceiling ends.
    assert (sphere[through_sky, 2] > 0).all()
    assert (sphere[through_sky, 0] * (CEILING - 1.3) > sphere[through_sky, 2] * 4 - 1e-3).all()


def test_there_is_no_wall_between_skies_and_one_above_an_opening_elsewhere(tmp_path):
    for flat, heights in ((b"FLOOR", [0, HIGH, 3, CEILING]), (b"F_SKY1", [0, HIGH])):
        mesh = read(tmp_path, ceilings=(128, 96), flats=(flat, flat))
        assert sorted(set(between_rooms(mesh)[:, 2])) == heights


def test_images_repeat_along_a_wall_from_its_left_end_and_hang_from_its_top(tmp_path):
    faces = faces_of(read(tmp_path), "wall/WALL")
    wall = faces[(faces[..., 1] == ROOM).all(1) & (faces[..., 0] <= ROOM).all(1)].reshape(-1, 5)
    # 256 units of an image of 64 by 128, moved by 16; seen from the room +x is to the right.
    np.testing.assert_allclose(wall[:, 3], 0.25 + wall[:, 0] * UNITS_PER_METRE / 64)
    np.testing.assert_allclose(wall[:, 4], (CEILING - wall[:, 2]) * UNITS_PER_METRE / 128)


def test_images_of_a_step_hang_from_its_edge_or_from_the_ceiling(tmp_path):
    for flags, top in ((0, HIGH), (doom_wad.LOWER_UNPEGGED, CEILING)):
        step = between_rooms(read(tmp_path, flags=flags))
        assert sorted(set(step[:, 2])) == [0, HIGH]
        np.testing.assert_allclose(step[:, 4], (top - step[:, 2]) * UNITS_PER_METRE / 128)


def test_images_above_an_opening_stand_on_its_edge_or_hang_from_the_ceiling(tmp_path):
    for flags, top in ((0, 3 + 4), (doom_wad.UPPER_UNPEGGED, CEILING)):
        flats = (b"FLOOR", b"FLOOR")
        wall = between_rooms(read(tmp_path, ceilings=(128, 96), flats=flats, flags=flags))
        wall = wall[wall[:, 2] >= 3]
        np.testing.assert_allclose(wall[:, 4], (top - wall[:, 2]) * UNITS_PER_METRE / 128)


def test_light_is_that_of_the_sector_and_differs_between_walls(tmp_path):
    mesh = read(tmp_path)
    light = mesh.colors[mesh.triangles].max((1, 2))
    corners = mesh.positions[mesh.triangles]
    along = {axis: (corners[..., axis] == ROOM).all(1) for axis in (0, 1)}
    dark = (corners[..., 0] <= ROOM).all(1)
    assert light[dark].max() < light[~dark].min()
    assert light[along[0] & dark].min() > light[along[1] & dark].max()
    assert (mesh.light_ids == -1).all()


def test_places_are_above_the_floor_where_a_camera_fits(tmp_path):
    places = read(tmp_path).places
    np.testing.assert_allclose(places, [[2, 2, 0.6], [ROOM + 2, 2, HIGH + 0.6]], rtol=1e-6)
    low = read(tmp_path, ceilings=(128, STEP + 40)).places
    np.testing.assert_allclose(low, [[2, 2, 0.6]], rtol=1e-6)


def test_a_texture_is_put_together_of_patches(tmp_path):
    read_images = WadImages(open_wad(tmp_path, wad(list(images().items()))))
    image = material_image(read_images, "wall/WALL")
    assert image.shape == (128, 64, 3)
    assert (image[:8, 48:] == [0, 0, 250]).all(), "of the PNG, cut at two sides"
    assert (image[100, 0] == 0).all(), "the hole"
    red = (image == [200, 0, 0]).all(2)
    assert red.sum() == 128 * 64 - 8 * 16 - 1
    assert (material_image(read_images, "flat/FLOOR") == 90).all()


def test_walls_without_texture_are_of_the_flat_behind(tmp_path):
    mesh = read(tmp_path, middle=b"-")
    faces = faces_of(mesh, "flat/FLOOR")
    assert (faces[..., 1] == 0).all(1).sum() == 4


def changed(lump, content):
    return wad_of({**level(), lump: content}, images())


WHOLE = wad_of(level(), images())
LINES = level()["LINEDEFS"]
BAD = {
    "is not a WAD": b"PK" + WHOLE[2:],
    "directory of 19 lumps is truncated": WHOLE[:-1],
    "lump FLOOR is truncated": WHOLE[:-32]
    + struct.pack("<ii8s", 9999, 9999, b"FLOOR")
    + WHOLE[-16:],
    "lump SECTORS is truncated": changed("SECTORS", level()["SECTORS"][:-1]),
    "LINEDEFS 0 refers to VERTEXES beyond": changed("LINEDEFS", b"\x63" + LINES[1:]),
    "NODES 0 refers to SSECTORS beyond": changed("NODES", level()["NODES"][:-2] + b"\x02\x80"),
    "NODES 0 refers to a node that is not": changed("NODES", level()["NODES"][:-2] + b"\0\0"),
    "no texture NOWHERE": wad_of(level(middle=b"NOWHERE"), images()),
    "no lump PLAYPAL": wad([*level().items(), ("F_START", b""), ("F_END", b"")]),
    "lump TEXTURE1 is truncated": wad_of(level(), {**images(), "TEXTURE1": b"\1\0\0\0\x08"}),
    "lump PNAMES is truncated": wad_of(level(), {**images(), "PNAMES": b"\7\0\0\0"}),
    "patch LEFT is malformed": wad_of(level(), {**images(), "LEFT": images()["LEFT"][:300]}),
    "flat FLOOR is truncated": wad_of(level(), {**images(), "FLOOR": b"1"}),
}


@pytest.mark.parametrize("message", BAD)
def test_malformed_data_is_named(tmp_path, message):
    with pytest.raises(ValueError, match=message):
        wad_file = open_wad(tmp_path, BAD[message])
        read_images = WadImages(wad_file)
        for name, lumps in wad_file.maps().items():
            mesh = read_doom_map(read_level(name, lumps), read_images)
            for material in mesh.texture_names:
                material_image(read_images, material)


def test_extended_nodes_are_told_apart():
    with pytest.raises(ExtendedNodesError, match="E1M1: NODES"):
        read_level("E1M1", {**level(), "NODES": b"XNOD" + bytes(28)})


def freedoom(folder, **lumps):
    games = pytest.importorskip("openarena_games", reason=NO_EMBREE, exc_type=ImportError)
    for file, name, color in (
        ("freedoom1", "E1M1", doom_wad.RED),
        ("freedoom2", "MAP01", doom_wad.GREEN),
        ("freedm", "MAP01", doom_wad.RED),
    ):
        data = wad_of({**level(), **lumps}, images(color), name)
        (folder / f"{file}.wad").write_bytes(data)
    return games.freedoom(folder, 5)


def test_maps_of_freedoom_are_for_training_and_share_equal_images_alone(tmp_path):
    clips = pytest.importorskip("openarena_clips", reason=NO_EMBREE, exc_type=ImportError)
    maps = freedoom(tmp_path).maps
    assert sorted(maps) == ["freedoom_1_e1m1", "freedoom_2_map01", "freedoom_dm_map01"]
    assert {clips.part_of(name) for name in maps} == {"train"}
    first, second, third = (load() for load in maps.values())
    assert [image.shape for image in first.images] == [(128, 128, 3)] * 2
    assert first.mesh.texture_names == third.mesh.texture_names
    assert first.mesh.texture_names[0] == second.mesh.texture_names[0], "the same flat"
    assert first.mesh.texture_names[1] != second.mesh.texture_names[1]
    assert all(name.startswith("freedoom_") for name in second.mesh.texture_names)


def test_packing_writes_a_line_for_each_map_and_skips_those_of_extended_nodes(
    tmp_path, capsys, monkeypatch
):
    pack = pytest.importorskip("openarena_pack", reason=NO_EMBREE, exc_type=ImportError)
    pack.pack_game(freedoom(tmp_path, NODES=b"XNOD" + bytes(28)), tmp_path, {})
    assert capsys.readouterr().out.count("skipped, ") == 3
    monkeypatch.setattr(pack, "_MIN_TRIANGLES", 1)
    textures = {}
    pack.pack_game(freedoom(tmp_path), tmp_path, textures)
    assert "freedoom_2_map01: 20 triangles" in capsys.readouterr().out
    assert len(textures) == 3
