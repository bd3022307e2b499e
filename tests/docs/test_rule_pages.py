"""The pages of lint rules: each rule has one, current; what it calls wrong is named, what it calls right is not."""

import pytest
from pages import rule_pages
from pages.rules import ROWS

from support.engine_keeper import Configuration
from tinsmith.linter import RULES


@pytest.fixture
def a_running_engine(engine_keeper):
    engine_keeper.ensure("taichi", Configuration(arch="cpu", default_fp="f32"))


def test_every_rule_has_a_row():
    assert set(ROWS) == set(RULES)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("rule", RULES)
def test_the_wrong_kernel_is_named_and_the_right_one_is_not(rule, a_running_engine):
    row = ROWS[rule]
    assert len(rule_pages.apply_rule(row, row.text(row.wrong), "wrong.py")) == 1
    assert not rule_pages.apply_rule(row, row.text(row.right), "right.py")


def test_the_pages_are_those_of_the_table(a_running_engine):
    stale = [path.name for path, text in rule_pages.pages().items() if path.read_text(encoding="utf-8") != text]
    assert not stale, "run ./scripts/docs write"
