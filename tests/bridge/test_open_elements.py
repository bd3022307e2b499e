"""Ops whose parameters are plain templates: sizes decide what their elements are, so each plan has sizes of its own.

One that was made for other sizes would read and write outside its memory, mostly in silence.
"""

import torch
from torch.func import vjp, vmap

import tinsmith as ts

COUNTS = (3, 2, 5, 0, 1, 2)
"""Sizes after one another, smaller and larger ones than before."""


def rows(lang):
    @ts.op("x[h, w], k[w] -> y[h]")
    @lang.kernel
    def rows(x: lang.template(), k: lang.template(), y: lang.template()):
        for i, j in x:
            y[i] += x[i, j] * x[i, j] * k[j]

    return rows, lambda x, k: (x * x * k).sum(-1)


def inputs(*batch, h=3, w=4):
    draw = torch.Generator().manual_seed(len(batch))
    return [torch.randn(*batch, *shape, dtype=torch.float64, generator=draw) for shape in ((h, w), (w,))]


def test_batches_of_several_sizes(lang64):
    op, twin = rows(lang64)
    for count in COUNTS:
        x, k = inputs(count)
        torch.testing.assert_close(vmap(op)(x, k), twin(x, k[:, None]))
        torch.testing.assert_close(vmap(op, (0, None))(x, torch.ones(4, dtype=x.dtype)), (x * x).sum(-1))


def test_gradients_over_batches_of_several_sizes(lang64):
    op, twin = rows(lang64)
    values = inputs()
    _, pull = vjp(op, *values)
    _, expected = vjp(twin, *values)
    for count in COUNTS:
        seeds = torch.randn(count, 3, dtype=torch.float64)
        for mine, theirs in zip(
            vmap(pull)(seeds), vmap(expected)(seeds) if count else pull(seeds.new_zeros(3)), strict=True
        ):
            torch.testing.assert_close(mine, theirs if count else theirs.new_zeros(0, *theirs.shape))


def test_batch_dims_in_the_spec(lang64):
    @ts.op("x[*b, n] -> y[*b, n]")
    @lang64.kernel
    def square(x: lang64.template(), y: lang64.template()):
        for i in x:
            y[i] = x[i] * x[i]

    for count in COUNTS:
        x = torch.randn(count, 4, dtype=torch.float64, requires_grad=True)
        y = square(x)
        (slope,) = torch.autograd.grad(y.sum(), x)
        torch.testing.assert_close(y, x * x)
        torch.testing.assert_close(slope, 2 * x)


def test_numbers_that_are_sizes(lang64):
    @ts.op("x[n] -> y[count]")
    @lang64.kernel
    def spread(x: lang64.template(), count: lang64.i32, y: lang64.template()):
        for i, j in lang64.ndrange(count, x.shape[0]):
            y[i] += x[j] * (i + 1.0)

    for count in COUNTS:
        x = torch.randn(4, dtype=torch.float64, requires_grad=True)
        y = spread(x, count)
        factors = torch.arange(1.0, count + 1, dtype=torch.float64)
        torch.testing.assert_close(y, factors * x.sum())
        (slope,) = torch.autograd.grad(y.sum(), x)
        torch.testing.assert_close(slope, factors.sum().expand(4))


def test_sizes_by_keyword(lang64):
    @ts.op("x[n] -> y[m]")
    @lang64.kernel
    def spread(x: lang64.template(), y: lang64.template()):
        for i, j in lang64.ndrange(y.shape[0], x.shape[0]):
            y[i] += x[j] * (i + 1.0)

    for count in COUNTS:
        x = torch.randn(4, dtype=torch.float64, requires_grad=True)
        y = spread(x, m=count)
        factors = torch.arange(1.0, count + 1, dtype=torch.float64)
        torch.testing.assert_close(y, factors * x.sum())
        (slope,) = torch.autograd.grad(y.sum(), x)
        torch.testing.assert_close(slope, factors.sum().expand(4))
