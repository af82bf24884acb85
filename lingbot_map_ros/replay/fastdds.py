# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Fast DDS with room for images in shared memory, for processes started without ``ros2 launch``."""

from collections.abc import Mapping
from pathlib import Path

from ament_index_python.packages import get_package_share_directory

_PROFILE_VARIABLES = ("FASTDDS_DEFAULT_PROFILES_FILE", "FASTRTPS_DEFAULT_PROFILES_FILE")


def fastdds_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Variables that give Fast DDS this package's profile, on top of ``environment``.

    Empty where another middleware is chosen or Fast DDS already is configured: the user's choice
    stands. Kilted and later read the first name, Humble and Jazzy the second.
    """
    middleware = environment.get("RMW_IMPLEMENTATION", "rmw_fastrtps_cpp")
    configured = (*_PROFILE_VARIABLES, "FASTDDS_BUILTIN_TRANSPORTS")
    if not middleware.startswith("rmw_fastrtps") or any(map(environment.get, configured)):
        return {}
    share = Path(get_package_share_directory("lingbot_map_ros"))
    return dict.fromkeys(_PROFILE_VARIABLES, str(share / "config" / "fastdds_profile.xml"))
