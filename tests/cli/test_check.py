"""`tinsmith check`: what it finds in files that it does not run, how it says so, and its exit codes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tinsmith._errors import InputError
from tinsmith.cli import _examples_run, app
from tinsmith.cli._check_files import python_files
from tinsmith.cli._import_file import import_file, keep_import_path
from tinsmith.doctor import check_example
from tinsmith.linter import lint_file

HEAD = """
import {engine} as lang
import torch
import tinsmith as ts

"""

RIGHT = """
@ts.op("x[n] -> y[n]")
@lang.kernel
def square(x: lang.types.ndarray(), y: lang.types.ndarray()):
    for i in x:
        y[i] = x[i] * x[i]


@square.example
def small():
    return torch.linspace(0.1, 1.0, 4, dtype=torch.float64)
"""

TRUNCATES = """
@ts.op("x[n] -> y[n]")
@lang.kernel
def counted(x: lang.types.ndarray(), y: lang.types.ndarray()):
    for i in x:
        count = 0
        count += 0.5 * x[i]
        y[i] = count
"""

OUTSIDE = """
@ts.op("x[n] -> y[n]")
@lang.kernel
def shifted(x: lang.types.ndarray(), y: lang.types.ndarray()):
    for i in x:
        y[i + 1] = x[i]  # tinsmith: ignore[TS109]


@shifted.example
def small():
    return torch.linspace(0.1, 1.0, 4)
"""

NEVER = 'raise SystemExit("this file was run")\n'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Change to an empty working directory; forget the modules that a test imports after it."""
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    with keep_import_path():
        yield tmp_path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def write(folder, engine):
    def written(name: str, *texts: str) -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(HEAD.format(engine=engine) + "".join(texts), "utf-8")
        return path

    return written


def check(*arguments):
    return CliRunner().invoke(app, ["check", *map(str, arguments)])


def find_line(path, text):
    return next(number for number, line in enumerate(path.read_text("utf-8").splitlines(), 1) if text in line)


def test_a_clean_file_is_not_run(write):
    write("fine.py", RIGHT, NEVER)
    result = check("fine.py")
    assert result.exit_code == 0, result.output
    assert "check of fine.py" in result.stdout and "nothing found  (lint)" in result.stdout


MANY = """
@ts.op("x[n] -> y[n]")
@lang.kernel
def bare(x: lang.types.ndarray(), y: lang.types.ndarray()):
    for i in x:
        y[i] = x[i]

@lang.kernel
def plain(x: lang.types.ndarray(), y: lang.types.ndarray()):
    for i in x:
        y[i] = x[i]

called_later = ts.op("x[n] -> y[n]")(plain)

class Swarm:
    @lang.kernel
    def step(self):
        pass
"""


def test_the_summary_lists_files_and_ops_without_examples(write):
    write("fine.py", RIGHT)
    write("many.py", MANY)
    result = check("fine.py", "many.py", "--output-format", "json")
    assert json.loads(result.stdout)["kernels"] == 4
    assert json.loads(result.stdout)["without_examples"] == ["bare", "called_later"]
    assert "1 kernel read." in check("fine.py").stdout and "no example" not in check("fine.py").stdout
    Path("empty.py").write_text("x = 1\n", "utf-8")
    assert "No kernel was found." in check("empty.py").stdout


def test_a_run_sees_which_ops_have_examples(write):
    write("all.py", MANY, RIGHT, "bare.example(small)\n")
    result = check("all.py", "--run", "--output-format", "json")
    assert json.loads(result.stdout)["without_examples"] == ["plain"], result.output


def test_an_error_with_its_place(write):
    path = write("counts.py", TRUNCATES, NEVER)
    result = check("counts.py")
    assert result.exit_code == 1, result.output
    assert f"{find_line(path, 'count += 0.5')}:9  error TS301" in result.stdout
    assert "│ count += 0.5 * x[i]" in result.stdout


