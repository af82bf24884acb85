# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A tiny WAD: two square rooms, the second one step higher and under the sky."""

import io
import struct

import numpy as np
from PIL import Image

GREY, RED, GREEN, STEP, SIDE = 1, 2, 3, 32, 256
PALETTE = bytes([0, 0, 0, 90, 90, 90, 200, 0, 0, 0, 200, 0]) + bytes(768 - 12)
UPPER_UNPEGGED, LOWER_UNPEGGED = 8, 16
NO_SIDE = 0xFFFF
PLAYER, MEDIKIT, LAMP = 1, 2012, 2028


def picture(columns, height):
    """Patch in the game's format, of columns that are lists of (top, palette indices)."""
    data, offsets = b"", []
    for column in columns:
        offsets.append(8 + 4 * len(columns) + len(data))
        for top, run in column:
            data += bytes([top, len(run), 0]) + bytes(run) + b"\0"
        data += b"\xff"
    return struct.pack(f"<4h{len(columns)}i", len(columns), height, 0, 0, *offsets) + data


def png(pixels):
    buffer = io.BytesIO()
    Image.fromarray(np.array(pixels, np.uint8)).save(buffer, "png")
    return buffer.getvalue()


def textures(*entries):
    """TEXTURE1 of (name, width, height, [(x, y, patch)])."""
    data, offsets = b"", []
    for name, width, height, parts in entries:
        offsets.append(4 + 4 * len(entries) + len(data))
        data += struct.pack("<8sihhih", name, 0, width, height, 0, len(parts))
        data += b"".join(struct.pack("<5h", *part, 1, 0) for part in parts)
    return struct.pack(f"<i{len(entries)}i", len(entries), *offsets) + data


def level(middle=b"WALL", ceilings=(128, 128), flats=(b"FLOOR", b"F_SKY1"), flags=0):
    """Lumps of the map; ``flats`` are its ceilings, ``flags`` those of the line between rooms."""
    corners = [(0, 0), (0, SIDE), (SIDE, SIDE), (SIDE, 0), (2 * SIDE, SIDE), (2 * SIDE, 0)]
    # Rooms lie to the right of their lines.
    ends = [(0, 1), (1, 2), (3, 0), (2, 3), (2, 4), (4, 5), (5, 3)]
    sides = [(0, NO_SIDE), (1, NO_SIDE), (2, NO_SIDE), (3, 4)]
    sides += [(number, NO_SIDE) for number in (5, 6, 7)]
    lines = [
        struct.pack("<7H", *of, flags if left != NO_SIDE else 1, 0, 0, right, left)
        for of, (right, left) in zip(ends, sides)
    ]
    around, between = (b"-", b"-", middle), (b"WALL", b"WALL", b"-")
    names = [*[around] * 3, *[between] * 2, *[around] * 3]
    segs = [(0, 0), (1, 0), (3, 0), (2, 0), (4, 0), (5, 0), (6, 0), (3, 1)]
    things = [(64, 64, PLAYER), (SIDE + 64, 64, MEDIKIT), (96, 96, LAMP)]
    return {
        "THINGS": b"".join(struct.pack("<5h", x, y, 0, kind, 7) for x, y, kind in things),
        "LINEDEFS": b"".join(lines),
        "SIDEDEFS": b"".join(
            struct.pack("<2h8s8s8sH", 16, 0, *of, number // 4) for number, of in enumerate(names)
        ),
        "VERTEXES": struct.pack("<12h", *np.ravel(corners)),
        "SEGS": b"".join(struct.pack("<6H", *ends[line], 0, line, side, 0) for line, side in segs),
        "SSECTORS": struct.pack("<4H", 4, 0, 4, 4),
        "NODES": struct.pack("<4h8h2H", SIDE, SIDE, 0, -SIDE, *([0] * 8), 0x8000, 0x8001),
        "SECTORS": b"".join(
            struct.pack("<2h8s8shHH", floor, ceiling, b"FLOOR", flat, light, 0, 0)
            for floor, ceiling, flat, light in zip((0, STEP), ceilings, flats, (0, 255))
        ),
        "REJECT": b"",
        "BLOCKMAP": b"",
    }


def images(color=RED):
    """Lumps of a palette, a flat, and a texture of two patches."""
    return {
        "PLAYPAL": PALETTE,
        "PNAMES": struct.pack("<i8s8s", 2, b"LEFT", b"right"),
        "TEXTURE1": textures((b"WALL", 64, 128, [(0, 0, 0), (48, -2, 1)])),
        # A hole of one pixel in the first column.
        "LEFT": picture(
            [[(0, [color] * 100), (101, [color] * 27)], *[[(0, [color] * 128)]] * 63], 128
        ),
        "RIGHT": png(np.full((10, 32, 3), [0, 0, 250])),
        "F_START": b"",
        "FLOOR": bytes([GREY]) * 4096,
        "F_END": b"",
    }


def wad(lumps):
    """A WAD file of (name, content)."""
    data, table = b"", b""
    for name, content in lumps:
        table += struct.pack("<ii8s", 12 + len(data), len(content), name.encode())
        data += content
    return struct.pack("<4sii", b"IWAD", len(lumps), 12 + len(data)) + data + table


def wad_of(lumps, pictures, name="E1M1"):
    """A WAD file of one map and images."""
    return wad([(name, b""), *lumps.items(), *pictures.items()])
