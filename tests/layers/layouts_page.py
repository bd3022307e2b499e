"""The page docs/guide/layouts.md: its tables are written from what layers do, and read back by the tests.

    python tests/layers/layouts_page.py        runs every cell on both engines and writes the tables anew

What stands between the marks is the tables and the messages that they refer to; everything else on the page is
written by hand.
"""

import contextlib
import io
import sys
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from layers.layouts import ALL, DECLARATIONS, ROWS, SOME
from layers.layouts_outcome import outcome
from support.engine_keeper import ENGINES, load_quietly

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "layouts.md"
BEGIN, END = "<!-- tables: begin -->", "<!-- tables: end -->"
TITLES = {"All three fields should have a gradient": ALL, "One field has no gradient": SOME}
NONE = "cannot be written"


class Cell(NamedTuple):
    """One question: this row, that column, on this engine."""

    row: str
    column: str
    engine: str


def render(outcomes: dict[Cell, str]) -> str:
    """Render the tables, and the numbered messages that they refer to."""
    messages = sorted({text for text in outcomes.values() if ": " in text})
    lines = []
    for title, columns in TITLES.items():
        lines += ["", f"### {title}", "", _line(["placed", *columns]), _line(["---"] * (1 + len(columns)))]
        lines += [_line([row.code, *[_shown(outcomes, row.code, one, messages) for one in columns]]) for row in ROWS]
    notes = [f"{place}. {text}" for place, text in enumerate(messages, 1)]
    return "\n".join([*lines, "", "### Messages", "", *notes, ""])


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _shown(outcomes: dict[Cell, str], row: str, column: str, messages: list[str]) -> str:
    words = [_short(outcomes[Cell(row, column, engine)], messages) for engine in ENGINES]
    if len(set(words)) == 1:
        return words[0]
    return "; ".join(f"{engine.capitalize()}: {word}" for engine, word in zip(ENGINES, words, strict=True))


def _short(text: str, messages: list[str]) -> str:
    if text == NONE:
        return "–"
    kind, colon, _ = text.partition(": ")
    return f"{kind} ({messages.index(text) + 1})" if colon else text


def read(page: str) -> dict[Cell, str]:
    """Read the tables of a page."""
    body = page.partition(BEGIN)[2].partition(END)[0].splitlines()
    numbered = [line.partition(". ") for line in body if line[:1].isdigit()]
    messages = {number: text for number, _, text in numbered}
    words: dict[Cell, str] = {}
    columns: list[str] = []
    for line in (line for line in body if line.startswith("|")):
        row, *cells = [cell.strip() for cell in line.strip("|").split("|")]
        if row == "placed":
            columns = cells
        elif row != "---":
            for column, cell in zip(columns, cells, strict=True):
                words |= {Cell(row, column, engine): _long(cell, engine, messages) for engine in ENGINES}
    return words


def _long(cell: str, engine: str, messages: dict[str, str]) -> str:
    for part in cell.split("; "):
        name, colon, word = part.partition(": ")
        if colon and name == engine.capitalize():
            return _long(word, engine, messages)
    number = cell.partition("(")[2].rstrip(")")
    return NONE if cell == "–" else messages[number] if number else cell


def written(page: str, outcomes: dict[Cell, str]) -> str:
    """Write the tables of these outcomes into a page."""
    head, _, rest = page.partition(BEGIN)
    return f"{head}{BEGIN}\n{render(outcomes)}\n{END}{rest.partition(END)[2]}"


def main() -> None:
    outcomes = {}
    for engine in ENGINES:
        lang = load_quietly(engine)
        for row in ROWS:
            for column, declaration in DECLARATIONS.items():
                with contextlib.redirect_stdout(io.StringIO()):
                    options = {"ad_stack_experimental_enabled": True} if engine == "quadrants" else {}
                    lang.init(arch=lang.cpu, default_fp=lang.f64, log_level=lang.ERROR, **options)
                outcomes[Cell(row.code, column, engine)] = outcome(lang, row, declaration)
    PAGE.write_text(written(PAGE.read_text(), outcomes))


if __name__ == "__main__":
    main()
