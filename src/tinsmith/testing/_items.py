"""Items that `pytest --tinsmith-check` collects: files with kernels, and examples of the ops in test modules.

Imported only with the flag; pytest always loads src/pytest_tinsmith.py.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..doctor import Report, check_example, check_file, find_ops_of
from ..operation import Op

_KERNEL = re.compile(rb"^[ \t]*@.*\bkernel\b|\.kernel\(", re.MULTILINE)


class Checks:
    """The plugin that the flag registers."""

    def __init__(self) -> None:
        self._seen: list[Op] = []

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        """Collect a Python file that may contain kernels, whether it is a test file or not."""
        if file_path.suffix == ".py" and _KERNEL.search(file_path.read_bytes()):
            return KernelFile.from_parent(parent, path=file_path)
        return None

    def pytest_pycollect_makeitem(self, collector: Any, name: str, obj: object) -> list[pytest.Item] | None:
        """Collect the examples of an op once, even if it has several names or is in several modules."""
        new = [op for op in find_ops_of(obj) if op.examples and not any(op is one for one in self._seen)]
        self._seen += new
        items: list[pytest.Item] = [
            ExampleItem.from_parent(
                collector, name=f"{_format_name(name, op, obj)}[tinsmith-{example}]", op=op, example=example
            )
            for op in new
            for example in op.examples
        ]
        return items or None


def _format_name(name: str, op: Op, holder: object) -> str:
    return name if op is holder else f"{name}.{op.name}"


class KernelFile(pytest.File):
    """A file with kernels; its one item lints it."""

    def collect(self) -> Iterator[pytest.Item]:
        yield LintItem.from_parent(self, name="tinsmith-lint")


class _CheckItem(pytest.Item):
    """An item that fails where a report does."""

    @abstractmethod
    def examine(self) -> Report:
        """Run the check."""

    def runtest(self) -> None:
        report = self.examine()
        is_warned = (report.of("warning") or report.aside) and self.config.getoption("tinsmith_strict")
        if is_warned or not report.ok:
            pytest.fail(str(report), pytrace=False)
        if report.findings:
            self.add_report_section("call", "tinsmith", str(report))  # `pytest -rP` shows it


class LintItem(_CheckItem):
    """All kernels of one file, linted; the file is not imported."""

    def examine(self) -> Report:
        return check_file(self.path)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, "lint of its kernels"


class ExampleItem(_CheckItem):
    """One op, checked on one of its examples."""

    def __init__(self, *, op: Op, example: str, **named: Any) -> None:
        super().__init__(**named)
        self._op, self._example = op, example

    def examine(self) -> Report:
        return check_example(self._op, self._example)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, f"op {self._op.name} on its example {self._example}"
