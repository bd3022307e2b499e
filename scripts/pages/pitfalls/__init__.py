"""The rows of the pages of pitfalls: what goes wrong, the results of each engine, what to write instead, the tests."""

from . import branches, calls, fields, loops, memory, numbers
from .kernels import TEXTS, marked, text_of
from .row import REFUSED, REPORTED, RIGHT, Row, Theme

THEMES = tuple(part.THEME for part in (loops, branches, memory, calls, numbers, fields))
"""By page."""

ROWS = sorted(row for theme in THEMES for row in theme.rows)
"""All of them, by number."""

__all__ = ["REPORTED", "REFUSED", "RIGHT", "ROWS", "TEXTS", "THEMES", "Row", "Theme", "marked", "text_of"]
