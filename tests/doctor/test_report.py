"""Report: what counts as failed, and the page for terminals, to the letter, at 80 columns."""

from __future__ import annotations

import io
from dataclasses import dataclass

import pytest
from pages.blocks import ROOT
from rich.console import Console

import tinsmith as ts
from tinsmith._errors import DEBUGGING, CheckError
from tinsmith.doctor import Report, join_reports
from tinsmith.doctor._terminal import clip_line, plain
from tinsmith.doctor.gradients import Mode
from tinsmith.linter import Finding

SOURCE = """\
import taichi as ti


@ti.kernel
def swarm(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        count = 0
        count += 0.5 * x[i]  # a long comment, which goes on after what fits a terminal of eighty columns
        y[i] = ti.sqrt(count)
"""


@dataclass
class Gradient:
    """What a report needs of a gradient check."""

    ok: bool = True
    summary: str = "x  right"
    verdict: str = "right"
    modes: tuple[Mode, ...] = ()
    kind: str = "op"


@pytest.fixture
def swarm(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "swarm.py").write_text(SOURCE, "utf-8")
    return str(tmp_path / "swarm.py")


@pytest.fixture
def findings(swarm):
    return [
        Finding("TS301", "error", swarm, 8, 9, "`count` is an integer: `0.5 * x[i]` loses its fraction", "count = 0.0"),
        Finding(
            "TS303",
            "warning",
            swarm,
            9,
            16,
            "`ti.sqrt` has an infinite slope at 0",
            "a = 1\nti.sqrt(a)",
            engines=("taichi", "quadrants"),
        ),
        Finding("TS501", "info", swarm, 5, 0, "`x` is not used"),
    ]


OUTCOMES = {
    "nothing": ([], {}, True, "no errors: nothing found"),
    "a hint": (["info"], {}, True, "no errors: 1 hint"),
    "warnings and hints": (["warning", "info", "warning"], {}, True, "no errors: 2 warnings, 1 hint"),
    "an error": (["info", "error"], {}, False, "wrong: 1 error, 1 hint"),
    "a right gradient": ([], {"f": Gradient()}, True, "right: nothing found"),
    "a right gradient, with a warning": (["warning"], {"f": Gradient()}, True, "right: 1 warning"),
    "nothing to differentiate": (
        [],
        {"f": Gradient(verdict="nothing to differentiate")},
        True,
        "no errors: nothing found",
    ),
    "a right gradient of another": ([], {"g": Gradient()}, True, "no errors: nothing found"),
    "a wrong gradient": (["info"], {"f": Gradient(), "g": Gradient(False)}, False, "wrong: 1 hint"),
}


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_outcomes(outcome):
    severities, gradients, ok, end = OUTCOMES[outcome]
    report = Report("op `f`", [Finding("TS101", one, "f.py", 1, 1, "words") for one in severities], gradients)
    assert report.ok is ok
    assert f"{report.verdict}: {report.summary}" == end == str(report).splitlines()[-1]
    assert report.gradient is next(iter(gradients.values()), None)
    if ok:
        report.raise_if_failed()
    else:
        with pytest.raises(CheckError, match="op `f` did not pass its check"):
            report.raise_if_failed()


VERDICTS = {
    ("TS001",): "not checked",
    ("TS002", "TS703"): "not checked",
    ("TS703",): "refused",
    ("TS002", "TS701"): "wrong",
}


@pytest.mark.parametrize("rules", VERDICTS)
def test_unchecked_and_refused_gradients_are_not_called_wrong(rules):
    findings = [Finding(rule, "error", "f.py", 1, 1, "words") for rule in rules]
    report = Report("op `f`", findings, {"f": Gradient("TS701" not in rules)})
    assert report.verdict == VERDICTS[rules] and not report.ok


