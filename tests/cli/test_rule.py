"""`tinsmith rule`: the page of a rule."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tinsmith._errors import InputError
from tinsmith.cli import app
from tinsmith.linter import RULES, _rules, read_rule_page

PAGES = Path(__file__).parents[2] / "docs" / "reference" / "lint"


def invoke(*arguments):
    return CliRunner().invoke(app, ["rule", *arguments])


@pytest.mark.parametrize("word", ["TS105", "ts105", "racing-stores"])
def test_a_rule_is_explained(word):
    result = invoke(word)
    assert result.exit_code == 0
    assert result.stdout.startswith("# TS105: racing-stores\n\nParallel iterations store to one element")
    assert all(f"## {part}\n" in result.stdout for part in ("Why", "Wrong", "Right"))
    assert "index.md" not in result.stdout


def test_every_rule_has_a_page():
    assert all(read_rule_page(rule).startswith(f"# {rule}: {RULES[rule].name}\n") for rule in RULES)


def test_without_a_rule_all_are_listed():
    lines = invoke().stdout.splitlines()
    assert [line.split()[:2] for line in lines] == [[rule.id, rule.name] for rule in RULES.values()]


WRONG = {"TS15": "Did you mean `TS105`?", "racing-store": "Did you mean `TS105`?", "?": "`tinsmith rule` lists all"}


@pytest.mark.parametrize("word", WRONG)
def test_an_unknown_rule_is_refused(word):
    result = invoke(word)
    assert result.exit_code == 2 and WRONG[word] in result.stderr, result.stderr


def test_an_installation_without_pages_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(_rules, "_FOLDERS", (tmp_path,))
    with pytest.raises(InputError, match="the page of TS105 is missing"):
        read_rule_page("TS105")


def test_a_wheel_has_the_pages():
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8")
    assert '"docs/reference/lint" = "tinsmith/linter/pages"' in project and PAGES.is_dir()
