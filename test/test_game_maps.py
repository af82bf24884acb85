# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The reader of game maps, on a map of two triangles made here."""

import io
import struct
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts" / "data"
sys.path.insert(0, str(SCRIPTS))

from openarena_files import GameFiles, read_shaders  # noqa: E402
from openarena_maps import _FACE, _TEXTURE, _VERTEX, compact, read_map  # noqa: E402

ENTITIES = b'{ "classname" "weapon_nex" "origin" "40 80 -40" }'
BY_VERTEX = -3
NO_EMBREE = "embreex, which casts the rays, has no wheel for this machine"
SIDE = 16


def bsp(light_ids, within=b""):
    """Map of one triangle for each lightmap index, 40 units apart in z."""
    count = len(light_ids)
    vertices = np.zeros(3 * count, _VERTEX)
    vertices["position"] = np.tile([[0, 0, 0], [40, 0, 0], [0, 40, 0]], (count, 1))
    vertices["position"][:, 2] = 40 * np.repeat(np.arange(count), 3)
    vertices["light_uv"] = 0.5
    vertices["color"] = 7
    faces = np.zeros(count, _FACE)
    faces["kind"], faces["num_vertices"], faces["num_indices"] = 1, 3, 3
    faces["vertex"] = 3 * np.arange(count)
    faces["lightmap"] = light_ids
    # What a compiler leaves where no lightmap is used.
    vertices["light_uv"][np.repeat(np.array(light_ids) < 0, 3)] = 1e30
    lumps = [b""] * 17
    lumps[0], lumps[1] = ENTITIES, np.array([(b"wall", 0, 0)], _TEXTURE).tobytes()
    lumps[10], lumps[11] = vertices.tobytes(), np.arange(3, dtype="<i4").tobytes()
    lumps[13], lumps[14] = faces.tobytes(), within
    offset, table = 8 + 8 * len(lumps), b""
    for lump in lumps:
        table += struct.pack("<ii", offset, len(lump))
        offset += len(lump)
    return b"IBSP" + struct.pack("<i", 46) + table + b"".join(lumps)


def tga(level):
    buffer = io.BytesIO()
    Image.new("RGB", (SIDE, SIDE), (level, 0, 0)).save(buffer, "tga")
    return buffer.getvalue()


def read(folder, data, beside=()):
    with zipfile.ZipFile(folder / "game.pk3", "w") as archive:
        archive.writestr("maps/hall.bsp", data)
        for number, level in enumerate(beside):
            archive.writestr(f"maps/hall/lm_{number:04d}.tga", tga(level))
    files = GameFiles(folder)
    return read_map(files, "hall", read_shaders(files))


def test_lightmaps_beside_the_map_keep_their_size_and_faces(tmp_path):
    """Every second image holds light's directions, which no face refers to."""
    mesh = compact(read(tmp_path, bsp([0, BY_VERTEX, 2]), beside=(10, 128, 30, 128)))
    assert mesh.lightmaps.shape == (2, SIDE, SIDE, 3)
    assert mesh.light_ids.tolist() == [0, -1, 1]
    assert mesh.lightmaps[:, 0, 0, 0].tolist() == [10, 30]


def test_lightmaps_within_the_map_come_first(tmp_path):
    within = np.full((1, 128, 128, 3), 50, np.uint8).tobytes()
    mesh = compact(read(tmp_path, bsp([0], within), beside=(10,)))
    assert mesh.lightmaps.shape == (1, 128, 128, 3)
    assert mesh.lightmaps.min() == 50


def test_compacted_vertices_keep_the_light_that_their_faces_use(tmp_path):
    mesh = compact(read(tmp_path, bsp([0, BY_VERTEX]), beside=(10,)))
    mapped, by_vertex = mesh.triangles
    assert (mesh.light_uv[mapped] == 0.5).all()
    assert (mesh.colors[mapped] == 0).all()
    assert (mesh.light_uv[by_vertex] == 0).all(), "no number beyond half precision"
    assert (mesh.colors[by_vertex] == 7).all()
    corners = [[[0, 0, z], [1, 0, z], [0, 1, z]] for z in (0, 1)]
    np.testing.assert_allclose(mesh.positions[mesh.triangles], corners)
    np.testing.assert_allclose(mesh.places, [[1, 2, -1]])


def test_map_without_lightmaps(tmp_path):
    mesh = compact(read(tmp_path, bsp([BY_VERTEX])))
    assert len(mesh.lightmaps) == 0
    assert mesh.light_ids.tolist() == [-1]


