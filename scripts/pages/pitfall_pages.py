"""The gallery of pitfalls, docs/about/pitfalls/: a page for each theme, and the table that leads to them.

Numbers that a page shows are those that the engines give when it is written; both must run, in float64, and
Quadrants with its gradient stack.
"""

from __future__ import annotations

import math
import re
import textwrap
from pathlib import Path

from tinsmith.linter import RULES

from .blocks import ROOT
from .pitfalls import ROWS, TEXTS, THEMES, Row, Theme, marked, text_of
from .pitfalls.gradients import by_engine, inputs_of, names_of, right
from .pitfalls.kernels import shown

FOLDER = ROOT / "docs" / "about" / "pitfalls"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
ENGINES = ("taichi", "quadrants")
UNMEASURED = {"32_f32_local_in_f64", "51_out_of_bounds"}  # wrong only in single precision; out of range
_HEAD = """
import taichi as ti
import tinsmith as ts
import torch

ts.init("cpu")
A = ti.types.ndarray()
"""
_ABOUT = "On Quadrants, `import quadrants as ti`. How to read it: [pitfalls](index.md)."


def pages() -> dict[Path, str]:
    """Return the text of each page, by its path."""
    index = FOLDER / "index.md"
    head, _, rest = index.read_text(encoding="utf-8").partition(BEGIN)
    made = {FOLDER / f"{theme.slug}.md": page(theme) for theme in THEMES}
    return made | {index: f"{head}{BEGIN}\n\n{contents()}\n\n{table()}\n\n{END}{rest.partition(END)[2]}"}


def tests_of(row: Row) -> list[tuple[Path, str]]:
    """Return the file and the function of each test that shows a pitfall."""
    places = []
    for one in row.shown:
        file, _, function = one.partition("::")
        places.append((ROOT / "tests" / ("" if "/" in file else "pitfalls") / file, function))
    return places


def is_measured(row: Row) -> bool:
    """Return True if the section of a pitfall shows numbers."""
    return bool(row.spec) and row.name not in UNMEASURED and any(_is_off(row, engine) for engine in ENGINES)


def contents() -> str:
    """Return the table of the pages, one for each theme."""
    lines = [f"| [{theme.title}]({theme.slug}.md) | {theme.about} |" for theme in THEMES]
    return "\n".join(["| page | what is there |", "|---|---|", *lines])


def table() -> str:
    """Return the table of all pitfalls, ordered by number."""
    lines = ["| | what goes wrong | Taichi | Quadrants | tinsmith |", "|---|---|---|---|---|"]
    pages_of = {row.name: theme.slug for theme in THEMES for row in theme.rows}
    for row in ROWS:
        link = f"[{row.number}]({pages_of[row.name]}.md#{_anchor(heading(row))})"
        cells = [heading(row).partition(": ")[2], *(_short(getattr(row, engine)) for engine in ENGINES), row.does]
        lines.append(f"| {link} | {' | '.join(cells)} |")
    return "\n".join(lines)


def page(theme: Theme) -> str:
    """Return the page of a theme."""
    imports = "".join(f"import {name}\n" for name in theme.imports) + "\n" * bool(theme.imports)
    parts = [
        f"# {theme.title}",
        theme.about,
        _ABOUT,
        _fence(f"{imports}{_HEAD.strip()}\n{theme.head}"),
        *(section(row) for row in theme.rows),
    ]
    return "\n\n".join(parts) + "\n"


def section(row: Row) -> str:
    """Return the section of a pitfall."""
    rest = row.wrong[len(_first(row)) :].lstrip(":; ")
    parts = [f"## {heading(row)}"]
    parts += [f"{rest[0].upper()}{rest[1:]}."] if rest else []
    parts += [_kernel(row)] if row.name in TEXTS else []
    parts += [_program(row)] if row.code else []
    parts.append(_gives(row))
    facts = [("Reported by", _reported_by(row)), ("Instead", _instead(row)), ("Tests", _tests(row))]
    parts += [f"**{title}:** {text}" for title, text in facts if text]
    return "\n\n".join(parts)


def heading(row: Row) -> str:
    """Return the heading of a pitfall: its number, and what goes wrong."""
    return f"{row.number}: {_first(row)}"


def _first(row: Row) -> str:
    return re.split(r"[:;] ", row.wrong, maxsplit=1)[0]


