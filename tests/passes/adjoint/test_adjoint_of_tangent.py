"""Second derivatives as the op has them: the adjoint of the tangent, interpreted, against torch's gradient of it."""

import pytest
import torch

from support.backwards import build_backward, run_backward
from support.by_hand import array, atomic, kernel, loop, store, unary
from support.interpreted import run_with_gradients
from support.tangents import build_nest, draw_nest_arguments, list_tangent_arguments, lower_with_arguments
from tinsmith.passes import generate_tangent

X, K, Y, W = array("x", "f64"), array("k", "i32"), array("y", "f64"), array("w", "f64", 2)
IN_ORDER = [loop("j", W.size(1), [atomic("min", Y, "i", W["i", "j"] * W["i", "j"] - 1.0)])]
FACTORS = [store(Y, "i", 1.0), loop("j", W.size(1), [atomic("mul", Y, "i", W["i", "j"])])]
ATOMICS = {
    "scattered": [loop("i", X.size(), [atomic("max", Y, K["i"], unary("exp", X["i"]))], is_parallel=True)],
    "in order": [loop("i", X.size(), [atomic("max", Y, K["i"], unary("exp", X["i"]))])],
    "own": [loop("i", Y.size(), IN_ORDER, is_parallel=True)],
    "product": [loop("i", Y.size(), FACTORS, is_parallel=True)],
}


def assert_second_derivatives_are_torch_s(made, arrays, inputs, outputs):
    """Assert this for a random direction and random cotangents of the outputs' tangents."""
    generator = torch.Generator().manual_seed(1)

    def drawn(name):
        return torch.randn(arrays[name].shape, dtype=torch.float64, generator=generator)

    along = {name: drawn(name) for name in inputs}
    once = generate_tangent(made, frozenset(along))
    cotangents = {once.companions[name]: drawn(name) for name in outputs if name in once.companions}
    given_arrays, _ = list_tangent_arguments(once, arrays, {}, along)
    wanted = run_with_gradients(once.kernel, given_arrays, {}, cotangents)
    active = {*inputs, *(once.companions[name] for name in inputs)}
    program = build_backward([once.kernel], active, {*cotangents}, {*outputs, *cotangents, *once.scratch})
    mine = run_backward(program, wanted.arrays, {}, cotangents)
    for name in active:
        gradient = mine.get(name, torch.zeros_like(wanted.gradients[name]))
        torch.testing.assert_close(gradient, wanted.gradients[name], rtol=1e-9, atol=1e-10)
    return wanted.gradients


@pytest.mark.thinned(20)
@pytest.mark.parametrize("seed", range(100))
def test_a_random_nest(lang64, seed):
    made, arrays, _ = lower_with_arguments(build_nest(lang64, seed), draw_nest_arguments(seed))
    assert_second_derivatives_are_torch_s(made, arrays, ["x", "w"], ["s", "y", "z"])


@pytest.mark.parametrize("name", ATOMICS)
def test_atomics(name):
    generator = torch.Generator().manual_seed(2)
    arrays = {
        "x": torch.rand(12, dtype=torch.float64, generator=generator),
        "k": torch.randint(0, 3, (12,), generator=generator).int(),
        "w": torch.rand(3, 5, dtype=torch.float64, generator=generator),
        "y": torch.zeros(3, dtype=torch.float64),
    }
    one = "w" if name in ("own", "product") else "x"
    seconds = assert_second_derivatives_are_torch_s(kernel([X, K, W, Y], ATOMICS[name]), arrays, [one], ["y"])
    assert seconds[one].any()
