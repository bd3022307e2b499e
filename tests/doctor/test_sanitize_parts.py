"""What `ts.sanitize` is made of: columns in a file's text, integers without wrapping, a log, a budget."""

import pytest
import torch

from tinsmith.doctor._budget import Budget, TooLong
from tinsmith.doctor.sanitizer._integers import format_operation, loses_bits, overflow
from tinsmith.doctor.sanitizer._log import Log
from tinsmith.frontend import Columns
from tinsmith.linter import Finding

TEXT = """\
def kernel(x, y):
    for i in range(n):
        y[i] = x[i + 1] - x[i - 1] / x[x.shape[0] - i]
        y[i] += üx[2 * i] + x[i, 0]; s = lang.sqrt(a // b) % c
        total = self.values[i] ** 2
        total -= first(y)
        y[i] = (
            x[i] / a
            + x[i + 1] * sqrt(b)
        )
        if (x[i] < 1 or
                x[i + 2] < 2): y[i] -= \\
            x[3] % 2
"""


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "kernels.py"
    file.write_text(TEXT, encoding="utf-8")
    return str(file)


@pytest.mark.parametrize(
    ("line", "array", "about", "text"),
    [
        (3, "x", {}, "x[i + 1]"),
        (3, "y", {}, "y[i]"),
        (3, "x", {"index": (-1,), "known": {"i": 0}}, "x[i - 1]"),
        (3, "x", {"index": (1,), "known": {"i": 0}}, "x[i + 1]"),
        (3, "x", {"index": (5,), "known": {"i": 0, "x.shape[0]": 5}}, "x[x.shape[0] - i]"),
        (3, "x", {"index": (9,)}, "x[i + 1]"),
        (3, "y", {"is_read": False}, "y[i]"),
        (4, "x", {}, "x[i, 0]"),
        (4, "üx", {}, "üx[2 * i]"),
        (5, "self.values", {}, "self.values[i]"),
        (5, "other", {}, "self.values[i]"),  # a function's own name for what it is given
        (6, "y", {}, "y)"),
        (7, "x", {"is_read": True}, "x[i] / a"),  # of a statement with several lines
        (7, "x", {"is_read": True, "index": (5,), "known": {"i": 4}}, "x[i + 1]"),
        (9, "x", {"is_read": True, "index": (4,), "known": {"i": 4}}, "x[i] / a"),
        (9, "y", {"is_read": False}, "y[i] = ("),
        (11, "x", {"index": (6,), "known": {"i": 4}}, "x[i + 2]"),
        (12, "x", {"index": (4,), "known": {"i": 4}}, "x[i] < 1"),
        (12, "x", {"index": (3,)}, "x[i + 2]"),  # first on the line itself
        (13, "x", {"index": (3,), "known": {"i": 4}}, "x[3]"),
    ],
)
def test_columns_of_elements(path, line, array, about, text):
    line, column = Columns().element(path, line, array, **about)
    assert TEXT.splitlines()[line - 1][column - 1 :].startswith(text)


@pytest.mark.parametrize(
    ("line", "name", "text"),
    [
        (3, "-", "- x[i - 1]"),
        (3, "/", "/ x"),
        (4, "sqrt", "lang.sqrt"),
        (4, "//", "// b"),
        (4, "%", "% c"),
        (5, "pow", "** 2"),
        (7, "/", "/ a"),
        (7, "+", "x[i] / a"),  # its operands stand on two lines
        (7, "*", "* sqrt"),
        (10, "sqrt", "sqrt(b)"),
        (12, "%", "% 2"),
    ],
)
def test_columns_of_operations(path, line, name, text):
    line, column = Columns().operation(path, line, name)
    assert TEXT.splitlines()[line - 1][column - 1 :].startswith(text)


def test_missing_text_has_no_column(path, tmp_path):
    assert Columns().element(path, 4, "z") == (4, 0)
    assert Columns().operation(path, 4, "exp") == (4, 0)
    assert Columns().element(str(tmp_path / "lost.py"), 1, "x") == (1, 0)
    broken = tmp_path / "cell.py"
    broken.write_text("%magic\nx[0]\n")
    assert Columns().element(str(broken), 2, "x") == (2, 0)


@pytest.mark.parametrize(
    ("name", "kind", "operands", "value"),
    [
        ("+", "i32", (2**31 - 1, 1), 2**31),
        ("+", "i32", (2**31 - 2, 1), None),
        ("-", "u32", (0, 1), -1),
        ("*", "i64", (2**40, 2**40), 2**80),
        ("*", "i8", (-128, 1), None),
        ("neg", "i8", (-128,), 128),
        ("abs", "i16", (-(2**15),), 2**15),
        ("<<", "i32", (1, 31), 2**31),
        ("<<", "i32", (1, 30), None),
        ("<<", "i32", (1, -1), 2**128),
        ("<<", "u32", (3, 31), None),
        ("pow", "i32", (3, 100000), 3**128),
        ("pow", "i32", (2, -1), None),
        ("min", "i32", (1, 2), None),
    ],
)
def test_overflows(name, kind, operands, value):
    assert overflow(name, kind, operands) == value


@pytest.mark.parametrize(
    ("kind", "value", "is_lost"),
    [
        ("u32", -1, False),
        ("i32", 2**32 - 1, False),
        ("i32", 2**32, True),
        ("i8", 300, True),
        ("u1", 300, False),
        ("i32", 2.9, False),
        ("i32", -(2.0**31), False),
        ("i32", 2.0**31, True),
        ("u8", -1.0, True),
        ("u8", -0.5, False),
        ("i64", float("nan"), True),
        ("i64", float("inf"), True),
    ],
)
def test_casts_that_lose(kind, value, is_lost):
    given = torch.tensor(value, dtype=torch.float64) if isinstance(value, float) else value
    assert loses_bits(kind, given) is is_lost


def test_operations_are_written_as_in_the_source():
    assert format_operation("*", (2, 3)) == "2 * 3"
    assert format_operation("neg", (-128,)) == "-(-128)"
    assert format_operation("pow", (3, 4)) == "3 ** 4"
    assert format_operation("max", (1,)) == "max(1)"


def test_a_log_counts_and_keeps_the_worst():
    log = Log()
    for severity in ("warning", "error", "warning"):
        log.note("TS601", severity, "a.py", 3, "x", lambda s=severity: Finding("TS601", s, "a.py", 3, 1, s))
    log.note("TS601", "warning", "a.py", 3, "y", lambda: Finding("TS601", "warning", "a.py", 3, 5, "other"))
    first, second = log.findings()
    assert (first.severity, first.message) == ("error", "error (2 more times)")
    assert second.message == "other"


def test_a_budget_is_spent():
    budget = Budget(10)
    budget.count(10)
    assert budget.left == 0
    with pytest.raises(TooLong):
        budget.count(1)
