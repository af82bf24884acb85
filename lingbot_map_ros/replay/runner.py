# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Every frame of a source, in order and one after the other, through the stream into a map."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lingbot_map_ros.errors import InputError
from lingbot_map_ros.geometry.poses import invert
from lingbot_map_ros.geometry.sim3 import Sim3
from lingbot_map_ros.mapping.export import CameraView
from lingbot_map_ros.mapping.scale import AGREEMENT
from lingbot_map_ros.replay.inputs import Inputs
from lingbot_map_ros.replay.source import Frame
from lingbot_map_ros.replay.stream import Stream
from lingbot_map_ros.ros.frames import BODY_FROM_OPTICAL
from lingbot_map_ros.streaming.image_files import resize_image, resized_part
from lingbot_map_ros.streaming.preprocessing import network_crop
from lingbot_map_ros.streaming.results import FrameResult
from lingbot_map_ros.wording import counted

_STRIP = 12
_NAMED_FILES = 5


@dataclass(frozen=True)
class FrameTimes:
    """What became of one image, and how many milliseconds each part took."""

    stamp_ns: int
    file: str
    results: int
    keyframe: bool
    window: int
    segment: int
    read: float
    preprocess: float
    model: float
    map: float


@dataclass(frozen=True, eq=False)
class DepthSample:
    """One frame for the pictures: image [H, W, 3] and depth [H, W], NaN where it is not trusted."""

    stamp_ns: int
    image: NDArray[np.uint8]
    depth: NDArray[np.float32]