def test_findings_of_an_unused_gradient_are_summarized_in_one_line(swarm, findings):
    aside = (findings[1], Finding("TS204", "warning", swarm, 7, 9, "the process dies of more"))
    report = Report("op `swarm`", findings[2:], {"swarm": Gradient()}, (), (), aside)
    words = '2 warnings hold only with adjoint="engine", which this op does not use: TS303 in line 9, TS204 in line 7'
    assert words in str(report).replace("\n", " ") and "dies" not in str(report)
    assert str(report).endswith("right: 1 hint")
    page = Report("op `swarm`", [], aside=aside).html()
    assert "TS204 in line 7" in page and "dies" not in page
    assert report.at_least("warning").aside == aside and report.at_least("error").aside == ()
    assert join_reports("files", [report]).of("warning") == [
        aside[1],
        aside[0],
    ]  # files may use the kernel in other ways


def test_the_exception_lists_only_errors_and_wrong_gradients(swarm, findings):
    gradients = {"swarm": Gradient(False, "x  WRONG at [3]"), "other": Gradient(True, "x  right")}
    with pytest.raises(AssertionError) as raised:
        Report("op `swarm`", findings, gradients).raise_if_failed()
    assert isinstance(raised.value, ts.TinsmithError)
    assert str(raised.value).split("\n\n") == [
        "op `swarm` did not pass its check: 1 error, 1 warning, 1 hint",
        f"{swarm}:8:9: error TS301: `count` is an integer: `0.5 * x[i]` loses its fraction\n"
        "    count += 0.5 * x[i]  # a long comment, which goes on after what fits a terminal of eighty columns\n"
        "    ^\n"
        "    write: count = 0.0",
        "x  WRONG at [3]",
    ]


def test_a_finding_of_which_only_the_line_is_known_names_no_column(swarm):
    shown = str(Finding("TS002", "error", swarm, 8, 0, "it could not be run"))
    assert shown.splitlines()[0] == f"{swarm}:8: error TS002: it could not be run"
    assert "^" not in shown


def test_findings_are_filtered_by_severity():
    severities = ["info", "warning", "error"]
    report = Report("f", [Finding("TS101", one, "f.py", 1, 1, "words") for one in severities])
    kept = {least: [one.severity for one in report.at_least(least).findings] for least in severities}
    assert kept == {"info": severities, "warning": ["warning", "error"], "error": ["error"]}


LOOKED_AT = [("TS001", "error", False), ("TS002", "error", False), ("TS002", "info", True), ("TS101", "error", True)]


@pytest.mark.parametrize(("rule", "severity", "complete"), LOOKED_AT)
def test_incomplete_checks_are_marked(rule, severity, complete):
    assert Report("f", [Finding(rule, severity, "f.py", 1, 1, "words")]).was_complete is complete


def test_joined_reports_keep_everything_once(findings):
    gradient = Gradient()
    one = Report("a", findings[:2], {"a": gradient}, ("lint",), (("f.py", 1),))
    two = Report("b", findings[1:], {}, ("lint", "sanitizer"), (("f.py", 1), ("f.py", 9)))
    whole = join_reports("both", [one, two])
    assert whole.findings == [findings[2], findings[0], findings[1]]  # by line
    assert (whole.looked, whole.places) == (("lint", "sanitizer"), (("f.py", 1), ("f.py", 9)))
    assert whole.gradient is gradient


def test_findings_of_joined_reports_are_merged():
    plain, moved = (Finding("TS501", "info", "f.py", line, 1, "`x` is not used") for line in (1, 2))
    other_words = Finding("TS501", "info", "f.py", 1, 1, "`x`, of 4 elements, is not used")
    twins = [Finding("TS102", "error", "f.py", 1, 1, word) for word in ("`a`", "`b`")]
    assert join_reports("f", [Report("a", [plain, *twins]), Report("b", [other_words, moved])]).findings == [
        *twins,
        plain,
        moved,
    ]


