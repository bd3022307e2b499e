"""Tangents of atomics: sums and products, maxima and minima with ties, what they return, and what is refused."""

from dataclasses import replace

import pytest
import torch

from support.by_hand import array, assign, atomic, binary, branch, cast, const, kernel, local, loop, store, unary
from support.tangents import DOUBLE, assert_compiled_agrees, assert_tangents_agree, run_tangent
from tinsmith.ir import NotCovered, nodes
from tinsmith.passes import generate_tangent

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
X, Y, Z, K = array("x", "f64"), array("y", "f64"), array("z", "f64"), array("k", "i32")
W = array("w", "f64", 2)
OLD = local("old", "f64")
GENERATOR = torch.Generator().manual_seed(5)


def rand(*shape):
    return torch.rand(*shape, dtype=torch.float64, generator=GENERATOR) - 0.4


def halves(*shape):
    """Draw few distinct values, so that many are equal."""
    return torch.randint(-2, 3, shape, generator=GENERATOR).double() / 2


def places(count, end):
    return torch.randint(0, end, (count,), generator=GENERATOR).int()


def assert_agree(made, arrays, lang, arguments=None, still=()):
    assert_tangents_agree(made, arrays, arguments or {}, still)
    assert_compiled_agrees(made, arrays, arguments or {}, lang, DOUBLE)


@pytest.mark.parametrize("operator", ["max", "min"])
@pytest.mark.parametrize("draw", [rand, halves])
def test_extremes_of_many_iterations(operator, draw, lang64):
    """Of values that tie with each other and with what stood there."""
    made = kernel([X, K, Y], [loop("i", X.size(), [atomic(operator, Y, K["i"], X["i"] * 0.5)], is_parallel=True)])
    for _ in range(4):
        arrays = {"x": draw(12), "k": places(12, 4), "y": draw(4) * 0.5}
        assert_tangents_agree(made, arrays, {})
        assert_tangents_agree(made, arrays, {}, still=["y"])
        assert_tangents_agree(made, arrays, {}, still=["x"])
    assert_compiled_agrees(made, arrays, {}, lang64, DOUBLE)


def test_extremes_of_several_loops(lang64):
    """Ties go on from loop to loop, parallel or not, until something else is stored."""
    first = loop("i", X.size(), [atomic("max", Y, K["i"], X["i"])], is_parallel=True)
    second = loop("i", X.size(), [atomic("max", Y, K["i"], Z["i"])], is_parallel=True)
    serial = loop("i", X.size(), [atomic("max", Y, K["i"], X["i"] * Z["i"])])
    change = loop("i", Y.size(), [branch(K["i"] > 1, [store(Y, "i", Y["i"] * 1.0)])], is_parallel=True)
    add = loop("i", Y.size(), [branch(K["i"] > 1, [atomic("add", Y, "i", Z["i"] * 0.0)])], is_parallel=True)
    for tasks in ([first, second], [first, serial, second], [serial, first, change, second], [first, add, serial]):
        made = kernel([X, Z, K, Y], tasks)
        for _ in range(4):
            arrays = {"x": halves(12), "z": halves(12), "k": places(12, 3), "y": halves(3)}
            assert_tangents_agree(made, arrays, {})
        assert_compiled_agrees(made, arrays, {}, lang64, DOUBLE)


@pytest.mark.parametrize("is_parallel", [False, True])
def test_extremes_in_order(lang64, is_parallel):
    """Three that tie share evenly, not by halves of halves; a result is what stood there."""
    body = [atomic("min", Y, "i", W["i", "j"], "old"), atomic("add", Z, "i", OLD * W["i", "j"])]
    made = kernel([W, Y, Z], [loop("i", Y.size(), [loop("j", W.size(1), body)], is_parallel=is_parallel)], old="f64")
    assert {*generate_tangent(made, frozenset({"w"})).scratch} == {"y_ties"}
    for _ in range(3):
        arrays = {"w": halves(4, 7), "y": halves(4), "z": rand(4)}
        assert_tangents_agree(made, arrays, {})
    assert_compiled_agrees(made, arrays, {}, lang64, DOUBLE)


