# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""One frame's way through the node, on the worker: decode, track, map, publish."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable

import torch

from lingbot_map_ros.errors import InputError, LingbotMapError, MemoryPlanError
from lingbot_map_ros.ros.calibration import Calibration
from lingbot_map_ros.ros.camera_mount import CameraMount
from lingbot_map_ros.ros.conversions import compressed_to_rgb, image_to_rgb
from lingbot_map_ros.ros.decisions import Decisions
from lingbot_map_ros.ros.frames import map_from_odom
from lingbot_map_ros.ros.image_fit import ImageFit
from lingbot_map_ros.ros.input import ImageFrame, Input
from lingbot_map_ros.ros.intensity_window import IntensityWindow
from lingbot_map_ros.ros.map_keeper import MapKeeper
from lingbot_map_ros.ros.metric import MetricPose, MetricScale
from lingbot_map_ros.ros.network import gpu_memory, release
from lingbot_map_ros.ros.parameters import Parameters
from lingbot_map_ros.ros.placement import Placement
from lingbot_map_ros.ros.publishers import Publishers
from lingbot_map_ros.ros.rates import Rate, Tally
from lingbot_map_ros.ros.report import StreamSnapshot
from lingbot_map_ros.ros.size_guard import OtherSizeError, SizeGuard
from lingbot_map_ros.ros.tf import TransformBroadcaster
from lingbot_map_ros.streaming.results import FrameResult
from lingbot_map_ros.streaming.session import StreamingSession

logger = logging.getLogger(__name__)

REPEAT_S = 10.0
"""Time before the same complaint is made again."""