PAGE = """\
check of op `swarm` ────────────────────────────────────────────────────────────

swarm.py

    8:9  error TS301 silent-truncation
         `count` is an integer: `0.5 * x[i]` loses its fraction
         │ count += 0.5 * x[i]  # a long comment, which goes on after what fits…
         │ ^
         write  count = 0.0

   9:16  warning TS303 singular-function, of the engine's own gradient
         `ti.sqrt` has an infinite slope at 0
         │ y[i] = ti.sqrt(count)
         │        ^
         write  a = 1
                ti.sqrt(a)

      5  info TS501 unused-parameter
         `x` is not used
         │ def swarm(x: ti.types.ndarray(), y: ti.types.ndarray()):

gradient of swarm ──────────────────────────────────────────────────────────────

x  WRONG at [3]: op 1.5, oracle 4.0

────────────────────────────────────────────────────────────────────────────────
wrong: 1 error, 1 warning, 1 hint  (lint, sanitizer)"""


def test_the_page_at_80_columns(findings):
    gradients = {"swarm": Gradient(False, "x  WRONG at [3]: op 1.5, oracle 4.0")}
    assert str(Report("op `swarm`", findings, gradients, ("lint", "sanitizer"))) == PAGE


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_no_line_is_wider_than_the_terminal(findings, width):
    long = Finding("TS604", "error", findings[0].path, 8, 80, "index " * 40, "y[i] = " + "x[i] + " * 20)
    gradients = {"swarm": Gradient(summary="x  right: " + "and " * 50)}
    lines = plain(Report("op `swarm`", [*findings, long], gradients, ("lint",)), width).splitlines()
    assert max(map(len, lines)) == width
    assert sum(line.count("index") for line in lines) == 40 + 1  # nothing was cut away; the rule's name has one too


def test_colors_on_a_terminal_only(findings):
    out = io.StringIO()
    Console(file=out, force_terminal=True, color_system="truecolor", width=80).print(Report("f", findings))
    assert "\x1b[1;31merror\x1b[0m" in out.getvalue() and "\x1b[33mwarning" in out.getvalue()
    assert "\x1b" not in str(Report("f", findings))


def test_brackets_are_no_markup():
    page = str(Report("op `f`", [Finding("TS105", "error", "gone.py", 1, 1, "`y[i]` [bold]races[/bold]")]))
    assert "`y[i]` [bold]races[/bold]" in page


WINDOWS = [
    ("    y = x", 9, 20, ("y = x", 5)),
    ("\ty = x", 6, 20, ("y = x", 5)),
    ("y = x", 0, 20, ("y = x", 0)),
    ("abcdefghij", 1, 6, ("abcde…", 1)),
    ("abcdefghij", 10, 6, ("…fghij", 6)),
    ("abcdefghij", 5, 6, ("…cdef…", 4)),
]


@pytest.mark.parametrize(("line", "column", "width", "shown"), WINDOWS)
def test_long_lines_are_clipped_around_the_column(line, column, width, shown):
    assert clip_line(line, column, width) == shown
    text, caret = shown
    if caret:
        assert text[caret - 1] == line.expandtabs(1)[column - 1]


def test_wrapped_lines_of_a_gradient_keep_their_indentation():
    words = "right\n  " + "differences " * 8
    lines = str(Report("f", [], {"f": Gradient(True, words)})).splitlines()
    start = lines.index("right")
    assert lines[start + 1].startswith("  differences") and lines[start + 2].startswith("  differences")


def test_the_error_of_a_run_names_the_page_about_debugging():
    words = "To stop at such a line with a debugger: docs/how-to/debug.md."
    for rule, is_named in {"TS606": True, "TS301": False}.items():
        with pytest.raises(CheckError) as raised:
            Report("op `f`", [Finding(rule, "error", "f.py", 1, 1, "words")], {}).raise_if_failed()
        assert str(raised.value).endswith(words) is is_named
    assert (ROOT / DEBUGGING).exists()


def test_a_notebook_shows_a_printed_report_once(monkeypatch):
    """In a notebook, a console of rich displays what it records."""
    displayed = []
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("rich.jupyter.display", lambda *shown: displayed.append(shown))
    assert "check of f" in str(Report("f", []))
    assert not displayed