def test_folders_are_walked(write):
    for name in ("a.py", "deep/er/b.py", ".hidden/c.py", "__pycache__/d.py", "venv/lib/e.py", "node_modules/f.py"):
        write(name, TRUNCATES)
    Path("venv/pyvenv.cfg").touch()
    Path("notes.txt").touch()
    result = check(".", "--output-format", "json")
    assert {one["path"] for one in json.loads(result.stdout)["findings"]} == {"a.py", "deep/er/b.py"}
    assert [str(one) for one in python_files([Path(".hidden"), Path("a.py"), Path(".")])] == [
        ".hidden/c.py",
        "a.py",
        "deep/er/b.py",
    ]


MISSING = {
    "no such file": (["gone.py"], ["there is no such file or folder", "gone.py"]),
    "a folder without any": (["empty"], ["there is no Python file to check", "empty"]),
    "no place for the output": (["empty/../fine.py", "--out", "gone/report.txt"], ["the report cannot be written"]),
    "an odd format": (["fine.py", "--output-format", "yaml"], ["yaml"]),
}


@pytest.mark.parametrize("case", MISSING)
def test_wrong_calls_exit_with_2(write, case):
    write("fine.py", RIGHT)
    Path("empty").mkdir()
    arguments, words = MISSING[case]
    result = check(*arguments)
    assert result.exit_code == 2
    assert all(word in result.stderr for word in words), result.stderr


BROKEN = {
    "syntax": (b"x = 1\ndef f(:\n    pass\n", 2, "the file does not parse"),
    "indentation": (b"if 1:\npass\n", 2, "the file does not parse"),
    "no text": (b"\xff\xfe\x00\x01", 1, ""),
    "a zero": (b"x = 1\x00\n", 1, ""),
    "an encoding that is no text": (b"# coding: rot13\nx = 1\n", 1, "'rot13' is not a text encoding"),
    "an encoding that fails": (b"# coding: undefined\nx = 1\n", 1, "undefined encoding"),
}


@pytest.mark.parametrize("case", BROKEN)
@pytest.mark.parametrize("run", [(), ("--run",)])
def test_a_syntax_error_is_reported_with_its_line(write, folder, case, run):
    data, line, words = BROKEN[case]
    (folder / "broken.py").write_bytes(data)
    write("counts.py", TRUNCATES)
    result = check(".", "--output-format", "json", *run)
    assert result.exit_code == 2, result.output
    by_rule = {one["rule"]: one for one in json.loads(result.stdout)["findings"]}
    assert by_rule["TS001"]["line"] == line and words in by_rule["TS001"]["message"]
    assert by_rule["TS001"]["path"] == "broken.py"
    assert "TS301" in by_rule  # the other file was looked at all the same
    assert "TS002" not in by_rule  # what does not parse is not run too


DEEP = {"a sum": "1+" * 20000, "signs": "-" * 50000}


@pytest.mark.parametrize("form", ["text", "json", "sarif", "html"])
@pytest.mark.parametrize("case", [*BROKEN, *DEEP])
def test_an_odd_file_does_not_silence_the_others_in_any_format(write, folder, case, form):
    data = BROKEN[case][0] if case in BROKEN else f"x = {DEEP[case]}1\n".encode()
    (folder / "odd.py").write_bytes(data)
    write("counts.py", TRUNCATES)
    result = check(".", "--output-format", form)
    assert result.exit_code == 2, result.output
    assert "odd.py" in result.stdout and "TS301" in result.stdout
    if case == "signs" and form == "json":
        assert "the source is nested too deeply for Python's parser" in result.stdout


NAMES = {"text": r"\udcff.py", "json": r"\udcff.py", "sarif": "%FF.py", "html": r"\udcff.py"}


@pytest.mark.skipif(sys.platform != "linux", reason="needs file names that are any bytes")
@pytest.mark.parametrize("to_file", [False, True])
@pytest.mark.parametrize("form", NAMES)
def test_a_file_name_that_is_not_utf_8(folder, write, form, to_file):
    write("counts.py", TRUNCATES).rename(folder / os.fsdecode(b"\xff.py"))
    result = check(".", "--output-format", form, *(["--out", "report"] if to_file else []))
    assert result.exit_code == 1, result.exception
    assert NAMES[form] in (Path("report").read_text("utf-8") if to_file else result.stdout)


