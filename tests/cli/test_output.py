"""What a command does when its standard output cannot be written, or does not have a character."""

from __future__ import annotations

import os
import sys

import pytest
import typer

from tinsmith.__main__ import main
from tinsmith._output import keep_writing
from tinsmith.cli import app


@pytest.fixture
def run(monkeypatch):
    """Run a command of one test, with standard output and error on files; return its exit code."""
    before = list(app.registered_commands)

    def run_command(command, output, errors, encoding="utf-8"):
        app.command("made-up")(command)
        monkeypatch.setattr(sys, "argv", ["tinsmith", "made-up"])
        with open(output, "w", encoding=encoding) as stdout, open(errors, "w", encoding=encoding) as stderr:
            monkeypatch.setattr(sys, "stdout", stdout)
            monkeypatch.setattr(sys, "stderr", stderr)
            with pytest.raises(SystemExit) as end:
                main()
            sys.stdout.flush()
            return end.value.code

    yield run_command
    app.registered_commands[:] = before


def make_broken_pipe():
    reader, writer = os.pipe()
    os.close(reader)
    return writer


OUTPUTS = {
    "a pipe without a reader": (make_broken_pipe, 141, ""),
    "a full disk": (lambda: "/dev/full", 2, "tinsmith: standard output cannot be written: No space left on device\n"),
}


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full")
@pytest.mark.parametrize("own_code", [0, 1])
@pytest.mark.parametrize("case", OUTPUTS)
def test_a_closed_output_does_not_stop_the_work(run, tmp_path, case, own_code):
    def work():
        for _ in range(3):
            typer.echo("words")
        (tmp_path / "result").touch()
        raise SystemExit(own_code)

    make, code, words = OUTPUTS[case]
    assert run(work, make(), tmp_path / "errors") == (own_code or code)
    assert (tmp_path / "result").exists()
    assert own_code or (tmp_path / "errors").read_text() == words


@pytest.mark.parametrize(
    ("encoding", "expected"), [("ascii", r"--|\xe9\u2192 a"), ("cp1252", r"--|é\u2192 a"), ("utf-8", "──│é→ a")]
)
def test_characters_that_the_encoding_does_not_have(run, tmp_path, encoding, expected):
    assert run(lambda: sys.stdout.write("──│é→ a\n") and None, tmp_path / "output", tmp_path / "errors", encoding) == 0
    assert (tmp_path / "output").read_text(encoding) == expected + "\n"


def test_the_replaced_output_is_python_s_own(run, tmp_path, monkeypatch):
    """Taichi takes any other one for a graphical shell's, and writes a line about it."""
    monkeypatch.setattr("tinsmith.__main__.keep_writing", lambda: None)
    kept = []
    monkeypatch.setattr(sys, "__stdout__", sys.__stdout__)

    def look():
        monkeypatch.setattr(sys, "__stdout__", sys.stdout)
        keep_writing()
        kept.append(sys.stdout is sys.__stdout__)

    run(look, tmp_path / "output", tmp_path / "errors")
    assert kept == [True]
