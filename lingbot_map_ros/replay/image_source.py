# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Folders of images and video files as sources of frames."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import cv2

from lingbot_map_ros.errors import SourceError
from lingbot_map_ros.replay.image_range import narrow_range
from lingbot_map_ros.replay.image_sizes import fitted, sort_out
from lingbot_map_ros.replay.natural import natural_key
from lingbot_map_ros.replay.source import Frame, Losses, Span, Thinning
from lingbot_map_ros.streaming.camera_model import CameraModel
from lingbot_map_ros.streaming.image_files import load_image
from lingbot_map_ros.wording import first_few

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm")
FOLDER_RATE = 10.0
# From 1973 on: smaller numbers in a file's name count frames.
_SECONDS_FROM, _NANOSECONDS_FROM = 10**8, 10**17


class FolderSource:
    """The images of a folder in the natural order of their names.

    All have one size, that of most of them: others of the same aspect are resized to it, the rest
    is left out and named.

    Names that are times (``1305031102.175304.png`` in seconds, ``1403636579763555584.png`` in
    nanoseconds) give the stamps; other images follow each other at ``span.rate``, 10 a second if
    that is 0.

    Raises
    ------
    SourceError
        If there is no such folder or no image in it, or the span begins behind the last one.
    """

    def __init__(self, path: str | Path, span: Span) -> None:
        folder = Path(path)
        if not folder.is_dir():
            raise SourceError(f"there is no folder {folder}")
        files = [f for f in folder.iterdir() if f.suffix.lower() in IMAGE_SUFFIXES and f.is_file()]
        if not files:
            raise SourceError(f"{folder} holds no image ({' '.join(IMAGE_SUFFIXES)})")
        files.sort(key=natural_key)
        stamps = [_stamp_of_name(file.stem) for file in files]
        timed = all(stamp is not None for stamp in stamps)
        period = 1e9 / (span.rate or FOLDER_RATE)
        numbered = [round(index * period) for index in range(len(files))]
        times = [stamp for stamp in stamps if stamp is not None] if timed else numbered
        span.check(max(times) - min(times), str(folder))
        start, stop = span.bounds_ns(min(times))
        wanted = [
            (stamp, file)
            for stamp, file in sorted(zip(times, files))
            if stamp >= start and (stop is None or stamp < stop)
        ]
        thinning = Thinning(span.rate if timed else 0.0)
        self._files = [(stamp, file) for stamp, file in wanted if thinning.is_due(stamp)]
        self.name = f"images of {folder}"
        self.camera: CameraModel | None = None
        self.losses = Losses()
        self._name_twins(wanted)
        sorted_out = sort_out([file for _, file in self._files])
        self.size = sorted_out.size
        odd = set(sorted_out.odd)
        self._files = [(stamp, file) for stamp, file in self._files if file not in odd]
        self.expected: int | None = len(self._files)
        if odd:
            self.losses.skip_frames(len(odd), sorted_out.complaint)
        self.losses.notes += narrow_range([file for _, file in self._files])

    def frames(self) -> Iterator[Frame]:
        """Read the images; one that is damaged is left out and named."""
        for stamp, file in self._files:
            try:
                yield Frame(stamp, fitted(load_image(file), self.size), file.name)
            except SourceError as error:
                self.losses.skip_frame(str(error))

    def close(self) -> None:
        """Nothing is open between two images."""

    def _name_twins(self, wanted: Sequence[tuple[int, Path]]) -> None:
        """Count and name the files whose stamp is that of one that is taken."""
        taken = dict(self._files)
        twins = [
            f"{file.name} (as {taken[stamp].name})"
            for stamp, file in wanted
            if taken.get(stamp, file) != file
        ]
        if twins:
            verbs = ("has", "is") if len(twins) == 1 else ("have", "are")
            self.losses.skip_frames(
                len(twins),
                f"{len(twins)} of {len(wanted)} images {verbs[0]} the stamp of another and "
                f"{verbs[1]} left out: {first_few(twins)}",
            )


class VideoSource:
    """A video file that OpenCV can read.

    Stamps count from the beginning of the video. With ``span.rate`` every ``round(fps / rate)``-th
    frame is taken, else every one.

    Raises
    ------
    SourceError
        If the file is missing or no video, or the span begins behind its end.
    """

    def __init__(self, path: str | Path, span: Span) -> None:
        if not Path(path).is_file():
            raise SourceError(f"there is no video {path}")
        self._capture = cv2.VideoCapture(str(path))
        if not self._capture.isOpened():
            raise SourceError(f"{path} is no video that OpenCV can read")
        fps = self._capture.get(cv2.CAP_PROP_FPS)
        self._fps = fps if 0 < fps < 1000 else 30.0
        self._step = max(1, round(self._fps / span.rate)) if span.rate else 1
        self._promised = int(max(0, self._capture.get(cv2.CAP_PROP_FRAME_COUNT)))
        if self._promised:
            span.check(round(self._promised / self._fps * 1e9), str(path))
        self._start, self._stop = span.bounds_ns(0)
        self.name = f"video {path}"
        last = self._promised / self._fps
        if self._stop is not None:
            last = min(last, self._stop * 1e-9)
        wanted = max(0.0, last - span.start_offset) * self._fps / self._step
        self.expected: int | None = round(wanted) or None
        height, width = cv2.CAP_PROP_FRAME_HEIGHT, cv2.CAP_PROP_FRAME_WIDTH
        size = int(self._capture.get(height)), int(self._capture.get(width))
        self.size = size if all(size) else None
        self.camera: CameraModel | None = None
        self.losses = Losses()

    def frames(self) -> Iterator[Frame]:
        """Decode the frames; a video that ends early is said in ``losses``."""
        taken = index = 0
        for index in self._grabbed():
            stamp = round(index * 1e9 / self._fps)
            if stamp < self._start:
                continue
            if self._stop is not None and stamp >= self._stop:
                return
            taken += 1
            if (taken - 1) % self._step:
                continue
            decoded, image = self._capture.retrieve()
            if decoded:
                yield Frame(stamp, cv2.cvtColor(image, cv2.COLOR_BGR2RGB))
            else:
                self.losses.skip_frame(f"frame {index} of the video cannot be decoded")
        # Containers count frames by duration and may promise one or two too many.
        if index + 1 < self._promised - 2:
            self.losses.sentences.append(
                f"the video ends at frame {index + 1} of {self._promised}: it is damaged or cut off"
            )

    def close(self) -> None:
        """Close the video."""
        self._capture.release()

    def _grabbed(self) -> Iterator[int]:
        index = 0
        while self._capture.grab():
            yield index
            index += 1


def _stamp_of_name(stem: str) -> int | None:
    """Nanoseconds that a file's name stands for, None where it is no time."""
    if not re.fullmatch(r"\d+(\.\d+)?", stem):
        return None
    whole, _, fraction = stem.partition(".")
    if int(whole) >= _NANOSECONDS_FROM and not fraction:
        return int(whole)
    if int(whole) >= _SECONDS_FROM and fraction:
        return int(whole) * 10**9 + int(fraction[:9].ljust(9, "0"))
    return None
