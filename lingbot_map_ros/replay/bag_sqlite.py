# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What can be saved from a damaged SQLite bag: its rows, read from the pages that are left.

SQLite itself gives up where an inner page of the table lies behind the cut, although the rows are
still there (in a bag of 600 images cut at 60% that is every row). So the leaf pages are read one by
one by the published file format: a row is used only when its header, its lengths and its chain of
overflow pages all agree.
"""

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from lingbot_map_ros.errors import SourceError
from lingbot_map_ros.replay.bag_mcap import Record
from lingbot_map_ros.wording import counted

MAGIC = b"SQLite format 3\0"
_TABLE_LEAF = 0x0D
_INTEGER_BYTES = {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8, 8: 0, 9: 0}


class _Row(NamedTuple):
    stamp_ns: int
    rowid: int
    topic_id: int
    page: int
    cell: int


def salvage_sqlite(path: Path, damage: list[str]) -> Iterator[Record]:
    """Yield the messages of a damaged ``.db3`` file in the order of their stamps.

    Parameters
    ----------
    path : Path
        The file; it is only read.
    damage : list of str
        Gets one sentence about what is missing.

    Raises
    ------
    SourceError
        If the file does not begin like a SQLite database or holds no list of topics any more.
    """
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise SourceError(
                f"{path} is not a SQLite bag: it does not begin with the SQLite magic"
            )
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            pages = _Pages(content)
            if pages.count < pages.expected:
                damage.append(f"{path.name}: cut off after page {pages.count} of {pages.expected}")
            topics, rows, broken = _index(pages)
            if not topics:
                raise SourceError(f"{path} holds no list of topics any more; nothing can be read")
            if broken:
                damage.append(f"{path.name}: {counted(broken, 'incomplete row')}")
            for row in sorted(rows):
                payload = pages.payload(row.page, row.cell)
                if payload is not None and row.topic_id in topics:
                    values = _columns(payload[1])
                    data = values[3] if values else None
                    if isinstance(data, bytes):
                        yield Record(*topics[row.topic_id], row.stamp_ns, data)


def _index(pages: "_Pages") -> tuple[dict[int, tuple[str, str]], list[_Row], int]:
    """Topics by id, the readable message rows, and the number of rows that are incomplete."""
    topics: dict[int, tuple[str, str]] = {}
    rows: dict[int, _Row] = {}
    incomplete = 0
    for page, cell in pages.leaf_cells():
        payload = pages.payload(page, cell)
        if payload is None:
            incomplete += pages.looks_like_row(page, cell)
            continue
        rowid, record = payload
        match _columns(record):
            case [None, int(topic_id), int(stamp), bytes()]:
                rows.setdefault(rowid, _Row(stamp, rowid, topic_id, page, cell))
            case [None, str(name), str(kind), str(), *_] if name.startswith("/"):
                topics[rowid] = (name, kind)
    return topics, list(rows.values()), incomplete


class _Pages:
    """The pages of a database file, as far as they are there."""

    def __init__(self, content: mmap.mmap) -> None:
        size = int.from_bytes(content[16:18], "big")
        self.size = 65536 if size == 1 else size
        if self.size < 512:
            raise SourceError("the header of the SQLite bag is destroyed (page size)")
        self.usable = self.size - content[20]
        self.expected = int.from_bytes(content[28:32], "big")
        self.count = len(content) // self.size
        self._content = content

    def leaf_cells(self) -> Iterator[tuple[int, int]]:
        """(page number from 1, file offset of the cell) of every plausible table leaf page."""
        for page in range(1, self.count + 1):
            start = (page - 1) * self.size
            head = start + (100 if page == 1 else 0)
            if self._content[head] != _TABLE_LEAF:
                continue
            cells = int.from_bytes(self._content[head + 3 : head + 5], "big")
            first = head + 8 - start + 2 * cells
            if not cells or first > self.usable:
                continue
            for offset in struct.unpack_from(f">{cells}H", self._content, head + 8):
                if first <= offset < self.usable - 4:
                    yield page, start + offset

    def payload(self, page: int, cell: int) -> tuple[int, bytes] | None:
        """(rowid, whole record) of a cell, or None where a part is missing or does not fit."""
        length, position = _varint(self._content, cell)
        rowid, position = _varint(self._content, position)
        local = self._local(length)
        if length < 5 or position + local > (page - 1) * self.size + self.usable:
            return None
        parts = [self._content[position : position + local]]
        missing = length - local
        position += local
        while missing > 0:
            following = int.from_bytes(self._content[position : position + 4], "big")
            if not 1 < following <= self.count:
                return None
            position = (following - 1) * self.size
            taken = min(missing, self.usable - 4)
            parts.append(self._content[position + 4 : position + 4 + taken])
            missing -= taken
        if len(parts) > 1 and any(self._content[position : position + 4]):
            return None
        return rowid, b"".join(parts)

    def looks_like_row(self, page: int, cell: int) -> bool:
        """Whether the local part begins like a message row whose overflow pages are gone."""
        length, position = _varint(self._content, cell)
        _, position = _varint(self._content, position)
        types, _ = _header(self._content[position : position + 24])
        return len(types) == 4 and types[0] == 0 and types[2] == 6 and types[3] // 2 < length

    def _local(self, length: int) -> int:
        """How many bytes of a payload lie in the leaf page itself (SQLite file format, 1.6)."""
        if length <= self.usable - 35:
            return length
        least = (self.usable - 12) * 32 // 255 - 23
        local = least + (length - least) % (self.usable - 4)
        return local if local <= self.usable - 35 else least


def _varint(data: bytes | mmap.mmap, position: int) -> tuple[int, int]:
    value = 0
    for index in range(9):
        byte = data[position + index] if position + index < len(data) else 0
        if index == 8:
            return value << 8 | byte, position + 9
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, position + index + 1
    return value, position


def _header(record: bytes) -> tuple[list[int], int]:
    """Read the serial types of a record's columns and the offset of its body."""
    end, position = _varint(record, 0)
    types = []
    while position < end <= len(record):
        kind, position = _varint(record, position)
        types.append(kind)
    return (types, end) if position == end else ([], 0)


def _columns(record: bytes) -> list[int | str | bytes | None]:
    """Read the values of a record; empty unless lengths and types agree exactly."""
    types, position = _header(record)
    values: list[int | str | bytes | None] = []
    for kind in types:
        if kind in _INTEGER_BYTES:
            size = _INTEGER_BYTES[kind]
            number = int.from_bytes(record[position : position + size], "big", signed=True)
            values.append(None if kind == 0 else number if size else kind - 8)
        elif kind >= 12:
            size = (kind - 12) // 2
            part = record[position : position + size]
            values.append(part.decode(errors="replace") if kind % 2 else part)
        else:
            return []
        position += size
    return values if position == len(record) else []