def test_a_notebook_is_refused(folder, write):
    (folder / "cells.ipynb").write_text('{"cells": [], "nbformat": 4}', "utf-8")
    write("counts.py", TRUNCATES)
    result = check("counts.py", "cells.ipynb", "--output-format", "json")
    by_path = {one["path"]: one for one in json.loads(result.stdout)["findings"]}
    assert result.exit_code == 2 and by_path["counts.py"]["rule"] == "TS301"
    assert by_path["cells.ipynb"]["message"].startswith("the file cannot be read: it is a notebook; convert it")


def test_pipes_are_refused_at_once(folder):
    os.mkfifo(folder / "pipe.py")
    result = check(".")
    assert result.exit_code == 2 and "the file cannot be read: it is not a regular file" in result.stdout


def test_a_file_with_a_mark_and_one_in_another_encoding(folder):
    (folder / "marked.py").write_bytes(b"\xef\xbb\xbfx = 1\n")
    (folder / "latin.py").write_bytes(b"# coding: latin-1\nx = '\xe4'\n")
    assert check(".").exit_code == 0


def test_a_link_to_itself_is_a_file_that_cannot_be_read(folder):
    (folder / "loop.py").symlink_to("loop.py")
    result = check(".", "--output-format", "json")
    assert result.exit_code == 2
    assert [one["rule"] for one in json.loads(result.output)["findings"]] == ["TS001"]


def test_pythons_warnings_about_a_file_are_not_shown(write):
    write("odd.py", TRUNCATES, r"pattern = '\d'" + "\n")
    for form in ("text", "html"):
        result = check("odd.py", "--output-format", form)
        assert result.exit_code == 1 and result.stderr == "", result.output


def test_a_failure_of_the_linter_in_one_file_does_not_hide_others(write, monkeypatch):
    def fail(path, *rest):
        if path.name == "odd.py":
            raise RecursionError("too deep")
        return lint_file(path, *rest)

    monkeypatch.setattr("tinsmith.doctor._files.lint_file", fail)
    write("odd.py", TRUNCATES)
    write("counts.py", TRUNCATES)
    result = check(".", "--output-format", "json")
    by_path = {one["path"]: one for one in json.loads(result.stdout)["findings"]}
    assert result.exit_code == 2 and by_path["counts.py"]["rule"] == "TS301"
    assert by_path["odd.py"]["message"] == "lint of the file could not be run: RecursionError: too deep"


def test_the_docs_name_every_option_and_exit_code():
    docs = (Path(__file__).parents[2] / "docs" / "reference" / "check.md").read_text("utf-8")
    shown = CliRunner().invoke(app, ["check", "--help"], env={"COLUMNS": "200"}).output
    options = set(re.findall(r"--[a-z-]+", shown)) - {"--help", "--no-summary"}
    assert options == {
        "--select", "--ignore", "--output-format", "--out", "--run", "--severity", "--strict", "--summary",
        "--baseline", "--write-baseline", "--fix", "--diff", "--statistics", "--watch",
    }  # fmt: skip
    assert all(f"`{option}" in docs for option in options)
    assert all(f"| {code} | " in docs for code in (0, 1, 2))


LEVELS = [
    # options, exit code, severities
    ((), 0, {"warning", "info"}),
    (("--strict",), 1, {"warning", "info"}),
    (("--severity", "warning"), 0, {"warning"}),
    (("--severity", "warning", "--strict"), 1, {"warning"}),
    (("--severity", "error", "--strict"), 0, set()),
]

WARNED = """
@lang.kernel
def warned(x: lang.types.ndarray(), unused: lang.types.ndarray(), y: lang.types.ndarray()):
    for i in x:
        t = x[i]
        while t > 1.0:
            t = 0.5 * t
        y[i] = t
"""


