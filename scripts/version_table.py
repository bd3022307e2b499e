"""What ./scripts/matrix collects from each environment, and the table of the results.

- `describe ROW.json`, in a row's environment: its versions, and what the probes say.
- `print FOLDER`: a table of the rows in a folder, each a ROW.json and pytest's ROW.xml; with `--write`,
  docs/about/versions.md too.
"""

from __future__ import annotations

import importlib
import json
import platform
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from xml.etree import ElementTree as ET

PAGE = Path(__file__).parents[1] / "docs" / "about" / "versions.md"
PACKAGES = ("torch", "taichi", "quadrants", "numpy")
BEGIN, END = "<!-- table -->\n", "<!-- end of table -->\n"


@dataclass(frozen=True)
class Row:
    """One environment: its versions, the number of probes and of those that failed, and the numbers of tests by
    outcome.
    """

    name: str
    versions: dict[str, str]
    probes: int
    broken: list[str]
    passed: int
    failed: int
    skipped: int


def describe() -> dict[str, object]:
    """Return the versions of the packages in this environment, and the results of tinsmith's probes."""
    from tinsmith import engines, tracing

    # Before the engines: after Quadrants, setuptools does not load everywhere, which torch's compiler needs.
    of_torch = tracing.torch_probes()
    with warnings.catch_warnings():  # engines warn when newer Python versions import them
        warnings.simplefilter("ignore")
        for name in engines.list_installed():
            importlib.import_module(name).init(arch=importlib.import_module(name).cpu)
        probes = [*of_torch, *engines.run_probes()]
    return {
        "versions": {"python": platform.python_version(), **{name: metadata.version(name) for name in PACKAGES}},
        "probes": len(probes),
        "broken": [f"{probe.package}: {probe.name}: {probe.detail}" for probe in probes if not probe.ok],
    }


def rows(folder: Path) -> Iterator[Row]:
    """Yield the rows of the table from the files in a folder, oldest Python and torch first."""
    tables = [(json.loads(path.read_text(encoding="utf-8")), path) for path in folder.glob("*.json")]
    tables = [(facts, path) for facts, path in tables if path.with_suffix(".xml").exists()]  # pytest may have died
    for facts, path in sorted(tables, key=lambda row: (_numbers(row[0], "python"), _numbers(row[0], "torch"))):
        yield Row(path.stem, facts["versions"], facts["probes"], facts["broken"], *_outcomes(path.with_suffix(".xml")))


def _numbers(facts: dict, package: str) -> list[int]:
    plain = facts["versions"][package].partition("+")[0]
    return [int(number) for number in plain.split(".")]


def _outcomes(report: Path) -> tuple[int, int, int]:
    """Count the tests that passed, failed and were skipped in a report of pytest in JUnit's format."""
    suites = list(ET.parse(report).iter("testsuite"))
    total, failures, errors, skipped = (
        sum(int(suite.get(name, 0)) for suite in suites) for name in ("tests", "failures", "errors", "skipped")
    )
    return total - failures - errors - skipped, failures + errors, skipped


def table(all_rows: list[Row]) -> str:
    """Return the rows as a Markdown table, followed by the probes that failed."""
    lines = [
        "| Python | torch | Taichi | Quadrants | numpy | probes that hold | tests passed | failed | skipped |",
        "|---|---|---|---|---|---:|---:|---:|---:|",
    ]
    for row in all_rows:
        versions = " | ".join(row.versions[name] for name in ("python", *PACKAGES))
        probes = f"{row.probes - len(row.broken)} of {row.probes}"
        lines.append(f"| {versions} | {probes} | {row.passed} | {row.failed} | {row.skipped} |")
    broken = [f"- {row.name}: {words}" for row in all_rows for words in row.broken]
    return "\n".join([*lines, *(["", *broken] if broken else [])]) + "\n"


def written(page: str, text: str) -> str:
    """Return a page with `text` between its marks."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{text}\n{END}{tail}"


def main(arguments: list[str]) -> int:
    """Describe this environment, or print the table of all environments. Return 0 if all probes hold."""
    command, path = arguments[0], Path(arguments[1])
    if command == "describe":
        path.write_text(json.dumps(describe()), encoding="utf-8")
        return 0
    all_rows = list(rows(path))
    text = table(all_rows)
    print(text)
    if "--write" in arguments:
        PAGE.write_text(written(PAGE.read_text(encoding="utf-8"), text), encoding="utf-8")
    return int(any(row.broken for row in all_rows))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
