"""Run the programs of pages, each page in a process and a folder of its own, and cache the outputs.

Outputs are kept in .cache/docs under a digest of the blocks, of this machinery and of all of tinsmith: after a change
of words nothing runs. `./scripts/docs write` writes them into the pages, and a test compares them; a build of the site
runs nothing.
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
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from .blocks import ROOT, Block, blocks_of, with_outputs

CACHE = ROOT / ".cache" / "docs"
_PLAY = Path(__file__).with_name("play.py")


class PageError(Exception):
    """Raised if a block of a page fails, or does not fail as the page says."""


def outputs_of(page: Path) -> list[str]:
    """Return what each block of a page prints. Raise PageError if a block fails."""
    trouble = run([page]).get(page)
    if trouble:
        raise PageError(f"{os.path.relpath(page, ROOT)} does not run:\n{trouble}")
    blocks = _read(page)
    return json.loads(_kept(blocks).read_text(encoding="utf-8")) if blocks else []


def run(pages: Sequence[Path]) -> dict[Path, str]:
    """Run the pages whose outputs are not cached; return the error messages of those that fail."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # wait for other processes that run the same pages
        blocks = {page: program for page in pages if (program := _read(page)) and not _kept(program).exists()}
        with tempfile.TemporaryDirectory() as top:
            folders = {page: Path(top, str(number)) for number, page in enumerate(_longest_first(blocks))}
            for page, folder in folders.items():
                folder.mkdir()
                (folder / "blocks.json").write_text(json.dumps(blocks[page]), encoding="utf-8")
            if folders:
                subprocess.run([sys.executable, _PLAY, *folders.values()], env=_environment(), check=True)
            return {page: text for page, folder in folders.items() if (text := _trouble(folder, blocks[page]))}


def _longest_first(blocks: dict[Path, list[Block]]) -> list[Path]:
    """Sort pages by their number of shell blocks, the most first: each of these starts a process that imports torch."""
    return sorted(blocks, key=lambda page: sum(block.language == "sh" for block in blocks[page]), reverse=True)


def pages_with_programs() -> list[Path]:
    """Return all pages with blocks that run, except those of lint rules, whose kernels are linted instead."""
    pages = sorted((ROOT / "docs").rglob("*.md"))
    linted = set((ROOT / "docs" / "reference" / "lint").glob("TS*.md"))
    return [page for page in pages if page not in linted and _read(page)]


def write_outputs() -> None:
    """Write the output of each marked block below it in the pages. Raise PageError if a block fails."""
    pages = pages_with_programs()
    troubles = run(pages)
    for page in (page for page in pages if page not in troubles):
        text = page.read_text(encoding="utf-8")
        written = with_outputs(text, outputs_of(page))
        if written != text:
            page.write_text(written, encoding="utf-8")
    if troubles:
        raise PageError("\n\n".join(f"{page} does not run:\n{trouble}" for page, trouble in troubles.items()))


def _trouble(folder: Path, blocks: list[Block]) -> str:
    """Move a page's outputs to the cache and return "", or return the error message if it failed."""
    outputs = folder / "outputs.json"
    if not outputs.exists():
        return (folder / "trouble.txt").read_text(encoding="utf-8") or "it ended before its last block"
    unfinished = _kept(blocks).with_suffix(".part")
    unfinished.write_text(outputs.read_text(encoding="utf-8"), encoding="utf-8")
    unfinished.replace(_kept(blocks))
    return ""


def _environment() -> dict[str, str]:
    given = {name: text for name, text in os.environ.items() if not name.startswith("TINSMITH_")}
    quiet = {"TI_LOG_LEVEL": "error", "ENABLE_TAICHI_HEADER_PRINT": "0", "COLUMNS": "110", "NO_COLOR": "1"}
    quiet["OMP_WAIT_POLICY"] = "passive"  # several pages run at once, so spinning threads would slow each other down
    commands = str(Path(sys.executable).parent) + os.pathsep + given.get("PATH", "")
    return given | quiet | {"PATH": commands}


def _read(page: Path) -> list[Block]:
    return blocks_of(page.read_text(encoding="utf-8"))


def _kept(blocks: list[Block]) -> Path:
    return CACHE / f"{hashlib.sha256((json.dumps(blocks) + _ground()).encode()).hexdigest()[:24]}.json"


@functools.cache
def _ground() -> str:
    """Return a text that changes with everything that all programs depend on: the package's source and versions."""
    files = [*sorted((ROOT / "src").rglob("*.py")), _PLAY]
    text = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    return text + sys.version + version("torch") + version("taichi")
