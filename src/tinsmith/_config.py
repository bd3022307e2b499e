"""Settings: the TINSMITH_* environment variables, read once into a frozen object.

A misspelled setting raises an error and never falls back to the default. The environment is read at the first
`config()`, not at import, so that a bad setting breaks a call that can explain it and not `import tinsmith`. To add a
setting, add a field: its variable is TINSMITH_ and the name in capitals.
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
    """All settings, with their defaults.

    Attributes:
        serial_below: number of operations of a launch (loads, stores, arithmetic; a function counts 10) below which a
            kernel first runs on one thread of the CPU, since waking the thread pool costs more than the work. 0: never.
            None: the machine's own costs decide (`_machine`).
        tape_limit: bytes of tape above which a generated gradient keeps only checkpoints, and recomputes the values
            between them. 0: always.
        poison: fill buffers that must not be read with NaN or extreme integers, so that a test detects it when they
            are read.
        check_bounds: every op raises BoundsError if an index is outside its array, as with `check_bounds=True`;
            ordinary launches do not check.
        engine: "python" lets Python run the kernels of ops and layers that name no engine, for debuggers; "" leaves
            them to the engine that they were written for.
        raise_on_nan: the Python engine raises FloatingPointError at the first operation that makes NaN.
        raise_on_unwritten: the Python engine raises ValueError where a kernel reads an element that starts
            uninitialized and that no kernel has written.
        traceback: "full" keeps all frames of tinsmith, torch and the engine in tracebacks (`_tracebacks.py` reads it).
        verify: check the IR after every pass, and raise where one left a kernel that breaks its rules.
        cache: keep generated programs and kernels on disk, for later processes.
        plan_cache: number of plans (one per combination of ranks and dtypes) that an op keeps.
    """

    serial_below: int | None = dataclasses.field(
        default=None, metadata={"least": 0, "about": "operations; 0 for never", "example": 262144}
    )
    tape_limit: int = dataclasses.field(
        default=2**27, metadata={"least": 0, "about": "bytes; 0 for checkpoints always"}
    )
    poison: bool = dataclasses.field(default=False, metadata={"about": "0 or 1"})
    check_bounds: bool = dataclasses.field(default=False, metadata={"about": "0 or 1"})
    engine: str = dataclasses.field(default="", metadata={"choices": ("python",), "about": "python, for debugging"})
    raise_on_nan: bool = dataclasses.field(default=False, metadata={"about": "0 or 1, on the Python engine"})
    raise_on_unwritten: bool = dataclasses.field(default=False, metadata={"about": "0 or 1, on the Python engine"})
    traceback: str = dataclasses.field(default="short", metadata={"choices": ("full",), "about": "short or full"})
    verify: bool = dataclasses.field(default=False, metadata={"about": "0 or 1, for developers"})
    cache: bool = dataclasses.field(default=True, metadata={"about": "0 keeps nothing on disk"})
    plan_cache: int = dataclasses.field(default=1024, metadata={"least": 1, "about": "plans kept by an op"})

    def is_serial(self, elements: int) -> bool:
        """Return True if work on this number of elements runs on one thread, if its operations are not counted."""
        return OPERATIONS_PER_ELEMENT * elements < (UNCOUNTED_BELOW if self.serial_below is None else self.serial_below)


UNCOUNTED_BELOW = 262144
"""Operations below which copies run on one thread, unless a setting says otherwise."""
OPERATIONS_PER_ELEMENT = 4
"""Operations per element of an array, for kernels whose operations are not counted."""

_FIELDS = {_PREFIX + field.name.upper(): field for field in dataclasses.fields(Config)}


def read_config(environ: Mapping[str, str]) -> Config:
    """Read the settings of an environment. Raise ConfigError for an unknown name or an invalid value."""
    given = {name: text for name, text in environ.items() if name.startswith(_PREFIX)}
    for name in given:
        if name not in _FIELDS:
            raise ConfigError(_unknown(name))
    return Config(**{_FIELDS[name].name: _value(name, text) for name, text in given.items()})


@functools.lru_cache(maxsize=1)
def config() -> Config:
    """Return the settings of this process. Tests that change the environment call `config.cache_clear()` afterwards."""
    return read_config(os.environ)


def _value(name: str, text: str) -> Any:  # an int, a bool or a text, as the field wants
    field = _FIELDS[name]
    if isinstance(field.default, str):
        choices = field.metadata["choices"]
        if text.strip() in (field.default, *choices):
            return text.strip()
        raise ConfigError(_bad_value(name, text, "is not known", f"Write {name}={choices[0]}, or unset it."))
    if isinstance(field.default, bool):
        if text.strip().lower() in _BOOLEANS:
            return _BOOLEANS[text.strip().lower()]
        raise ConfigError(_bad_value(name, text, "is not yes or no", f"Write {name}=1 or {name}=0."))
    try:
        value = int(text)
    except ValueError:
        example = field.metadata.get("example", field.default)
        remedy = f"Write for example {name}={example}{'' if field.default is None else ', the default'}."
        raise ConfigError(_bad_value(name, text, "is not a whole number", remedy)) from None
    if value < field.metadata["least"]:
        default = "" if field.default is None else f"; the default is {field.default}"
        remedy = f"Write {field.metadata['least']} or more{default}."
        raise ConfigError(_bad_value(name, text, "is too small", remedy))
    return value


def _bad_value(name: str, text: str, fault: str, remedy: str) -> str:
    return refusal(f"{name}={text!r} {fault}", [_row(name)], remedy)


def _unknown(name: str) -> str:
    guess = nearest(name[len(_PREFIX) :], [known[len(_PREFIX) :] for known in _FIELDS])
    remedy = (
        f"Did you mean {_PREFIX}{guess}?"
        if guess
        else f"Unset {name}: names that begin with {_PREFIX} are reserved for tinsmith."
    )
    return refusal(f"The environment sets {name}, which is not a setting of tinsmith", map(_row, _FIELDS), remedy)


def _row(name: str) -> tuple[str, str]:
    default: Any = _FIELDS[name].default
    shown = default or "unset" if isinstance(default, str | None) else int(default)
    return name, f"{_FIELDS[name].metadata['about']} (default {shown})"
