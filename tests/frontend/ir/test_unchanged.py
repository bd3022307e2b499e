"""Statements that a pass changes nothing of are not made anew: comparing trees is then comparing objects."""

import pytest

from tinsmith.ir import nodes, walk

I, X = nodes.Local("i", "i32"), nodes.Local("x", "f32")  # noqa: E741
ZERO = nodes.Const(0, "i32")
STATEMENTS = [
    nodes.Assign("x", X),
    nodes.Store("y", (I,), (), X),
    nodes.Atomic("add", "y", (I,), (), X),
    nodes.Decompose("sym_eig", (X, X, X, X), ("a", "b"), "f32"),
    nodes.If(nodes.Binary("<", I, ZERO, "u1"), (nodes.Break(),)),
    nodes.For(("i", "j"), ((ZERO, I), (I, I)), (nodes.Assign("x", X),)),
    nodes.Continue(),
]


@pytest.mark.parametrize("one", STATEMENTS, ids=lambda one: type(one).__name__)
def test_expressions_that_stay(one):
    assert walk.with_expressions(one, lambda expr: expr) is one


@pytest.mark.parametrize("one", STATEMENTS[:-1], ids=lambda one: type(one).__name__)
def test_expressions_that_change(one):
    changed = walk.with_expressions(one, lambda _: ZERO)
    assert walk.expressions(changed) == (ZERO,) * len(walk.expressions(one))
    assert (changed.number, walk.find_assigned(changed), walk.bodies(changed)) == (
        one.number,
        walk.find_assigned(one),
        walk.bodies(one),
    )


def test_statements_are_walked_in_the_order_of_the_text():
    inner = nodes.If(X, (nodes.Assign("a", X), nodes.Assign("b", X)), (nodes.Assign("c", X),))
    body = (nodes.Assign("z", X), nodes.While((inner, nodes.Break())), nodes.Assign("d", X))
    names = [name for one in walk.statements(body) for name in walk.find_assigned(one)]
    assert names == ["z", "a", "b", "c", "d"]
