"""`tinsmith check --watch`, the completion of shells, and the hooks for pre-commit."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tinsmith.cli import app

ROOT = Path(__file__).parents[2]
KERNEL = """import {engine} as lang


@lang.kernel
def k(x: lang.types.ndarray(), y: lang.types.ndarray()):
    for i in x:
        y[0] {change} x[i]
"""


@pytest.mark.parametrize("edit", ["the file", "a new file", "the settings"])
def test_a_change_is_checked_again(tmp_path, engine, edit):
    wrong, right = (KERNEL.format(engine=engine, change=one) for one in ("= y[0] +", "+="))
    (tmp_path / "k.py").write_text(right if edit == "a new file" else wrong, "utf-8")
    (tmp_path / "pyproject.toml").write_text("[tool.tinsmith.check]\n", "utf-8")
    command = [sys.executable, "-m", "tinsmith", "check", ".", "--watch"]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        bufsize=1,
        # A shell starts background jobs so that they, and all that they start, ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        timer = threading.Timer(120, process.kill)
        timer.start()
        try:
            first = _read_verdict(process)
            time.sleep(0.6)  # a file system may count in ticks
            if edit == "the file":
                (tmp_path / "k.py").write_text(right, "utf-8")
            elif edit == "a new file":
                (tmp_path / "new.py").write_text(wrong, "utf-8")
            else:
                (tmp_path / "pyproject.toml").write_text('[tool.tinsmith.check]\nexclude = ["k.py", "x"]\n', "utf-8")
                (tmp_path / "other.py").touch()
            second = _read_verdict(process)
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
            assert "Traceback" not in process.stderr.read()
        finally:
            timer.cancel()
            process.kill()
    verdicts = [first.split(":")[0], second.split(":")[0]]
    assert verdicts == (["no errors", "wrong"] if edit == "a new file" else ["wrong", "no errors"])


def _read_verdict(process) -> str:
    """Read lines up to the last one of a report."""
    for line in process.stdout:
        if line.endswith("(lint)\n"):
            return line
    raise AssertionError("no report")


# Completion ---------------------------------------------------------------------------------------


def complete(words: str) -> list[str]:
    environment = {**os.environ, "_TINSMITH_COMPLETE": "complete_bash", "COMP_WORDS": words}
    environment["COMP_CWORD"] = str(len(words.split(" ")) - 1)
    done = subprocess.run(
        [sys.executable, "-m", "tinsmith"], capture_output=True, text=True, env=environment, timeout=120, check=False
    )
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("tinsmith che", "check"),
        ("tinsmith ru", "rule"),
        ("tinsmith check --sel", "--select"),
        ("tinsmith rule TS10", "TS105"),
    ],
)
def test_a_shell_completes_words(words, expected):
    assert expected in complete(words)


def test_completion_is_installed_by_an_option():
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).output
    assert "--install-completion" in shown and "--show-completion" in shown


# Hooks --------------------------------------------------------------------------------------------


def test_the_hooks_call_commands_that_exist(tmp_path, monkeypatch, engine):
    monkeypatch.chdir(tmp_path)
    Path("k.py").write_text(KERNEL.format(engine=engine, change="= y[0] +"), "utf-8")
    hooks = (ROOT / ".pre-commit-hooks.yaml").read_text("utf-8")
    entries = re.findall(r"entry: tinsmith (.*)", hooks)
    assert entries == ["check", "check --fix"]
    for entry, code in zip(entries, (1, 0), strict=True):
        result = CliRunner().invoke(app, [*entry.split(), "k.py"])
        assert result.exit_code == code, result.output
    page = (ROOT / "docs" / "how-to" / "check-in-ci.md").read_text("utf-8")
    assert all(name in page for name in re.findall(r"- id: (.*)", hooks))