def _anchor(title: str) -> str:
    return re.sub(r"[ -]+", "-", re.sub(r"[^\w\- ]", "", title.lower()).strip())


def _short(given: str) -> str:
    return re.split(r"[:;,] ?", given, maxsplit=1)[0]


def _fence(text: str, info: str = "") -> str:
    return f"```python{info}\n{text.strip()}\n```"


def _kernel(row: Row) -> str:
    """Return the code block of a pitfall's kernel, with the lines highlighted that a rule reports."""
    text = shown(row.name)
    marks = [str(number) for number, line in enumerate(text.splitlines(), 1) if "#" in line]
    return _fence(text, f' hl_lines="{" ".join(marks)}"' if marks else "")


def _program(row: Row) -> str:
    fence = _fence(textwrap.dedent(row.code))
    if row.unrun:
        return f"<!-- not run: {row.unrun} -->\n{fence}"
    return f"{fence}\n<!-- output{f': {row.error}' if row.error else ''} -->"


def _gives(row: Row) -> str:
    """Return the table of what each engine and tinsmith do, in words, and in numbers if the pitfall is measured."""
    words = f"| {row.taichi} | {row.quadrants} | {row.does} |"
    if not is_measured(row):
        return f"| Taichi | Quadrants | tinsmith |\n|---|---|---|\n{words}"
    given = {engine: by_engine(row, engine) if _is_off(row, engine) else {} for engine in ENGINES}
    wanted = right(row, "taichi")
    lines = ["| | Taichi | Quadrants | tinsmith |", "|---|---|---|---|", f"| {words}"]
    for name, one in wanted.items():
        cells = [_numbers(given[engine][name].tolist()) if given[engine] else "" for engine in ENGINES]
        lines.append(f"| gradient of `{name}` | {' | '.join(cells)} | {_numbers(one.tolist())} |")
    at = ", ".join(
        f"`{name}` = {_numbers(one.tolist())}" for name, one in zip(names_of(row), inputs_of(row), strict=True)
    )
    return "\n".join(lines) + f"\n\nThe gradient is that of the outputs' sum, at {at}."


def _is_off(row: Row, engine: str) -> bool:
    """Return True if the op with `adjoint="engine"`, which computes the numbers, has a wrong gradient on this
    engine.
    """
    return bool(re.search(r"wrong(?!; right through tinsmith)|differs", getattr(row, engine)))


def _numbers(given: float | list) -> str:
    if isinstance(given, list):
        return f"[{', '.join(map(_numbers, given))}]"
    return "NaN" if math.isnan(given) else f"{given + 0.0:.4g}"


def _reported_by(row: Row) -> str:
    """Return the checks that report a pitfall's kernel, with links: "lint TS203, and for Taichi TS204; sanitizer
    TS602".
    """
    if row.name not in TEXTS:
        return ""
    of = {who: _rules(row, who) for who in (*ENGINES, "sanitizer")}
    both = [rule for rule in of["taichi"] if rule in of["quadrants"]]
    lint = [", ".join(map(_link, both))] * bool(both)
    for who in ENGINES:
        alone = [_link(rule) for rule in of[who] if rule not in both]
        lint += [f"for {who.capitalize()} {', '.join(alone)}"] * bool(alone)
    words = [f"lint {', and '.join(lint)}"] * bool(lint)
    words += [f"sanitizer {', '.join(map(_link, of['sanitizer']))}"] * bool(of["sanitizer"])
    return "; ".join(words)


def _rules(row: Row, who: str) -> list[str]:
    return sorted({rule for rule, _ in marked(text_of(row.name, "taichi"), who)})


def _link(rule: str) -> str:
    return f"[{rule}](../../reference/lint/{rule}.md) {RULES[rule].name}"


def _instead(row: Row) -> str:
    """Return the remedy of a pitfall, or links to the right kernels of the rules that report it."""
    if row.remedy or row.name not in TEXTS:
        return row.remedy
    rules = sorted({rule for engine in ENGINES for rule in _rules(row, engine)})
    kernels = ", ".join(f"[{rule}](../../reference/lint/{rule}.md#right)" for rule in rules)
    return f"As in the right kernel of {kernels}." if kernels else ""


def _tests(row: Row) -> str:
    paths = {path: path.relative_to(ROOT).as_posix() for path, _ in tests_of(row)}
    links = [f"[`{function}`](../../../{paths[path]})" for path, function in tests_of(row)]
    return ", ".join(links)
