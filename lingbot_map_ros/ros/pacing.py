# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Which images are on their way: sent, and not yet answered."""

from collections import deque


class Flight:
    """Images in flight, oldest first.

    Answers come in the order of the images, so an answer also settles every image before its own:
    those got no answer (a stream gathers its first images, or withholds one), and never will.
    """

    def __init__(self) -> None:
        self._stamps: deque[int] = deque()
        self.unanswered = 0
        """Images that got no answer of their own."""

    def __len__(self) -> int:
        return len(self._stamps)

    def send(self, stamp_ns: int) -> None:
        """An image goes out."""
        self._stamps.append(stamp_ns)

    def answer(self, stamp_ns: int) -> None:
        """A message with this stamp came back; one of no image in flight changes nothing."""
        if stamp_ns not in self._stamps:
            return
        while self._stamps.popleft() != stamp_ns:
            self.unanswered += 1

    def give_up(self) -> int:
        """Wait no longer for the oldest image; returns its stamp."""
        self.unanswered += 1
        return self._stamps.popleft()
