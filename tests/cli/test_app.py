"""The command line: version, help, and how it refuses."""

from __future__ import annotations

import signal
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


@pytest.mark.parametrize("command", ["", "adjoint", "check", "doctor", "fit-image", "fit-scene", "simulate"])
def test_help_shows_no_type_of_a_flag(command):
    """Typer prints `--quiet <bool>`, as if a value were to follow."""
    result = invoke(*filter(None, [command]), "--help")
    assert result.exit_code == 0 and "--help" in result.output
    assert "bool" not in result.output.lower()


def test_an_unknown_command_is_refused():
    result = invoke("solder")
    assert result.exit_code == 2
    assert "solder" in result.output


@pytest.mark.parametrize(
    ("option", "fault"),
    [
        ("--engine=foo", "'foo' is not one of 'taichi', 'quadrants'"),
        ("--device=tpu", "'tpu' is not one of 'cpu', 'cuda'"),
    ],
)
@pytest.mark.parametrize("command", ["fit-image", "fit-scene", "fit-splats"])
def test_an_unknown_value_of_an_option_is_named_first(command, option, fault):
    result = invoke(command, option)
    words = " ".join(result.output.replace("│", " ").split())
    assert result.exit_code == 2
    assert f"Invalid value for '{option.partition('=')[0]}': {fault}" in words


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


def test_internal_errors_are_not_shown_as_refusals(add_command):
    @add_command
    def break_down():
        raise ZeroDivisionError

    assert isinstance(invoke("made-up").exception, ZeroDivisionError)


def test_a_commands_exit_code_is_kept(add_command):
    @add_command
    def leave():
        raise typer.Exit(7)

    assert invoke("made-up").exit_code == 7


def test_the_installed_script_runs():
    script = "import sys; from tinsmith.cli import app; sys.exit(app(['--version']))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.startswith("tinsmith ")


NEEDS_NO_TORCH = [
    (["--version"], "tinsmith "),
    (["--help"], "learn-image"),
    (["learn-image", "--help"], "hash-grid"),
    (["fit-scene", "--help"], "background"),
    (["check", "--help"], "tool.tinsmith.check"),
    (["fit-splats", "--help"], "gaussians"),
    (["learn-image", "none.jpg"], "the image does not exist"),
    (["learn-image", "networks"], "Write `learn-image default networks`"),
    (["fit-image", "none.jpg"], "the image does not exist"),
    (["fit-image", "--out", "afile"], "--out is a file, not a folder"),
    (["fit-scene", "none"], "the dataset does not exist"),
    (["simulate"], "elastic-walker"),
    (["simulate", "smok"], "Did you mean `smoke`?"),
    (["check", "none.py"], "there is no such file or folder"),
    (["adjoint", "none.py:a"], "the Python file does not exist"),
]


@pytest.mark.thinned(4)
@pytest.mark.parametrize(
    ("arguments", "words"), NEEDS_NO_TORCH, ids=lambda given: " ".join(given) if isinstance(given, list) else ""
)
def test_help_and_wrong_paths_do_not_wait_for_torch(arguments, words, tmp_path):
    (tmp_path / "afile").touch()
    script = "import sys; from tinsmith.cli import app; app(sys.argv[1:], standalone_mode=False)"
    done = subprocess.run(
        [sys.executable, "-c", f"{script}\nassert 'torch' not in sys.modules", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=tmp_path,
    )
    assert words in done.stdout + done.stderr
    assert "AssertionError" not in done.stderr


def test_ctrl_c_while_torch_is_imported(tmp_path):
    """A module in torch's place, which says that it is imported, and takes its time."""
    (tmp_path / "torch.py").write_text("import time\nprint('importing', flush=True)\ntime.sleep(60)\n")
    script = "import sys; from tinsmith.cli import app; sys.path.insert(0, '.'); app(['fit-image'])"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
    ) as process:
        try:
            assert process.stdout.readline() == "importing\n"
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
            assert "Traceback" not in process.stderr.read()
        finally:
            process.kill()
