"""HTML for notebooks: tables and paragraphs of text, as results show themselves in `_repr_html_`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def write_table(caption: str, rows: Iterable[Sequence[str]], header: Sequence[str] = ()) -> str:
    """Return an HTML table of texts. A line break in a cell stays one.

    Args:
        caption: the text above the table.
        rows: the texts of its cells. Without a header, the first cell of each row names the row.
        header: the names of the columns.
    """
    first = "td" if header else "th"
    body = "".join(
        f"<tr>{_write_cell(first, row[0])}{''.join(_write_cell('td', one) for one in row[1:])}</tr>" for row in rows
    )
    titles = "".join(_write_cell("th", one) for one in header)
    head = f"<thead><tr>{titles}</tr></thead>" if header else ""
    # Notebooks' own style aligns to the right, which suits numbers alone.
    style = "text-align: left; white-space: pre-line"
    return f"<table><caption style='{style}'>{escape(caption)}</caption>{head}<tbody>{body}</tbody></table>"


def _write_cell(tag: str, text: str) -> str:
    return f"<{tag} style='text-align: left; white-space: pre-wrap; vertical-align: top'>{escape(text)}</{tag}>"


def write_paragraphs(texts: Iterable[str]) -> str:
    """Return an HTML paragraph for each text."""
    return "".join(f"<p style='white-space: pre-line'>{escape(one)}</p>" for one in texts)
