"""Loops in blocks: gradients are those of the tape, and the tape holds checkpoints and one block."""

import pytest
import torch

from support.backwards import build_backward, run_backward
from support.interpreted import run_with_gradients
from support.tangents import build_nest, draw_nest_arguments, lower_with_arguments
from tinsmith.ir import nodes
from tinsmith.passes import evaluate
from tinsmith.passes.adjoint import _checkpoints

SEEDS = range(100)
OUTPUTS = ["s", "y", "z"]


@pytest.fixture
def short_blocks(monkeypatch):
    """Use blocks of two iterations, so that short loops have several."""
    monkeypatch.setattr(_checkpoints, "SMALLEST", 2)
    monkeypatch.setattr(_checkpoints, "OF_WHILE", 2)


@pytest.mark.thinned(10)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_nest(lang64, short_blocks, seed):
    kernel, arrays, _ = lower_with_arguments(build_nest(lang64, seed), draw_nest_arguments(seed))
    generator = torch.Generator().manual_seed(seed)
    cotangents = {name: torch.randn(5, generator=generator, dtype=torch.float64) for name in OUTPUTS}
    program = build_backward([kernel], ["x", "w"], OUTPUTS, OUTPUTS, has_checkpoints=True)
    assert not program.has_long_tapes
    wanted = run_with_gradients(kernel, arrays, {}, cotangents)
    actual = run_backward(program, {**arrays, **wanted.arrays}, {}, cotangents)
    for name in ("x", "w"):
        mine = actual.get(name, torch.zeros_like(wanted.gradients[name]))
        torch.testing.assert_close(mine, wanted.gradients[name], rtol=1e-9, atol=1e-10, equal_nan=True)


@pytest.mark.costly
def test_many_nests_have_tapes_that_checkpoints_shorten(lang64):
    kernels = [lower_with_arguments(build_nest(lang64, seed), draw_nest_arguments(seed))[0] for seed in SEEDS[:60]]
    long = [build_backward([kernel], ["x", "w"], OUTPUTS, OUTPUTS).has_long_tapes for kernel in kernels]
    assert sum(long) > 10


@pytest.mark.thinned(1)
@pytest.mark.parametrize("count", [-3, 0, 1, 7, 8, 9, 100, 128, 129, 512, 513, 3000, 70_000, 10**6, 2**31 - 1])
def test_the_size_of_a_block(count):
    size = evaluate(_checkpoints.block_size(nodes.Argument("n", "i32")), {}, {"n": count})
    assert _checkpoints.SMALLEST <= size <= _checkpoints.LARGEST
    blocks = -(-count // size)
    if 65 <= count <= 2 * _checkpoints.LARGEST**2:
        assert size <= 2 * blocks and blocks <= 2 * size  # about the root
