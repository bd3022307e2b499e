"""Generated statements as people read them: names without needless numbers."""

from support.by_hand import array, assign, local, loop, store
from tinsmith.source.ir import nodes
from tinsmith.transforms._names import Names
from tinsmith.transforms.polish._declarations import name_locals

X, Y = array("x"), array("y")


def test_roots():
    names = Names({"s", "x"})
    assert names.fresh("s") == "s_1" and names.root("s_1") == "s"
    assert names.fresh("grad_s_1") == "grad_s_1" and names.root("grad_s_1") == "grad_s"
    assert names.fresh("c_0") == "c_0" and names.root("c_0") == "c_0"  # a vector's entry: the number is its name
    assert names.copy().root("grad_s_1") == "grad_s" and names.root("other_3") == "other_3"


def test_called():
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


def test_a_name_that_people_know_is_nobody_else_s():
    """`c_1` is an entry of a vector: a second `c` is not called so. Nor is anything called as an array is."""
    names = Names(())
    first, second, other = names.fresh("c"), names.fresh("c"), names.fresh("x")
    body = [assign(name, 1.0) for name in (first, second, other)]
    _, new = name_locals(body, names.root, {"x"}, {"c", "c_1"})
    assert new == {first: "c", second: "c_2", other: "x_1"}
