"""Pitfall 08: an outermost loop that reads what it wrote: no engine reverses its order (taichi #8802)."""

import torch

import tinsmith as ts
from support.right import assert_right, assert_right_in_a_batch


def serial(lang):
    @ts.op("x[n] -> y[n + 1]")
    @lang.kernel
    def cumulative(x: lang.types.ndarray(), y: lang.types.ndarray()):
        lang.loop_config(serialize=True)
        for i in range(x.shape[0]):
            y[i + 1] = y[i] + x[i]

    return cumulative


def sums(x):
    return torch.cat([x.new_zeros(1), torch.cumsum(x, 0)])


def test_an_outermost_serial_sum(lang64, draw):
    assert_right(serial(lang64), sums, (draw(9),))


def test_an_outermost_serial_sum_in_a_batch(lang64, draw):
    assert_right_in_a_batch(serial(lang64), sums, (draw(3, 5),))


def test_the_last_element_alone(lang64, draw):
    """Its gradient is 1 everywhere; an engine gives it to the last summand alone."""
    x = draw(5).requires_grad_()
    serial(lang64)(x)[-1].backward()
    torch.testing.assert_close(x.grad, torch.ones(5, dtype=torch.float64))


def test_a_nonlinear_recurrence(lang64, draw):
    @ts.op("x[n] -> y[n + 1]")
    @lang64.kernel
    def recurrence(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        lang64.loop_config(serialize=True)
        for i in range(x.shape[0]):
            y[i + 1] = lang64.sin(y[i]) * x[i] + x[i]

    def twin(x):
        rows = [torch.zeros((), dtype=x.dtype)]
        for value in x:
            rows.append(torch.sin(rows[-1]) * value + value)
        return torch.stack(rows)

    assert_right(recurrence, twin, (draw(8),))


def test_below_an_outer_loop_of_one_trip(lang64, draw):
    """08b: the engines' own way around it."""

    @ts.op("x[n] -> y[n + 1]")
    @lang64.kernel
    def cumulative(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for _ in range(1):
            for i in range(x.shape[0]):
                y[i + 1] = y[i] + x[i]

    assert_right(cumulative, sums, (draw(9),))
