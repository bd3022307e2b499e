"""The pages of lint rules, and the table that leads to them: docs/reference/lint/.

Messages on a page are real: the kernels are linted, or run under the sanitizer, when the pages are written.
"""

from __future__ import annotations

import contextlib
import importlib.util
import linecache
import os
import re
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import tinsmith as ts
from tinsmith.doctor import check_example, check_file
from tinsmith.linter import RULES, Finding, Rule, lint_file

from .blocks import ROOT
from .rules import ROWS, Row

FOLDER = ROOT / "docs" / "reference" / "lint"
BEGIN, END = "<!-- rules: begin -->", "<!-- rules: end -->"


def pages() -> dict[Path, str]:
    """Return the text of each page, by its path. An engine must run, since some rules are only reported in a run."""
    made = {FOLDER / f"{rule.id}.md": page(rule, ROWS[rule.id]) for rule in RULES.values()}
    index = (FOLDER / "index.md").read_text(encoding="utf-8")
    head, _, rest = index.partition(BEGIN)
    made[FOLDER / "index.md"] = f"{head}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}"
    return made


def table() -> str:
    """Return the table of all rules, with links to their pages."""
    rows = [f"| [{rule.id}]({rule.id}.md) | {rule.name} | {rule.about} |" for rule in RULES.values()]
    return "\n".join(["| rule | name | finds |", "|---|---|---|", *rows])


def page(rule: Rule, row: Row) -> str:
    """Return the page of a rule."""
    wrong, right = row.text(row.wrong), row.text(row.right)
    said = apply_rule(row, wrong, "wrong.py")
    about = rule.about[0].upper() + rule.about[1:]
    parts = [f"# {rule.id}: {rule.name}", f"{about}. {_severity(row, wrong, said)}", f"## Why\n\n{_lines(row.why)}"]
    parts += [
        f'## Wrong\n\n```python title="wrong.py"\n{wrong}```',
        f"{_asked(row, 'wrong')}\n\n```text\n{_text(said)}\n```",
    ]
    words = f"{row.words}\n\n" if row.words else ""
    parts += [f'## Right\n\n{words}```python title="right.py"\n{right}```']
    return "\n\n".join(parts) + "\n\nAll rules: [lint](index.md).\n"


class Said(NamedTuple):
    """The severity and the text of a finding, formatted while its file exists."""

    severity: str
    words: str


def apply_rule(row: Row, text: str, name: str) -> list[Said]:
    """Write a text to a file; return the findings about it by the row's own rule."""
    with _folder():
        Path(name).write_text(text, encoding="utf-8")
        findings = _findings(row, text, name)
        own = [_as_read(one, name) for one in findings if one.rule == row.rule]
        linecache.checkcache(name)
        return [Said(one.severity, str(one)) for one in own]


def _as_read(finding: Finding, name: str) -> Finding:
    """Remove the folder from a finding, and the numbers of TS704, which vary."""
    message = finding.message.replace(f"{Path.cwd()}{os.sep}", "")
    if finding.rule == "TS704":
        message = re.sub(r"\b\d\.\d[\de-]*", "0.…", message)
    return replace(finding, path=name, message=message)


def _findings(row: Row, text: str, name: str) -> list[Finding]:
    if row.rule == "TS001":
        return check_file(Path(name)).findings
    return lint_file(name, text) if _is_linted(row) else _run(row, _imported(name))


def _is_linted(row: Row) -> bool:
    return not row.inputs and row.rule != "TS002"


def _run(row: Row, module: ModuleType) -> list[Finding]:
    import torch

    if row.rule == "TS002":
        return check_example(module.op, "small").findings
    inputs = eval(f"({row.inputs},)", {"torch": torch})
    return ts.sanitize(module.op, *inputs) if row.rule < "TS700" else ts.check(module.op, *inputs).findings


def _asked(row: Row, name: str) -> str:
    if row.rule == "TS002":
        return f"`tinsmith check --run {name}.py` says:"
    if _is_linted(row):
        return f"`tinsmith check {name}.py` says:"
    return f"`ts.{'sanitize' if row.rule < 'TS700' else 'check'}(op, {row.inputs})` says:"


def _severity(row: Row, wrong: str, said: list[Said]) -> str:
    assert said, row.rule
    severity = said[0].severity
    elsewhere = wrong.replace("import taichi as ti", "import quadrants as ti")
    is_alone = _is_linted(row) and not apply_rule(row, elsewhere, "wrong.py")
    article = "an" if severity[0] in "ei" else "a"
    return f"It is {article} *{severity}*{', of Taichi kernels alone' if is_alone else ''}."


def _lines(text: str) -> str:
    return textwrap.dedent(text).strip()


def _text(said: list[Said]) -> str:
    return "\n".join(one.words for one in said)


@contextlib.contextmanager
def _folder() -> Iterator[None]:
    """Enter a context whose working directory is an empty folder, so that messages have short paths."""
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(here)


def _imported(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(name).stem, name)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
