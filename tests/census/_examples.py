"""What lint finds in the kernels that engines ship as examples: code that its authors meant to be looked at."""

from __future__ import annotations

import importlib.util
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tinsmith.linter import RULES, Finding, lint_file


class Linted(NamedTuple):
    """The examples of an engine: how many files and lines, the seconds that it took, and what was found."""

    files: int
    lines: int
    seconds: float
    findings: list[Finding]


def examples_of(engine: str) -> list[Path]:
    """Return files of an installed engine's examples; the engine is not imported."""
    spec = importlib.util.find_spec(engine)
    assert spec is not None and spec.origin is not None, f"{engine} is not installed"
    return sorted((Path(spec.origin).parent / "examples").rglob("*.py"))


def linted(engine: str) -> Linted:
    """Lint the examples of an engine."""
    paths, findings, lines = examples_of(engine), [], 0
    begin = time.perf_counter()
    for path in paths:
        text = path.read_text(encoding="utf-8")
        lines += len(text.splitlines())
        findings += lint_file(path, text)
    return Linted(len(paths), lines, time.perf_counter() - begin, findings)


def table(linted_by_engine: Mapping[str, Linted]) -> Iterator[str]:
    """Return Markdown: findings by rule."""
    yield "| rule | what it finds | severity | " + " | ".join(engine.capitalize() for engine in linted_by_engine) + " |"
    yield "|---|---|---|" + "---:|" * len(linted_by_engine)
    counts = {
        engine: Counter((one.rule, one.severity) for one in linted.findings)
        for engine, linted in linted_by_engine.items()
    }
    for rule, severity in sorted({key for count in counts.values() for key in count}):
        cells = " | ".join(str(count[rule, severity]) for count in counts.values())
        yield f"| {rule} | {RULES[rule].about} | {severity} | {cells} |"
