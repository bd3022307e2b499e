"""`tinsmith check`: which rules and files are reported, by options and by the settings in pyproject.toml."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tinsmith.cli import app
from tinsmith.linter import RuleSelection

# TS301 in line 8, TS202 in line 9, TS303 in line 11, TS501 in line 5
KERNEL = """
import {engine} as lang

@lang.kernel
def mixed(x: lang.types.ndarray(dtype=lang.f32, ndim=1), unused: lang.i32, y: lang.types.ndarray(lang.f32, 1)):
    for i in x:
        count = 0
        count += 0.5 * x[i]
        while count > 0:
            count = 0
        y[i] = lang.sqrt(x[i])
"""
FOUND = {"TS202", "TS301", "TS303", "TS501"}


@pytest.fixture
def folder(tmp_path, monkeypatch, engine):
    monkeypatch.chdir(tmp_path)
    for name in ("kernels.py", "old/first.py", "old/deep/second.py"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(KERNEL.format(engine=engine), "utf-8")
    return tmp_path


def check(*arguments):
    return CliRunner().invoke(app, ["check", *map(str, arguments)])


def rules(*arguments) -> dict[str, set[str]]:
    """Return the rules that a check reports, by file."""
    result = check(*arguments, "--output-format", "json")
    assert result.exit_code in (0, 1), result.output
    by_path: dict[str, set[str]] = {}
    for one in json.loads(result.stdout)["findings"]:
        by_path.setdefault(one["path"], set()).add(one["rule"])
    return by_path


def set_project(text: str, name: str = "pyproject.toml") -> None:
    Path(name).write_text(text, "utf-8")


SELECTED = {
    "all": ((), FOUND),
    "an id": (("--select", "TS301"), {"TS301"}),
    "a prefix": (("--select", "TS3"), {"TS301", "TS303"}),
    "several": (("--select", "TS301, TS5"), {"TS301", "TS501"}),
    "given twice": (("--select", "TS301", "--select", "TS5"), {"TS301", "TS501"}),
    "ignored": (("--ignore", "TS3,TS501"), {"TS202"}),
    "the longer prefix decides": (("--select", "TS303", "--ignore", "TS3"), {"TS303"}),
    "one of those selected": (("--select", "TS3", "--ignore", "TS303"), {"TS301"}),
    "both": (("--select", "TS3", "--ignore", "TS3"), set()),
    "everything": (("--select", "ALL", "--ignore", "TS2"), FOUND - {"TS202"}),
}


@pytest.mark.parametrize("case", SELECTED)
def test_rules_are_selected_and_ignored(folder, case):
    options, expected = SELECTED[case]
    assert rules("kernels.py", *options).get("kernels.py", set()) == expected


def test_the_exit_code_is_that_of_what_is_selected(folder):
    assert check("kernels.py").exit_code == 1
    assert check("kernels.py", "--ignore", "TS301").exit_code == 0
    assert check("kernels.py", "--select", "TS202", "--strict").exit_code == 1


UNKNOWN = {
    "a number that is no rule": ("--select", "TS999", "--select got `TS999`, which matches no rule"),
    "lower case": ("--ignore", "ts301", "Did you mean `TS301`?"),
    "a rule's name": ("--select", "silent-truncation", "Did you mean `TS301`?"),
    "what could not be checked": ("--ignore", "TS001", "which cannot be ignored: it says what could not be checked"),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_an_unknown_rule_is_refused(folder, case):
    option, value, words = UNKNOWN[case]
    result = check("kernels.py", option, value)
    assert result.exit_code == 2 and words in result.stderr, result.stderr


def test_failed_checks_are_always_reported(folder):
    Path("broken.py").write_text("def f(:\n", "utf-8")
    for options in (("--select", "TS303"), ("--ignore", "ALL")):
        result = check("broken.py", *options)
        assert result.exit_code == 2 and "TS001" in result.stdout
    assert RuleSelection(("TS3",), ("ALL",)).includes("TS002")


def test_github_annotations_have_file_and_line(folder):
    text = check("old", "--output-format", "github", "--select", "TS301,TS303,TS202").stdout.splitlines()
    assert text[0].startswith(
        "::error file=old/deep/second.py,line=8,col=9,title=TS301 silent-truncation::`count` holds integers since "
    )
    assert text[0].endswith("%0Awrite: count = 0.0")
    assert [one.split()[0] for one in text] == ["::error"] * 2 + ["::warning"] * 2 + ["::notice"] * 2


def test_github_commands_are_escaped(folder, engine):
    source = KERNEL.format(engine=engine).replace("0.5 * x[i]", "x[i] % 0.3")
    Path("a,b: 100%.py").write_text(source, "utf-8")
    (line,) = check("a,b: 100%.py", "--output-format", "github", "--select", "TS301").stdout.splitlines()
    assert "file=a%2Cb%3A 100%25.py,line=8," in line and "`x[i] %25 0.3` is truncated" in line


# Settings -----------------------------------------------------------------------------------------

SETTINGS = {
    "select": ('select = ["TS3"]', {"TS301", "TS303"}),
    "ignore": ('ignore = ["TS3", "TS5"]', {"TS202"}),
    "both": ('select = ["TS3", "TS2"]\nignore = ["TS303"]', {"TS202", "TS301"}),
    "per file": ('[tool.tinsmith.check.per-file-ignores]\n"kernels.py" = ["TS3"]', {"TS202", "TS501"}),
}


@pytest.mark.parametrize("case", SETTINGS)
def test_settings_select_rules(folder, case):
    text, expected = SETTINGS[case]
    set_project(f"[tool.tinsmith.check]\n{text}\n")
    assert rules("kernels.py")["kernels.py"] == expected


def test_options_replace_settings(folder):
    set_project('[tool.tinsmith.check]\nselect = ["TS3"]\nignore = ["TS301"]\n')
    assert rules("kernels.py")["kernels.py"] == {"TS303"}
    assert rules("kernels.py", "--select", "TS2,TS3")["kernels.py"] == {"TS202", "TS303"}
    assert rules("kernels.py", "--ignore", "TS303")["kernels.py"] == {"TS301"}


PATTERNS = {
    "old": {"kernels.py"},
    "old/": {"kernels.py"},
    "deep": {"kernels.py", "old/first.py"},
    "second.py": {"kernels.py", "old/first.py"},
    "old/*.py": {"kernels.py", "old/deep/second.py"},
    "old/deep": {"kernels.py", "old/first.py"},
    "./old/**/*.py": {"kernels.py"},
    "**/second.py": {"kernels.py", "old/first.py"},
    "k*.py": {"old/first.py", "old/deep/second.py"},
    "firs?.py": {"kernels.py", "old/deep/second.py"},
    "ld": {"kernels.py", "old/first.py", "old/deep/second.py"},
}


@pytest.mark.parametrize("pattern", PATTERNS)
def test_files_are_excluded(folder, pattern):
    set_project(f'[tool.tinsmith.check]\nexclude = ["{pattern}"]\n')
    assert set(rules(".", "--severity", "error")) == PATTERNS[pattern]


def test_an_excluded_file_is_left_out_also_where_it_is_named(folder):
    set_project('[tool.tinsmith.check]\nexclude = ["old"]\n')
    result = check("old/first.py", "old")
    assert result.exit_code == 0 and result.stdout == ""
    assert "leaves out all of them" in result.stderr and "pyproject.toml" in result.stderr
    assert set(rules("old/first.py", "kernels.py")) == {"kernels.py"}


def test_per_file_ignores_are_of_one_project_folder(folder):
    set_project('[tool.tinsmith.check.per-file-ignores]\n"old/**" = ["ALL"]\n"first.py" = ["TS202"]\n')
    assert rules(".") == {"kernels.py": FOUND}
    set_project('[tool.tinsmith.check.per-file-ignores]\n"old/deep" = ["TS3"]\n"*.py" = ["TS202"]\n')
    assert rules(".") == {
        "kernels.py": FOUND - {"TS202"},
        "old/first.py": FOUND - {"TS202"},
        "old/deep/second.py": {"TS501"},
    }


def test_the_nearest_settings_are_used_from_any_folder(folder, monkeypatch):
    set_project('[tool.tinsmith.check]\nselect = ["TS3"]\n')
    set_project("[tool.other]\n# tinsmith is not set up here\n", "old/pyproject.toml")
    assert rules("old/first.py")["old/first.py"] == {"TS301", "TS303"}
    monkeypatch.chdir(folder / "old")
    assert rules(".")["first.py"] == {"TS301", "TS303"}
    set_project('[tool.tinsmith.check]\nselect = ["TS5"]\n')
    assert rules(".")["first.py"] == {"TS501"}
    monkeypatch.chdir(folder)
    assert rules(".")["old/first.py"] == {"TS301", "TS303"}  # the common folder of all that is checked


def test_a_baseline_of_the_settings(folder, monkeypatch):
    set_project('[tool.tinsmith.check]\nbaseline = "known.json"\n')
    assert check(".").exit_code == 2  # it is not written yet
    assert check(".", "--write-baseline", "known.json").exit_code == 0
    assert rules(".") == {}
    monkeypatch.chdir(folder / "old")
    assert rules(".") == {}
    Path("new.py").write_text(Path("first.py").read_text("utf-8"), "utf-8")
    assert set(rules(".")) == {"new.py"}


INVALID = {
    "a misspelled key": ('[tool.tinsmith.check]\nselct = ["TS3"]', ["no key `selct`", "Did you mean `select`?"]),
    "an underscore": ("[tool.tinsmith.check]\nper_file_ignores = {}", ["Did you mean `per-file-ignores`?"]),
    "a misspelled table": ("[tool.tinsmith.chek]\n", ["[tool.tinsmith] has no key `chek`", "Did you mean `check`?"]),
    "a key that is like none": ("[tool.tinsmith.check]\nq = 1", ["The keys are: select, ignore,"]),
    "a text": ('[tool.tinsmith.check]\nselect = "TS3"', ["`select` in", "a list of strings", "'TS3'"]),
    "numbers": ("[tool.tinsmith.check]\nignore = [301]", ["`ignore` in", "a list of strings"]),
    "a list of files": ('[tool.tinsmith.check]\nper-file-ignores = ["a.py"]', ["a table of patterns"]),
    "a file's number": ("[tool.tinsmith.check.per-file-ignores]\n'a.py' = 3", ["`a.py` in", "a list of strings"]),
    "a table": ("[tool.tinsmith.check]\nbaseline = 3", ["the path of a file"]),
    "no table": ("[tool]\ntinsmith = 3", ["a table", "3"]),
    "an unknown rule": ('[tool.tinsmith.check]\nselect = ["TS9"]', ["`select` of", "`TS9`, which matches no rule"]),
    "an unknown rule of a file": ("[tool.tinsmith.check.per-file-ignores]\n'a.py' = ['X']", ["`per-file-ignores` of"]),
    "no TOML": ("[tool.tinsmith", ["the settings are not valid TOML", "because"]),
}


@pytest.mark.parametrize("case", INVALID)
def test_invalid_settings_are_refused(folder, case):
    text, words = INVALID[case]
    set_project(text)
    result = check("kernels.py")
    assert result.exit_code == 2 and result.stdout == ""
    assert all(word in result.stderr for word in [*words, "pyproject.toml"]), result.stderr
