"""Play: run the blocks of one page, in this process, and write down what each printed.

    python play.py BLOCKS.json OUTPUTS.json        in the folder where the blocks' files shall lie

Each block is a file, since engines read the source of kernels, and all share one set of names, as they would in a
notebook. What libraries write to the terminal past Python is caught too. Warnings are shown in one line.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import traceback
import types
import warnings
from collections.abc import Iterator
from pathlib import Path

_BANNERS = ("[Taichi]", "[Quadrants]", "[W ")


def main(given: str, wanted: str) -> int:
    """Run all; 1 when a block did not end as it says."""
    page = types.ModuleType("__main__")
    sys.modules["__main__"] = page
    warnings.showwarning = _one_line
    outputs = []
    for language, name, text, _, error in json.loads(Path(given).read_text(encoding="utf-8")):
        caught: list[str] = []
        with _printed(caught):
            if language == "python":
                failure = _python(name, text, page.__dict__, error)
            else:
                failure = _shell(text)
        if failure:
            sys.stderr.write(f"{''.join(caught)}\nin {name}:\n{text}\n{failure}\n")
            return 1
        outputs.append(_without_banners("".join(caught)))
    Path(wanted).write_text(json.dumps(outputs), encoding="utf-8")
    return 0


def _python(name: str, text: str, names: dict, error: str) -> str:
    Path(name).write_text(text, encoding="utf-8")
    names["__file__"] = name
    try:
        exec(compile(text, name, "exec", dont_inherit=True), names)
    except Exception as raised:  # noqa: BLE001  (told by the caller, with the block)
        if type(raised).__name__ != error:
            return traceback.format_exc()
        print(f"{error}: {raised}")
        return ""
    return f"{error} was to be raised, and was not" if error else ""


def _shell(text: str) -> str:
    done = subprocess.run(["bash", "-e", "-c", text], text=True, capture_output=True, check=False)
    print(done.stdout.rstrip())
    return done.stderr if done.returncode > 1 else ""  # 1: the command found what it looks for


def _one_line(message, category, *_):
    print(f"{category.__name__}: {message}")


@contextlib.contextmanager
def _printed(caught: list[str]) -> Iterator[None]:
    """What is printed within, by Python and by what lies below it."""
    sys.stdout.flush()
    kept = os.dup(1)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 1)
        try:
            yield
        finally:
            sys.stdout.flush()
            os.dup2(kept, 1)
            os.close(kept)
            file.seek(0)
            caught.append(file.read().decode())


def _without_banners(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.startswith(_BANNERS))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
