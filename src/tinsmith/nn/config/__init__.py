"""Configurations in tiny-cuda-nn's language, read and validated before anything is built.

`read` turns a file, a string or a mapping into plain values. `resolve_section` checks them against the table of
components and returns a `Section` with canonical names, every default, and numbers that are in range. A misspelled
name, a value out of range, or a key without effect raises `ConfigError`; tiny-cuda-nn ignores unknown keys.
"""

from __future__ import annotations

from ._components import MOST_PARAMS
from ._read import read
from ._resolve import Section, resolve_section

__all__ = ["MOST_PARAMS", "Section", "read", "resolve_section"]
