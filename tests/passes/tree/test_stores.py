"""Stores that an engine's reverse mode must not run again: which statements go, which do something else too."""

import ast

import pytest

from tinsmith.engines import parse_module
from tinsmith.frontend.tree import drop_stores

STATEMENTS = {  # a statement, and what is left of it without stores to `count` and `slot`
    "count[i] = 1": "pass",
    "count[i] += x[i]": "pass",
    "count[i]: ti.i32 = 1": "pass",
    "ti.atomic_add(count[i], 1)": "pass",
    "count[i].y = 1": "pass",
    "count[i], slot[i] = 1, 2": "pass",
    "count[i], y[i] = 1, 2": "count[i], y[i] = (1, 2)",
    "y[i] = count[i]": "y[i] = count[i]",
    "slot[i] = ti.atomic_add(count[0], 1)": "pass",
    "y[i] = ti.atomic_add(count[0], 1)": "y[i] = 0",
    "slot[i] = ti.atomic_add(y[0], x[i])": "slot[i] = ti.atomic_add(y[0], x[i])",
    "slot[i] = (k := 3)": "slot[i] = (k := 3)",
    "count = 1": "count = 1",
}


@pytest.mark.parametrize("statement", STATEMENTS)
def test_stores_without_an_adjoint_go(statement):
    tree = parse_module(f"def f(x, y, count, slot):\n    for i in x:\n        {statement}\n").body[0]
    assert isinstance(tree, ast.FunctionDef)
    loop = drop_stores(tree, ["count", "slot"]).body[0]
    assert isinstance(loop, ast.For)
    assert ast.unparse(loop.body[0]) == STATEMENTS[statement]
    assert ast.unparse(tree.body[0].body[0]) == ast.unparse(ast.parse(statement))  # the kernel itself is as it was


def test_atomics_whose_result_is_used_stay():
    tree = parse_module("def f(count, y):\n    y[0] = ti.atomic_add(count[0], 1)\n").body[0]
    assert isinstance(tree, ast.FunctionDef)
    changed = drop_stores(tree, ["count"], keep_returns=True)
    assert ast.unparse(changed.body[0]) == "y[0] = ti.atomic_add(count[0], 1)"
