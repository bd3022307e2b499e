"""Programs of `benchmarks/`, run as a person runs them."""

import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def run_benchmark(*command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments in the folder of the benchmarks: a program's name, or `-c` and a text."""
    return subprocess.run(
        [sys.executable, *command], cwd=BENCHMARKS, capture_output=True, text=True, timeout=400, check=False
    )
