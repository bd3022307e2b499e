"""The adjoint of random nests of loops with carried locals, interpreted, against torch's gradient through them."""

import pytest
import torch

from support.backwards import build_backward, run_backward
from support.interpreted import run_with_gradients
from support.tangents import build_nest, draw_nest_arguments, lower_with_arguments

SEEDS = range(100)
OUTPUTS = ["s", "y", "z"]


@pytest.mark.thinned(10)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_nest(lang64, seed):
    kernel, arrays, _ = lower_with_arguments(build_nest(lang64, seed), draw_nest_arguments(seed))
    generator = torch.Generator().manual_seed(seed)
    cotangents = {name: torch.randn(5, generator=generator, dtype=torch.float64) for name in OUTPUTS}
    program = build_backward([kernel], ["x", "w"], OUTPUTS, OUTPUTS)
    wanted = run_with_gradients(kernel, arrays, {}, cotangents)
    actual = run_backward(program, {**arrays, **wanted.arrays}, {}, cotangents)
    for name in ("x", "w"):
        mine = actual.get(name, torch.zeros_like(wanted.gradients[name]))
        torch.testing.assert_close(mine, wanted.gradients[name], rtol=1e-9, atol=1e-10, equal_nan=True)
