"""Generated statements as people read them: one load for one place, and names without needless numbers."""

import pytest

from support.by_hand import array, assign, atomic, branch, local, loop, repeat, store
from tinsmith.ir import nodes, walk
from tinsmith.ir._names import Names
from tinsmith.passes.polish._copies import eliminate_common_loads
from tinsmith.passes.polish._declarations import name_locals

X, Y, K = array("x"), array("y"), array("k", "i32")
A, B, N = local("a"), local("b"), local("n", "i32")
KINDS = {**dict.fromkeys(("a", "b", "s"), "f32"), "p": "u1", "n": "i32", "i": "i32"}
FIRST, SECOND = assign("a", X["i"]), assign("b", X["i"])
USE = store(Y, "i", A + B)
IF = local("p", "u1")
ONCE = {
    "in a block": [FIRST, SECOND, USE],
    "in a branch": [FIRST, branch(IF, [SECOND, USE])],
    "in a loop": [FIRST, loop("j", 3, [SECOND, USE])],
    "by an index": [assign("n", K["i"]), assign("a", X["n"]), assign("b", X["n"]), USE],
}
TWICE = {
    "another place": [FIRST, assign("b", X[0]), USE],
    "of two branches": [branch(IF, [FIRST], [SECOND]), USE],
    "not on every way": [branch(IF, [FIRST]), SECOND, USE],
    "changed": [FIRST, store(X, 0, 1.0), SECOND, USE],
    "changed by an atomic": [FIRST, loop("j", 3, [SECOND, atomic("add", X, 0, B)]), USE],
    "by an index that moves": [assign("n", 0), assign("a", X["n"]), assign("n", N + 1), assign("b", X["n"]), USE],
    "by an index that moves in a loop": [
        assign("n", 0),
        assign("a", X["n"]),
        repeat([assign("b", X["n"]), USE, assign("n", N + 1), branch(N > 3, [nodes.Break()])]),
    ],
    "into a sum": [FIRST, assign("a", A + 1.0), SECOND, USE],
}


def loads(body):
    return [load for load in walk.loads(body) if load.array == "x"]


@pytest.mark.parametrize("name", ONCE)
def test_repeated_loads_are_merged(name):
    body = [loop("i", X.size(), ONCE[name], is_parallel=True)]
    assert len(loads(body)) == 2 and len(loads(eliminate_common_loads(body, KINDS))) == 1


@pytest.mark.parametrize("name", TWICE)
def test_loads_that_may_differ_are_kept(name):
    body = (loop("i", X.size(), TWICE[name], is_parallel=True),)
    assert eliminate_common_loads(body, KINDS) == body


def test_the_root_of_a_numbered_name():
    names = Names({"s", "x"})
    assert names.fresh("s") == "s_1" and names.root("s_1") == "s"
    assert names.fresh("grad_s_1") == "grad_s_1" and names.root("grad_s_1") == "grad_s"
    assert names.fresh("c_0") == "c_0" and names.root("c_0") == "c_0"  # a vector's entry: the number is its name
    assert names.copy().root("grad_s_1") == "grad_s" and names.root("other_3") == "other_3"


def test_locals_get_readable_names():
    names = Names({"s", "c_0", "c_1"})
    one, two, entry, grad = names.fresh("s"), names.fresh("s"), names.fresh("c_0"), names.fresh("grad_s_2")
    body = (
        assign(one, X["i"]),
        nodes.Atomic("add", "y", (), (), local(one).expr, two),
        loop((entry,), 3, [nodes.Draw(grad, "f32"), store(Y, entry, local(grad) + local(two))]),
    )
    named, new = name_locals(body, names.root, {"x", "y"}, {"s", "c_0", "c_1"})
    assert new == {one: "s", two: "s_1", "i": "i", entry: "c_0", grad: "grad_s"}
    assert named == (
        assign("s", X["i"]),
        nodes.Atomic("add", "y", (), (), local("s").expr, "s_1"),
        loop(("c_0",), 3, [nodes.Draw("grad_s", "f32"), store(Y, "c_0", local("grad_s") + local("s_1"))]),
    )


def test_reserved_names_are_not_given_to_locals():
    """`c_1` is an entry of a vector: a second `c` is not called so. Nor is anything called as an array is."""
    names = Names(())
    first, second, other = names.fresh("c"), names.fresh("c"), names.fresh("x")
    body = [assign(name, 1.0) for name in (first, second, other)]
    _, new = name_locals(body, names.root, {"x"}, {"c", "c_1"})
    assert new == {first: "c", second: "c_2", other: "x_1"}
