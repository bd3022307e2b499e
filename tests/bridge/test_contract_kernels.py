"""Kernels in the styles that people write, each by itself and mapped: offsets, components, comments, methods."""

import pytest
import torch
from torch.func import vmap

import cases
import tinsmith as ts

same = cases.assert_same_values_and_gradients


def rand(*shape):
    return torch.rand(shape, dtype=torch.float64)


def same_mapped_too(op, twin, x):
    same(op, twin, (x,))
    same(vmap(op), lambda x: torch.stack([twin(row) for row in x]), (torch.stack([x, 2 * x, x - 1]),))


def test_grouped_with_vector_offsets(lang64):
    @ts.op("x[h, w] -> y[h, w]")
    @lang64.kernel
    def edges(x: lang64.types.ndarray(ndim=2), y: lang64.types.ndarray(ndim=2)):
        for place in lang64.grouped(lang64.ndrange((1, x.shape[0] - 1), (1, x.shape[1] - 1))):
            y[place] = x[place + lang64.Vector([1, 0])] * x[place - lang64.Vector([0, 1])]

    pad = torch.nn.functional.pad
    same_mapped_too(edges, lambda x: pad(x[2:, 1:-1] * x[1:-1, :-2], (1, 1, 1, 1)), rand(4, 5))


def test_static_neighbors(lang64):
    @ts.op("x[h, w] -> y[h, w]")
    @lang64.kernel
    def boxes(x: lang64.types.ndarray(ndim=2), y: lang64.types.ndarray(ndim=2)):
        for place in lang64.grouped(x):
            for d in lang64.static(lang64.ndrange(2, 2)):
                near = place + lang64.Vector([d[0], d[1]])
                if near[0] < x.shape[0] and near[1] < x.shape[1]:
                    y[place] += x[near] * x[place]

    def twin(x):
        p = torch.nn.functional.pad(x, (0, 1, 0, 1))
        return x * (p[:-1, :-1] + p[1:, :-1] + p[:-1, 1:] + p[1:, 1:])

    same_mapped_too(boxes, twin, rand(4, 5))


def test_ndrange_of_a_starred_shape(lang64):
    @ts.op("x[h, w] -> y[h, w]")
    @lang64.kernel
    def squared(x: lang64.types.ndarray(ndim=2), y: lang64.types.ndarray(ndim=2)):
        for i, j in lang64.ndrange(*x.shape):
            y[i, j] = x[i, j] * x[i, j]

    same_mapped_too(squared, lambda x: x * x, rand(3, 4))


def test_kernels_may_have_settings_assertions_and_comments(lang64):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def squared(
        x: lang64.types.ndarray(),  # read
        y: lang64.types.ndarray(),
    ):
        """Have a docstring with y[i] = x[i] in it."""
        lang64.loop_config(block_dim=64)
        for i in x:  # every element
            assert x[i] > -1e9, "no"
            y[i] = (
                x[i]
                * x[i]
            )  # fmt: skip

    same_mapped_too(squared, lambda x: x * x, rand(3))


def test_conditions_on_what_an_earlier_loop_wrote(lang64):
    @ts.op("x[n] -> y[n]", scratch="h[n]")
    @lang64.kernel
    def gated(x: lang64.types.ndarray(), h: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            h[i] += x[i] * x[i]
        for i in x:
            if h[i] > 0.3:
                y[i] += h[i] * x[i]
            y[i] += x[i]

    same_mapped_too(gated, lambda x: torch.where(x * x > 0.3, x**3, 0.0) + x, rand(6))


def test_a_store_in_a_branch_and_a_partly_written_output(lang64):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def evens(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            if i % 2 == 0:
                y[i] = x[i] * x[i + 1]

    def twin(x):
        return torch.stack([x[::2] * x[1::2], torch.zeros_like(x[::2])], 1).reshape(-1)

    same_mapped_too(evens, twin, rand(6))


def test_a_decorated_method_in_a_class_body(lang64):
    @lang64.data_oriented
    class Scaler:
        def __init__(self, factor):
            self.factor = factor

        @ts.op("x[n] -> y[n]")
        @lang64.kernel
        def run(self, x: lang64.types.ndarray(), y: lang64.types.ndarray()):
            for i in x:
                y[i] = self.factor * x[i] * x[i]

    two, three = Scaler(2.0), Scaler(3.0)
    same_mapped_too(two.run, lambda x: 2 * x * x, rand(3))
    same_mapped_too(three.run, lambda x: 3 * x * x, rand(3))


def test_an_inherited_method(lang64):
    @lang64.data_oriented
    class Scaler:
        factor = 2.0

        @lang64.kernel
        def run(self, x: lang64.types.ndarray(), y: lang64.types.ndarray()):
            for i in x:
                y[i] = self.factor * x[i] * x[i]

    @lang64.data_oriented
    class Tripler(Scaler):
        factor = 3.0

    same_mapped_too(ts.op("x[n] -> y[n]")(Tripler().run), lambda x: 3 * x * x, rand(3))


def test_math_functions(lang64):
    @ts.op("p[n, 3] -> y[n]")
    @lang64.kernel
    def squared(
        p: lang64.types.ndarray(dtype=lang64.types.vector(3, lang64.f64), ndim=1),
        y: lang64.types.ndarray(dtype=lang64.f64, ndim=1),
    ):
        for i in p:
            y[i] = lang64.math.dot(p[i], p[i]) * lang64.math.clamp(p[i].x, 0.25, 0.75)

    same_mapped_too(squared, lambda p: (p * p).sum(1) * p[:, 0].clamp(0.25, 0.75), rand(4, 3))


@pytest.mark.parametrize("dims", [(0, None, None), (None, None, 0), (0, 0, None)], ids=str)
def test_a_map_over_an_op_with_batch_dims(lang64, dims):
    case = cases.select_cases("batched")[0]
    op = case.op(lang64, torch.float64)
    inputs = [
        v if d is None else torch.stack([v, 2 * v, -v]) for v, d in zip(case.inputs(torch.float64), dims, strict=True)
    ]

    def loop(*inputs):
        samples = range(3)
        rows = [[v if d is None else v[s] for v, d in zip(inputs, dims, strict=True)] for s in samples]
        return torch.stack([case.expected(*row) for row in rows])

    same(vmap(op, dims), loop, inputs)
