# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""Whether the integers of a configuration are integers, which Python does not ask."""

from __future__ import annotations

from numbers import Integral
from typing import Any, get_args, get_origin, get_type_hints

from lingbot_map_ros.errors import ConfigurationError


def require_integers(config: Any) -> None:
    """Refuse a dataclass instance with another value where an ``int`` is declared.

    ``int | None`` and tuples of ``int`` count as well; integers of NumPy do, and bools do not.

    Raises
    ------
    ConfigurationError
        Names the field and its value.
    """
    for name, kind in get_type_hints(type(config)).items():
        value = getattr(config, name)
        if kind is int or (kind == int | None and value is not None):
            fits = is_integer(value)
        elif get_origin(kind) is tuple and set(get_args(kind)) <= {int, ...}:
            fits = isinstance(value, tuple) and all(map(is_integer, value))
        else:
            continue
        if not fits:
            what = "integers" if get_origin(kind) is tuple else "an integer"
            raise ConfigurationError(f"{name} must be {what}, not {value!r}")


def is_integer(value: object) -> bool:
    """Whether a value is one, of Python or NumPy, and no bool."""
    return isinstance(value, Integral) and not isinstance(value, bool)
