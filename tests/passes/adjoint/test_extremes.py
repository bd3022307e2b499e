"""Maxima and minima by atomics: the adjoint goes to who won, evenly where several did, as `torch.amax` has it."""

import pytest
import torch

from support.backwards import build_backward, run_backward
from support.by_hand import array, assign, atomic, branch, cast, kernel, local, loop, repeat, store, unary
from support.interpreted import run_with_gradients
from tinsmith.ir import NotCovered, nodes
from tinsmith.passes import run_on_one_thread
from tinsmith.passes.adjoint import Reserve, Run

X, Y, Z, K, W = array("x", "f64"), array("y", "f64"), array("z", "f64"), array("k", "i32"), array("w", "f64", 2)
GENERATOR = torch.Generator().manual_seed(5)


def rand(*shape):
    return torch.rand(*shape, dtype=torch.float64, generator=GENERATOR) - 0.4


def halves(*shape):
    """Draw few distinct values, so that many are equal."""
    return torch.randint(-2, 3, shape, generator=GENERATOR).double() / 2


def places(count, end):
    return torch.randint(0, end, (count,), generator=GENERATOR).int()


def draw_arguments(draw):
    return {"x": draw(12), "k": places(12, 4), "w": draw(4, 5)}


def assert_torch_s(made, arrays, inputs=("x", "w"), *, is_serial=False):
    """Give the gradient that torch has through the interpreted kernel."""
    inputs = [name for name in inputs if name in made.arrays]
    arrays = {name: one for name, one in arrays.items() if name in made.arrays}
    outputs = [name for name in ("y", "z") if name in made.arrays]
    arrays |= {name: torch.zeros(4, dtype=torch.float64) for name in outputs}
    cotangents = {name: torch.randn(4, dtype=torch.float64, generator=GENERATOR) for name in outputs}
    program = build_backward([made], inputs, outputs, outputs)
    program = program.with_kernels(run_on_one_thread) if is_serial else program
    wanted = run_with_gradients(made, arrays, {}, cotangents)
    actual = run_backward(program, {**arrays, **wanted.arrays}, {}, cotangents)
    for name in inputs:
        torch.testing.assert_close(
            actual.get(name, torch.zeros_like(arrays[name])), wanted.gradients[name], rtol=1e-10, atol=1e-12
        )
    return program


def over(body, names="i", ends=None, **kinds):
    return kernel([X, K, W, Y], [loop(names, ends or X.size(), body, is_parallel=True)], **kinds)


def tapes(program):
    return [size for action in program.actions if isinstance(action, Reserve) for size in action.tapes]


T, J = local("t", "f64"), local("j", "i32")
LOADED = over([atomic("max", Y, K["i"], X["i"])])
CALCULATED = over([atomic("max", Y, K["i"], X["i"] * 0.5)])
TWO = over(
    [assign("t", unary("abs", X["i"])), atomic("min", Y, 0, T * -1.0), atomic("min", Y, K["i"], X["i"])], t="f64"
)
BRANCHED = over(
    [
        branch(X["i"] > 0.0, [atomic("max", Y, K["i"], X["i"] * X["i"])], [atomic("max", Y, 0, X["i"] * -0.25)]),
        atomic("max", Y, 1, X["i"] * 0.5),
    ]
)
NESTED = over(
    [loop("j", W.size(1), [branch(W["i", "j"] > 0.0, [atomic("max", Y, K["i"], W["i", "j"] * 2.0)])])], ends=W.size()
)
RAGGED = over([loop("j", K["i"], [atomic("max", Y, "j", W["j", "j"] * X["i"]), atomic("max", Y, 0, X["i"] * 2.0)])])
DEEP = over(
    [
        loop("j", K["i"], [loop("l", K["j"], [atomic("max", Y, "l", X["i"] * X["j"])])]),
        atomic("max", Y, 0, X["i"] * 0.5),
    ]
)
WHILE = over(
    [
        assign("j", 0),
        repeat([branch(J >= K["i"], [nodes.Break()]), atomic("max", Y, J, X["i"] * 2.0), assign("j", J + 1)]),
    ],
    j="i32",
)
CONTINUED = over(
    [
        loop("j", K["i"], [atomic("max", Y, "j", X["i"] * X["j"]), branch(X["i"] > 0.2, [nodes.Break()])]),
        branch(X["i"] > 0.0, [nodes.Continue()]),
        loop("l", 2, [loop("j", K["i"], [atomic("max", Y, "j", X["i"] * 2.0)])]),
    ]
)
OWN = over([loop("j", W.size(1), [atomic("min", Y, "i", W["i", "j"] * 0.5)])], ends=W.size())
PAIRED = over([atomic("max", Y, K["i"], W["i", "j"] * 0.5)], ("i", "j"), (W.size(), W.size(1)))
SERIAL = kernel([X, K, Y], [loop("i", X.size(), [atomic("max", Y, K["i"], X["i"] * 0.5)])])
FORMULAS = {
    "calculated": CALCULATED,
    "branched": BRANCHED,
    "nested": NESTED,
    "own": OWN,
    "paired": PAIRED,
    "serial": SERIAL,
}
COUNTED = {"ragged": RAGGED, "deep": DEEP, "while": WHILE, "continued": CONTINUED}
ALL = {"loaded": LOADED, "two": TWO, **FORMULAS, **COUNTED}


