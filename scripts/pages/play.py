"""Run the blocks of pages, each page in a process of its own, and write down what each block printed.

    python play.py FOLDER...        each holds blocks.json; outputs.json or trouble.txt is put beside it

Each block is a file, since engines read the source of kernels, and the blocks of a page share one set of names, as they
would in a notebook. What libraries write to the terminal past Python is caught too. Warnings are shown in one line.

torch is imported once, and pages are forks of that: importing it takes longer than most pages do. No engine is, since
which engines a program imported is part of what it does.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
import types
import warnings
from collections.abc import Iterator
from pathlib import Path

_BANNERS = ("[Taichi]", "[Quadrants]", "[W ")
_SECONDS = 240
# torch imports its compiler, a second of processor time, when half of the pages take a step of an optimizer, vmap or
# compile: it is imported once for all.
_ROOMS = (
    "torch",
    "torch._dynamo",
    "tinsmith.operation",
    "tinsmith.torch_side",
    "tinsmith.calls",
    "tinsmith.layers",
    "tinsmith.doctor",
    "tinsmith.nn",
)


def main(folders: list[str]) -> None:
    """Run all pages, as many at a time as there are cores."""
    for room in _ROOMS:
        importlib.import_module(room)
    gc.freeze()  # otherwise each page's collector visits all modules, which copies their memory pages
    running: dict[int, str] = {}
    for folder in folders:
        if len(running) >= (os.cpu_count() or 1):
            _wait(running)
        running[_forked(folder)] = folder
    while running:
        _wait(running)


def _wait(running: dict[int, str]) -> None:
    process, status = os.wait()
    trouble = Path(running.pop(process), "trouble.txt")
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        text = trouble.read_text(encoding="utf-8")
        trouble.write_text(f"{text}\nended by {name} (SIGALRM: after {_SECONDS} s)", encoding="utf-8")


def _forked(folder: str) -> int:
    process = os.fork()
    if process:
        return process
    os.chdir(folder)
    os.dup2(os.open("trouble.txt", os.O_WRONLY | os.O_CREAT), 2)
    signal.alarm(_SECONDS)
    try:
        _play()
    except BaseException:  # noqa: BLE001  (a fork must end here, whatever happens)
        traceback.print_exc()
    _stop_engines()
    sys.stderr.flush()
    os._exit(0)


def _stop_engines() -> None:
    """Reset the engines, since Taichi 1.7.4 writes its cache of compiled kernels on a reset, but not at the end of a
    fork.
    """
    for engine in filter(None, map(sys.modules.get, ("taichi", "quadrants"))):
        engine.reset()


def _play() -> None:
    page = types.ModuleType("__main__")
    sys.modules["__main__"] = page
    warnings.showwarning = _one_line
    outputs = []
    for language, name, text, _, error in json.loads(Path("blocks.json").read_text(encoding="utf-8")):
        caught: list[str] = []
        with _printed(caught):
            failure = _python(name, text, page.__dict__, error) if language == "python" else _shell(text, error)
        if failure:
            sys.stderr.write(f"{''.join(caught)}\nin {name}:\n{text}\n{failure}\n")
            return
        outputs.append(_without_banners("".join(caught)))
    Path("outputs.json").write_text(json.dumps(outputs), encoding="utf-8")


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


def _shell(text: str, code: str) -> str:
    """Run a shell block and print its output; return an error message, or "" if the exit code is `code`.

    A failing command stops the block, also in a pipe; otherwise the commands after it could hide the failure.
    """
    strict = ["bash", "-e", "-o", "pipefail", "-c", text]
    done = subprocess.run(strict, text=True, errors="replace", capture_output=True, check=False)
    print(done.stdout.rstrip())
    wanted = int(code or 0)
    return "" if done.returncode == wanted else f"{done.stderr}\nexit code {done.returncode}, not {wanted}"


def _one_line(message, category, *_):
    print(f"{category.__name__}: {message}")


@contextlib.contextmanager
def _printed(caught: list[str]) -> Iterator[None]:
    """Enter a context that captures everything printed to stdout, by Python or by libraries, and appends it to
    `caught`.
    """
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
            caught.append(file.read().decode(errors="replace"))


def _without_banners(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.startswith(_BANNERS))


if __name__ == "__main__":
    main(sys.argv[1:])