@pytest.mark.parametrize("is_parallel", [False, True])
def test_infinite_candidates_that_tie(is_parallel):
    """A mean of differences, or of sums, would be no number."""
    win = loop("i", X.size(), [atomic("max", Y, 0, X["i"])], is_parallel=is_parallel)
    made = kernel([X, Y, Z], [win, store(Z, 0, Y[0] * 1.0)])
    infinite = float("inf")
    arrays = {"x": torch.tensor([0.5, infinite, infinite], dtype=torch.float64), "y": rand(1), "z": rand(1)}
    moved = {"x": torch.tensor([5.0, 1.0, 2.0], dtype=torch.float64)}
    values, tangents = run_tangent(made, arrays, {}, moved)
    assert values["y"].tolist() == values["z"].tolist() == [infinite]
    assert tangents["y"].tolist() == tangents["z"].tolist() == [1.5]


def test_the_value_stays_exactly_what_won(lang64):
    """Later statements compare with it: the mean of three equal numbers has other last bits."""
    x = torch.full((3,), 0.1, dtype=torch.float64)
    win = loop("i", X.size(), [atomic("max", Y, 0, X["i"])], is_parallel=True)
    compare = loop("i", X.size(), [branch(binary("==", X["i"], Y[0]), [store(Z, "i", X["i"] * Y[0])])])
    made = kernel([X, Y, Z], [win, compare])
    arrays = {"x": x, "y": torch.zeros(1, dtype=torch.float64), "z": torch.zeros(3, dtype=torch.float64)}
    values, tangents = run_tangent(made, arrays, {}, {"x": torch.ones_like(x)})
    assert torch.equal(values["y"], x[:1]) and torch.equal(values["z"], x * x)
    torch.testing.assert_close(tangents["z"], 2.0 * x)
    assert_compiled_agrees(made, arrays, {}, lang64, DOUBLE)


@pytest.mark.parametrize("kind", ["f64", "f32"])
def test_the_winner_is_found_again(lang64, kind):
    """Its value is worked out twice: the same bits must come out, or the tangent is no number."""
    x, y = array("x", kind), array("y", kind)
    value = unary("exp", unary("sin", x["i"] * x["i"]) * 0.7) / (const(2.0, kind) + x["i"]) * x["i"] + x["i"] * 0.3
    made = kernel([x, K, y], [loop("i", x.size(), [atomic("max", y, K["i"], value)], is_parallel=True)])
    dtype = torch.float64 if kind == "f64" else torch.float32
    arrays = {"x": rand(3000).to(dtype), "k": places(3000, 50), "y": torch.full((50,), -9.0, dtype=dtype)}
    assert_compiled_agrees(made, arrays, {}, lang64, DOUBLE, rtol=1e-10 if kind == "f64" else 1e-4)


def test_extremes_of_vectors_and_numbers(lang64):
    vectors, number = array("v", "f64", 1, (2, 2)), array("y", "f64", 0)
    read = vectors.at("i", (1, 0))
    one = nodes.Atomic("max", "y", (), (), read.expr)
    two = nodes.Atomic("min", "t", (nodes.Const(0, "i32"),), (0, 1), (read * 2.0).expr)
    target = array("t", "f64", 1, (2, 2))
    made = kernel([vectors, number, target], [loop("i", vectors.size(), [one, two], is_parallel=True)])
    arrays = {"v": halves(9, 2, 2), "y": halves(1)[0], "t": halves(1, 2, 2)}
    assert_agree(made, arrays, lang64)


