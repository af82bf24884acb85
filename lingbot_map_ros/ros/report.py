# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""What the diagnostics say, from a snapshot of every part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from diagnostic_msgs.msg import DiagnosticStatus

from lingbot_map_ros.ros.diagnostics import Report
from lingbot_map_ros.ros.worker import WorkerState
from lingbot_map_ros.streaming.results import SessionState, SessionStatus
from lingbot_map_ros.wording import counted


@dataclass(frozen=True)
class MapSnapshot:
    """What the map says of itself."""

    points: int
    waiting: int
    """Results that are not in it yet."""
    error: str = ""
    """Why the newest result is not in it; empty if it is."""
    failed: int = 0
    """Results that could not be taken in."""
    milliseconds: float = 0.0
    """Time that the newest keyframe took."""


@dataclass(frozen=True)
class StreamSnapshot:
    """What the worker says of the stream after each item; plain values."""

    session: SessionStatus
    device: str
    scale: str
    frame_age_s: float | None
    memory_bytes: int
    """Memory of the GPU in use; 0 on a CPU."""
    last_error: str
    failing_for: float = 0.0
    """Seconds since the first of the frames in a row that failed; 0 if the last one did not."""
    odometry_missing_for: float = 0.0
    """Seconds of frames without odometry; 0 while there is some, or none is needed."""
    unsettled_for: float = 0.0
    """Seconds of frames with odometry that have not settled the scale; 0 once they have."""
    timings: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class InputSnapshot:
    """What came in and what went out."""

    topic: str
    paused: bool
    rate_in: float
    rate_out: float
    received: int
    results: int
    waiting: int
    dropped: Mapping[str, int]
    skipped: Mapping[str, int]
    not_sent: int
    refused_for: float = 0.0
    """Seconds, up to the newest image, in which every one was skipped for its stamp."""
    refusal: str = ""


@dataclass(frozen=True)
class NodeSnapshot:
    """Everything that a report is made of."""

    lifecycle: str
    fault: str = ""
    """Why the node cannot work; empty if it can."""
    worker: WorkerState | None = None
    stall: str = ""
    """Where the worker is stuck; empty if it is not."""
    stalled_for: float = 0.0
    stall_timeout: float = 10.0
    silence: str = ""
    """Since when no image comes, and why; empty if they do."""
    odometry_silence: str = ""
    """Why no odometry matches the frames; empty if some does, or none is needed."""
    stream: StreamSnapshot | None = None
    map: MapSnapshot | None = None
    input: InputSnapshot | None = None


def make_report(node: NodeSnapshot) -> Report:
    """State in one line, and the figures."""
    level, message = _state(node)
    return Report(
        level, message, node.stream.device if node.stream else "", dict(_values(node, message))
    )


def _state(node: NodeSnapshot) -> tuple[bytes, str]:
    ok, warn, error = DiagnosticStatus.OK, DiagnosticStatus.WARN, DiagnosticStatus.ERROR
    if node.fault:
        return error, f"error: {node.fault}"
    if node.worker is None:
        return ok, node.lifecycle
    if node.worker is WorkerState.LOADING:
        return ok, "loading"
    if node.stall:
        return error, f"error: no result for {node.stalled_for:.0f} s while images arrive"
    if node.lifecycle != "active":
        return ok, node.lifecycle
    if node.input is None or node.stream is None:
        return ok, "waiting"
    if node.input.paused:
        return ok, "paused"
    if node.silence:
        return warn, f"waiting: {node.silence}"
    if node.stream.failing_for >= node.stall_timeout:
        return error, (
            f"error: no result for {node.stream.failing_for:.0f} s while images arrive; "
            f"last error: {node.stream.last_error}"
        )
    if node.input.refused_for >= node.stall_timeout:
        return error, (
            f"error: every image for {node.input.refused_for:.0f} s is skipped: "
            f"{node.input.refusal}"
        )
    trouble = node.stream.last_error
    if not trouble and node.map is not None and node.map.error:
        trouble = f"the map: {node.map.error}"
    level, message = _stream_state(node.stream.session, trouble)
    if node.odometry_silence and level == ok:
        return warn, f"{message}; {node.odometry_silence}"
    return level, message


def _stream_state(session: SessionStatus, last_error: str) -> tuple[bytes, str]:
    ok, warn = DiagnosticStatus.OK, DiagnosticStatus.WARN
    if session.state is SessionState.LOST:
        withheld = counted(session.lost_frames, "frame")
        return warn, f"lost: {session.last_reason} ({withheld} withheld)"
    trouble = f"; last error: {last_error}" if last_error else ""
    level = warn if last_error else ok
    if session.frames == 0:
        return level, f"waiting for images{trouble}"
    if session.state is SessionState.INITIALISING:
        return level, f"initialising {session.gathered} of {session.needed}{trouble}"
    return level, f"tracking{trouble}"


def _values(node: NodeSnapshot, message: str) -> list[tuple[str, object]]:
    values: list[tuple[str, object]] = [
        ("state", message.split(":")[0].split(";")[0]),
        ("lifecycle", node.lifecycle),
    ]
    if node.input is not None:
        values += _input_values(node.input)
    if node.stream is not None:
        values += _stream_values(node.stream)
    if node.map is not None:
        values += [
            ("map points", node.map.points),
            ("map: results waiting", node.map.waiting),
            ("map: results failed", node.map.failed),
            ("time: map (ms)", node.map.milliseconds),
        ]
    if node.stall:
        values.append(("worker stack", node.stall))
    return values


def _input_values(source: InputSnapshot) -> list[tuple[str, object]]:
    return [
        ("image topic", source.topic),
        ("rate in (Hz)", source.rate_in),
        ("rate out (Hz)", source.rate_out),
        ("images received", source.received),
        ("results", source.results),
        ("images waiting", source.waiting),
        *((f"dropped: {reason}", count) for reason, count in sorted(source.dropped.items())),
        *((f"skipped: {reason}", count) for reason, count in sorted(source.skipped.items())),
        ("messages not taken", source.not_sent),
    ]


def _stream_values(stream: StreamSnapshot) -> list[tuple[str, object]]:
    session = stream.session
    return [
        ("frame age (s)", stream.frame_age_s),
        ("epoch", session.epoch),
        ("frames", session.frames),
        ("window", session.window),
        ("segment", session.segment),
        ("keyframe decision", "manual" if session.deferred else "automatic"),
        ("pending frames", session.pending),
        ("pending policy applied", session.policy_applied),
        (
            "cache fill",
            f"{session.kept} of {session.max_keyframes}, next window from {session.capacity} on",
        ),
        ("frames withheld", session.withheld),
        ("last event", session.last_reason),
        ("alignment error", session.alignment_error),
        ("alignment inliers", session.alignment_inliers),
        ("scale", stream.scale),
        ("GPU memory (GB)", stream.memory_bytes / 1e9 if stream.memory_bytes else None),
        ("last error", stream.last_error),
        *((f"time: {stage} (ms)", value) for stage, value in stream.timings.items()),
    ]
