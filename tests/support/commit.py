"""The commit that tests run on."""

import functools
import hashlib
import subprocess
from pathlib import Path

_ROOT = Path(__file__).parents[2]


@functools.cache
def find_commit() -> str:
    """Return the commit's hash, with "-dirty" after it if files have changed since; "" without git."""
    return _git("describe", "--always", "--abbrev=40", "--dirty", "--exclude", "*")


@functools.cache
def find_turn(commit: str) -> int:
    """Return a number that is one more at the next commit: the length of the commit's history.

    A shallow clone does not know it. There, and without git, the number is made of the commit's name.
    """
    if _git("rev-parse", "--is-shallow-repository") == "false":
        count = _git("rev-list", "--count", commit, "--")
        if count:
            return int(count)
    return int(hashlib.sha256(commit.encode()).hexdigest()[:8], 16)


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=_ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()