@pytest.mark.parametrize(("options", "code", "severities"), LEVELS)
def test_severities_decide_the_exit_code(write, options, code, severities):
    write("warned.py", WARNED)
    result = check("warned.py", "--output-format", "json", *options)
    assert result.exit_code == code, result.output
    assert {one["severity"] for one in json.loads(result.stdout)["findings"]} == severities


@pytest.mark.parametrize("form", ["text", "json", "sarif", "html"])
def test_a_report_as_a_file(write, form):
    write("counts.py", TRUNCATES)
    printed = check("counts.py", "--output-format", form)
    written = check("counts.py", "--output-format", form, "--out", "report")
    assert printed.exit_code == written.exit_code == 1
    assert written.stdout.endswith(". Written: report\n") and "1 error" in written.stdout
    text = Path("report").read_text("utf-8")
    assert text.splitlines() == [line.rstrip() for line in printed.stdout.splitlines()] if form == "text" else True
    assert text == printed.stdout or form == "text"
    assert {"text": "check of", "json": "{", "sarif": "{", "html": "<!doctype html>"}[form] in text
    assert "TS301" in text


def test_sarif_names_files_from_the_working_directory(write):
    write("some where/counts.py", TRUNCATES)
    (run,) = json.loads(check(".", "--output-format", "sarif").stdout)["runs"]
    uris = {one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for one in run["results"]}
    assert uris == {"some%20where/counts.py"}


# --run ------------------------------------------------------------------------------------------


def test_examples_are_run(write):
    write("fine.py", RIGHT, 'print("the file says this")\n')
    result = check("fine.py", "--run")
    assert result.exit_code == 0, result.output
    assert "gradient of square(small)" in result.stdout
    assert "(lint, sanitizer, gradient check)" in result.stdout.replace("\n", " ")


def test_findings_of_lint_and_run_are_merged(write):
    example = RIGHT[RIGHT.index("@square.example") :].replace("square", "counted")
    path = write("counts.py", TRUNCATES, example)
    result = check("counts.py", "--run", "--output-format", "json")
    findings = [one for one in json.loads(result.stdout)["findings"] if one["rule"] == "TS301"]
    assert [(one["path"], one["line"]) for one in findings] == [("counts.py", find_line(path, "count += 0.5"))]
    assert list(json.loads(result.stdout)["gradients"]) == ["counted(small)"]


def test_findings_of_an_example_fail_the_check(write):
    path = write("shifts.py", OUTSIDE)
    result = check("shifts.py", "--run", "--output-format", "json")
    by_rule = {one["rule"]: one for one in json.loads(result.stdout)["findings"]}
    assert by_rule["TS604"]["line"] == find_line(path, "y[i + 1]")
    assert "gradient check of op `shifted(small)` was left out" in by_rule["TS002"]["message"]
    assert result.exit_code == 1


def test_findings_of_lint_and_run_are_grouped_by_file(write):
    write("counts.py", TRUNCATES, "1 / 0\n")
    result = check("counts.py", "--run")
    assert "TS301" in result.stdout and "TS002" in result.stdout
    assert result.stdout.splitlines().count("counts.py") == 1


FAILING = {
    "while it is imported": ("fine = 1\n1 / 0\n", "1 / 0", "the file could not be run: ZeroDivisionError"),
    "by leaving": ("raise SystemExit(0)\n", "raise", "the file could not be run: SystemExit: 0"),
    "in an example": (
        RIGHT + "@square.example\ndef odd():\n    raise KeyError('x')\n",
        "@square.example\ndef odd",
        "example `odd` of op `square` could not be run: KeyError: 'x'",
    ),
    "by inputs that do not fit": (
        RIGHT + "@square.example\ndef flat():\n    return torch.rand(3, 4, 5), 7\n",
        "@square.example\ndef flat",
        "example `flat` of op `square` could not be run: ArgumentError",
    ),
}


