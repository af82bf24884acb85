# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Which cv_bridge is installed, and ROS 2's own for encodings that are not read here.

Three different things answer to ``import cv_bridge``: ROS 2's own package, the ROS 1 package of
Debian, and a port of the ROS 1 package on PyPI. The ROS 1 ones ignore ``step``, return half an
image for 16UC1 and raise ``KeyError`` for what they do not know; their version begins with 1.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from lingbot_map_ros.errors import InputError
from lingbot_map_ros.wording import shortened


@lru_cache(maxsize=1)
def is_ros2() -> bool:
    """Whether the cv_bridge that ``import`` would find is ROS 2's own.

    Decided by the metadata of the distribution that the importable module belongs to, without
    importing it; a module without metadata counts as unknown, which is as good as absent.
    """
    try:
        spec = importlib.util.find_spec("cv_bridge")
    except (ImportError, ValueError):
        return False
    if spec is None or spec.origin is None:
        return False
    package = Path(spec.origin).parent
    for distribution in importlib.metadata.distributions(name="cv-bridge"):
        if Path(str(distribution.locate_file("cv_bridge"))) == package:
            major = distribution.version.partition(".")[0]
            return major.isdigit() and int(major) >= 2
    return False


def to_rgb(msg: Any) -> np.ndarray | None:
    """RGB uint8 [H, W, 3] through ROS 2's own cv_bridge; None where that is not installed.

    Raises InputError when cv_bridge is there and cannot convert the message.
    """
    if not is_ros2():
        return None
    # Its compiled part may have been built for another numpy, which only importing it tells.
    try:
        from cv_bridge import CvBridge, CvBridgeError
    except (ImportError, AttributeError):
        return None
    try:
        return CvBridge().imgmsg_to_cv2(msg, "rgb8")
    except (CvBridgeError, RuntimeError, TypeError, ValueError, KeyError) as error:
        raise InputError(
            f"cv_bridge cannot convert encoding '{shortened(msg.encoding)}': "
            f"{shortened(str(error))}"
        ) from error