def test_candidates_of_what_the_loop_changes(lang64):
    """The winners are found on copies; the loop itself changes memory once."""
    body = [
        store(Z, "i", Z["i"] * X["i"]),
        loop("j", 2, [atomic("max", Y, K["i"], Z["i"] * X["i"]), store(Z, "i", Z["i"] * Z["i"])]),
    ]
    made = kernel([X, K, Y, Z], [loop("i", X.size(), body, is_parallel=True)])
    assert_agree(made, {"x": rand(12), "k": places(12, 3), "y": rand(3), "z": rand(12)}, lang64)


CALCULATED = {
    "one": [atomic("max", Y, K["i"], X["i"] * 0.5)],
    "nested": [loop("j", Z.size(), [branch(Z["j"] > 0.0, [atomic("max", Y, K["i"], X["i"] * Z["j"])])])],
    "read from memory": [loop("j", K["i"], [atomic("max", Y, "j", X["i"] * Z["j"])])],
}


@pytest.mark.parametrize("name", CALCULATED)
def test_calculated_candidates(name, lang64):
    """They are kept where it is known before how many they are; else a loop is in order."""
    made = kernel([X, Z, K, Y], [loop("i", X.size(), CALCULATED[name], is_parallel=True)])
    arrays = {"x": halves(12), "z": halves(6), "k": places(12, 4), "y": rand(4)}
    assert_agree(made, arrays, lang64)
    forward = generate_tangent(made, frozenset({"x"}))
    assert {*forward.room} == (set() if name == "read from memory" else {"candidates"})
    loops = [one for one in forward.kernel.body if isinstance(one, nodes.For)]
    assert all(one.is_parallel for one in loops) == bool(forward.room)


def test_extremes_beside_other_work(lang64):
    """What else the loop does is done once."""
    body = [
        assign("a", X["i"] * X["i"]),
        atomic("add", Z, K["i"], local("a", "f64") * 2.0),
        branch(X["i"] > 0.0, [atomic("max", Y, K["i"], local("a", "f64"))]),
    ]
    made = kernel([X, K, Y, Z], [loop("i", X.size(), body, is_parallel=True)], a="f64")
    assert_agree(made, {"x": rand(12), "k": places(12, 3), "y": rand(3), "z": rand(3)}, lang64)


def test_the_kernel_s_own_memory(lang64):
    """A cell's companion, and the count of its ties, are cells too."""
    y = array("y", "f64", 1)
    most, total = array("most", "f64", 0), array("total", "f64", 0)
    tasks = [
        store(most, (), -5.0),
        loop(
            "i",
            X.size(),
            [atomic("max", most, (), X["i"]), atomic("add", total, (), X["i"] * X["i"])],
            is_parallel=True,
        ),
        loop("i", y.size(), [store(y, "i", y["i"] * most.at(()) + total.at(()))], is_parallel=True),
    ]
    made = replace(kernel([X, y, most, total], tasks), cells=("most", "total"))
    forward = generate_tangent(made, frozenset({"x"}))
    assert forward.companions == {"x": "x_dot", "y": "y_dot"}
    assert forward.scratch == {}
    assert forward.kernel.cells == ("most", "total", "most_ties", "most_winner", "most_dot", "total_dot")
    assert_agree(made, {"x": halves(9), "y": rand(4)}, lang64)


def test_products():
    """In order, and where an iteration has the element to itself. Interpreted: both engines die of `atomic_mul`."""
    inner = [loop("j", W.size(1), [atomic("mul", Y, "i", W["i", "j"])])]
    for is_parallel in (False, True):
        made = kernel([W, Y], [loop("i", Y.size(), inner, is_parallel=is_parallel)])
        assert_tangents_agree(made, {"w": halves(4, 3), "y": rand(4)}, {})


@pytest.mark.parametrize("operator", ["add", "sub"])
def test_sums(lang64, operator):
    scattered = loop("i", X.size(), [atomic(operator, Y, K["i"], X["i"] * X["i"])], is_parallel=True)
    made = kernel([X, K, Y], [scattered])
    assert_agree(made, {"x": rand(9), "k": places(9, 3), "y": rand(3)}, lang64)


