"""`tinsmith check` on a project with many findings: each cause once, and a baseline after which new ones alone fail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tinsmith._errors import InputError
from tinsmith.cli import app
from tinsmith.doctor import apply_baseline, check_file

HEAD = "import taichi as ti\n\n"
KERNEL = """
@ti.kernel
def {name}(x: ti.types.ndarray(dtype=ti.f32, ndim=1), y: ti.types.ndarray(dtype=ti.f32, ndim=1)):
    for i in x:
        count = 0
        count += 0.5 * x[i]
        while count > 0:
            y[i] += 1.0
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name: str, *kernels: str, above: str = "") -> None:
    Path(name).write_text(HEAD + above + "".join(KERNEL.format(name=one) for one in kernels), "utf-8")


def check(*arguments):
    return CliRunner().invoke(app, ["check", *arguments])


def findings_of(*arguments):
    return [
        (one["path"], one["rule"])
        for one in json.loads(check(*arguments, "--output-format", "json").stdout)["findings"]
    ]


def test_a_baseline_leaves_only_new_findings(folder):
    write("old.py", "first")
    assert check(".").exit_code == 1
    written = check(".", "--write-baseline", "known.json")
    assert written.exit_code == 0 and "--baseline known.json" in written.stdout
    result = check(".", "--baseline", "known.json")
    assert result.exit_code == 0, result.output
    assert "2 findings are in the baseline." in result.stdout and "nothing found" in result.stdout
    write("new.py", "second")
    assert check(".", "--baseline", "known.json").exit_code == 1
    assert findings_of(".", "--baseline", "known.json") == [("new.py", "TS301"), ("new.py", "TS202")]


def test_a_baseline_survives_moved_lines(folder):
    write("old.py", "first")
    check(".", "--write-baseline", "known.json")
    write("old.py", "first", above="# a line\n" * 7)
    Path("old.py").write_text(Path("old.py").read_text("utf-8").replace("    for", "    # another\n    for"), "utf-8")
    assert findings_of(".", "--baseline", "known.json") == []


def test_equal_findings_are_counted_in_a_baseline(folder):
    write("old.py", "first")
    check(".", "--write-baseline", "known.json")
    write("old.py", "first", "second")
    assert findings_of(".", "--baseline", "known.json") == [("old.py", "TS301"), ("old.py", "TS202")]


def test_a_baseline_says_what_was_fixed(folder):
    write("old.py", "first", "second")
    check(".", "--write-baseline", "known.json")
    write("old.py", "first")
    result = check(".", "--baseline", "known.json")
    assert result.exit_code == 0
    assert "2 others of it were not found any more: write the baseline again." in " ".join(result.stdout.split())


def test_fixed_findings_are_counted_only_in_checked_or_deleted_files(folder):
    write("old.py", "first")
    write("other.py", "second")
    check(".", "--write-baseline", "known.json")
    assert "not found any more" not in check("old.py", "--baseline", "known.json").stdout
    assert "not found any more" not in check("old.py", "--baseline", "known.json", "--select", "TS301").stdout
    Path("other.py").unlink()
    assert "2 others of it were not found any more" in " ".join(
        check("old.py", "--baseline", "known.json").stdout.split()
    )


def test_a_baseline_is_read_from_any_folder(folder, monkeypatch):
    (folder / "inner").mkdir()
    write("inner/old.py", "first")
    check("inner", "--write-baseline", "known.json")
    monkeypatch.chdir(folder / "inner")
    assert findings_of(".", "--baseline", "../known.json") == []


def test_failed_checks_are_never_in_a_baseline(folder):
    write("old.py", "first")
    Path("broken.py").write_text("def f(:\n", "utf-8")
    result = check(".", "--write-baseline", "known.json")
    assert result.exit_code == 2 and "TS001" in result.stderr
    assert {one["rule"] for one in json.loads(Path("known.json").read_text("utf-8"))["findings"]} == {"TS301", "TS202"}
    assert check(".", "--baseline", "known.json").exit_code == 2


