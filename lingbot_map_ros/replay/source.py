# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What `replay` reads from: a bag, a folder of images or a video, behind one small interface."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from lingbot_map_ros.errors import SourceError
from lingbot_map_ros.streaming.camera_model import CameraModel

_NAMED_PROBLEMS = 5


@dataclass(frozen=True, eq=False)
class Frame:
    """One camera image: stamp in nanoseconds and uint8 RGB [H, W, 3].

    ``file`` is the name of the file that it alone fills, empty in bags and videos.
    """

    stamp_ns: int
    image: np.ndarray
    file: str = ""


@dataclass(frozen=True)
class Span:
    """The part of a recording that is wanted.

    ``start_offset`` and ``duration`` (None = to the end) are seconds from its beginning, ``rate``
    is the largest number of frames a second (0 = every frame).
    """

    start_offset: float = 0.0
    duration: float | None = None
    rate: float = 0.0

    def bounds_ns(self, begin_ns: int) -> tuple[int, int | None]:
        """First stamp inside and first stamp behind (None = no end) of a recording's span."""
        start = begin_ns + round(self.start_offset * 1e9)
        return start, None if self.duration is None else start + round(self.duration * 1e9)

    def check(self, length_ns: int, recording: str) -> None:
        """Raise SourceError where nothing of a recording of this length is left."""
        if self.start_offset * 1e9 > length_ns:
            raise SourceError(
                f"--start-offset {self.start_offset:g} lies behind the end of {recording}, which "
                f"is {length_ns * 1e-9:.1f} s long"
            )


@dataclass
class Losses:
    """What a source could not deliver.

    ``sentences`` name what is damaged, ``frames`` counts what was left out because of it, ``notes``
    are worth knowing and no damage.
    """

    sentences: list[str] = field(default_factory=list)
    frames: int = 0
    notes: list[str] = field(default_factory=list)

    def skip_frame(self, reason: str) -> None:
        """Count a frame that could not be used; the first few are named."""
        self.frames += 1
        if self.frames <= _NAMED_PROBLEMS:
            self.sentences.append(f"frame left out: {reason}")

    def skip_frames(self, count: int, sentence: str) -> None:
        """Count frames that are left out for one reason."""
        self.frames += count
        self.sentences.append(sentence)


class Source(Protocol):
    """A recording that gives frames in their order.

    Attributes
    ----------
    name : str
        For the report: what is read.
    expected : int or None
        About how many frames will come.
    size : tuple of int or None
        Height and width of the first image, where they are known before it is read.
    camera : CameraModel or None
        Calibration of the images, where the recording has one.
    losses : Losses
        Complete after ``frames`` has ended.
    """

    name: str
    expected: int | None
    size: tuple[int, int] | None
    camera: CameraModel | None
    losses: Losses

    def frames(self) -> Iterator[Frame]:
        """Read the frames, each once."""

    def close(self) -> None:
        """Close what is open."""


class Thinning:
    """Decides which frames of a stream are wanted, from their stamps alone.

    A frame is taken when the next tick of ``rate`` has come (a tenth of a period early counts, for
    cameras that jitter) and its stamp is not that of the frame before; 0 takes all such frames.
    """

    def __init__(self, rate: float) -> None:
        self._period = round(1e9 / rate) if rate else 0
        self._next = 0
        self._last: int | None = None

    def is_due(self, stamp_ns: int) -> bool:
        """Whether the frame is to be taken. A stamp that went backwards starts afresh."""
        last, self._last = self._last, stamp_ns
        if stamp_ns == last:
            return False
        if last is None or stamp_ns < last:
            self._next = stamp_ns
        if stamp_ns < self._next - self._period // 10:
            return False
        # Ticks keep their grid while frames come; after a gap it starts anew.
        on_grid = stamp_ns < self._next + self._period
        self._next = (self._next if on_grid else stamp_ns) + self._period
        return True
