"""Copies of memory: an action that forward and backward passes share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Copy:
    """A copy of other memory of a program."""

    name: str
    of: str
