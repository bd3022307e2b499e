"""The command line: version, help, and how it refuses."""

from __future__ import annotations

import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

import tinsmith
from tinsmith._errors import InputError, TinsmithError
from tinsmith.cli import app


def invoke(*arguments: str):
    return CliRunner().invoke(app, list(arguments))


def test_version_is_the_package_s():
    result = invoke("--version")
    assert result.exit_code == 0
    assert result.stdout == f"tinsmith {tinsmith.__version__}\n"


def test_without_a_command_it_shows_its_commands():
    result = invoke()
    assert "doctor" in result.output
    assert result.exit_code in (0, 2)  # typer changed its mind about this between versions


def test_an_unknown_command_is_refused():
    result = invoke("solder")
    assert result.exit_code == 2
    assert "solder" in result.output


@pytest.fixture
def add_command():
    """Register a command for one test."""
    before = list(app.registered_commands)
    yield lambda function: app.command("made-up")(function)
    app.registered_commands[:] = before


@pytest.mark.parametrize("error", [InputError, TinsmithError])
def test_a_refusal_is_one_clear_line_and_exit_code_2(add_command, error):
    @add_command
    def refuse():
        raise error("no image at `cat.jpg`; give the path of a picture")

    result = invoke("made-up")
    assert result.exit_code == 2
    assert result.stderr == "tinsmith: no image at `cat.jpg`; give the path of a picture\n"
    assert result.stdout == ""


def test_a_bug_of_ours_is_not_dressed_as_a_refusal(add_command):
    @add_command
    def break_down():
        raise ZeroDivisionError

    assert isinstance(invoke("made-up").exception, ZeroDivisionError)


def test_a_command_s_own_exit_code_stands(add_command):
    @add_command
    def leave():
        raise typer.Exit(7)

    assert invoke("made-up").exit_code == 7


def test_the_installed_script_runs():
    script = "import sys; from tinsmith.cli import app; sys.exit(app(['--version']))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.startswith("tinsmith ")
