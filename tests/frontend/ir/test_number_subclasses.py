"""Numbers of subclasses, as members of an `IntEnum` are, in a kernel: constants of the generated gradient."""

import enum

import numpy as np
import pytest
import torch

import tinsmith as ts


class Mode(enum.IntEnum):
    LINEAR = 0
    CUBIC = 2


class Flag(enum.IntFlag):
    A = 1
    B = 2


class Real(float, enum.Enum):
    HALF = 0.5


class Odd(int):
    def __repr__(self):
        return "<odd>"


NUMBERS = [Mode.CUBIC, Flag.B, Flag.A | Flag.B, Real.HALF, Odd(2), np.int32(2), np.float32(0.5), np.float64(0.5)]


def _compared(lang, number):
    @ts.op("x[n], m[n] -> y[n]", adjoint="source")
    @lang.kernel
    def compared(x: lang.types.ndarray(), m: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]
            if m[i] == number:
                y[i] = x[i] ** 3

    return compared, lambda x, m: torch.where(m == float(number), x**3, x * x)


def _in_a_local(lang, number):
    @ts.op("x[n], m[n] -> y[n]", adjoint="source")
    @lang.kernel
    def in_a_local(x: lang.types.ndarray(), m: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            scale = number
            y[i] = x[i] * x[i] * scale + number * m[i]

    return in_a_local, lambda x, m: x * x * float(number) + float(number) * m


def _in_a_vector(lang, number):
    @ts.op("x[n], m[n] -> y[n]", adjoint="source")
    @lang.kernel
    def in_a_vector(x: lang.types.ndarray(), m: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            pair = lang.Vector([number, number])
            y[i] = x[i] * x[i] * pair.sum() + m[i]

    return in_a_vector, lambda x, m: x * x * 2 * float(number) + m


@pytest.mark.thinned(4)
@pytest.mark.parametrize("make", [_compared, _in_a_local, _in_a_vector])
@pytest.mark.parametrize("number", NUMBERS, ids=repr)
def test_gradients(lang64, make, number):
    op, reference = make(lang64, number)
    x = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64, requires_grad=True)
    m = torch.tensor([2, 0, 3], dtype=torch.int32)
    y = op(x, m)
    torch.testing.assert_close(y, reference(x, m))
    cotangent = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    torch.testing.assert_close(torch.autograd.grad(y, x, cotangent), torch.autograd.grad(reference(x, m), x, cotangent))
