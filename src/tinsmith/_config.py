"""Config: the TINSMITH_* environment variables, read once into a frozen value.

A misspelt setting is refused, never silently the default. The environment is read at the first
`config()`, not at import, so that a bad setting breaks a call that can explain it and not
`import tinsmith`. To add a setting, add a field: its variable is TINSMITH_ and the name in capitals.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping
from typing import Any

from ._errors import ConfigError, nearest, refusal

_PREFIX = "TINSMITH_"
_BOOLEANS = {"0": False, "false": False, "off": False, "no": False, "1": True, "true": True, "on": True, "yes": True}


@dataclasses.dataclass(frozen=True)
class Config:
    """Every setting, with its default.

    Attributes:
        serial_below: operations of a launch (loads, stores, arithmetic; a function counts 10) under which the serial
            twin of a kernel runs first on the CPU, because waking the thread pool costs more than the work. 0: never.
        tape_limit: bytes of tape above which a generated gradient keeps checkpoints alone, and computes again what
            lies between them. 0: always.
        poison: fill buffers whose content must not be read with NaN or extreme integers, so that
            a test sees it when they are.
        check_bounds: every op raises BoundsError where an index leaves an array, as with
            `check_bounds=True`; ordinary launches do not look.
        plan_cache: how many plans (one per combination of ranks and dtypes) an op keeps.
    """

    serial_below: int = dataclasses.field(default=262144, metadata={"least": 0, "about": "operations; 0 for never"})
    tape_limit: int = dataclasses.field(
        default=2**27, metadata={"least": 0, "about": "bytes; 0 for checkpoints always"}
    )
    poison: bool = dataclasses.field(default=False, metadata={"about": "0 or 1"})
    check_bounds: bool = dataclasses.field(default=False, metadata={"about": "0 or 1"})
    plan_cache: int = dataclasses.field(default=1024, metadata={"least": 1, "about": "plans kept by an op"})

    def is_serial(self, elements: int) -> bool:
        """Whether work on so many elements goes on one thread, where its operations are not counted."""
        return OPERATIONS_PER_ELEMENT * elements < self.serial_below


OPERATIONS_PER_ELEMENT = 4
"""What work on an element of an array counts as, where the operations of a kernel are not counted."""

_FIELDS = {_PREFIX + field.name.upper(): field for field in dataclasses.fields(Config)}


def read_config(environ: Mapping[str, str]) -> Config:
    """The settings that an environment holds; ConfigError for a name or value that is not one."""
    given = {name: text for name, text in environ.items() if name.startswith(_PREFIX)}
    for name in given:
        if name not in _FIELDS:
            raise ConfigError(_unknown(name))
    return Config(**{_FIELDS[name].name: _value(name, text) for name, text in given.items()})


@functools.lru_cache(maxsize=1)
def config() -> Config:
    """The settings of this process. Tests that change the environment call `config.cache_clear()` after it."""
    return read_config(os.environ)


def _value(name: str, text: str) -> Any:  # an int or a bool, as the field wants
    field = _FIELDS[name]
    if isinstance(field.default, bool):
        if text.strip().lower() in _BOOLEANS:
            return _BOOLEANS[text.strip().lower()]
        raise ConfigError(_bad_value(name, text, "is not yes or no", f"Write {name}=1 or {name}=0."))
    try:
        value = int(text)
    except ValueError:
        remedy = f"Write for example {name}={field.default}, the default."
        raise ConfigError(_bad_value(name, text, "is not a whole number", remedy)) from None
    if value < field.metadata["least"]:
        remedy = f"Write {field.metadata['least']} or more; the default is {field.default}."
        raise ConfigError(_bad_value(name, text, "is too small", remedy))
    return value


def _bad_value(name: str, text: str, fault: str, remedy: str) -> str:
    return refusal(f"{name}={text!r} {fault}.", [_row(name)], remedy)


def _unknown(name: str) -> str:
    guess = nearest(name[len(_PREFIX) :], [known[len(_PREFIX) :] for known in _FIELDS])
    remedy = f"Did you mean {_PREFIX}{guess}?" if guess else f"Unset {name}: names with {_PREFIX} are tinsmith's alone."
    return refusal(f"The environment sets {name}, which is not a setting of tinsmith.", map(_row, _FIELDS), remedy)


def _row(name: str) -> tuple[str, str]:
    default: Any = _FIELDS[name].default
    return name, f"{_FIELDS[name].metadata['about']} (default {int(default)})"
