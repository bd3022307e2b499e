"""Config: the configuration language of tiny-cuda-nn, read and settled before anything is built.

`read` turns a file, a text or a mapping into plain values; `resolved` holds them against the table
of components and returns a `Section` in which nothing is left to guess: canonical names, every
default, numbers that are in range. What is misspelt, out of range, or would do nothing here is
refused with `ConfigError`; tiny-cuda-nn itself reads past what it does not know.
"""

from __future__ import annotations

from ._read import read
from ._resolve import resolve_section
from ._section import Section

__all__ = ["Section", "read", "resolve_section"]