class Runner:
    """Feeds a stream with the frames of its inputs.

    Files, and images without calibration, are resized exactly as the released models were shown
    them, unless the model has an input of one fixed size.

    Attributes
    ----------
    stream, source
        As given.
    times : list of FrameTimes
        One for each image that was fed.
    strip : list of DepthSample
        At most a dozen, spread over what was run.
    """

    def __init__(self, stream: Stream, inputs: Inputs) -> None:
        self.stream = stream
        self.source = inputs.source
        self.times: list[FrameTimes] = []
        self.strip: list[DepthSample] = []
        self._odometry = inputs.odometry
        self._base_from_camera = inputs.base_from_camera
        self._first_pose: NDArray[np.float64] | None = None
        self._answered: set[int] = set()
        self._strip_step, self._strip_seen = 1, 0
        self._first: tuple[tuple[int, ...], tuple[int, ...]] | None = None
        self._sizes: dict[int, tuple[int, int]] = {}
        stream.session.camera = self.source.camera
        exact = self.source.camera is None and not stream.config.image_height
        self._exact_size = stream.config.image_size if exact else 0

    @property
    def metric(self) -> bool:
        """Whether the world is in metres."""
        return self.stream.scale.source != "none" and self.stream.scale.settled

    @property
    def withheld(self) -> int:
        """Images that went in and neither came out nor still wait for a stream to start."""
        handed_out = sum(row.results for row in self.times)
        return len(self.times) - handed_out - self.stream.session.status().gathered

    @property
    def world(self) -> Sim3:
        """From the session's map to the world that is written.

        That one has the first camera in its origin, x along its view, z up in its image, and metres
        where the scale is known.
        """
        first = np.eye(4) if self._first_pose is None else self._first_pose
        T = BODY_FROM_OPTICAL @ invert(first)
        scale = self.stream.scale.scale if self.metric else 1.0
        return Sim3(scale, T[:3, :3], scale * T[:3, 3])

    def views(self) -> list[CameraView]:
        """Keyframes as cameras of the recording's images, with the names of files, in the world.

        Images that a calibration undistorts count as undistorted at their own size.
        """
        cameras = self.stream.mapper.cameras(self.world)
        files = {row.stamp_ns: row.file for row in self.times}
        views = []
        for view in cameras:
            size = self._sizes[view.stamp_ns]
            part: tuple[float, float, float, float] = (
                resized_part(*size, self._exact_size)
                if self._exact_size
                else network_crop(*size, self.stream.config)
            )
            views.append(replace(view.uncropped(part, size), file=files[view.stamp_ns]))
        return views

    def run(self) -> Iterator[Frame]:
        """Process frame by frame; yields each after all of it has been taken over.

        It may be left after any frame: session, mapper and times are complete up to there.
        """
        began = time.perf_counter()
        for frame in self.source.frames():
            read = time.perf_counter()
            try:
                image = self._prepared(frame.image)
                results = self.stream.session.step(image, frame.stamp_ns)
            except InputError as error:
                self.source.losses.skip_frame(str(error))
                began = time.perf_counter()
                continue
            stepped = time.perf_counter()
            self._first = self._first or (frame.image.shape, image.shape)
            self._sizes[frame.stamp_ns] = (frame.image.shape[0], frame.image.shape[1])
            self._take(results)
            self._note(frame, results, [began, read, stepped, time.perf_counter()])
            yield frame
            began = time.perf_counter()

    def _prepared(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Bring an image to what the session takes; InputError where it is not like the first."""
        given = image.shape
        if self._exact_size:
            image = np.ascontiguousarray(resize_image(image, self._exact_size))
        if self._first and image.shape != self._first[1]:
            first = self._first[0]
            raise InputError(
                f"the image size changed from {first[1]}x{first[0]} to {given[1]}x{given[0]}; a "
                "recording of several cameras or sizes is replayed part by part (--start-offset)"
            )
        return image

    def finish(self) -> None:
        """Take over the last decisions, and note what is missing, and why."""
        self.stream.session.commit()
        self._settle()
        self.stream.scale.conclude()
        status = self.stream.session.status()
        notes = self.source.losses.notes
        if status.gathered:
            notes.append(
                f"too few images at the end to start a stream: {status.gathered} of "
                f"{status.needed} (num_scale_frames)"
            )
        if self.stream.mapper.complaint:
            notes.append(self.stream.mapper.complaint)
        if self._odometry is not None and not self.metric:
            notes.append(
                f"the odometry did not settle the scale: {self.stream.scale.missing}; lengths are "
                "in model units"
            )
        if self.stream.scale.differs > AGREEMENT:
            notes.append(
                "the scale of parts of the path differs from that of the odometry by up to "
                f"{100 * self.stream.scale.differs:.0f} %; lengths may be off by as much"
            )
        if self.withheld:
            # with a stream that has not started, nothing tells the files that wait from the others
            files = "" if status.gathered else self._files_without_pose()
            notes.append(
                f"no pose for {counted(self.withheld, 'frame')}{files}, because "
                f"none could be trusted (last reason: {status.last_reason})"
            )

    def _files_without_pose(self) -> str:
        """The first few files without a pose, in brackets; empty where images are no files."""
        files = [row.file for row in self.times if row.file and row.stamp_ns not in self._answered]
        more = ", ..." if len(files) > _NAMED_FILES else ""
        return f" ({', '.join(files[:_NAMED_FILES])}{more})" if files else ""

    def _take(self, results: list[FrameResult]) -> None:
        for result in results:
            if self._first_pose is None:
                self._first_pose = result.pose_map
            self._answered.add(result.stamp_ns)
            self.stream.mapper.add(result)
            self._observe_scale(result)
            self._sample(result)
        self._settle()

    def _settle(self) -> None:
        for decision in self.stream.session.drain_decisions():
            self.stream.mapper.decide(decision.index, decision.kept)

    def _observe_scale(self, result: FrameResult) -> None:
        # Nothing relates the units of two segments; the first one's are the map's.
        if self._odometry is None or result.segment:
            return
        base = self._odometry.at(result.stamp_ns)
        if base is not None:
            self.stream.scale.add(result.pose_odom, base @ self._base_from_camera, result.stamp_ns)

    def _sample(self, result: FrameResult) -> None:
        """Keep every n-th depth, and double n whenever there are too many."""
        if result.depth is None:
            return
        if self._strip_seen % self._strip_step == 0:
            depth = result.depth.copy()
            if result.confidence is not None:
                depth[result.confidence < self.stream.mapper.options.confidence_min] = np.nan
            self.strip.append(DepthSample(result.stamp_ns, result.image, depth))
            if len(self.strip) > _STRIP:
                self.strip = self.strip[::2]
                self._strip_step *= 2
        self._strip_seen += 1

    def _note(self, frame: Frame, results: list[FrameResult], moments: list[float]) -> None:
        began, read, stepped, done = moments
        newest = results[-1] if results else None
        model = float(newest.timings.get("model", 0.0)) if newest else 0.0
        model = model or (stepped - read) * 1e3
        self.times.append(
            FrameTimes(
                stamp_ns=frame.stamp_ns,
                file=frame.file,
                results=len(results),
                keyframe=newest is not None and newest.keyframe,
                window=newest.window if newest else 0,
                segment=newest.segment if newest else 0,
                read=(read - began) * 1e3,
                preprocess=(stepped - read) * 1e3 - model,
                model=model,
                map=(done - stepped) * 1e3,
            )
        )
