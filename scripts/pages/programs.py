"""Programs: run the blocks of a page in a process and a folder of their own, once for what they depend on.

Outputs are kept in .cache/docs under a digest of the blocks, of this machinery and of all of tinsmith: the tests and
the build run a page once between them, and a build after a change of words runs nothing.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from .blocks import ROOT, Block, blocks_of

CACHE = ROOT / ".cache" / "docs"
_PLAY = Path(__file__).with_name("play.py")


class PageError(Exception):
    """A block of a page failed, or did not fail as it says."""


def outputs_of(page: Path) -> list[str]:
    """What the blocks of a page print, one string a block; PageError when one does not run."""
    blocks = blocks_of(page.read_text(encoding="utf-8"))
    if not blocks:
        return []
    CACHE.mkdir(parents=True, exist_ok=True)
    kept = CACHE / f"{_digest(blocks)}.json"
    with kept.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # the build waits for the test that runs the same page
        if not kept.exists():
            _run(page, blocks, kept)
    return json.loads(kept.read_text(encoding="utf-8"))


def _run(page: Path, blocks: list[Block], kept: Path) -> None:
    given = {name: text for name, text in os.environ.items() if not name.startswith("TINSMITH_")}
    quiet = {"TI_LOG_LEVEL": "error", "ENABLE_TAICHI_HEADER_PRINT": "0", "COLUMNS": "110", "NO_COLOR": "1"}
    bin_folder = str(Path(sys.executable).parent)
    env = given | quiet | {"PATH": bin_folder + os.pathsep + given.get("PATH", "")}
    with tempfile.TemporaryDirectory() as folder:
        program, printed = Path(folder) / ".blocks.json", Path(folder) / ".outputs.json"
        program.write_text(json.dumps(blocks), encoding="utf-8")
        command = [sys.executable, _PLAY, program.name, printed.name]
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False, timeout=280)
        if done.returncode:
            raise PageError(f"{page.relative_to(ROOT)} does not run:\n{done.stderr}")
        unfinished = kept.with_suffix(".part")
        unfinished.write_text(printed.read_text(encoding="utf-8"), encoding="utf-8")
        unfinished.replace(kept)


def _digest(blocks: list[Block]) -> str:
    return hashlib.sha256((json.dumps(blocks) + _ground()).encode()).hexdigest()[:24]


@functools.cache
def _ground() -> str:
    """What every program stands on."""
    files = [*sorted((ROOT / "src").rglob("*.py")), *sorted(Path(__file__).parent.glob("*.py"))]
    text = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    return text + sys.version + version("torch") + version("taichi")