@pytest.mark.parametrize("operator", ["add", "sub", "mul", "max"])
def test_return_values_of_atomics(lang64, operator):
    """In order: the old value's tangent; in a parallel loop too, where the element is the iteration's own."""
    anywhere = [atomic(operator, Y, K["i"], X["i"], "old"), store(Z, "i", OLD * X["i"])]
    own = [atomic(operator, Y, "i", X["i"], "old"), store(Z, "i", OLD * X["i"])]
    for body, is_parallel in ((anywhere, False), (own, True)):
        made = kernel([X, K, Y, Z], [loop("i", X.size(), body, is_parallel=is_parallel)], old="f64")
        arrays = {"x": rand(9), "k": places(9, 3), "y": rand(9), "z": rand(9)}
        assert_tangents_agree(made, arrays, {})
        if operator != "mul":
            assert_compiled_agrees(made, arrays, {}, lang64, DOUBLE)


def test_whole_atomics_have_no_tangent(lang64):
    n = array("n", "i32", 0)
    body = [
        atomic("add", n, (), cast(X["i"] * 4.0, "i32"), "old"),
        atomic("max", Y, K["i"], Z["i"] * 2.0),
        store(X, "i", X["i"] * local("old", "i32")),
    ]
    made = kernel([X, Z, K, Y, n], [loop("i", X.size(), body)], old="i32")
    arrays = {"x": rand(6), "z": rand(6), "k": places(6, 2), "y": rand(2), "n": torch.zeros((), dtype=torch.int32)}
    assert_agree(made, arrays, lang64, still=["z", "y"])
    assert generate_tangent(made, frozenset({"x"})).companions == {"x": "x_dot"}


# Refused ----------------------------------------------------------------------------------------

RESULT = "the tangent of the return value of `atomic_add` in a parallel loop"
TWICE = "cannot be run twice"
REFUSED = {
    "result": ([atomic("add", Y, K["i"], X["i"], "old", 3), store(Z, "i", OLD)], RESULT),
    "product": ([atomic("mul", Y, K["i"], X["i"], line=3)], "`atomic_mul` on an element that several iterations"),
    "read": ([atomic("max", Y, K["i"], X["i"], line=3), store(Z, "i", Y["i"])], "reads or changes in another way"),
    "both": (
        [atomic("max", Y, K["i"], X["i"], line=3), atomic("min", Y, K["i"], X["i"], line=3)],
        "changes in another way",
    ),
    "stored": ([store(Y, "i", 0.0, line=3), atomic("min", Y, K["i"], X["i"], line=3)], "changes in another way"),
    "random": ([nodes.Draw("old", "f64", 3), atomic("max", Y, K["i"], OLD * X["i"], line=3)], TWICE),
    "counted": (
        [atomic("add", Z, K["i"], const(1.0, "f64"), "old", 3), atomic("max", Y, K["i"], X["i"] * OLD, line=3)],
        TWICE,
    ),
    "changed": (
        [atomic("add", X, K["i"], const(2.0, "f64"), line=3), atomic("max", Y, K["i"], X["i"], line=4)],
        "changes elements that it reads",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_order_dependent_atomics_are_refused(name):
    body, words = REFUSED[name]
    made = kernel([X, K, Y, Z], [loop("i", X.size(), body, is_parallel=True, line=1)], old="f64")
    with pytest.raises(NotCovered, match=words) as caught:
        generate_tangent(made, frozenset({"x"}))
    assert (caught.value.line, caught.value.place) == (3, "by_hand.py:3")
    in_order = kernel([X, K, Y, Z], [loop("i", X.size(), body)], old="f64")
    arrays = {"x": rand(5), "k": places(5, 5), "y": rand(5), "z": rand(5)}
    assert_tangents_agree(in_order, arrays, {})
