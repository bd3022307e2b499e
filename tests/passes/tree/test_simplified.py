"""Kernels in which names stand for what they mean."""

import ast

import pytest
import torch

import tinsmith as ts
from tinsmith.frontend.tree import simplify_tree


def _simplified(text: str) -> str:
    tree = ast.parse(text).body[0]
    assert isinstance(tree, ast.FunctionDef)
    return ast.unparse(simplify_tree(tree, ["x", "y"]))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("n = x.shape[0]\n  for i in range(n): y[i] = 1", "pass\n  for i in range(x.shape[0]): y[i] = 1"),
        ("a = ti.static(x)\n  for i in y: a[i] = 1", "pass\n  for i in y: x[i] = 1"),
        ("n = 3\n  for i in x: ti.atomic_add(n, 2)", None),
        ("n = 3\n  for i in x: y[i] = ti.atomic_max(n, i)", None),
        ("v = p\n  v[0] = 1\n  for i in x: y[i] = v[0]", None),
        ("v = p\n  v.x += 1\n  for i in x: y[i] = v.x", None),
    ],
    ids=["size", "array", "atomic", "atomic-result", "part", "member"],
)
def test_names_that_stand_for_one_thing_throughout(text, expected):
    form = "def f(x, y, p):\n  {}".format
    assert _simplified(form(text)) == ast.unparse(ast.parse(form(expected or text)))


def test_a_top_level_local_that_an_atomic_changes(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def counted(x: lang.types.ndarray(), y: lang.types.ndarray()):
        count = 0
        for _ in range(3):
            lang.atomic_add(count, 2)
        for i in x:
            y[i] = count * x[i]

    x = torch.rand(4, requires_grad=True)
    counted(x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [6.0] * 4
