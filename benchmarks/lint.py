"""How long lint takes, after import: files of about 300 lines from the examples that Taichi ships. Bar: 50 ms.

Run it as it is: `python benchmarks/lint.py`.
"""

from __future__ import annotations

import importlib.util
import statistics
import sys
import time
from pathlib import Path

from tinsmith.linter import lint_file

BAR = 0.05
"""Seconds for a file of 300 lines."""
REPEATS = 9


def files() -> list[Path]:
    """Return the files of 250 to 350 lines among Taichi's examples."""
    spec = importlib.util.find_spec("taichi")
    if spec is None or spec.origin is None:
        sys.exit("The files are Taichi's examples: pip install taichi")
    paths = sorted(Path(spec.origin).parent.glob("examples/**/*.py"))
    return [path for path in paths if 250 <= _lines(path) <= 350]


def _lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def seconds(path: Path) -> float:
    """Return the median of a few runs in processor time, which other programs on the machine do not affect."""
    times = []
    for _ in range(REPEATS):
        before = time.process_time()
        lint_file(path)
        times.append(time.process_time() - before)
    return statistics.median(times)


def main() -> None:
    """Print the time of each file, and whether the target is met."""
    seconds_by_path = {path: seconds(path) for path in files()}
    for path, time_taken in sorted(seconds_by_path.items(), key=lambda item: item[1]):
        print(f"{1e3 * time_taken:6.1f} ms  {_lines(path)} lines  {path.name}")
    middle, worst = statistics.median(seconds_by_path.values()), max(seconds_by_path.values())
    verdict = "held" if worst <= BAR else "held by most" if middle <= BAR else "MISSED"
    print(f"median {1e3 * middle:.0f} ms, worst {1e3 * worst:.0f} ms; bar {1e3 * BAR:.0f} ms: {verdict}")


if __name__ == "__main__":
    main()
