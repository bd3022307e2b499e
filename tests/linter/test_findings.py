"""Findings for people: one line each as `repr`, all of them as text, and a table in a notebook."""

import pytest
import torch

import tinsmith as ts
from tinsmith.linter import Finding, Findings

ONE = Finding("TS301", "error", "swarm.py", 12, 9, "`count` is an integer:\n0.5 is cut to 0", "count = 0.0 < 1")
TWO = Finding("TS503", "info", "swarm.py", 3, 0, "`x` hides a global")


def test_a_finding_is_one_line():
    assert repr(ONE) == "<error TS301 at swarm.py:12:9: `count` is an integer: 0.5 is cut to 0>"
    assert repr(TWO) == "<info TS503 at swarm.py:3: `x` hides a global>"
    assert ONE._repr_html_().startswith("<pre>swarm.py:12:9: error TS301") and "0.0 &lt; 1" in ONE._repr_html_()


@pytest.mark.parametrize(
    ("findings", "line"),
    [
        ([], "<no findings>"),
        ([TWO], "<1 finding: 1 hint (TS503)>"),
        ([ONE, TWO, ONE], "<3 findings: 2 errors, 1 hint (TS301, TS503)>"),
    ],
)
def test_a_list_is_one_line(findings, line):
    assert repr(Findings(findings)) == line
    assert Findings(findings) == findings


def test_printed_it_is_every_finding():
    assert str(Findings([ONE, TWO])) == f"{ONE}\n{TWO}"
    assert str(Findings()) == "no findings"


def test_a_notebook_shows_a_table():
    page = Findings([ONE, TWO])._repr_html_()
    assert page.count("<tr>") == 3 and "swarm.py:12:9" in page and "0.0 &lt; 1" in page and ">2 findings" in page


def test_the_types_that_lint_and_the_sanitizer_return(lang):
    @lang.kernel
    def count(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            n = 0
            n += 0.5 * x[i]
            y[i] = n

    op = ts.op("x[n] -> y[n]")(count)
    for findings in (ts.lint(count), ts.lint(op), op.lint()):
        assert isinstance(findings, Findings) and "TS301" in repr(findings) and ": error TS301: " in str(findings)
    assert isinstance(ts.sanitize(op, torch.ones(2)), Findings)
