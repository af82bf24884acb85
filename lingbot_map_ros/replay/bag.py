# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Recorded bags: rosbag2 directories and single files, MCAP and SQLite, whole or damaged.

The storage files are the truth and ``metadata.yaml`` only says what should be there, so a bag
without it, or with a wrong one, reads like any other. The bag itself is never written to.
"""

from collections.abc import Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from rosbags.serde import SerdeError
from rosbags.typesys import Stores, get_typestore
from ruamel.yaml import YAML, YAMLError

from lingbot_map_ros.errors import SourceError
from lingbot_map_ros.replay.bag_mcap import Record
from lingbot_map_ros.replay.bag_part import BagPart
from lingbot_map_ros.replay.natural import natural_key
from lingbot_map_ros.wording import counted

IMAGE_TYPES = ("sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage")
SUFFIXES = (".mcap", ".db3", ".mcap.zstd", ".db3.zstd")
_TYPES = get_typestore(Stores.ROS2_HUMBLE)


@dataclass(frozen=True)
class Topic:
    """A topic of a bag: its type as ``package/msg/Name``, messages readable and promised."""

    name: str
    msgtype: str
    count: int
    promised: int | None


class Bag:
    """A bag opened for reading, as a context manager.

    Parameters
    ----------
    path : str or Path
        A rosbag2 directory or one ``.mcap`` or ``.db3`` file (also ``.zstd`` compressed).

    Attributes
    ----------
    topics : dict of str to Topic
    start_ns, end_ns : int
        Time of recording of the first and of the last message; both 0 in an empty bag.
    damage : list of str
        One sentence about each fault found so far; reading may add to it.

    Raises
    ------
    SourceError
        If there is no bag at ``path`` or nothing of it can be read.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.damage: list[str] = []
        try:
            files, promised = self._find_files()
        except OSError as error:
            raise SourceError(f"{self.path} cannot be read: {error.strerror}") from error
        with ExitStack() as stack:
            self._parts: list[BagPart] = []
            failures: list[str] = []
            for file in files:
                try:
                    self._parts.append(stack.enter_context(BagPart(file, self.damage)))
                except SourceError as error:
                    failures.append(str(error))
            if not self._parts:
                raise SourceError(failures[0])
            self.damage += failures
            self._stack = stack.pop_all()
        self._parts.sort(key=lambda part: part.start_ns)
        counts: dict[str, int] = {}
        types: dict[str, str] = {}
        for part in self._parts:
            for (name, msgtype), count in part.counts.items():
                counts[name] = counts.get(name, 0) + count
                types[name] = msgtype
        self.topics = {n: Topic(n, types[n], counts[n], promised.get(n)) for n in sorted(counts)}
        filled = [part for part in self._parts if part.end_ns]
        self.start_ns = min((part.start_ns for part in filled), default=0)
        self.end_ns = max((part.end_ns for part in filled), default=0)
        for topic in self.topics.values():
            if topic.promised is not None and topic.count < topic.promised:
                self.damage.append(
                    f"{topic.name}: {topic.count} of {counted(topic.promised, 'message')} readable"
                )

    def messages(
        self, topics: Collection[str], start_ns: int | None = None, stop_ns: int | None = None
    ) -> Iterator[Record]:
        """Yield the messages of ``topics`` recorded in [start_ns, stop_ns), oldest first.

        A fault met on the way is added to ``damage`` and everything behind it is read all the same.
        """
        for part in self._parts:
            yield from part.messages(topics, start_ns, stop_ns)

    def of_type(self, *msgtypes: str) -> list[Topic]:
        """Topics that have one of the types, sorted by name."""
        return [topic for topic in self.topics.values() if topic.msgtype in msgtypes]

    def close(self) -> None:
        """Close the files and remove what was unpacked."""
        self._stack.close()

    def __enter__(self) -> "Bag":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _find_files(self) -> tuple[list[Path], dict[str, int]]:
        """Find the storage files and the number of messages promised for each topic."""
        if not self.path.exists():
            raise SourceError(f"there is no bag at {self.path}")
        if not self.path.is_dir():
            if not self.path.name.endswith(SUFFIXES):
                raise SourceError(f"{self.path} is no bag: its name ends in none of {SUFFIXES}")
            return [self.path], {}
        found = [path for path in self.path.iterdir() if path.name.endswith(SUFFIXES)]
        files = sorted(found, key=natural_key)
        information = self._metadata()
        names = {Path(str(name)).name for name in information.get("relative_file_paths") or ()}
        self.damage += [
            f"{name} is named in metadata.yaml and is missing"
            for name in sorted(names - {file.name for file in files})
        ]
        if names:
            files = [file for file in files if file.name in names] or files
        if not files:
            raise SourceError(f"{self.path} is no bag: it holds no file ending in {SUFFIXES}")
        promised = {}
        for entry in information.get("topics_with_message_count") or ():
            promised[entry["topic_metadata"]["name"]] = int(entry["message_count"])
        return files, promised

    def _metadata(self) -> dict[str, Any]:
        """Read ``metadata.yaml``; empty (and a fault) where it cannot be used."""
        path = self.path / "metadata.yaml"
        try:
            information = YAML(typ="safe").load(path)["rosbag2_bagfile_information"]
            for entry in information["topics_with_message_count"]:
                int(entry["message_count"]), str(entry["topic_metadata"]["name"])
            return dict(information)
        except FileNotFoundError:
            self.damage.append("metadata.yaml is missing; rebuilt from the storage")
        except (OSError, YAMLError, UnicodeDecodeError, KeyError, TypeError, ValueError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            self.damage.append(f"metadata.yaml is unusable ({reason}); rebuilt from the storage")
        return {}


def decode(record: Record) -> Any:
    """Unpack the message of a record (attributes as in ROS 2; arrays are read-only numpy views).

    Raises
    ------
    SourceError
        If the bytes are no complete message of the record's type, or the type is unknown.
    """
    try:
        return _TYPES.deserialize_cdr(record.data, record.msgtype)
    except (SerdeError, KeyError, ValueError, IndexError, UnicodeDecodeError) as error:
        raise SourceError(f"{record.topic}: unreadable {record.msgtype} ({error})") from error
