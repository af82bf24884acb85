# Copyright 2026 The lingbot_map_ros authors
# SPDX-License-Identifier: Apache-2.0
"""The parameter table on a node: declared with descriptors, read, and guarded against changes."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Sequence
from typing import Any

from rcl_interfaces.msg import (
    FloatingPointRange,
    IntegerRange,
    ParameterDescriptor,
    SetParametersResult,
)
from rclpy.exceptions import (
    InvalidParameterTypeException,
    InvalidParameterValueException,
    ParameterUninitializedException,
)
from rclpy.node import Node
from rclpy.parameter import Parameter

from lingbot_map_ros.errors import ConfigurationError
from lingbot_map_ros.ros.output_folder import require_writable
from lingbot_map_ros.ros.parameter_checks import check, check_each
from lingbot_map_ros.ros.parameter_docs import allowed, default_of
from lingbot_map_ros.ros.parameter_field import FIXED_GROUPS, when_changed
from lingbot_map_ros.ros.parameters import Parameters

_POINTS = "write a decimal point in every number (1.0)"


def descriptor(field: dataclasses.Field[Any]) -> ParameterDescriptor:
    """Return description, range and constraints of a parameter as ROS shows them."""
    about = field.metadata
    change = "read-only after the start" if about["start_only"] else when_changed(about["group"])
    message = ParameterDescriptor(
        description=about["description"],
        additional_constraints="; ".join(
            filter(None, (f"one of {allowed(field)}" if about["choices"] else "", change))
        ),
    )
    if about["low"] is not None:
        if isinstance(default_of(field), int):
            message.integer_range = [
                IntegerRange(from_value=int(about["low"]), to_value=int(about["high"]))
            ]
        else:
            message.floating_point_range = [
                FloatingPointRange(from_value=float(about["low"]), to_value=float(about["high"]))
            ]
    return message


def unknown_overrides(node: Node) -> list[str]:
    """Sentences about overrides that fit no declared parameter, which rclpy ignores silently."""
    # nothing public tells them: they are neither declared nor refused
    overrides = getattr(node, "_parameter_overrides", {})
    return [
        f"parameter {name} does not exist and is ignored{_near(name)}"
        for name in sorted(name for name in overrides if not node.has_parameter(name))
    ]


def unknown_changes(node: Node, changes: Sequence[Parameter]) -> str:
    """Say which of the changes fit no declared parameter; empty if all do."""
    unknown = [change.name for change in changes if not node.has_parameter(change.name)]
    return ", ".join(f"parameter {name} does not exist{_near(name)}" for name in unknown)


def _near(name: str) -> str:
    names = [field.name for field in dataclasses.fields(Parameters)]
    near = difflib.get_close_matches(name, names, 1) or [n for n in names if name in n][:1]
    return f"; did you mean {near[0]}?" if near else "; config/map.yaml lists all there are"


def type_hint(changes: Sequence[Parameter]) -> str:
    """What to write instead of values of a wrong type; empty where all types are right."""
    table = {field.name: default_of(field) for field in dataclasses.fields(Parameters)}
    integers = (Parameter.Type.INTEGER, Parameter.Type.INTEGER_ARRAY)
    hints = []
    for change in changes:
        default = table.get(change.name)
        if default is None or change.type_ is (wanted := _type_of(default)):
            continue
        if change.type_ in integers and _is_decimal(default):
            hints.append(f"; {change.name}: {_POINTS}")
        else:
            hints.append(f"; {change.name} is of type {_word(wanted)}, not {_word(change.type_)}")
    return "".join(hints)


def _type_of(default: Any) -> Parameter.Type:
    if default == ():
        return Parameter.Type.DOUBLE_ARRAY
    return Parameter.Type.from_parameter_value(default)


def _word(type_: Parameter.Type) -> str:
    return type_.name.lower().replace("_", " ")


def _is_decimal(default: object) -> bool:
    return isinstance(default, float) or default == ()


def _read_only(field: dataclasses.Field[Any], configured: bool) -> str:
    """Why a parameter cannot change now; empty if it can."""
    if field.metadata["start_only"]:
        return "read-only once the node runs: give it on the command line or in a parameter file"
    if configured and field.metadata["group"] in FIXED_GROUPS:
        return "read-only once the node is configured: clean up, set it, and configure again"
    return ""


class ParameterServer:
    """Declares the table on ``node`` and keeps its values valid.

    Parameters
    ----------
    node
        Whose parameters they are.
    is_configured
        Tells whether the read-only groups are closed now.
    on_change
        Called with the new values after a valid change of a parameter that may change.

    Raises
    ------
    ConfigurationError
        An override of the command line or of a parameter file has a wrong type, or a value that
        is out of range on its own; whether the values go together is for `read` to say.
    """

    def __init__(
        self,
        node: Node,
        is_configured: Callable[[], bool],
        on_change: Callable[[Parameters], None],
    ):
        self._node = node
        self._is_configured = is_configured
        self._on_change = on_change
        for field in dataclasses.fields(Parameters):
            self._declare(field)
        check_each(self.values)
        for text in unknown_overrides(node):
            node.get_logger().warning(text)
        node.add_on_set_parameters_callback(self._on_set)

    def _declare(self, field: dataclasses.Field[Any]) -> None:
        default = default_of(field)
        value = Parameter.Type.DOUBLE_ARRAY if default == () else default
        try:
            declared = self._node.declare_parameter(field.name, value, descriptor(field))
            if declared.type_ == Parameter.Type.NOT_SET:
                # With one parameter unset, rclpy answers a request for several with nothing.
                empty: list[float] = []
                unset = Parameter(field.name, Parameter.Type.DOUBLE_ARRAY, empty)
                self._node.set_parameters([unset])
        except InvalidParameterTypeException as error:
            raise ConfigurationError(
                f"parameter {field.name} has the wrong type ({error}); "
                f"its default is {list(default) if isinstance(default, tuple) else default!r}"
                + (f", so {_POINTS}" if _is_decimal(default) else "")
            ) from error
        except InvalidParameterValueException as error:
            raise ConfigurationError(str(error)) from error

    @property
    def values(self) -> Parameters:
        """Current values, whether they go together or not."""
        return Parameters(
            **{field.name: self._get(field.name) for field in dataclasses.fields(Parameters)}
        )

    def read(self) -> Parameters:
        """Return the current values.

        Raises
        ------
        ConfigurationError
            The values do not go together.
        """
        values = self.values
        check(values)
        return values

    def _get(self, name: str) -> Any:
        try:
            value = self._node.get_parameter(name).value
        except ParameterUninitializedException:
            return ()
        if value is None:
            return ()
        return value if isinstance(value, (str, bool, int, float)) else tuple(value)

    def _on_set(self, changes: Sequence[Parameter]) -> SetParametersResult:
        table = {field.name: field for field in dataclasses.fields(Parameters)}
        wanted: dict[str, Any] = {
            change.name: tuple(change.value) if table[change.name].default == () else change.value
            for change in changes
            if change.name in table
        }
        if not wanted:
            return SetParametersResult(successful=True)
        current, configured = self.values, self._is_configured()
        for name, value in wanted.items():
            if value == getattr(current, name):
                continue
            if reason := _read_only(table[name], configured):
                return SetParametersResult(successful=False, reason=f"{name} is {reason}")
        values = dataclasses.replace(current, **wanted)
        try:
            # until then, what does not go together can be set one after the other
            (check if configured else check_each)(values)
            if "output_directory" in wanted:
                require_writable(values.output_directory)
        except (ConfigurationError, TypeError) as error:
            return SetParametersResult(successful=False, reason=str(error))
        self._on_change(values)
        return SetParametersResult(successful=True)
