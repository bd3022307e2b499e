"""Reads the tables in benchmarks/results/*.md."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from .blocks import ROOT

FOLDER = ROOT / "benchmarks" / "results"


class Bar(NamedTuple):
    """A row of a results table that has a target: what was measured, between which two, and the result."""

    what: str
    ours: str
    against: str
    measured: str
    to_hold: str
    verdict: str


def text_of(name: str, folder: Path | None = None) -> str:
    """Return the text of a file of results, of benchmarks/results unless another folder is given."""
    return ((folder or FOLDER) / name).read_text(encoding="utf-8")


def files() -> list[str]:
    """Return the names of the files of results that have targets."""
    return sorted(path.name for path in FOLDER.glob("*.md") if bars_of(path.name))


def bars_of(name: str, folder: Path | None = None) -> list[Bar]:
    """Return the rows of a file's first table that have a target. A file without a table has none."""
    text = text_of(name, folder)
    heads, *rows = table_of(text, "") if "\n|" in text else [[]]
    return [Bar(*row) for row in rows if "to hold" in heads and len(row) == len(Bar._fields) and row[4]]


def missed(bars: Iterable[Bar]) -> list[Bar]:
    """Return the rows whose target is missed."""
    return [bar for bar in bars if bar.verdict == "MISSED"]


def title_of(name: str) -> str:
    """Return the first heading of a file."""
    return text_of(name).partition("\n")[0].lstrip("# ")


def machine() -> list[str]:
    """Return the lines that describe the machines on which the results were measured, each once."""
    lines = [line for path in sorted(FOLDER.glob("*.md")) for line in text_of(path.name).splitlines()]
    named = [re.sub(r" (\d+ \w+ \d{4}, l|L)oad average.*", "", line) for line in lines if "torch uses" in line]
    return list(dict.fromkeys(named))


def table_of(text: str, heading: str) -> list[list[str]]:
    """Return the rows of the first table below a heading ("" for the file's first table), with its column heads as the
    first row.
    """
    body = text.partition(f"\n## {heading}\n")[2] if heading else text
    rows: list[list[str]] = []
    for line in body.splitlines():
        if line.startswith("|"):
            rows.append([cell.strip() for cell in line.strip().strip("|").split("|")])
        elif rows:
            break
    assert rows, f"no table below {heading!r}"
    return [rows[0], *rows[2:]]


def number(text: str) -> float | None:
    """Parse the number at the start of a cell, converted to seconds if it has a unit: "2.24 ms" is 0.00224."""
    match = re.match(r"([\d,.]+)\s*(us|ms|s)?\b", text)
    if not match:
        return None
    return float(match[1].replace(",", "")) * {"us": 1e-6, "ms": 1e-3}.get(match[2] or "", 1.0)
