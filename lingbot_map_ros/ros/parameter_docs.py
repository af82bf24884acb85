# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""``config/map.yaml`` and the README's parameter table, written from the one table."""

from __future__ import annotations

import argparse
import dataclasses
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from lingbot_map_ros.ros.parameter_field import GROUPS, when_changed
from lingbot_map_ros.ros.parameters import Parameters

_HEADER = """\
# Every parameter of lingbot_map with its default.
# Written by `python -m lingbot_map_ros.ros.parameter_docs --yaml`; do not edit by hand:
# copy it, keep what differs, and start with params_file:=YOURS.
"""


def fields_of(group: str) -> Iterator[dataclasses.Field[Any]]:
    """Fields of ``Parameters`` in ``group``, in the order of the table."""
    return (field for field in dataclasses.fields(Parameters) if field.metadata["group"] == group)


def default_of(field: dataclasses.Field[Any]) -> Any:
    """Default value of a field."""
    return getattr(Parameters(), field.name)


def allowed(field: dataclasses.Field[Any]) -> str:
    """Choices or range of a parameter in words; empty where anything of its type goes."""
    about = field.metadata
    if about["choices"]:
        return ", ".join(about["choices"])
    if about["low"] is None:
        return ""
    return f"{about['low']:.10g} to {about['high']:.10g}"


def literal(value: Any) -> str:
    """``value`` as YAML, with its type kept: a float always has a point or an exponent."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        plain = value and value[0].isalpha() and ": " not in value and value != "none"
        return value if plain else f'"{value}"'
    if isinstance(value, float):
        return repr(value)
    return "[]" if value == () else str(value)


def to_yaml() -> str:
    """Text of ``config/map.yaml``: every parameter at its default, with its description."""
    lines = [_HEADER + "/**:", "  ros__parameters:"]
    for group, about in GROUPS.items():
        heading = f"---- {group}: {about}; {when_changed(group)}"
        wrapped = textwrap.wrap(heading, 92, subsequent_indent="     ")
        lines += ["", *(f"    # {line}" for line in wrapped)]
        for field in fields_of(group):
            lines += [f"    # {line}" for line in textwrap.wrap(field.metadata["description"], 92)]
            if allowed(field):
                lines.append(f"    # [{allowed(field)}]")
            default = default_of(field)
            # an empty list has no type in a parameter file, so an unset array stays a comment
            unset = "# " if default == () else ""
            lines.append(f"    {unset}{field.name}: {literal(default)}")
    return "\n".join(lines) + "\n"


def to_markdown() -> str:
    """Table of the README: group, name, default, allowed values and description."""
    lines = ["| parameter | default | allowed | what it does |", "|---|---|---|---|"]
    for group, about in GROUPS.items():
        lines.append(f"| **{group}**: {about}; {when_changed(group)} | | | |")
        for field in fields_of(group):
            description = field.metadata["description"].replace("|", "\\|")
            default = f"`{literal(default_of(field))}`"
            lines.append(f"| `{field.name}` | {default} | {allowed(field)} | {description} |")
    return "\n".join(lines) + "\n"


def main(args: Sequence[str] | None = None) -> None:
    """Write the YAML file or the table to standard output."""
    parser = argparse.ArgumentParser(
        prog="python -m lingbot_map_ros.ros.parameter_docs", description=__doc__
    )
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--yaml", action="store_const", dest="write", const=to_yaml)
    which.add_argument("--markdown", action="store_const", dest="write", const=to_markdown)
    sys.stdout.write(parser.parse_args(args).write())


if __name__ == "__main__":
    main()
