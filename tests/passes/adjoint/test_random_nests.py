"""The adjoint of random nests of loops with carried locals, interpreted, against torch's gradient through them."""

import pytest
import torch

from support.backwards import adjoint, gradients
from support.interpreted import run
from support.tangents import given, nest, nest_arguments

SEEDS = range(100)
OUTPUTS = ["s", "y", "z"]


@pytest.mark.thinned(10)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_nest(lang64, seed):
    kernel, arrays, _ = given(nest(lang64, seed), nest_arguments(seed))
    generator = torch.Generator().manual_seed(seed)
    cotangents = {name: torch.randn(5, generator=generator, dtype=torch.float64) for name in OUTPUTS}
    program = adjoint([kernel], ["x", "w"], OUTPUTS, OUTPUTS)
    wanted = run(kernel, arrays, {}, cotangents)
    actual = gradients(program, {**arrays, **wanted.arrays}, {}, cotangents)
    for name in ("x", "w"):
        mine = actual.get(name, torch.zeros_like(wanted.gradients[name]))
        torch.testing.assert_close(mine, wanted.gradients[name], rtol=1e-9, atol=1e-10, equal_nan=True)
