"""Typical wrong first programs: each prints its message, and the fix that the message asks for works.

A program in tests/first_programs is written for Taichi, and is translated to Quadrants. Below it stand the message, and
the fix as lines to replace. All programs of an engine run in one process, each after a reset of the engine.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tinsmith._tracebacks import NOTE

FOLDER = Path(__file__).parent / "first_programs"
PROGRAMS = sorted(path.stem for path in FOLDER.glob("*.py"))
OTHER = {"taichi": "quadrants", "quadrants": "taichi"}

RUNNER = """
import contextlib, importlib, io, json, runpy, sys

engine, *paths = sys.argv[1:]
importlib.import_module(engine)
outcomes = {}
for path in paths:
    for name in ("taichi", "quadrants"):
        if name in sys.modules:
            sys.modules[name].reset()
    printed = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(printed):
        try:
            runpy.run_path(path)
        except Exception as error:
            sys.excepthook(type(error), error, error.__traceback__)
    outcomes[path] = printed.getvalue()
print("outcomes", json.dumps(outcomes))
"""


def translate(text, engine):
    """Translate a program or its message to another engine than Taichi."""
    if engine == "quadrants":
        text = re.sub(r"(?<!with @)\bti\b", "qd", re.sub(r"\btaichi\b", "quadrants", text))
    return re.sub(r"\bother\b", OTHER[engine], text)


def split_program(name):
    """Split a file into a program, the message that it should print, and the replacements of its fix."""
    code, _, rest = (FOLDER / f"{name}.py").read_text("utf-8").partition("\n# Message:\n")
    message, _, fix = rest.partition("# Fix:\n")
    pairs = []
    for old, new in re.findall(r"((?:# -.*\n)+)((?:# \+.*\n)+)", fix):
        pairs.append(tuple("\n".join(line[4:] for line in part.splitlines()) for part in (old, new)))
    return code, "\n".join(line[2:] for line in message.splitlines()), pairs


def drop_words_of_engine(message, engine):
    """Return the words of a message without the row that quotes the engine, since engines differ in it."""
    return [line.split() for line in message.splitlines() if not line.startswith(f"  {engine}  ")]


@pytest.fixture(scope="module", params=["taichi", "quadrants"])
def outcomes(request, tmp_path_factory):
    """Run each program and its fixed form on one engine, and return what they print."""
    engine = request.param
    for one in OTHER:
        pytest.importorskip(one)
    folder = tmp_path_factory.mktemp(engine)
    paths = []
    for name in PROGRAMS:
        code, _, pairs = split_program(name)
        fixed = code
        for old, new in pairs:
            assert old in fixed, f"the fix of {name} replaces what is not there: {old}"
            fixed = fixed.replace(old, new)
        for stem, text in ((name, code), (f"{name}_fixed", fixed)):
            path = folder / f"{stem}.py"
            path.write_text(translate(text, engine), encoding="utf-8")
            paths.append(str(path))
    command = [sys.executable, "-c", RUNNER, engine, *paths]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    printed = json.loads(done.stdout.partition("outcomes ")[2])
    return engine, {Path(path).stem: text.replace(str(folder) + "/", "") for path, text in printed.items()}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_print_the_documented_message(outcomes, name):
    engine, printed = outcomes
    expected = split_program(name)[1]
    last = printed[name].replace(NOTE, "").rstrip()
    start = re.search(r"^(tinsmith\.)?\w+Error: ", last, re.MULTILINE)
    assert start is not None, last
    message = last[start.start() :]
    assert drop_words_of_engine(message, engine) == drop_words_of_engine(translate(expected, engine), engine), message


@pytest.mark.parametrize("name", PROGRAMS)
def test_at_most_six_frames_are_printed(outcomes, name):
    # Three of them are the runner's: its own, and two of runpy.
    assert outcomes[1][name].count("  File ") <= 6 + 3


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_suggested_fix_works(outcomes, name):
    printed = outcomes[1][f"{name}_fixed"]
    assert "Error" not in printed, printed


def test_there_are_twenty_programs():
    assert len(PROGRAMS) >= 20
