"""Keys of a configuration, and the kinds of values that they may have. The tables in `_components` consist of them.

The `validate` of a kind takes a value and returns it normalized, or raises `Unfit` with only a description of valid
values; `_resolve` adds where in the configuration the value is.
"""

from __future__ import annotations

import dataclasses
import math
import numbers
from collections.abc import Mapping
from typing import Any, Protocol


class Unfit(Exception):
    """Raised for an invalid value. The message describes the valid ones."""


class Kind(Protocol):
    """The kind of values that an option may have."""

    def validate(self, value: Any) -> Any:
        """Return the value in normalized form. Raise Unfit, which describes the valid values, if it is invalid."""
        ...


@dataclasses.dataclass(frozen=True)
class Count:
    """An integer from `least` to `most`, or one of `among`. A float such as 16.0 is accepted too."""

    least: int = 1
    most: float = math.inf
    among: tuple[int, ...] = ()

    def validate(self, value: Any) -> int:
        whole = _is_number(value) and float(value).is_integer()
        if whole and self.least <= value <= self.most and (not self.among or value in self.among):
            return int(value)
        raise Unfit(f"a whole number, {self._range()}")

    def _range(self) -> str:
        if self.among:
            return "one of " + ", ".join(map(str, self.among))
        return f"{self.least} or more" if self.most == math.inf else f"{self.least} to {self.most}"


@dataclasses.dataclass(frozen=True)
class Number:
    """A finite number with `least <= value <= most` and `value < below`; if `open`, `least < value`."""

    least: float = -math.inf
    below: float = math.inf
    most: float = math.inf
    open: bool = False

    def validate(self, value: Any) -> float:
        if _is_number(value) and self._holds(value):
            return float(value)
        raise Unfit(f"a number{self._range()}")

    def _holds(self, value: float) -> bool:
        above = value > self.least if self.open else value >= self.least
        return above and value < self.below and value <= self.most

    def _range(self) -> str:
        parts = []
        if self.least > -math.inf:
            parts.append(f"above {self.least:g}" if self.open else f"{self.least:g} or more")
        if self.below < math.inf:
            parts.append(f"below {self.below:g}")
        if self.most < math.inf:
            parts.append(f"at most {self.most:g}")
        return "".join(f", {part}" for part in parts)


@dataclasses.dataclass(frozen=True)
class Flag:
    """A bool."""

    def validate(self, value: Any) -> bool:
        if isinstance(value, bool):
            return value
        raise Unfit("true or false")


@dataclasses.dataclass(frozen=True)
class Choice:
    """One of several names, in upper or lower case; `also` maps further spellings to these names."""

    names: tuple[str, ...]
    also: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def validate(self, value: Any) -> str:
        known = {name.lower(): name for name in (*self.names, *self.also)}
        if isinstance(value, str) and value.lower() in known:
            name = known[value.lower()]
            return self.also.get(name, name)
        raise Unfit("one of " + ", ".join(self.names))


def _is_number(value: Any) -> bool:
    """Return True if the value is a finite real number, numpy's scalars included. A bool is not one."""
    try:
        return isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:  # an int that no float holds
        return False


@dataclasses.dataclass(frozen=True)
class Key:
    """One option of a component.

    Attributes:
        name: its name in a configuration.
        kind: the kind of values that it may have.
        default: its value if left out. None: no value, or the component's `settle` computes one.
        also: its other names.
        only: the reason why only the default is supported; "" if all values are.
    """

    name: str
    kind: Kind
    default: Any = None
    also: tuple[str, ...] = ()
    only: str = ""
