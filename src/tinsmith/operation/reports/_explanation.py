"""What `op.explain()` returns: text of at most 25 lines, or all of it, and a page for notebooks."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing_extensions import Self

WIDTH = 80
MOST_LINES = 25
_MOST_ROWS = 2
"""The number of rows that an entry of the summary may take; the rest of it is cut."""


class Section(NamedTuple):
    """A part of the summary: its entries, and the number of rows that are kept for it if there is much to say."""

    entries: Sequence[str]
    reserved: int


class Explanation(str):  # noqa: SLOT000  (a subclass of str may have no slots)
    """A description of an op. It is a string; a notebook shows it as a page.

    Attributes:
        sections: the text of each section of the whole description, by its title.
    """

    sections: Mapping[str, str]

    def __new__(cls, text: str, sections: Mapping[str, str] | None = None) -> Self:
        """Make an explanation that prints as `text`."""
        made = super().__new__(cls, text)
        made.sections = dict(sections or {})
        return made

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """Return the text, followed by each section of the whole description, closed until it is clicked."""
        closed = (
            f"<details><summary>{escape(title)}</summary><pre>{escape(text)}</pre></details>"
            for title, text in self.sections.items()
        )
        return f"<pre>{escape(self)}</pre>{''.join(closed)}"


def summarize_sections(sections: Sequence[Section], last: str) -> str:
    """Return the sections, wrapped to 80 columns and shortened to 25 lines, with `last` as the last line.

    Sections that do not need the rows that are reserved for them leave them to the other ones, first to the earlier
    ones.
    """
    wrapped = [[_wrap(entry) for entry in one.entries] for one in sections]
    lengths = [sum(map(len, entries)) for entries in wrapped]
    rows = [min(length, one.reserved) for length, one in zip(lengths, sections, strict=True)]
    spare = MOST_LINES - 1 - sum(rows)
    for place, length in enumerate(lengths):
        more = min(spare, length - rows[place])
        rows[place], spare = rows[place] + more, spare - more
    lines = [line for entries, count in zip(wrapped, rows, strict=True) for line in _shorten(entries, count)]
    return "\n".join([*lines, last])


def _wrap(entry: str) -> list[str]:
    indent = " " * (len(entry) - len(entry.lstrip()))
    return textwrap.wrap(
        entry.strip(),
        WIDTH,
        initial_indent=indent,
        subsequent_indent=f"{indent}    ",
        max_lines=_MOST_ROWS,
        placeholder=" ...",
        break_on_hyphens=False,
    )


def _shorten(entries: list[list[str]], most: int) -> list[str]:
    """Return the rows of the first entries, at most `most` in all. The last one says how many entries are missing."""
    kept: list[str] = []
    for place, rows in enumerate(entries):
        is_last = place == len(entries) - 1
        if len(kept) + len(rows) + (not is_last) > most:
            return [*kept, f"  ... {len(entries) - place} more"]
        kept += rows
    return kept
