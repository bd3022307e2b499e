"""`tinsmith check --fix`, `--diff` and `--statistics`: what is corrected, what is left alone, and what is counted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tinsmith.cli import app
from tinsmith.linter import Edit, apply_edits, fix_text, lint_file

KERNEL = """import {engine} as lang


@lang.kernel
def k(x: lang.types.ndarray(dtype=lang.{dtype}, ndim=1), y: lang.types.ndarray(dtype=lang.{dtype}, ndim=1)):
    for i in x:
        {body}
"""

FIXED = {
    # rule: dtype, body, what is replaced, by what
    "TS105": ("f32", "y[0] = y[0] + x[i]", "y[0] = y[0] + x[i]", "y[0] += x[i]"),
    "TS105, swapped": ("f32", "y[0] = 2.0 * x[i] + y[0]  # why", "y[0] = 2.0 * x[i] + y[0]", "y[0] += 2.0 * x[i]"),
    "TS105, a difference": ("f32", "y[0] = y[0] - (x[i] - 1.0)", "y[0] = y[0] - (x[i] - 1.0)", "y[0] -= x[i] - 1.0"),
    "TS301": ("f32", "n = 0  # n\n        n += 0.5 * x[i]\n        y[i] = n", "n = 0", "n = 0.0"),
    "TS301, twice": ("f32", "n = 3; n += 0.5 * x[i]; n -= x[i]\n        y[i] = n", "n = 3", "n = 3.0"),
    "TS305": ("f64", "t = 0.1\n        y[i] = t * x[i]", "t = 0.1", "t = lang.f64(0.1)"),
    "TS306": ("f32", "m = -7\n        y[i] = x[i] + m // 2", "m = -7", "m = lang.static(-7)"),
}

KEPT = {
    "the element is read twice": ("f32", "y[0] = y[0] + x[i] * y[0]"),
    "another sum of it": ("f32", "y[0] = x[i] - y[0]"),
    "it is read elsewhere": ("f32", "y[0] = y[0] + x[i]\n        y[1 + i] = y[0]"),
    "an index": ("f32", "n = 0\n        n += 0.5 * x[i]\n        y[n] = 1.0"),
    "a bound": ("f32", "n = 3\n        n += 0.5 * x[i]\n        for j in range(n):\n            y[i] += x[i]"),
    "bits": ("f32", "n = 3\n        n += 0.5 * x[i]\n        y[i] = n & 1"),
    "a remainder": ("f32", "n = 3\n        n += 0.5 * x[i]\n        y[i] = n % 2"),
    "an argument of another function": ("f32", "n = 3\n        n += 0.5 * x[i]\n        y[i] = other(n)"),
    "an element": ("f32", "v = lang.Vector([0, 0])\n        v[0] += 0.5 * x[i]\n        y[i] = v[0]"),
    "several lines": ("f32", "y[0] = (\n            y[0] + x[i]\n        )"),
}


@pytest.fixture
def write(tmp_path, monkeypatch, engine):
    monkeypatch.chdir(tmp_path)

    def written(dtype: str, body: str, name: str = "kernels.py") -> str:
        text = KERNEL.format(engine=engine, dtype=dtype, body=body)
        Path(name).write_bytes(text.encode())
        return text

    return written


def check(*arguments):
    return CliRunner().invoke(app, ["check", *map(str, arguments)])


@pytest.mark.parametrize("case", FIXED)
def test_a_finding_is_fixed_and_gone(write, case):
    dtype, body, old, new = FIXED[case]
    before = write(dtype, body)
    rule = case[:5]
    assert rule in {one.rule for one in lint_file("kernels.py")}
    result = check("kernels.py", "--fix", "--select", rule)
    assert result.exit_code == 0, result.output
    assert result.stderr.startswith("Fixed ") and "nothing found" in result.stdout
    assert Path("kernels.py").read_text("utf-8") == before.replace(old, new)
    assert rule not in {one.rule for one in lint_file("kernels.py")}


def test_a_tangent_in_a_kernel_of_taichi(write, engine):
    before = write("f32", "y[i] = 2.0 * lang.tan(x[i] + 1.0)")
    is_found = "TS407" in {one.rule for one in lint_file("kernels.py")}
    assert is_found == (engine == "taichi")
    check("kernels.py", "--fix")
    after = before.replace("lang.tan(x[i] + 1.0)", "(lang.sin(x[i] + 1.0) / lang.cos(x[i] + 1.0))")
    assert Path("kernels.py").read_text("utf-8") == (after if is_found else before)
    before = write("f32", "y[i] = lang.tan(lang.random())")
    check("kernels.py", "--fix")
    assert Path("kernels.py").read_text("utf-8") == before


@pytest.mark.parametrize("case", KEPT)
def test_uncertain_fixes_are_not_applied(write, case):
    before = write(*KEPT[case])
    assert {one.rule for one in lint_file("kernels.py")} & {"TS105", "TS106", "TS301"}
    result = check("kernels.py", "--fix")
    assert result.exit_code == 1 and "No finding can be fixed." in result.stderr
    assert Path("kernels.py").read_text("utf-8") == before


def test_a_field_of_an_object(write, engine):
    Path("methods.py").write_text(
        f"import {engine} as lang\n\n\n@lang.data_oriented\nclass Swarm:\n    @lang.kernel\n    def add(self):\n"
        "        for i in self.x:\n            self.y[None] = self.y[None] + self.x[i]\n",
        "utf-8",
    )
    check("methods.py", "--fix")
    assert Path("methods.py").read_text("utf-8").endswith("            self.y[None] += self.x[i]\n")


def test_several_findings_of_a_file_with_its_encoding_and_line_ends(write):
    text = write("f32", "n = 0; s = '\xe4'; y[0] = y[0] + x[i]\n        n += 0.5 * x[i]\n        y[1] = y[1] + n")
    text = "# coding: latin-1\n" + text
    Path("kernels.py").write_bytes(text.replace("\n", "\r\n").encode("latin-1"))
    result = check("kernels.py", "--fix")
    assert result.exit_code == 0 and "Fixed 3 findings in 1 file." in result.stderr
    for old, new in (("n = 0;", "n = 0.0;"), ("y[0] = y[0] +", "y[0] +="), ("y[1] = y[1] +", "y[1] +=")):
        text = text.replace(old, new)
    assert Path("kernels.py").read_bytes() == text.replace("\n", "\r\n").encode("latin-1")


def test_only_what_is_selected_is_fixed(write):
    before = write("f32", "n = 0\n        n += 0.5 * x[i]\n        y[0] = y[0] + n  # tinsmith: ignore[TS105]")
    for options in (("--ignore", "TS301"), ("--select", "TS105")):
        check("kernels.py", "--fix", *options)
        assert Path("kernels.py").read_text("utf-8") == before
    Path("pyproject.toml").write_text('[tool.tinsmith.check.per-file-ignores]\n"kernels.py" = ["TS3"]\n', "utf-8")
    check("kernels.py", "--fix")
    assert Path("kernels.py").read_text("utf-8") == before
    write("f64", "t = 0.1\n        y[i] = t * x[i]", "warned.py")
    assert "No finding can be fixed" in check("warned.py", "--fix", "--severity", "error").stderr


def test_a_diff_changes_nothing(write):
    before = write("f32", "y[0] = y[0] + x[i]")
    for options in (("--diff",), ("--diff", "--fix")):
        result = check("kernels.py", *options)
        assert result.exit_code == 1 and "1 finding would be fixed." in result.stderr
        assert "--- kernels.py\n+++ kernels.py\n" in result.stdout
        assert "-        y[0] = y[0] + x[i]\n+        y[0] += x[i]\n" in result.stdout
        assert Path("kernels.py").read_text("utf-8") == before
    check("kernels.py", "--fix")
    result = check("kernels.py", "--diff")
    assert result.exit_code == 0 and result.stdout == ""


def test_an_edit_after_which_the_finding_is_still_there_is_not_kept(write, monkeypatch):
    text = write("f32", "n = 0\n        n += 0.5 * x[i]\n        y[0] = y[0] + n")
    for replacement in ("n = 1 +", "1", "0.0; y[0] = x[i]"):
        edit = Edit((7, 13), (7, 14), replacement)

        def lint(path, text, edit=edit):
            return [replace(one, fix=edit) if one.rule == "TS301" else one for one in lint_file(path, text)]

        monkeypatch.setattr("tinsmith.linter._fixes.lint_file", lint)
        after, fixed = fix_text("kernels.py", text, lambda one: True)
        assert after == text.replace("y[0] = y[0] + n", "y[0] += n") and [one.rule for one in fixed] == ["TS105"]


def test_files_that_cannot_be_read_are_left_to_the_check(write):
    write("f32", "y[0] = y[0] + x[i]")
    Path("broken.py").write_text("def f(:\n", "utf-8")
    Path("odd.py").write_bytes(b"\xff\xfe\x00")
    result = check(".", "--fix")
    assert result.exit_code == 2 and result.stdout.count("TS001") == 2
    assert "Fixed 1 finding in 1 file." in result.stderr


def test_edits_are_applied_from_the_end():
    edits = [Edit((1, 1), (1, 2), "long"), Edit((1, 3), (2, 2), "-"), Edit((2, 3), (2, 3), "!")]
    assert apply_edits("a b\r\nc\x0cd\n", edits) == "long -\x0c!d\n"


def test_findings_say_how_they_are_fixed(write):
    write("f32", "y[0] = y[0] + x[i]")
    (finding,) = json.loads(check("kernels.py", "--output-format", "json").stdout)["findings"]
    start, end = {"line": 7, "column": 9}, {"line": 7, "column": 27}
    assert finding["fix"] == {"start": start, "end": end, "replacement": "y[0] += x[i]"}
    assert "1 finding can be fixed with --fix; --diff shows how." in check("kernels.py").stdout


# Statistics ---------------------------------------------------------------------------------------


def test_statistics_count_the_findings_of_each_rule(write):
    for name in ("a.py", "b.py"):
        write("f32", "y[0] = y[0] + x[i]\n        while y[i] > 0:\n            pass", name)
    result = check(".", "--statistics")
    assert result.exit_code == 1
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["2", "error", "TS105", "[*]", "racing-stores", "in", "2", "files"] in rows
    assert any(row[1:3] == ["warning", "TS202"] and "[*]" not in row for row in rows)
    assert "2 can be fixed with --fix" in result.stdout
    rows = json.loads(check(".", "--statistics", "--output-format", "json", "--select", "TS105").stdout)
    expected = {"rule": "TS105", "name": "racing-stores", "severity": "error", "count": 2, "files": 2, "fixable": 2}
    assert rows == [expected]


def test_statistics_of_nothing_and_in_other_formats(write):
    write("f32", "y[i] = x[i]")
    assert check(".", "--statistics").stdout == "nothing found\n"
    assert check(".", "--statistics", "--output-format", "json").stdout == "[]\n"
    result = check(".", "--statistics", "--output-format", "sarif")
    assert result.exit_code == 2 and "--statistics is printed as text or JSON" in result.stderr
