"""The kernels of grid encodings, both ways to share out the work, against their twin, in float64."""

from __future__ import annotations

import functools

import pytest
import torch

import tinsmith as ts
from tinsmith import reference
from tinsmith.kernels import grid

pytestmark = pytest.mark.thinned(4)

WORD = 2**32


@functools.cache
def built(lang, n_dims, n_features, interpolation, apart, atomic):
    kernels = grid(
        lang, fp="f64", n_dims=n_dims, n_features=n_features, interpolation=interpolation, apart=apart, atomic=atomic
    )
    arrays = "x[n, d], table[t, f], scales[l]: f32, cells[l, _]: i32"
    scratch = "parts[2, n, d]" if apart else None
    return (
        ts.op(f"{arrays} -> y[n, l * f]", init={"y": "empty"}, adjoint="source", races="allow")(kernels.value),
        ts.op(f"{arrays}, c[n, _] -> slope[n, d]", scratch=scratch, adjoint="source", races="allow")(
            kernels.by_position
        ),
        ts.op(f"{arrays.replace('table[t, f], ', '')}, c[n, _] -> total[t, {n_features}]", races="allow")(
            kernels.by_table
        ),
    )


def tensors(levels):
    """Return the tensors of levels that the kernels read."""
    signed = lambda number: number - WORD if number >= WORD // 2 else number  # noqa: E731
    rows = [
        [level.first, level.size, level.size - 1 if level.is_hashed else -1, int(level.is_hashed)]
        + [signed(factor) for factor in level.factors]
        for level in levels
    ]
    return torch.tensor([level.scale for level in levels]), torch.tensor(rows, dtype=torch.int32)


@pytest.mark.thinned(5)
@pytest.mark.parametrize(("apart", "atomic"), [(True, False), (False, True)])
@pytest.mark.parametrize(
    ("n_dims", "n_features", "interpolation", "kind"),
    [
        (1, 1, "Linear", "Hash"),
        (2, 2, "Linear", "Tiled"),
        (2, 2, "Nearest", "Hash"),
        (3, 2, "Smoothstep", "Hash"),
        (3, 4, "Linear", "Dense"),
        (4, 8, "Linear", "Hash"),
        (5, 1, "Smoothstep", "Hash"),
    ],
)
def test_values_and_gradients_agree_with_the_twin(lang, n_dims, n_features, interpolation, kind, apart, atomic):
    value, by_position, by_table = built(lang, n_dims, n_features, interpolation, apart, atomic)
    levels = reference.grid_levels(
        n_dims, n_levels=3, base_resolution=3, per_level_scale=1.5, kind=kind, log2_hashmap_size=7
    )
    x = torch.rand(30, n_dims, dtype=torch.float64)
    x[:4] = 6 * x[:4] - 3  # outside
    x[4], x[5] = 0.0, 1.0
    x.requires_grad_()
    table = torch.randn(levels[-1].first + levels[-1].size, n_features, dtype=torch.float64, requires_grad=True)
    expected = reference.grid(x, table, levels, interpolation)
    c = torch.randn_like(expected)
    slope, total = torch.autograd.grad(expected, [x, table], c)
    given = (x.detach(), table.detach(), *tensors(levels))
    torch.testing.assert_close(value(*given), expected.detach(), rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(by_position(*given, c), slope, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(by_table(given[0], *given[2:], c, t=len(table)), total, rtol=1e-9, atol=1e-11)


def test_the_gradient_of_a_table_a_thread_a_level_repeats_its_bits(lang):
    *_, by_table = built(lang, 3, 2, "Linear", True, False)
    levels = reference.grid_levels(3, n_levels=8, log2_hashmap_size=8)
    x, c = torch.rand(5000, 3, dtype=torch.float64), torch.randn(5000, 16, dtype=torch.float64)
    rows = levels[-1].first + levels[-1].size
    first = by_table(x, *tensors(levels), c, t=rows)
    assert all(torch.equal(by_table(x, *tensors(levels), c, t=rows), first) for _ in range(3))
