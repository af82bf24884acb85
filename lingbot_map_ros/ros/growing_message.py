# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""A long list that is published again and again, of which only what is new is serialized."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

from rclpy.serialization import serialize_message
from std_msgs.msg import Header


class GrowingMessage:
    """A message of a header and a list, as bytes that a publisher takes.

    Every element is serialized once, by the middleware's own serializer. What is known of its
    format, CDR: the list is the last field, its length stands right before its elements, and an
    element that begins at a multiple of eight bytes looks the same wherever it stands.

    Parameters
    ----------
    make
        Makes the message of a header and a list. All elements must take the same number of bytes, a
        multiple of eight, as those do that end with a pose and name the same frame.
    limit
        Elements that stay, the newest.
    """

    def __init__(self, make: Callable[[Header, list[Any]], Any], limit: int) -> None:
        self._make = make
        self._elements: deque[Any] = deque(maxlen=limit)
        self._behind: deque[bytes] = deque(maxlen=limit)
        """Each element as it looks behind another one."""

    def __len__(self) -> int:
        return len(self._elements)

    def extend(self, elements: Sequence[Any]) -> None:
        """Append elements."""
        if not elements:
            return
        # the first one of a list may begin elsewhere than at a multiple of eight
        first = len(self._serialize(Header(), elements[:1]))
        behind = self._serialize(Header(), [elements[0], *elements])[first:]
        size = len(behind) // len(elements)
        self._elements.extend(elements)
        self._behind.extend(behind[at : at + size] for at in range(0, len(behind), size))

    def serialize(self, header: Header) -> bytes:
        """Return the message with this header."""
        empty = self._serialize(header, [])
        if not self._elements:
            return empty
        begin = bytearray(self._serialize(header, [self._elements[0]]))
        order = "<" if begin[1] & 1 else ">"
        struct.pack_into(f"{order}I", begin, len(empty) - 4, len(self))
        return b"".join((begin, *islice(self._behind, 1, None)))

    def _serialize(self, header: Header, elements: Sequence[Any]) -> bytes:
        return bytes(serialize_message(self._make(header, list(elements))))
