# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""One storage file of a bag: read by rosbags while it is sound, salvaged from where it is not."""

import shutil
import struct
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from types import TracebackType

import apsw
from backports import zstd
from rosbags.rosbag2 import Reader, ReaderError

from lingbot_map_ros.errors import SourceError
from lingbot_map_ros.replay.bag_mcap import Record, salvage_mcap
from lingbot_map_ros.replay.bag_sqlite import salvage_sqlite

_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_PIECE = 1 << 20
# What rosbags lets through for a file that is not what it should be.
_FAULTS = (
    ReaderError,
    apsw.Error,
    zstd.ZstdError,
    struct.error,
    AssertionError,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    OverflowError,
    RuntimeError,
    TypeError,
    ValueError,
)


class BagPart:
    """An ``.mcap`` or ``.db3`` file (also ``.zstd``), as a context manager.

    Parameters
    ----------
    path : Path
        The file; whatever must be unpacked goes to the system's temporary directory.
    damage : list of str
        Gets one sentence about each fault.

    Attributes
    ----------
    counts : Counter
        Readable messages by (topic, type).
    start_ns, end_ns : int
        Times of the first and of the last message; 0 when there is none.

    Raises
    ------
    SourceError
        If nothing of the file can be read.
    """

    def __init__(self, path: Path, damage: list[str]) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.start_ns = self.end_ns = 0
        self._damage = damage
        with ExitStack() as stack:
            self._stack = stack
            try:
                self._path = self._unpacked(path)
            except OSError as error:
                raise SourceError(f"{path} cannot be read: {error.strerror or error}") from error
            self._reader: Reader | None = Reader(self._path)
            try:
                self._reader.open()
                stack.callback(self._reader.close)
                self._summarise(self._reader)
            except _FAULTS as error:
                self._give_up_reader(error)
                self._scan()
            self._stack = stack.pop_all()

    def messages(
        self, topics: Collection[str], start_ns: int | None, stop_ns: int | None
    ) -> Iterator[Record]:
        """Yield the messages of ``topics`` recorded in [start_ns, stop_ns), oldest first."""
        last, at_last = -1, 0
        if self._reader is not None:
            connections = [c for c in self._reader.connections if c.topic in topics]
            if not connections:
                return
            try:
                for connection, stamp, data in self._reader.messages(
                    connections, start_ns, stop_ns
                ):
                    at_last = at_last + 1 if stamp == last else 1
                    last = stamp
                    yield Record(connection.topic, connection.msgtype, stamp, _plain(bytes(data)))
                return
            except _FAULTS as error:
                self._give_up_reader(error)
        wanted = (
            record
            for record in self._salvage(self._damage if last >= 0 else [])
            if record.topic in topics
            and record.stamp_ns >= max(last, start_ns or 0)
            and (stop_ns is None or record.stamp_ns < stop_ns)
        )
        # Messages stamped exactly like the last good one have been delivered already.
        seen = 0
        for record in wanted:
            if record.stamp_ns == last and seen < at_last:
                seen += 1
                continue
            yield record._replace(data=_plain(record.data))

    def __enter__(self) -> "BagPart":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _summarise(self, reader: Reader) -> None:
        for connection in reader.connections:
            self.counts[connection.topic, connection.msgtype] += connection.msgcount
        if reader.message_count:
            self.start_ns, self.end_ns = reader.start_time, reader.end_time - 1

    def _scan(self) -> None:
        stamps = []
        self.counts.clear()
        for record in self._salvage(self._damage):
            self.counts[record.topic, record.msgtype] += 1
            stamps.append(record.stamp_ns)
        if stamps:
            self.start_ns, self.end_ns = min(stamps), max(stamps)

    def _salvage(self, damage: list[str]) -> Iterator[Record]:
        read = salvage_mcap if self._path.suffix == ".mcap" else salvage_sqlite
        try:
            yield from read(self._path, damage)
        except OSError as error:
            raise SourceError(f"{self._path} cannot be read: {error.strerror or error}") from error

    def _give_up_reader(self, error: Exception) -> None:
        self._reader = None
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        self._damage.append(f"{self._path.name}: {reason}")

    def _unpacked(self, path: Path) -> Path:
        """Unpack a compressed file, merge one that has a journal; the file to read."""
        journal = path.with_name(path.name + "-wal")
        if path.suffix == ".zstd":
            target = self._temporary() / path.stem
            self._decompress(path, target)
            return target
        if journal.is_file() and journal.stat().st_size:
            target = self._temporary() / path.name
            shutil.copyfile(path, target)
            shutil.copyfile(journal, target.with_name(journal.name))
            try:
                with closing(apsw.Connection(str(target))) as database:
                    database.execute("PRAGMA journal_mode=DELETE").fetchall()
            except apsw.Error as error:
                self._damage.append(f"{journal.name} cannot be applied ({error})")
            return target
        return path

    def _temporary(self) -> Path:
        return Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="replay_bag_")))

    def _decompress(self, path: Path, target: Path) -> None:
        decoder = zstd.ZstdDecompressor()
        with path.open("rb") as packed, target.open("wb") as plain:
            while piece := packed.read(_PIECE):
                try:
                    plain.write(decoder.decompress(piece))
                except (zstd.ZstdError, EOFError) as error:
                    self._damage.append(f"{path.name}: {error}")
                    return
        if not decoder.eof:
            self._damage.append(f"{path.name}: the compressed file is cut off")


def _plain(data: bytes) -> bytes:
    """Unpack a message that was compressed by itself (CDR never begins like that)."""
    if not data.startswith(_ZSTD_MAGIC):
        return data
    try:
        return zstd.decompress(data)
    except zstd.ZstdError:
        return b""
