"""Pitfall 56: a time loop as the outermost loop is not reversed by any engine (taichi #8802)."""

import torch

import tinsmith as ts
from support.right import assert_right, assert_right_forwards, assert_right_in_a_batch


def stepped(lang):
    @ts.op("u0[n], rate[] -> u[4, n]")
    @lang.kernel
    def stepped(u0: lang.types.ndarray(ndim=1), rate: lang.types.ndarray(ndim=0), u: lang.types.ndarray(ndim=2)):
        for i in range(u0.shape[0]):
            u[0, i] = u0[i]
        lang.loop_config(serialize=True)
        for t in range(3):
            for i in range(u0.shape[0]):
                u[t + 1, i] = u[t, i] + rate[None] * u[t, i] * u[t, i]

    return stepped


def twin(u0, rate):
    rows = [u0]
    for _ in range(3):
        rows.append(rows[-1] + rate * rows[-1] ** 2)
    return torch.stack(rows)


def test_a_time_loop(lang64, draw):
    assert_right(stepped(lang64), twin, (draw(6), draw()))


def test_a_time_loop_in_a_batch(lang64, draw):
    assert_right_in_a_batch(stepped(lang64), twin, (draw(3, 6), draw(3)))


def test_a_time_loop_forwards(lang64, draw):
    assert_right_forwards(stepped(lang64), twin, (draw(6), draw()))


def test_a_time_loop_in_one_buffer(lang64, draw):
    """56c: the state is overwritten at every step."""

    @ts.op("u0[n], rate[] -> u[n]", scratch="before[n]")
    @lang64.kernel
    def heated(
        u0: lang64.types.ndarray(),
        rate: lang64.types.ndarray(),
        before: lang64.types.ndarray(),
        u: lang64.types.ndarray(),
    ):
        for i in u0:
            u[i] = u0[i]
        lang64.loop_config(serialize=True)
        for _ in range(12):
            for i in range(u0.shape[0]):
                before[i] = u[i]
            for i in range(1, u0.shape[0] - 1):
                u[i] += rate[None] * (before[i - 1] - 2.0 * before[i] + before[i + 1]) * before[i]

    def twin(u0, rate):
        u = u0
        for _ in range(12):
            u = torch.cat([u[:1], u[1:-1] + rate * (u[:-2] - 2 * u[1:-1] + u[2:]) * u[1:-1], u[-1:]])
        return u

    assert_right(heated, twin, (draw(9, low=0.2, high=1.0), 0.1 * draw()))
