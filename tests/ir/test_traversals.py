"""Traversals follow from the grammar: they find and replace everything that a node holds."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from support.ir_texts import PLAIN, SSA
from tinsmith.ir import nodes, parse_ir, walk
from tinsmith.ir._nodes import Block, Changed, Defined, Expr
from tinsmith.ir._traversals import describe_fields

KERNELS = [parse_ir(PLAIN), parse_ir(SSA)]
STATEMENTS = [one for kernel in KERNELS for one in walk.statements(kernel.body)]
EXPRESSIONS = [*walk.parts_in([one for kernel in KERNELS for one in kernel.body])]
MARK = nodes.Local("mark", "i32")


def by_type(found):
    return list({type(one): one for one in found}.values())


@pytest.mark.parametrize("expr", by_type(EXPRESSIONS), ids=lambda one: type(one).__name__)
def test_operands_are_replaced(expr):
    assert walk.rebuild(expr, lambda one: one) is expr
    changed = walk.rebuild(expr, lambda _: MARK)
    assert walk.operands(changed) == (MARK,) * len(walk.operands(expr))
    assert type(changed) is type(expr)
    assert changed.type == expr.type


@pytest.mark.parametrize("one", by_type(STATEMENTS), ids=lambda one: type(one).__name__)
def test_parts_of_statements_are_replaced(one):
    assert walk.with_expressions(one, lambda expr: expr) is one
    assert walk.with_bodies(one, lambda body: body) is one
    assert walk.rename_results(one, lambda name: name) is one
    changed = walk.with_expressions(one, lambda _: MARK)
    assert walk.expressions(changed) == (MARK,) * len(walk.expressions(one))
    emptied = walk.with_bodies(changed, lambda _: ())
    assert walk.bodies(emptied) == ((),) * len(walk.bodies(one))
    renamed = walk.rename_results(emptied, lambda name: f"{name}_new")
    assert walk.find_assigned(renamed) == tuple(f"{name}_new" for name in walk.find_assigned(one))
    assert walk.expressions(renamed) == walk.expressions(changed)
    assert (renamed.line, renamed.number) == (one.line, one.number)


def test_every_type_of_node_is_tried():
    assert {type(one) for one in (*STATEMENTS, *EXPRESSIONS)} == set(nodes.NODE_TYPES)


def test_the_reads_of_loops_in_ssa_form():
    loop = KERNELS[1].body[0]
    assert walk.locals_read(loop) == {"then", "done"}
    assert set(walk.inner_expressions(loop)) == {nodes.Local("then", "f32"), nodes.Local("done", "u1")}
    assert nodes.Const(3, "i32") in walk.outer_expressions(loop)
    assert set(walk.find_assigned(loop)) == {"j", "head", "last", "cell"}


def test_a_vote_reads_its_operand():
    vote = next(one for one in STATEMENTS if isinstance(one, nodes.Vote))
    assert walk.locals_read(vote) == {"at"}
    assert walk.find_assigned(vote) == ("votes",)


def test_loads_and_changes_of_arrays():
    store = nodes.Store("y", (nodes.Load("k", (MARK,), (), "i32"),), (), nodes.Load("x", (MARK,), (), "f32"))
    inside = nodes.If(nodes.Const(True, "u1"), (store,))
    assert walk.loaded_in(inside) == {"k", "x"}
    assert walk.changed_in(inside) == {"y"}
    assert walk.mentioned_in(inside) == {"mark"}


def test_equal_nodes_are_one_key():
    for kernel in KERNELS:
        again = parse_ir({id(KERNELS[0]): PLAIN, id(KERNELS[1]): SSA}[id(kernel)])
        assert kernel.body == again.body
        assert hash(kernel.body) == hash(again.body)


@dataclass(frozen=True)
class Blend:
    """A node that the IR has not."""

    weights: tuple[Expr, ...]
    name: Defined
    array: Changed
    note: str
    inside: Block
    limit: Expr | None = None
    pairs: tuple[tuple[Expr, Expr], ...] = ()


def test_a_new_node_type_needs_no_traversal():
    assert [(one.name, one.role, one.holds) for one in describe_fields(Blend)] == [
        ("weights", "operand", "many"),
        ("name", "result", "one"),
        ("array", "changed", "one"),
        ("inside", "body", "one"),
        ("limit", "operand", "optional"),
        ("pairs", "operand", "pairs"),
    ]


def test_nodes_are_immutable():
    with pytest.raises(AttributeError):
        STATEMENTS[0].line = 3
    assert replace(STATEMENTS[0], line=3).line == 3
