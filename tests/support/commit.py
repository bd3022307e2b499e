"""The commit that tests run on."""

import subprocess
from pathlib import Path

_ROOT = Path(__file__).parents[2]


def find_commit() -> str:
    """Return the commit's hash, with "-dirty" after it if files have changed since; "" without git."""
    command = ["git", "describe", "--always", "--abbrev=40", "--dirty", "--exclude", "*"]
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()
