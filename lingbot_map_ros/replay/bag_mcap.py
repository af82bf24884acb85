# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What can be saved from a damaged MCAP file: its records, read front to back without the index.

A recorder that was killed leaves no summary and often half a chunk. Every record before the cut is
still there, so they are read one after the other; half a chunk is decompressed as far as it goes.
"""

import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from backports import zstd
from lz4.frame import LZ4FrameDecompressor

from lingbot_map_ros.errors import SourceError

MAGIC = b"\x89MCAP0\r\n"
SCHEMA, CHANNEL, MESSAGE, CHUNK, DATA_END = 0x03, 0x04, 0x05, 0x06, 0x0F
LAST_KNOWN = 0x0F

_CHUNK_START = re.compile(
    rb"\x06.{5}\0{3}.{28}(?:\0\0\0\0|\x03\0\0\0lz4|\x04\0\0\0zstd)", re.DOTALL
)
_SEARCH_BLOCK = 1 << 22
_SEARCH_OVERLAP = 64
_PIECE = 1 << 16


class Record(NamedTuple):
    """One message as stored: topic, type name, time of recording and serialized bytes."""

    topic: str
    msgtype: str
    stamp_ns: int
    data: bytes


def salvage_mcap(path: Path, damage: list[str]) -> Iterator[Record]:
    """Yield the messages of a damaged file in file order.

    Parameters
    ----------
    path : Path
        The ``.mcap`` file; it is only read.
    damage : list of str
        Gets one sentence for every stretch of the file that could not be used.

    Raises
    ------
    SourceError
        If the file does not begin like an MCAP file.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise SourceError(f"{path} is not an MCAP file: it does not begin with the MCAP magic")
        channels = _Channels()
        while (start := file.tell()) < size:
            head = file.read(9)
            opcode, length = head[0], int.from_bytes(head[1:], "little")
            if len(head) == 9 and opcode == DATA_END:
                return
            known = len(head) == 9 and 0 < opcode <= LAST_KNOWN
            cut = start + 9 + length > size
            # A record that runs past the end is a wrong length where a chunk follows, else the cut.
            following = _next_chunk(file, start + 1, size) if cut or not known else size
            if following < size or not known:
                damage.append(f"{path.name}: unreadable from byte {start} to {following} of {size}")
                file.seek(following)
                continue
            file.seek(start + 9)
            payload = file.read(min(length, size))
            if cut:
                damage.append(f"{path.name}: cut off inside a record at byte {start} of {size}")
            if opcode == CHUNK:
                yield from channels.chunk(payload, cut, f"{path.name}: chunk at {start}", damage)
            elif not cut:
                yield from channels.record(opcode, payload)
        damage.append(f"{path.name}: ends without an index (the recording was not closed)")


class _Channels:
    """The schemas and channels seen so far, and the messages they make readable."""

    def __init__(self) -> None:
        self._schemas: dict[int, str] = {}
        self._channels: dict[int, tuple[str, str]] = {}

    def record(self, opcode: int, payload: bytes) -> Iterator[Record]:
        try:
            if opcode == SCHEMA:
                self._schemas[_u16(payload, 0)] = _text(payload, 2)[0]
            elif opcode == CHANNEL:
                schema = self._schemas.get(_u16(payload, 2), "")
                self._channels[_u16(payload, 0)] = (_text(payload, 4)[0], schema)
            elif opcode == MESSAGE and (known := self._channels.get(_u16(payload, 0))):
                yield Record(*known, struct.unpack_from("<Q", payload, 6)[0], payload[22:])
        except (struct.error, UnicodeDecodeError):
            return  # a record overwritten with something else; its chunk has been reported

    def chunk(self, payload: bytes, cut: bool, where: str, damage: list[str]) -> Iterator[Record]:
        try:
            _, _, size, crc = struct.unpack_from("<QQQI", payload)
            compression, offset = _text(payload, 28)
        except (struct.error, UnicodeDecodeError):
            damage.append(f"{where} has no readable header")
            return
        data = _decompress(compression, payload[offset + 8 :])
        if not cut and (len(data) != size or (crc and zlib.crc32(data) != crc)):
            damage.append(f"{where} is damaged; used as far as its records go")
        position = 0
        while position + 9 <= len(data):
            opcode = data[position]
            length = int.from_bytes(data[position + 1 : position + 9], "little")
            position += 9
            if not 0 < opcode <= LAST_KNOWN or position + length > len(data):
                return
            yield from self.record(opcode, data[position : position + length])
            position += length


def _decompress(compression: str, data: bytes) -> bytes:
    """As much of the content as the compressed bytes give before they end or turn bad."""
    if compression not in ("zstd", "lz4"):
        return data
    decoder = zstd.ZstdDecompressor() if compression == "zstd" else LZ4FrameDecompressor()
    content = bytearray()
    for start in range(0, len(data), _PIECE):
        try:
            content += decoder.decompress(data[start : start + _PIECE])
        except (zstd.ZstdError, RuntimeError, EOFError):
            break
    return bytes(content)


def _next_chunk(file: BinaryIO, start: int, size: int) -> int:
    """Find the next record that is a chunk beyond doubt; its offset, or the end of the file."""
    while start < size:
        file.seek(start)
        block = file.read(_SEARCH_BLOCK + _SEARCH_OVERLAP)
        for match in _CHUNK_START.finditer(block):
            length = int.from_bytes(block[match.start() + 1 : match.start() + 9], "little")
            compressed = int.from_bytes(block[match.end() : match.end() + 8], "little")
            header = match.end() - match.start() - 9 + 8
            first, last = struct.unpack_from("<QQ", block, match.start() + 9)
            if length == header + compressed and first <= last and start + length <= size:
                return start + match.start()
        start += _SEARCH_BLOCK
    return size


def _u16(payload: bytes, offset: int) -> int:
    return int.from_bytes(payload[offset : offset + 2], "little")


def _text(payload: bytes, offset: int) -> tuple[str, int]:
    """Read a length-prefixed string and the offset behind it."""
    end = offset + 4 + struct.unpack_from("<I", payload, offset)[0]
    return payload[offset + 4 : end].decode(), end
