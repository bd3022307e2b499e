"""Pitfall 20: no engine differentiates `while`, `break` or `continue` (taichi #1074, #2387, #7771)."""

import pytest
import torch

import tinsmith as ts
from support.adjoints import with_adjoint
from support.right import assert_right, assert_right_forwards, assert_right_in_a_batch


def while_counted(lang):
    @ts.op("x[n, m] -> y[n]")
    @lang.kernel
    def while_counted(x: lang.types.ndarray(ndim=2), y: lang.types.ndarray(ndim=1)):
        for i in range(x.shape[0]):
            s = 0.0
            j = 0
            while j < x.shape[1]:
                s += x[i, j] * x[i, j]
                j += 1
            y[i] = s

    return while_counted


def while_small(lang):
    """Build a kernel with a `while` whose trip count depends on data."""

    @ts.op("x[n, m] -> y[n]")
    @lang.kernel
    def while_small(x: lang.types.ndarray(ndim=2), y: lang.types.ndarray(ndim=1)):
        for i in range(x.shape[0]):
            s = 0.1
            while s < 3.0:
                s = s * (1.1 + x[i, 0] * x[i, 0]) + 0.1
            y[i] = s * x[i, 1]

    return while_small


def breaking(lang):
    @ts.op("x[n, m] -> y[n]")
    @lang.kernel
    def breaking(x: lang.types.ndarray(ndim=2), y: lang.types.ndarray(ndim=1)):
        for i in range(x.shape[0]):
            s = 1.0
            for j in range(x.shape[1]):
                if s > 3.0:
                    break
                s += s * x[i, j] * x[i, j]
            y[i] = s

    return breaking


def continuing(lang):
    @ts.op("x[n, m] -> y[n]")
    @lang.kernel
    def continuing(x: lang.types.ndarray(ndim=2), y: lang.types.ndarray(ndim=1)):
        for i in range(x.shape[0]):
            s = 1.0
            for j in range(x.shape[1]):
                if x[i, j] < 0.0:
                    continue
                s *= 1.0 + x[i, j]
            y[i] = s

    return continuing


def while_true(lang):
    """Build a `while True` with `break` and `continue`, inside a loop."""

    @ts.op("x[n, m] -> y[n]")
    @lang.kernel
    def while_true(x: lang.types.ndarray(ndim=2), y: lang.types.ndarray(ndim=1)):
        for i in range(x.shape[0]):
            s = 1.0
            for _ in range(2):
                j = -1
                while True:
                    j += 1
                    if j >= x.shape[1] or s > 9.0:
                        break
                    if x[i, j] < 0.0:
                        continue
                    s = s + lang.sin(s * x[i, j])
            y[i] = s

    return while_true


def _by_row(row_of):
    def twin(x):
        return torch.stack([row_of(row) for row in x])

    return twin


def _small(row):
    s = torch.full((), 0.1, dtype=row.dtype)
    while s < 3.0:
        s = s * (1.1 + row[0] * row[0]) + 0.1
    return s * row[1]


def _breaking(row):
    s = torch.ones((), dtype=row.dtype)
    for value in row:
        if s > 3.0:
            break
        s = s + s * value * value
    return s


def _true(row):
    s = torch.ones((), dtype=row.dtype)
    for _ in range(2):
        for value in row:
            if s > 9.0:
                break
            if value >= 0.0:
                s = s + torch.sin(s * value)
    return s


TWINS = {
    while_counted: lambda x: (x * x).sum(1),
    while_small: _by_row(_small),
    breaking: _by_row(_breaking),
    continuing: lambda x: (1 + x.clamp(min=0)).prod(1),
    while_true: _by_row(_true),
}
MAKERS = pytest.mark.parametrize("make", TWINS, ids=lambda make: make.__name__)


@MAKERS
def test_right(lang64, draw, make):
    assert_right(make(lang64), TWINS[make], (draw(20, 6),))


@MAKERS
def test_right_in_a_batch(lang64, draw, make):
    assert_right_in_a_batch(make(lang64), TWINS[make], (draw(2, 5, 6),))


@MAKERS
def test_right_forwards(lang64, draw, make):
    assert_right_forwards(make(lang64), TWINS[make], (draw(20, 6),))


@MAKERS
def test_refused_by_the_engine_s_reverse_mode(lang64, draw, make):
    with pytest.raises(ts.GradientError, match=f"`{make.__name__}`"):
        with_adjoint("engine", make(lang64))(draw(4, 5).requires_grad_()).sum().backward()
