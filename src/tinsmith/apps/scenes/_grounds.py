"""Grounds: what pictures of a scene can be laid on."""

from __future__ import annotations

from ..._errors import InputError, nearest, refusal

GROUNDS = {"white": (1.0, 1.0, 1.0), "black": (0.0, 0.0, 0.0)}
"""Colors by name."""


def require_ground(name: str) -> None:
    """Raises InputError for an unknown background."""
    if name not in GROUNDS:
        guess = nearest(name, list(GROUNDS))
        rows = [("got", name), ("expected", ", ".join(GROUNDS))]
        raise InputError(refusal("there is no such background", rows, f"Did you mean `{guess}`?" if guess else ""))
