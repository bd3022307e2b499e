"""Additions to one element of an adjoint: an element that is loaded several times is added to once."""

import pytest
import torch

import tinsmith as ts
from support.by_hand import array, assign, atomic, branch, local, loop, store
from support.written import written
from tinsmith.bridge import adjoint_source
from tinsmith.source.ir import walk
from tinsmith.transforms.adjoint._build_ssa import share_loads

X, Y, K = array("x"), array("y"), array("k", "i32")
A, B = local("a"), local("b")

HEAD = "def kernel(x: lang.types.ndarray(), j: lang.types.ndarray(), y: lang.types.ndarray()):\n"
FORMS = {  # a kernel, and how many additions to the gradient of `x` stand in its adjoint
    "plain": ("for i in y:\n y[i] = x[i] * x[i] * 3.0 + lang.sin(x[i]) + x[i]", 1),
    "atomic": ("for i in y:\n y[i] = x[j[i]] * x[j[i]] + lang.sin(x[j[i]])", 1),
    "two elements": ("for i in y:\n y[i] = x[j[i]] * x[0] + x[j[i]]", 2),
    "a branch between": (
        "for i in y:\n a = x[j[i]]\n v = a * a\n if v > 0.3:\n  v += x[j[i]] * 2.0\n y[i] = v + x[j[i]] * v",
        1,
    ),
    "in a loop": ("for i in y:\n v = 0.0\n for k in range(3):\n  v += x[i] * x[i] * k\n y[i] = v", 1),
    "in place": ("for i in y:\n y[i] = x[i] * 2.0\n y[i] = y[i] * x[i] + y[i]", 1),
}


@pytest.mark.parametrize("form", FORMS)
def test_an_element_gets_what_is_added_to_it_at_once(lang64, form):
    body, count = FORMS[form]
    kernel = written(lang64, HEAD + "".join(f"    {line}\n" for line in body.splitlines()))
    op = ts.op("x[n], j[n]: i32 -> y[n]", adjoint="source")(kernel)
    torch.manual_seed(0)
    x, j = torch.rand(9, dtype=torch.float64), torch.tensor([3, 3, 1, 0, 8, 8, 8, 2, 4], dtype=torch.int32)
    c = torch.rand(9, dtype=torch.float64)
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(op(leaf, j), leaf, c)
    torch.testing.assert_close(gradient, ts.oracle(op, x, j, cotangents=c).gradients["x"], rtol=1e-11, atol=1e-13)
    source = adjoint_source(op)
    lines = [line.strip() for line in source.splitlines() if not line.strip().startswith("#")]
    added = [line for line in lines if line.startswith(("grad_x[", "ti.atomic_add(grad_x", "qd.atomic_add(grad_x"))]
    assert len(added) == count, source


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
}


def loads(body):
    return [load for load in walk.loads(body) if load.array == "x"]


@pytest.mark.parametrize("name", ONCE)
def test_loaded_once(name):
    body = [loop("i", X.size(), ONCE[name], is_parallel=True)]
    assert len(loads(body)) == 2 and len(loads(share_loads(body, walk.find_changed(body)))) == 1


@pytest.mark.parametrize("name", TWICE)
def test_loaded_twice(name):
    body = (loop("i", X.size(), TWICE[name], is_parallel=True),)
    assert share_loads(body, walk.find_changed(body)) == body
