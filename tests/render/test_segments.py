"""Sums and products along rays against their twins: values and gradients, through zeros too."""

from __future__ import annotations

import pytest
import torch

import tinsmith as ts
from support.packed import COUNTS, count_samples, make_rays
from tinsmith import reference, render

SCANS = ("inclusive_sum", "exclusive_sum", "inclusive_prod", "exclusive_prod")
CLOSE = {"rtol": 1e-9, "atol": 1e-11}


def values_with_zeros(rays, *columns):
    """Return random values; about every third is 0, so that many rays have several zeros."""
    values = torch.randn(count_samples(rays), *columns, dtype=torch.float64)
    return torch.where(torch.rand_like(values) < 0.3, 0, values)


def assert_agrees(name, given, rays, engine):
    ours, twins = ([x.clone().requires_grad_() for x in given] for _ in range(2))
    y, expected = getattr(render, name)(*ours, rays, engine=engine), getattr(reference, name)(*twins, rays)
    torch.testing.assert_close(y, expected, **CLOSE)
    cotangent = torch.randn_like(y)
    slopes, slopes_expected = torch.autograd.grad(y, ours, cotangent), torch.autograd.grad(expected, twins, cotangent)
    for slope, twin in zip(slopes, slopes_expected, strict=True):
        torch.testing.assert_close(slope, twin, **CLOSE)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)
@pytest.mark.parametrize("name", [*SCANS, "segment_sum"])
def test_they_agree_with_the_twin(engine, name, counts):
    rays = make_rays(counts, gap=1)
    assert_agrees(name, [values_with_zeros(rays)], rays, engine)


@pytest.mark.parametrize("columns", [3, pytest.param(34, marks=pytest.mark.costly)])
@pytest.mark.parametrize("name", [*SCANS, "segment_sum"])
def test_columns_agree_with_the_twin(engine, name, columns):
    rays = make_rays([3, 0, 5])
    assert_agrees(name, [values_with_zeros(rays, columns)], rays, engine)


@pytest.mark.parametrize("columns", [1, 34])
@pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)
def test_accumulate_agrees_with_the_twin(engine, counts, columns):
    rays = make_rays(counts, gap=1)
    assert_agrees("accumulate", [values_with_zeros(rays), values_with_zeros(rays, columns)], rays, engine)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("name", [*SCANS, "segment_sum", "accumulate"])
def test_first_and_second_derivatives(engine, name):
    rays = make_rays([3, 0, 4])
    given = [values_with_zeros(rays, 2)]
    if name == "accumulate":
        given.insert(0, values_with_zeros(rays))
    leaves = [x.requires_grad_() for x in given]

    def function(*values):
        return getattr(render, name)(*values, rays, engine=engine)

    assert torch.autograd.gradcheck(function, leaves)
    assert torch.autograd.gradgradcheck(function, leaves)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own forward mode uses it
@pytest.mark.parametrize("name", ["inclusive_prod", pytest.param("exclusive_sum", marks=pytest.mark.costly)])
def test_compiled_transformed_and_forwards(engine, name):
    rays = make_rays([3, 0, 4])
    values = values_with_zeros(rays)

    def loss(values):
        return (getattr(render, name)(values, rays, engine=engine) ** 2).sum()

    def twin(values):
        return (getattr(reference, name)(values, rays) ** 2).sum()

    expected = torch.func.grad(twin)(values)
    leaf = values.clone().requires_grad_()
    torch.compile(loss, fullgraph=True, backend="aot_eager")(leaf).backward()
    torch.testing.assert_close(leaf.grad, expected, **CLOSE)
    both = torch.func.vmap(torch.func.grad(loss))(torch.stack([values, 2 * values]))
    torch.testing.assert_close(both[0], expected, **CLOSE)
    _, along = torch.func.jvp(loss, (values,), (torch.ones_like(values),))
    torch.testing.assert_close(along, expected.sum(), **CLOSE)


def test_pack_finds_the_rays_of_samples():
    counts = torch.tensor([0, 3, 0, 0, 2, 1, 0])
    ray_index = torch.arange(7).repeat_interleave(counts)
    for dtype in (torch.int32, torch.int64):
        assert torch.equal(render.pack(ray_index.to(dtype), 7), make_rays(counts.tolist()))
    assert torch.equal(render.pack(ray_index[:0], 2), torch.zeros(2, 2, dtype=torch.int32))


REFUSALS = {
    "falls": (lambda: render.pack(torch.tensor([0, 2, 1]), 3), ts.ArgumentError, r"ray_index\[1\]  2"),
    "too many": (lambda: render.pack(torch.tensor([0, 2]), 2), ts.ArgumentError, "expected  0 to 1"),
    "floats": (
        lambda: render.pack(torch.tensor([0.0]), 2),
        ts.DtypeError,
        "`ray_index` of `pack` must be a tensor of integers",
    ),
    "a list": (lambda: render.pack([0], 2), ts.ArgumentError, "`ray_index` of `pack` must be a tensor\n  got  list"),
    "table": (lambda: render.pack(torch.zeros(2, 2).int(), 2), ts.ShapeError, r"expected  \[s\]"),
    "integers": (lambda: render.segment_sum(torch.arange(3), make_rays([3])), ts.DtypeError, "torch.int64"),
    "cube": (lambda: render.segment_sum(torch.ones(3, 1, 1), make_rays([3])), ts.ShapeError, r"\[s\] or \[s, c\]"),
    "outside": (lambda: render.exclusive_prod(torch.ones(3), make_rays([4])), ts.ShapeError, "`exclusive_prod` points"),
    "weights": (
        lambda: render.accumulate(torch.ones(2), torch.ones(3, 1), make_rays([3])),
        ts.ShapeError,
        r"weights  \[s\] = \(2,\)\s+<- should be \(3,\)",
    ),
    "vector": (lambda: render.accumulate(torch.ones(3), torch.ones(3), make_rays([3])), ts.ShapeError, r"\[s, c\]"),
}


@pytest.mark.parametrize("case", REFUSALS.values(), ids=REFUSALS)
def test_invalid_arguments_are_refused(case):
    call, error, words = case
    with pytest.raises(error, match=words):
        call()
