"""Floats made of another one's bits: the derivative is lost on the way, and the adjoint says so."""

import pytest
import torch

from support.backwards import build_backward, run_backward
from support.by_hand import array, assign, branch, cast, const, kernel, local, loop, store
from support.interpreted import run_with_gradients
from tinsmith.ir import NotCovered

X, Y, K = array("x", "f64"), array("y", "f64"), array("k", "i64")
B = local("b", "i64")


def bits(value):
    return cast(value, "i64", keeps_bits=True)


def made_of(value):
    return cast(value, "f64", keeps_bits=True)


def over(*body):
    return loop("i", X.size(), body, is_parallel=True)


REFUSED = {
    "at once": [over(store(Y, "i", made_of(bits(X["i"])), line=4))],
    "calculated with": [over(assign("b", bits(X["i"])), store(Y, "i", made_of(B + 1), line=4))],
    "handed on by a loop": [
        over(
            assign("b", 0),
            loop("j", 3, [assign("b", B + bits(X["i"]))]),
            store(Y, "i", made_of(B), line=4),
        )
    ],
    "through memory": [over(store(K, "i", bits(X["i"]))), over(store(Y, "i", made_of(K["i"]), line=4))],
}
HARMLESS = {
    "a question": [over(assign("b", bits(X["i"])), branch(B > 0, [store(Y, "i", X["i"] * X["i"])]))],
    "of a number": [over(assign("b", const(4_607_182_418_800_017_408, "i64")), store(Y, "i", made_of(B) * X["i"]))],
}


def of(tasks):
    return kernel([X, K, Y], tasks, b="i64")


@pytest.mark.parametrize("name", REFUSED)
def test_differentiable_bit_casts_are_refused(name):
    with pytest.raises(NotCovered, match="a derivative through the bits of a float, at by_hand.py:4"):
        build_backward([of(REFUSED[name])], ["x"], ["y"], ["y", "k"])


@pytest.mark.parametrize("name", HARMLESS)
def test_bit_casts_without_a_derivative_are_accepted(name):
    arrays = {"x": torch.randn(5, dtype=torch.float64), "y": torch.zeros(5, dtype=torch.float64)}
    arrays["k"] = torch.zeros(5, dtype=torch.int64)
    cotangents = {"y": torch.randn(5, dtype=torch.float64)}
    wanted = run_with_gradients(of(HARMLESS[name]), arrays, {}, cotangents)
    actual = run_backward(
        build_backward([of(HARMLESS[name])], ["x"], ["y"], ["y"]), {**arrays, **wanted.arrays}, {}, cotangents
    )
    assert wanted.gradients["x"].any()
    torch.testing.assert_close(actual["x"], wanted.gradients["x"])
