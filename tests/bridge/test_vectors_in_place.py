"""Kernels that use an array of vectors whole and number by number: both engines took the two for different memory."""

import pytest
import torch

import tinsmith as ts


def adds_to_what_was_there(lang):
    @ts.op("x[n] -> y[n, 2]")
    @lang.kernel
    def op(x: lang.types.ndarray(), y: lang.types.ndarray(dtype=lang.types.vector(2, lang.f64), ndim=1)):
        for i in x:
            before = y[i][0]
            y[i] = lang.Vector([x[i], 2.0 * x[i]])
            y[i][0] += before

    return op, lambda x: torch.stack([x, 2 * x], 1)


def multiplies_after_a_read(lang):
    @ts.op("x[n] -> y[n, 2], z[n]")
    @lang.kernel
    def op(
        x: lang.types.ndarray(),
        y: lang.types.ndarray(dtype=lang.types.vector(2, lang.f64), ndim=1),
        z: lang.types.ndarray(),
    ):
        for i in x:
            z[i] = y[i][0]
            y[i] = lang.Vector([x[i], 0.5])
            y[i][0] *= x[i]
            z[i] += y[i][0]

    return op, lambda x: (torch.stack([x * x, 0.5 + 0 * x], 1), x * x)


def stores_a_number_into_a_vector_that_was_read(lang):
    @ts.op("x[n] -> y[n, 2], z[n]")
    @lang.kernel
    def op(
        x: lang.types.ndarray(),
        y: lang.types.ndarray(dtype=lang.types.vector(2, lang.f64), ndim=1),
        z: lang.types.ndarray(),
    ):
        for i in x:
            before = y[i]
            y[i][0] = x[i]
            after = y[i]
            z[i] = after[0] * after[0] + before[0]

    return op, lambda x: (torch.stack([x, 0 * x], 1), x * x)


def entries_that_are_counted(lang):
    @ts.op("x[n] -> y[n, 2]")
    @lang.kernel
    def op(x: lang.types.ndarray(), y: lang.types.ndarray(dtype=lang.types.vector(2, lang.f64), ndim=1)):
        for i in x:
            for j in range(3):
                first = y[i][j % 2]
                y[i] = 0.5 * y[i] + x[i]
                y[i][j % 2] += first

    def twin(x):
        y = [0 * x, 0 * x]
        for j in range(3):
            first = y[j % 2]
            y = [0.5 * one + x for one in y]
            y[j % 2] = y[j % 2] + first
        return torch.stack(y, 1)

    return op, twin


def agree(ours, theirs):
    several = [made if isinstance(made, tuple) else (made,) for made in (ours, theirs)]
    for one, other in zip(*several, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    "program",
    [
        adds_to_what_was_there,
        multiplies_after_a_read,
        stores_a_number_into_a_vector_that_was_read,
        entries_that_are_counted,
    ],
)
def test_a_vector_and_its_numbers_are_one_memory(lang64, program):
    op, twin = program(lang64)
    x = torch.rand(3, dtype=torch.float64) + 0.5
    agree(op(x), twin(x))
    agree(torch.func.jacrev(op)(x), torch.func.jacrev(twin)(x))
    agree(torch.func.jacfwd(op)(x), torch.func.jacfwd(twin)(x))
    batch = torch.stack([x, 2 * x])
    agree(torch.vmap(op)(batch), torch.vmap(twin)(batch))
