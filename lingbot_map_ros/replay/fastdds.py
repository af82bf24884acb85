# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Fast DDS with room for images in shared memory, for processes started without ``ros2 launch``."""

from collections.abc import Mapping
from pathlib import Path

from ament_index_python.packages import get_package_share_directory

_PROFILE, _OLD_PROFILE = "FASTDDS_DEFAULT_PROFILES_FILE", "FASTRTPS_DEFAULT_PROFILES_FILE"
_OLD_DISTRIBUTIONS = ("humble", "iron", "jazzy")


def fastdds_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Variable that gives Fast DDS this package's profile, on top of ``environment``.

    Empty where another middleware is chosen or Fast DDS already is configured: the user's choice
    stands. Kilted and later read one name, older distributions the other; setting both would make
    the newer ones load the profile twice and complain.
    """
    middleware = environment.get("RMW_IMPLEMENTATION", "rmw_fastrtps_cpp")
    configured = (_PROFILE, _OLD_PROFILE, "FASTDDS_BUILTIN_TRANSPORTS")
    if not middleware.startswith("rmw_fastrtps") or any(map(environment.get, configured)):
        return {}
    old = environment.get("ROS_DISTRO") in _OLD_DISTRIBUTIONS
    share = Path(get_package_share_directory("lingbot_map_ros"))
    return {_OLD_PROFILE if old else _PROFILE: str(share / "config" / "fastdds_profile.xml")}
