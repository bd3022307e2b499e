"""Backgrounds of the pictures of a scene, by name."""

from __future__ import annotations

from ..._errors import InputError, nearest, refusal

BACKGROUNDS = {"white": (1.0, 1.0, 1.0), "black": (0.0, 0.0, 0.0)}
"""Colors by name."""


def require_background(name: str) -> None:
    """Raise InputError for an unknown background."""
    if name not in BACKGROUNDS:
        guess = nearest(name, list(BACKGROUNDS))
        rows = [("got", name), ("expected", ", ".join(BACKGROUNDS))]
        raise InputError(refusal("there is no such background", rows, f"Did you mean `{guess}`?" if guess else ""))
