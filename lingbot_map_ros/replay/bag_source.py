# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The camera of a bag as a source of frames."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from lingbot_map_ros.errors import InputError, SourceError
from lingbot_map_ros.replay.bag import IMAGE_TYPES, Bag, decode
from lingbot_map_ros.replay.source import Frame, Losses, Span, Thinning
from lingbot_map_ros.ros.camera_info import SMALLEST_SIDE, camera_model
from lingbot_map_ros.ros.conversions import compressed_to_rgb, image_to_rgb
from lingbot_map_ros.ros.intensity_window import IntensityWindow
from lingbot_map_ros.ros.stamps import StampGuard, Verdict
from lingbot_map_ros.streaming.camera_model import CameraModel, CameraModelError

CAMERA_INFO = "sensor_msgs/msg/CameraInfo"


class BagSource:
    """The images of one topic of a bag.

    Parameters
    ----------
    bag : Bag
        Open, and left open by ``close``.
    topic : str
        Empty for the only image topic of the bag.
    span : Span
        By the time of recording; ``rate`` by the images' own stamps.
    use_camera_info : bool
        Whether to look for a calibration (``camera_info`` beside the image topic).

    Attributes
    ----------
    frame_id : str
        The camera's optical frame; empty where the images do not say.

    Raises
    ------
    SourceError
        If the topic is not there or, without ``topic``, there is not exactly one, or the span
        begins behind the end.
    """

    def __init__(self, bag: Bag, topic: str, span: Span, use_camera_info: bool = True) -> None:
        self._bag = bag
        self.topic = _choose(bag, topic)
        span.check(bag.end_ns - bag.start_ns, str(bag.path))
        self._rate = span.rate
        self._start, self._stop = span.bounds_ns(bag.start_ns)
        self.name = f"{self.topic} of {bag.path}"
        self.expected: int | None = self._estimate()
        self.losses = Losses()
        self.frame_id, self.size = self._first_image()
        self.camera = self._calibration(*self.size) if use_camera_info and self.size else None

    def frames(self) -> Iterator[Frame]:
        """Convert the images; one that is damaged, older or unreadable is left out and named."""
        thinning, stamps = Thinning(self._rate), StampGuard()
        window = IntensityWindow()
        for record in self._bag.messages([self.topic], self._start, self._stop):
            try:
                message = decode(record)
                # Drivers that do not stamp their images leave zero.
                stamp = max(_stamp(message), 0) or record.stamp_ns
                verdict = stamps.judge(stamp, record.stamp_ns)
                if verdict is Verdict.RESTART:
                    # Of what was recorded nothing begins again: the clock was set back.
                    back = f"back by {stamps.behind_ns * 1e-9:.1f} s and stay there"
                    self.losses.sentences.append(f"at {stamp} the stamps go {back}")
                    stamps.forget()
                    verdict = stamps.judge(stamp, record.stamp_ns)
                if verdict is Verdict.AHEAD:
                    ahead = f"{stamps.ahead_ns * 1e-9:.1f} s ahead of the time"
                    self.losses.skip_frame(f"its stamp {stamp} lies {ahead}")
                elif verdict is not Verdict.ACCEPT:
                    self.losses.skip_frame(f"its stamp {stamp} is not later than the last one's")
                elif thinning.is_due(stamp):
                    yield Frame(stamp, self._convert(message, window))
            except (SourceError, InputError) as error:
                self.losses.skip_frame(str(error))

    def close(self) -> None:
        """Leave the bag open: it is the caller's."""

    def _estimate(self) -> int:
        """About how many frames the span holds."""
        begin, end = self._bag.start_ns, self._bag.end_ns
        length = max(end - begin, 1)
        wanted = max(0, min(end, self._stop or end) - self._start)
        count = self._bag.topics[self.topic].count * min(1.0, wanted / length)
        return round(min(count, wanted * 1e-9 * self._rate) if self._rate else count)

    def _convert(self, message: Any, window: IntensityWindow) -> np.ndarray:
        raw = self._bag.topics[self.topic].msgtype == IMAGE_TYPES[0]
        return (image_to_rgb if raw else compressed_to_rgb)(message, window)

    def _first_image(self) -> tuple[str, tuple[int, int] | None]:
        """Frame and size (H, W) of the first usable image; empty and None without one."""
        for record in self._bag.messages([self.topic], self._start, self._stop):
            try:
                message = decode(record)
                shape = self._convert(message, IntensityWindow()).shape
            except (SourceError, InputError):
                continue
            if min(shape[:2]) >= SMALLEST_SIDE:
                return str(message.header.frame_id).lstrip("/"), shape[:2]
        return "", None

    def _calibration(self, height: int, width: int) -> CameraModel | None:
        """Calibration by the first camera_info beside the image topic, if it fits the images."""
        base = self.topic.removesuffix("/compressed")
        name = base.rpartition("/")[0] + "/camera_info"
        found = self._bag.topics.get(name)
        if found is None or found.msgtype != CAMERA_INFO:
            return None
        for record in self._bag.messages([name]):
            try:
                return camera_model(decode(record), height, width)
            except (SourceError, CameraModelError) as error:
                self.losses.notes.append(f"{name} is not used: {error}")
                break
        return None


def _choose(bag: Bag, topic: str) -> str:
    images = [found.name for found in bag.of_type(*IMAGE_TYPES)]
    listed = ", ".join(f"{name} ({bag.topics[name].count})" for name in images) or "none"
    if topic and topic not in images:
        raise SourceError(f"{bag.path} has no image topic {topic}; its image topics: {listed}")
    if not topic and len(images) != 1:
        if images:
            about = f"has several image topics, choose one with --topic: {listed}"
        else:
            topics = ", ".join(bag.topics) or "it is empty"
            about = "; ".join([f"has no image topic: {topics}", *bag.damage])
        raise SourceError(f"{bag.path} {about}")
    return topic or images[0]


def _stamp(message: Any) -> int:
    return int(message.header.stamp.sec) * 10**9 + int(message.header.stamp.nanosec)
