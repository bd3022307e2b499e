"""The exception tree is what its docstring draws, and a refusal looks as the style guide wants."""

import inspect
import pickle
import re

import pytest

from tinsmith import _errors

LEAVES = [
    value
    for value in vars(_errors).values()
    if inspect.isclass(value) and issubclass(value, _errors.TinsmithError) and value is not _errors.TinsmithError
]
DRAWN = dict(re.findall(r"[├└]── (\w+) +(\w+) ", _errors.__doc__ or ""))


def lines(*text):
    return "\n".join(text)


def test_the_tree_in_the_docstring_is_the_tree():
    assert {leaf.__name__: leaf.__bases__[1].__name__ for leaf in LEAVES} == DRAWN
    assert len(DRAWN) == 15


@pytest.mark.parametrize("leaf", LEAVES)
def test_every_leaf_is_ours_is_a_builtin_and_pickles(leaf):
    assert leaf.__bases__[0] is _errors.TinsmithError
    assert leaf.__bases__[1] in (ValueError, TypeError, RuntimeError, AssertionError, IndexError)
    assert leaf.__doc__
    again = pickle.loads(pickle.dumps(leaf("what broke")))
    assert type(again) is leaf and str(again) == "what broke"


@pytest.mark.parametrize("leaf", LEAVES)
def test_an_internal_error_says_so_and_asks_for_a_report(leaf):
    assert not leaf("the caller's").is_internal
    error = pickle.loads(pickle.dumps(_errors.internal_error(leaf, "it is gone", [("at", "x.py:3")])))
    assert type(error) is leaf and error.is_internal
    assert str(error) == lines("it is gone", "  at  x.py:3", "Report this as a bug of tinsmith, with the kernel.")


REFUSALS = {
    "only a headline": (("`x` is no tensor",), "`x` is no tensor"),
    "with a remedy": (("`x` is no tensor", (), "Pass a tensor."), "`x` is no tensor\nPass a tensor."),
    "aligned": (("No", [("a", "1"), ("long", "2")]), "No\n  a     1\n  long  2"),
    "the style guide's own": (
        (
            "`thickness` does not fit `density` in op `opacity_along_rays`",
            [
                ("density", "[sample] = (1024,)"),
                ("thickness", "[sample] = (1023,)", "sample was 1024"),
            ],
            "Pass one thickness a sample: `edges.diff()` turns 1025 edges into 1024.",
        ),
        lines(
            "`thickness` does not fit `density` in op `opacity_along_rays`",
            "  density    [sample] = (1024,)",
            "  thickness  [sample] = (1023,)      <- sample was 1024",
            "Pass one thickness a sample: `edges.diff()` turns 1025 edges into 1024.",
        ),
    ),
    "notes in one column": (
        ("No", [("a", "(10, 20)", "one"), ("b", "(3,)", "two")]),
        "No\n  a  (10, 20)      <- one\n  b  (3,)          <- two",
    ),
    "rows from a generator": (("No", (row for row in [("a", "1")])), "No\n  a  1"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_the_layout_of_a_message(case):
    given, wanted = REFUSALS[case]
    assert _errors.refusal(*given) == wanted


@pytest.mark.parametrize(
    ("word", "known", "wanted"),
    [
        ("flot", ["float", "int"], "float"),
        ("f33", ["f32", "i32"], "f32"),
        ("zebra", ["float", "int"], ""),
        ("a", [], ""),
    ],
)
def test_the_nearest_name_is_suggested(word, known, wanted):
    assert _errors.nearest(word, known) == wanted


POINTED = [
    ("x[n] -> y", 8, ["x[n] -> y", "        ^"]),
    ("  x -> y", 7, ["x -> y", "     ^"]),
    ("first\n\t second\nthird", 7, ["second", "^"]),
    ("first\nsecond  ", 14, ["second", "      ^"]),
    ("a\tb", 2, ["a b", "  ^"]),
    (" \n ", 1, []),
]


@pytest.mark.parametrize(("text", "column", "shown"), POINTED)
def test_a_caret_points_at_the_column(text, column, shown):
    assert [line for line, _ in _errors.point_at(text, column)] == shown


def test_a_long_line_is_cut_around_what_is_pointed_at():
    line = "".join(chr(ord("a") + number % 26) for number in range(1000))
    for column in (0, 5, 79, 80, 81, 500, 940, 999):
        (shown, _), (caret, _) = _errors.point_at("first\n  " + line, column + len("first\n  "))
        assert len(shown) <= 166 and shown[caret.index("^")] == line[column]
        assert shown.startswith("...") is (column > 80) and shown.endswith("...") is (column < 920)