def test_light_is_looked_up_in_a_lightmap_of_any_size():
    render = pytest.importorskip("openarena_render", reason=NO_EMBREE, exc_type=ImportError)
    lightmap = np.zeros((1, SIDE, SIDE, 3), np.uint8)
    lightmap[0, 3, 12] = 40
    mesh = {
        "positions": np.array([[-9, -9, 2], [9, -9, 2], [0, 9, 2]], np.float32),
        "triangles": np.array([[0, 1, 2]], np.int32),
        "uv": np.zeros((3, 2), np.float32),
        "light_uv": np.tile((np.array([[12.5, 3.5]]) / SIDE), (3, 1)),
        "colors": np.zeros((3, 3), np.uint8),
        "texture_ids": np.zeros(1, np.int16),
        "light_ids": np.zeros(1, np.int16),
        "lightmaps": lightmap,
    }
    images = np.full((1, render.TEXTURE_SIZE, render.TEXTURE_SIZE, 3), 100, np.uint8)
    image, depth = render.MapScene(mesh, images).render(np.eye(4), (8.0, 8.0), (4, 4))
    np.testing.assert_allclose(depth, 2, atol=1e-3)
    assert image.min() > 50


def pack_of_two(folder, clips):
    """A map to train on and one that is held out, each a wall of a material of its own."""
    held_out = min(clips.HELD_OUT)
    rng = np.random.default_rng(0)
    images = []
    for level in (60, 160):
        buffer = io.BytesIO()
        pixels = rng.integers(level, level + 60, (128, 128, 3), np.uint8)
        Image.fromarray(pixels).save(buffer, "jpeg")
        images.append(buffer.getvalue())
    for name, material in (("any", "bright"), (held_out, "dark")):
        np.savez(
            folder / f"{name}.npz",
            positions=np.array([[-9, -9, 2], [9, -9, 2], [0, 9, 2]], np.float32),
            triangles=np.array([[0, 1, 2]], np.int32),
            uv=np.array([[0, 0], [9, 0], [0, 9]], np.float32),
            light_uv=np.zeros((3, 2), np.float16),
            colors=np.full((3, 3), 64, np.uint8),
            texture_ids=np.zeros(1, np.int16),
            light_ids=np.full(1, -1, np.int16),
            lightmaps=np.zeros(0, object),
            texture_names=np.array([material]),
            tracks=np.tile(np.eye(4, dtype=np.float32), (1, 2, 1, 1)),
        )
    textures = {"names": np.array(["dark", "bright"]), "images": np.array(images, object)}
    np.savez(folder / "textures.npz", **textures)
    return held_out


def test_only_training_maps_are_varied_and_only_by_their_own_materials(tmp_path, monkeypatch):
    clips = pytest.importorskip("openarena_clips", reason=NO_EMBREE, exc_type=ImportError)
    held_out = pack_of_two(tmp_path, clips)
    materials = clips.training_materials(tmp_path)
    assert len(materials) == 1 and materials.mean() > 150, "of the map that is held out too"
    drawn = []
    draw = clips.draw_variation
    monkeypatch.setattr(clips, "draw_variation", lambda *a: drawn.append(a) or draw(*a))
    monkeypatch.setattr(clips, "_VARIED", 1.0)
    for part, name, variations in (("held_out", held_out, 0), ("train", "any", 1)):
        (tmp_path / part).mkdir()
        clips.render_track(clips.Job(tmp_path, tmp_path / part, name, 0, (8, 12)))
        assert len(drawn) == variations
        with np.load(tmp_path / part / f"{name}_0.npz") as clip:
            assert clip["images"].std() > 0
            assert (clip["depth"] == 2).all() == (variations == 0), "stretched where it is varied"
    assert clips.render_track(clips.Job(tmp_path, tmp_path / "train", "any", 0, (8, 12)))
    assert len(drawn) == 1, "a clip that is there is not rendered again"


def test_maps_of_nexuiz_are_for_training(tmp_path):
    clips = pytest.importorskip("openarena_clips", reason=NO_EMBREE, exc_type=ImportError)
    games = pytest.importorskip("openarena_games", reason=NO_EMBREE, exc_type=ImportError)
    names = sorted(clips.HELD_OUT | clips.VALIDATION | {"final_rage"})
    with zipfile.ZipFile(tmp_path / "data.pk3", "w") as archive:
        for name in names:
            archive.writestr(f"maps/{name}.bsp", bsp([BY_VERTEX]))
    assert set(games.openarena(tmp_path, 14).maps) == set(names)
    maps = games.nexuiz(tmp_path, 6).maps
    assert "nexuiz_final_rage" in maps
    assert "nexuiz_aggressor" not in maps, "a map that is held out, of OpenArena"
    assert {clips.part_of(name) for name in maps} == {"train"}
    mesh, images = maps["nexuiz_final_rage"]()
    assert mesh.texture_names == ["nexuiz_wall"]
    assert len(images) == 1