@pytest.mark.parametrize("case", FAILING)
def test_failures_are_reported_with_their_line(write, case):
    text, where, words = FAILING[case]
    path = write("fails.py", text)
    result = check("fails.py", "--run", "--output-format", "json")
    assert result.exit_code == 2, result.output
    (finding,) = [one for one in json.loads(result.stdout)["findings"] if one["rule"] == "TS002"]
    assert words in finding["message"] and finding["path"] == "fails.py"
    assert finding["line"] == path.read_text("utf-8").split(where)[0].count("\n") + 1


METHOD = """
@lang.data_oriented
class Scaler:
    def __init__(self, factor):
        self.factor = factor

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def scale(self, x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = self.factor * x[i]

    @scale.example
    def small():
        return torch.linspace(0.1, 1.0, 4, dtype=torch.float64)


"""


def test_ops_that_are_methods_are_run_with_the_objects_of_a_module(write):
    path = write("methods.py", METHOD, "scaler = Scaler(3.0)\n")
    result = check("methods.py", "--run", "--output-format", "json")
    assert result.exit_code == 0, result.output
    assert list(json.loads(result.stdout)["gradients"]) == ["scale(small)"]
    write("methods.py", METHOD)
    del sys.modules[path.stem]
    result = check("methods.py", "--run")
    assert result.exit_code == 2, result.output
    assert "op `scale` is a method, and the module has no object of its class" in " ".join(result.stdout.split())


def test_files_of_a_package_and_files_that_share_a_name(write, folder, monkeypatch):
    checked = []
    monkeypatch.setattr(
        _examples_run, "check_example", lambda op, name: checked.append(op.name) or check_example(op, name)
    )
    for name in ("pack/__init__.py", "pack/sub/__init__.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    write("pack/sub/kernels.py", RIGHT)
    write("pack/uses.py", "from .sub.kernels import square\n")
    write("types.py", RIGHT.replace("square", "first"))  # Python's own, which is imported
    write("this.py", RIGHT.replace("square", "second"))  # and one that is not
    write("two-words.py", RIGHT.replace("square", "third"))
    write("a/same.py", RIGHT.replace("square", "fourth"))
    write("b/same.py", RIGHT.replace("square", "fifth"))
    result = check(".", "--run", "--output-format", "json")
    assert result.exit_code == 0, result.output
    gradients = json.loads(result.stdout)["gradients"]
    names = ["fifth", "first", "fourth", "second", "square", "third"]
    assert sorted(gradients) == [f"{name}(small)" for name in names]
    assert sorted(checked) == names  # each once, though `square` stands in two modules
    assert not hasattr(sys.modules["types"], "first") and "this" not in sys.modules


def test_another_module_of_a_dotted_name_is_refused(folder):
    for place in ("one", "two"):
        (folder / place / "pack").mkdir(parents=True)
        (folder / place / "pack/__init__.py").touch()
        (folder / place / "pack/kernels.py").write_text("x = 1\n", "utf-8")
    assert import_file(folder / "one/pack/kernels.py").__name__ == "pack.kernels"
    with pytest.raises(InputError, match=r"another file has been imported as `pack\.kernels`"):
        import_file(folder / "two/pack/kernels.py")


@pytest.mark.thinned(4)
@pytest.mark.parametrize("run", [(), ("--run",)])
def test_in_a_process_of_its_own_standard_output_is_the_report(write, run):
    write("fine.py", RIGHT, 'print("the file says this")\n')
    command = [sys.executable, "-m", "tinsmith", "check", "fine.py", "--output-format", "json", *run]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ok"] is True
    assert ("the file says this" in done.stderr) is bool(run)


def test_without_run_no_engine_is_loaded(write):
    write("counts.py", TRUNCATES)
    code = """
import sys
from tinsmith.cli import _examples_run, app
try:
    app(["check", "counts.py"])
finally:
    assert not {"taichi", "quadrants"} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "TS301" in done.stdout, done.stderr
