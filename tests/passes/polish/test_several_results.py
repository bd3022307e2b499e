"""Statements with several results: each is a local of its own, whether anybody asks for it or not."""

from tinsmith.ir import nodes, walk
from tinsmith.passes.polish import eliminate_dead_code
from tinsmith.passes.polish._coalesce import coalesce_locals

KIND = "f64"


def local(name):
    return nodes.Local(name, KIND)


def load(entry):
    return nodes.Load("m", (nodes.Local("k", "i32"),), entry, KIND)


def polar(*results):
    matrix = tuple(load((i, j)) for i in range(2) for j in range(2))
    return nodes.Decompose("polar_decompose", matrix, results, KIND)


def test_an_unused_result_keeps_its_own_local():
    """`x` goes to `b` at the head of an iteration and comes from `a` at its end: neither is the other."""
    others = tuple(f"r_{number}" for number in range(6))
    body = (
        nodes.Assign("b", local("x")),
        nodes.Store("y", (nodes.Local("k", "i32"),), (), local("b")),
        polar("a", "b", *others),
        nodes.Assign("x", local("a")),
    )
    zero, end = nodes.Const(0, "i32"), nodes.Const(3, "i32")
    inner = nodes.For(("k",), ((zero, end),), body)
    outer = nodes.For(("t",), ((zero, end),), (nodes.Assign("x", nodes.Const(0.0, KIND)), inner))
    coalesced = coalesce_locals([outer], dict.fromkeys(("a", "b", "x", *others), KIND))
    (one,) = (one for one in walk.statements(coalesced) if isinstance(one, nodes.Decompose))
    assert len(set(one.results)) == 8


def test_a_decomposition_stays_while_one_result_is_used():
    names = tuple(f"r_{number}" for number in range(8))
    assert eliminate_dead_code((polar(*names),), ("r_5",)) == (polar(*names),)
    assert eliminate_dead_code((polar(*names),), ("other",)) == ()