class Pipeline:
    """Everything that the worker owns. All methods run on the worker, except where noted."""

    def __init__(
        self,
        session: StreamingSession,
        fit: ImageFit,
        parameters: Parameters,
        source: Input,
        publishers: Publishers,
        broadcaster: TransformBroadcaster,
        mount: CameraMount,
        metric_pose: MetricPose,
        now_ns: Callable[[], int],
    ) -> None:
        self.session = session
        self.results = Rate()
        self.skipped = Tally()
        self.last_error = ""
        self._failing_since: float | None = None
        self.frame_age_s: float | None = None
        self.timings: dict[str, float] = {}
        self.scale = MetricScale(parameters.scale_source, parameters.scale, metric_pose)
        self.placement = Placement()
        self.keeper = MapKeeper(parameters, publishers, self.placement, now_ns)
        self.decisions = Decisions(session, self.keeper)
        self._device = fit.device
        self._fit = fit
        self._parameters = parameters
        self._source = source
        self._publishers = publishers
        self._broadcaster = broadcaster
        self._mount = mount
        self._now_ns = now_ns
        self._calibration = Calibration(session)
        self._window = IntensityWindow()
        self._sizes = SizeGuard()
        self._complained: dict[str, float] = {}

    def process(self, frame: ImageFrame) -> None:
        """Process one image; an error leaves the stream as it was."""
        arrived, began = time.monotonic(), time.perf_counter()
        decode = compressed_to_rgb if frame.compressed else image_to_rgb
        image = decode(frame.msg, self._window)
        height, width = image.shape[:2]
        self._take_size(height, width)
        self._calibration.use(self._source.camera_info, height, width)
        decoded = time.perf_counter()
        results = self.session.step(image, frame.stamp_ns)
        stepped = time.perf_counter()
        self._publish(results, frame.msg.header.frame_id)
        self.last_error, self._failing_since = "", None
        self.timings = {
            "waiting": (arrived - frame.received) * 1e3,
            "decode": (decoded - began) * 1e3,
            **(results[-1].timings if results else {"step": (stepped - decoded) * 1e3}),
            "publish": (time.perf_counter() - stepped) * 1e3,
        }
        if results:
            self.frame_age_s = (self._now_ns() - frame.stamp_ns) / 1e9
        self.decisions.settle()

    def _take_size(self, height: int, width: int) -> None:
        """See to it that the network is ready for images of this size."""
        if not self._sizes.changes(height, width):
            return
        try:
            self._fit.require(height, width)
        except (InputError, MemoryPlanError):
            raise  # nothing of the running session was given up
        except BaseException:
            self.restart()
            raise
        if (before := self._sizes.size) is not None:
            logger.warning(
                "the image size changed from %dx%d to %dx%d: a new session begins%s",
                *(before[1], before[0], width, height),
                "; keyframes stay manual" if self.session.deferred else "",
            )
            self.restart()
        self._sizes.settle(height, width)

    def fail(self, error: Exception) -> None:
        """Count a frame that could not be processed; say why, but not for every one."""
        self.skipped.add(_reason(error))
        self.last_error = str(error) or type(error).__name__
        now = time.monotonic()
        if self._failing_since is None:
            self._failing_since = now
        self._complain(error, now)
        if isinstance(error, torch.cuda.OutOfMemoryError):
            # What the failed step has left would take the room of the next one.
            traceback.clear_frames(error.__traceback__)
            release()

    def _complain(self, error: Exception, now: float) -> None:
        if now - self._complained.get(self.last_error, float("-inf")) < REPEAT_S:
            return
        self._complained = {**dict(list(self._complained.items())[-16:]), self.last_error: now}
        if isinstance(error, OtherSizeError):
            logger.warning("an image is skipped: %s", error)
        elif isinstance(error, LingbotMapError):
            logger.error("an image is skipped: %s", error)
        else:
            logger.error("a frame failed: %s", self.last_error, exc_info=error)

    def snapshot(self) -> StreamSnapshot:
        """Figures for the diagnostics."""
        since = self._failing_since
        return StreamSnapshot(
            session=self.session.status(),
            device=str(self._device),
            scale=self.scale.label,
            frame_age_s=self.frame_age_s,
            memory_bytes=gpu_memory(self._device),
            last_error=self.last_error,
            failing_for=0.0 if since is None else time.monotonic() - since,
            odometry_missing_for=self._odometry_missing_for,
            unsettled_for=self.scale.unsettled_for,
            timings=self.timings,
        )

    @property
    def _odometry_missing_for(self) -> float:
        wanted = self._parameters
        waits = wanted.scale_source == "odometry" and not self.scale.known
        return self.scale.unmatched_for if waits or wanted.tf_mode == "map" else 0.0

    def close(self) -> None:
        """Give model and map back."""
        self.keeper.close()
        del self.session, self.decisions, self._calibration, self._fit
        release()

    def set_parameters(self, parameters: Parameters) -> str:
        """Take changed parameters over."""
        before, self._parameters = self._parameters, parameters
        self._publishers.parameters = parameters
        self.keeper.set_parameters(parameters)
        self.scale = self.scale.configured(parameters.scale_source, parameters.scale)
        self._use_scale()
        if parameters.lost_after != before.lost_after:
            self.session.update_lost_after(parameters.lost_after)
        # only what differs: the rest may have been changed by a service meanwhile
        changed = {
            name: getattr(parameters, f"keyframe_{name}")
            for name in ("mode", "interval", "motion_px", "max_gap")
            if getattr(parameters, f"keyframe_{name}") != getattr(before, f"keyframe_{name}")
        }
        if changed:
            self.session.update_keyframes(**changed)
            self.decisions.settle()
        return "parameters taken over"

    def reset(self) -> str:
        """Begin a new session with an empty map, as configured."""
        manual = self.session.deferred
        text = self.restart(keep_mode=False)
        if manual == self.session.deferred:
            return text
        return f"{text}; keyframe_mode: {self.session.config.keyframe_mode} holds again"

    def restart(self, *, keep_mode: bool = True) -> str:
        """Begin a new session with an empty map; what a service has deferred stays so."""
        self.session.reset(keep_mode=keep_mode)
        self.placement.reset()
        self.scale.reset()
        self.keeper.reset()
        self._broadcaster.set_map_to_odom(None)
        self._window = IntensityWindow()
        self._sizes = SizeGuard()
        self.last_error, self._failing_since = "", None
        return f"session {self.session.epoch} begins with an empty map"

    def _publish(self, results: list[FrameResult], image_frame: str) -> None:
        camera_frame = self._mount.frame(image_frame)
        for result in results:
            mount = self._mount.base_from_camera(camera_frame, result.stamp_ns)
            match = self.scale.observe([result], mount)
            self._use_scale()
            if not self.scale.known:
                self._mount.warn_of_units(mount, camera_frame, self.scale.source)
            placed = self.placement.place(result, mount, camera_frame)
            # Poses first: whoever steers by them should wait for nothing else.
            self._publishers.publish_poses(placed)
            self._broadcaster.send_odom_to_base(placed.odom_from_base, result.stamp_ns)
            if self._parameters.tf_mode == "odom":
                self._broadcaster.set_map_to_odom(placed.map_from_odom)
            elif match is not None and self.scale.known:
                map_from_base = self.placement.map_from_base(match.result, mount)
                self._broadcaster.set_map_to_odom(
                    map_from_odom(map_from_base, match.odom_from_base)
                )
            self._publishers.publish_depth(placed)
            self.keeper.add(result, mount)
            self.results.tick()

    def _use_scale(self) -> None:
        """Have all that comes out from now on in this scale, map and path as they are too."""
        changed = self.placement.set_scale(self.scale.factor, self.scale.known)
        if changed:
            self.keeper.changed()
        if changed or (self._parameters.tf_mode == "map" and not self.scale.known):
            # what is broadcast leads to the map of another scale
            self._broadcaster.set_map_to_odom(None)


def _reason(error: Exception) -> str:
    """Under which an image that failed is counted."""
    if isinstance(error, OtherSizeError):
        return "other_size"
    return "bad_image" if isinstance(error, InputError) else "error"
