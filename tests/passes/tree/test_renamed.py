"""Kernels whose parameters got other names."""

from __future__ import annotations

import ast

import pytest

from tinsmith.frontend.tree import rename_parameters


def _renamed(text: str, names: dict[str, str]) -> str:
    tree = ast.parse(text).body[0]
    assert isinstance(tree, ast.FunctionDef)
    before = ast.dump(tree)
    source = ast.unparse(rename_parameters(tree, names))
    assert ast.dump(tree) == before, "the tree that was given has changed"
    return source


@pytest.mark.parametrize(
    ("text", "names", "expected"),
    [
        ("def f(x, y):\n    y[0] = x[0]", {"x": "a", "y": "b"}, "def f(a, b):\n    b[0] = a[0]"),
        ("def f(x, y):\n    y[0] = x[0]", {"x": "y", "y": "x"}, "def f(y, x):\n    x[0] = y[0]"),
        ("def f(x, y, z):\n    z[0] = x[0] * y[0]", {"x": "a", "y": "a"}, "def f(a, z):\n    z[0] = a[0] * a[0]"),
        ("def f(self, x):\n    x[0] = self.x", {"x": "a"}, "def f(self, a):\n    a[0] = self.x"),
        ("def f(x, n):\n    x[g(n=n)] = x.n", {"n": "k"}, "def f(x, k):\n    x[g(n=k)] = x.n"),
        ("def f(x):\n    x[0] = 1", {"x": "x"}, "def f(x):\n    x[0] = 1"),
    ],
    ids=["two", "exchanged", "one-array-twice", "attributes-stay", "keywords-stay", "nothing"],
)
def test_names_change_wherever_they_are_used(text, names, expected):
    assert _renamed(text, names) == expected


def test_lines_stay():
    tree = ast.parse("def f(x):\n\n    x[0] = 1").body[0]
    assert isinstance(tree, ast.FunctionDef)
    assert [node.lineno for node in rename_parameters(tree, {"x": "a"}).body] == [3]