@pytest.mark.thinned(4)
@pytest.mark.parametrize("draw", [rand, halves])
@pytest.mark.parametrize("name", ALL)
def test_the_gradient_goes_to_the_winner(name, draw):
    for _ in range(4):
        assert_torch_s(ALL[name], draw_arguments(draw))
        assert_torch_s(ALL[name], draw_arguments(draw), is_serial=True)


def test_tapes():
    """A loaded value needs none; room for the others follows from sizes, or is counted."""
    kept = {name: tapes(assert_torch_s(made, draw_arguments(rand))) for name, made in ALL.items()}
    assert kept["loaded"] == []
    for name in FORMULAS:
        assert all(size.depth for size in kept[name]) and kept[name][0].arrays[0][1:] == ("f64", 1), name
    for name in COUNTED:
        assert kept[name][0].starts, name


GIVEN = loop("i", Y.size(), [store(Y, "i", X["i"] * X["i"] - 0.2)], is_parallel=True)
SCATTERED = loop("i", X.size(), [atomic("max", Y, K["i"], X["i"] * 0.5)], is_parallel=True)
LEFT = loop("i", X.size(), [atomic("add", Z, K["i"], X["i"] * Y[K["i"]])], is_parallel=True)
SCALED = loop("i", Y.size(), [store(Y, "i", Y["i"] * Y["i"] * 2.0)], is_parallel=True)
IN_ORDER = loop("i", X.size(), [atomic("min", Y, K["i"], X["i"] * 0.5)])
"""Together with tasks before and after: values are run again as they were before each."""
BESIDE = loop(
    "i",
    Z.size(),
    [
        store(Z, "i", X["i"] * 3.0),
        loop("j", W.size(1), [store(Z, "i", Z["i"] * W["i", "j"]), atomic("max", Y, K["i"], Z["i"] * 0.5)]),
        store(Z, "i", Z["i"] * Z["i"]),
    ],
    is_parallel=True,
)
"""Candidates that depend on what the same task changes."""
PROGRAMS = {
    "what was there": [GIVEN, SCATTERED],
    "used afterwards": [GIVEN, SCATTERED, LEFT],
    "changed afterwards": [GIVEN, SCATTERED, SCALED, LEFT, IN_ORDER],
    "beside": [GIVEN, BESIDE, LEFT],
}


