"""Pitfalls 20, 27, 29: what an engine cannot differentiate at all (while, break, continue, tan, random).

The engines say so late, without a name and a line. Through an op the value is right, and the
gradient is right or refused by a GradientError that names the op.
"""

import pytest
import torch

import tinsmith as ts


def refusal_of(work):
    """The words of a GradientError, or nothing where there was none."""
    try:
        work()
    except ts.GradientError as error:
        return str(error)
    return ""


def with_while(lang):
    @lang.kernel
    def with_while(x: lang.types.ndarray(ndim=2), y: lang.types.ndarray(ndim=1)):
        for i in range(x.shape[0]):
            s = 0.0
            j = 0
            while j < x.shape[1]:
                s += x[i, j] * x[i, j]
                j += 1
            y[i] = s

    return with_while, lambda x: (x * x).sum(1)


def with_break(lang):
    @lang.kernel
    def with_break(x: lang.types.ndarray(ndim=2), y: lang.types.ndarray(ndim=1)):
        for i in range(x.shape[0]):
            s = 0.0
            for j in range(x.shape[1]):
                if s > 1.0:
                    break
                s += x[i, j] * x[i, j]
            y[i] = s

    def twin(x):
        totals = []
        for row in x:
            s = torch.zeros((), dtype=x.dtype)
            for value in row:
                if s > 1.0:
                    break
                s = s + value * value
            totals.append(s)
        return torch.stack(totals)

    return with_break, twin


def with_continue(lang):
    @lang.kernel
    def with_continue(x: lang.types.ndarray(ndim=2), y: lang.types.ndarray(ndim=1)):
        for i in range(x.shape[0]):
            s = 0.0
            for j in range(x.shape[1]):
                if x[i, j] < 0.0:
                    continue
                s += x[i, j] * x[i, j]
            y[i] = s

    return with_continue, lambda x: (x.clamp(min=0) ** 2).sum(1)


def with_tan(lang):
    @lang.kernel
    def with_tan(x: lang.types.ndarray(ndim=2), y: lang.types.ndarray(ndim=1)):
        for i in range(x.shape[0]):
            y[i] = lang.tan(x[i, 0])

    return with_tan, lambda x: torch.tan(x[:, 0])


@pytest.mark.parametrize("make", [with_while, with_break, with_continue, with_tan], ids=lambda make: make.__name__)
def test_right_or_refused_by_name(lang64, make):
    kernel, twin = make(lang64)
    op = ts.op("x[n, m] -> y[n]")(kernel)
    x = torch.randn(4, 5, dtype=torch.float64)
    torch.testing.assert_close(op(x), twin(x))
    mine, theirs = (x.clone().requires_grad_() for _ in range(2))
    twin(theirs).sum().backward()
    if words := refusal_of(lambda: op(mine).sum().backward()):
        assert f"`{make.__name__}`" in words and "backward" in words
    else:
        torch.testing.assert_close(mine.grad, theirs.grad)


def test_random_numbers_in_a_differentiated_kernel(lang64):
    @ts.op("x[n] -> y[n], drawn[n]")
    @lang64.kernel
    def noisy(x: lang64.types.ndarray(), y: lang64.types.ndarray(), drawn: lang64.types.ndarray()):
        for i in x:
            r = lang64.random()
            drawn[i] = r
            y[i] = r * x[i]

    x = torch.randn(4, dtype=torch.float64)
    out = noisy(x)
    torch.testing.assert_close(out.y, out.drawn * x)
    x.requires_grad_()
    out = noisy(x)
    if words := refusal_of(lambda: out.y.sum().backward()):
        assert "`noisy`" in words
    else:
        torch.testing.assert_close(x.grad, out.drawn.detach())