WRONG = {
    "no file": (None, "the baseline cannot be read"),
    "no JSON": ("{", "the baseline is not valid JSON"),
    "something else": ("[1]", "the file is not a baseline"),
    "another version": ('{"format": 2, "findings": []}', "the baseline was written by another version"),
    "an entry without a rule": ('{"format": 1, "findings": [{"path": "a.py"}]}', "the file is not a baseline"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_baseline_is_refused(folder, case):
    text, words = WRONG[case]
    write("old.py", "first")
    if text is not None:
        Path("known.json").write_text(text, "utf-8")
    with pytest.raises(InputError, match=words) as raised:
        apply_baseline(check_file(Path("old.py")), Path("known.json"), [Path("old.py")])
    assert "known.json" in str(raised.value) and "--write-baseline" in str(raised.value)
    assert check("old.py", "--baseline", "known.json").exit_code == 2


def test_a_baseline_is_either_read_or_written(folder):
    write("old.py", "first")
    result = check("old.py", "--baseline", "a.json", "--write-baseline", "b.json")
    assert result.exit_code == 2 and not Path("b.json").exists()
    result = check("old.py", "--write-baseline", "gone/b.json")
    assert result.exit_code == 2 and "the baseline cannot be written" in result.stderr


def test_a_summary_lists_each_cause_once(folder):
    write("many.py", *(f"kernel_{number}" for number in range(60)))
    text = " ".join(check("many.py").stdout.split())
    assert text.count("warning TS202 while-loop, of the engine's own gradient: 60 in 1 file") == 1
    assert text.count("a `while` loop: Taichi and Quadrants refuse to differentiate it") == 1
    assert text.count("first at many.py:9") == 1
    assert "`tinsmith rule TS202` explains a rule" in text
    assert text.count("error TS301") == 60  # errors are shown one by one
    assert check("many.py", "--no-summary").stdout.count("warning TS202") == 60
    write("few.py", "only")
    assert "gradient: 1 in 1 file" not in check("few.py").stdout
    assert "gradient: 1 in 1 file" in check("few.py", "--summary").stdout


ORDERED = """
@ti.kernel
def hinted(x: ti.types.ndarray(dtype=ti.f32, ndim=1), unused: ti.i32, y: ti.types.ndarray(dtype=ti.f32, ndim=1)):
    for i in x:
        while y[i] > 0.0:
            y[i] -= 1.0
        y[i] = ti.Vector([x[i], x[i]]).normalized()[0]


@ti.kernel
def wrong(x: ti.types.ndarray(dtype=ti.f32, ndim=1), y: ti.types.ndarray(dtype=ti.f32, ndim=1)):
    for i in x:
        y[0] = y[0] + x[i]
"""


@pytest.mark.parametrize("option", ["--no-summary", "--summary", "--statistics"])
@pytest.mark.parametrize("name", ["taichi", "quadrants"])
def test_the_most_useful_findings_come_first(folder, name, option):
    Path("a.py").write_text(f"import {name} as ti\n{ORDERED}", "utf-8")
    text = check(".", option).stdout
    rules = [text.index(rule) for rule in ("TS105", "TS303", "TS202", "TS501")]
    # an error, a warning about the kernel itself, one about engines' gradients, a hint
    assert rules == sorted(rules)


def test_paths_outside_the_working_directory_are_short(folder, monkeypatch):
    (folder / "project" / "deep").mkdir(parents=True)
    (folder / "elsewhere").mkdir()
    write("project/deep/many.py", "first")
    write("project/few.py", "second")
    monkeypatch.chdir(folder / "elsewhere")
    text = " ".join(check("../project", "--summary", "--select", "TS202").stdout.split())
    shown = "".join(text.split())
    assert "".join(f"Paths are relative to {folder / 'project'}".split()) in shown
    assert "2 in 2 files" in text and "first at deep/many.py:9" in text
