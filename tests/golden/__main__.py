"""The command behind scripts/golden: write the digests, or the texts, or show what changed since a commit."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

from golden._kernels import Texts, list_entries
from golden._store import ROOT, digest_texts, write_digests
from support.engine_keeper import ENGINES, Configuration, EngineKeeper


def main() -> int:
    parser = argparse.ArgumentParser(prog="golden", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("write", help="accept what is generated now: write tests/golden/digests.json")
    texts = commands.add_parser("texts", help="write what is generated now, a file for each kernel and engine")
    texts.add_argument("folder", type=Path)
    diff = commands.add_parser("diff", help="show how what is generated differs from an earlier commit")
    diff.add_argument("commit")
    for one in (texts, diff):
        one.add_argument("--only", default="", help="kernels whose names contain this")
        one.add_argument("--engine", choices=ENGINES, action="append", help="taichi, quadrants or, left out, both")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.command == "write":
        digests: dict[str, dict[str, dict[str, str]]] = {engine: {} for engine in ENGINES}
        for engine, name, generated in generate(ENGINES, ""):
            digests[engine][name] = digest_texts(generated)
        write_digests(digests)
        return 0
    if options.command == "texts":
        write_texts(options.folder, options.engine or ENGINES, options.only)
        return 0
    return show_difference(options.commit, options.engine or ENGINES, options.only)


def generate(engines: tuple[str, ...], only: str) -> Iterator[tuple[str, str, Texts]]:
    """Use every kernel on every engine. Kernels of one configuration follow each other."""
    # An earlier commit, which runs in a process of its own, may not know this setting.
    os.environ["TINSMITH_CACHE"] = "0"
    entries = sorted(list_entries().items(), key=lambda pair: pair[1].default_fp)
    with tempfile.TemporaryDirectory() as cache:
        keeper = EngineKeeper(Path(cache))
        for engine in engines:
            for name, entry in entries:
                if only in name:
                    lang = keeper.ensure(engine, Configuration(default_fp=entry.default_fp))
                    yield engine, name, entry.use(lang)
        keeper.stop()


def write_texts(folder: Path, engines: tuple[str, ...], only: str) -> None:
    """Write the texts of kernels, a file for each kernel and engine."""
    for engine, name, generated in generate(engines, only):
        path = folder / engine / f"{name.replace(' ', '-')}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        parts = (f"#### {way}\n{text.replace(str(ROOT), '')}" for way, text in generated.items())
        path.write_text("\n".join(parts), encoding="utf-8")


def show_difference(commit: str, engines: tuple[str, ...], only: str) -> int:
    """Generate everything at an earlier commit and now, and show the difference. Returns 1 where there is one."""
    with tempfile.TemporaryDirectory() as top:
        before, now, checkout = (Path(top, name) for name in ("before", "now", "checkout"))
        subprocess.run(["git", "worktree", "add", "--detach", checkout, commit], cwd=ROOT, check=True)
        try:
            environment = {**os.environ, "PYTHONPATH": f"{checkout}/src:{checkout}/tests"}
            chosen = [f"--engine={engine}" for engine in engines]
            command = [sys.executable, "-m", "golden", "texts", before, f"--only={only}", *chosen]
            subprocess.run(command, cwd=checkout, env=environment, check=True)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", checkout], cwd=ROOT, check=True)
        write_texts(now, engines, only)
        return subprocess.run(["git", "diff", "--no-index", "before", "now"], cwd=top, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