USED = store(Z, "i", Y["i"] * Y["i"])
OVER_W = loop("j", W.size(1), [atomic("max", Y, "i", W["i", "j"])])
IN_TURN = {
    "two loops": [SCATTERED, loop("i", X.size(), [atomic("max", Y, K["i"], X["i"])], is_parallel=True)],
    "used by its own iteration": [loop("i", Y.size(), [OVER_W, USED], is_parallel=True)],
    "used in order": [loop("i", Y.size(), [OVER_W, USED])],
    "stored in between": [loop("i", Y.size(), [OVER_W, store(Y, "i", Y["i"] * 0.5), OVER_W], is_parallel=True)],
    "least of greatest": [
        loop("i", Y.size(), [OVER_W, atomic("min", Y, "i", 0.5), atomic("min", Y, "i", X["i"])], is_parallel=True)
    ],
    "its old value": [
        loop(
            "i",
            Y.size(),
            [loop("j", W.size(1), [atomic("max", Y, "i", W["i", "j"], "t"), atomic("add", Z, "i", T * W["i", "j"])])],
            is_parallel=True,
        )
    ],
    "another's winner": [
        loop(
            "i",
            Z.size(),
            [
                loop("j", W.size(1), [atomic("max", Z, "i", W["i", "j"])]),
                atomic("max", Y, K["i"], Z["i"] * X["i"]),
                atomic("max", Z, "i", X["i"]),
            ],
            is_parallel=True,
        )
    ],
}
"""Three that tie share evenly, whatever else the loop does: not by halves of halves."""


@pytest.mark.thinned(4)
@pytest.mark.parametrize("draw", [rand, halves])
@pytest.mark.parametrize("name", [*PROGRAMS, *IN_TURN])
def test_maxima_beside_other_tasks(name, draw):
    for _ in range(4):
        assert_torch_s(kernel([X, K, W, Y, Z], (PROGRAMS | IN_TURN)[name], t="f64"), draw_arguments(draw))


def test_a_maximum_that_is_not_differentiated_runs_once():
    """A depth buffer that nobody wants the gradient of: nothing runs twice."""
    made = kernel([X, K, Y, Z], [SCATTERED, LEFT])
    kernels = [
        action.kernel.name
        for action in build_backward([made], ["x"], ["z"], ["y", "z"], detached=["y"]).actions
        if isinstance(action, Run)
    ]
    assert kernels == ["by_hand_adjoint_1"]


def test_vectors():
    """Each entry has winners of its own."""
    x, y = array("x", "f64", 1, (2,)), array("y", "f64", 1, (2,))
    body = [
        nodes.Atomic("max", "y", (K["i"].expr,), (n,), (x.at("i", (1 - n,)) * x.at("i", (n,))).expr) for n in range(2)
    ]
    made = kernel([x, K, y], [loop("i", x.size(), body, is_parallel=True)])
    arrays = {"x": rand(12, 2), "k": places(12, 4), "y": torch.zeros(4, 2, dtype=torch.float64)}
    cotangents = {"y": rand(4, 2)}
    wanted = run_with_gradients(made, arrays, {}, cotangents)
    actual = run_backward(build_backward([made], ["x"], ["y"], ["y"]), {**arrays, **wanted.arrays}, {}, cotangents)
    torch.testing.assert_close(actual["x"], wanted.gradients["x"], rtol=1e-10, atol=1e-12)


def test_numbers_of_half_the_width_are_compared_as_they_were_stored():
    """The tape has no `f16`: what it keeps is cast there and back."""
    y = array("y", "f16")
    made = kernel([X, K, y], [loop("i", X.size(), [atomic("max", y, K["i"], cast(X["i"] * 0.5, "f16"))])])
    (size,) = tapes(build_backward([made], ["x"], ["y"], ["y"]))
    assert size.arrays[0][1] == "f32"


REFUSED = {
    "atomic_min on an element that other": [atomic("max", Y, K["i"], X["i"]), atomic("min", Y, K["i"], X["i"])],
    "atomic_min on an element": [store(Y, K["i"], 0.0), atomic("min", Y, K["i"], X["i"])],
    "atomic_mul on an element": [atomic("mul", Y, K["i"], X["i"])],
    "the return value of atomic_max": [atomic("max", Y, K["i"], X["i"], "old"), store(Z, "i", local("old", "f64"))],
    "a read of `y` in the parallel loop that changes it by atomic_max": [
        atomic("max", Y, K["i"], X["i"]),
        store(Z, "i", Y["i"]),
    ],
}


@pytest.mark.parametrize("words", REFUSED)
def test_refused(words):
    """What depends on the order of parallel iterations, or would take more than who won."""
    with pytest.raises(NotCovered, match=words):
        build_backward(
            [kernel([X, K, Y, Z], [loop("i", X.size(), REFUSED[words], is_parallel=True)], old="f64")],
            ["x"],
            ["y"],
            ["y"],
        )
