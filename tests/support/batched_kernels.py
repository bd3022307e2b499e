"""Kernels whose samples must not meet in a batch, each with its twin in torch for one sample.

What two samples could share: locals of the top level that loops change, the end of a loop that breaks, and
the order of a loop that runs in order. A row's twin uses none of the code under test.

A file of kernels must not use `from __future__ import annotations`: both engines refuse it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Row:
    """A kernel, its spec without batch dims, its twin, and the shapes of its inputs without batch."""

    build: Callable[[Any], Any]
    spec: str
    twin: Callable[..., Any]
    shapes: tuple[tuple[int, ...], ...]
    scratch: str | None = None

    @property
    def name(self) -> str:
        return self.build.__name__


ROWS: list[Row] = []


def row(spec: str, twin: Callable[..., Any], *shapes: tuple[int, ...], scratch: str | None = None) -> Any:
    def add(build: Callable[[Any], Any]) -> Callable[[Any], Any]:
        ROWS.append(Row(build, spec, twin, shapes, scratch))
        return build

    return add


# Locals of the top level ------------------------------------------------------------------------
@row("x[n] -> y[n]", lambda x: x / x.sum(), (4,))
def a_sum_shared_by_two_loops(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        s = 0.0
        for i in x:
            s += x[i]
        for i in x:
            y[i] = x[i] / s

    return kernel


def _sums(x, w):
    s = x[2] * w[0] if x[0] > 0.9 else w[1]
    s = s + (x * w).sum()
    return x * (x * torch.sin(s)).sum() + s


@row("x[n], w[n] -> y[n]", _sums, (4,), (4,))
def sums_shared_by_three_loops(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), w: lang.types.ndarray(), y: lang.types.ndarray()):
        s = w[1]
        if x[0] > 0.9:
            s = x[2] * w[0]
        for i in x:
            s += x[i] * w[i]
        t = lang.sin(s)
        q = 0.0
        for i in x:
            q += x[i] * t
        for i in x:
            y[i] = x[i] * q + s

    return kernel


@row("x[n], w[n] -> y[n]", lambda x, w: x * x.sum() * (w[0] + w[1]), (4,), (4,))
def a_sum_inside_a_static_loop(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), w: lang.types.ndarray(), y: lang.types.ndarray()):
        for k in lang.static(range(2)):
            s = 0.0
            for i in x:
                s += x[i] * w[k]
            for i in x:
                y[i] += x[i] * s

    return kernel


@row("x[n] -> y[n]", lambda x: x * (x * x).sum() / (1.0 + x.sum()), (4,))
def a_vector_changed_in_parts(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        v = lang.Vector([0.0, 1.0])
        for i in x:
            v[0] += x[i] * x[i]
            v.y += x[i]
        for i in x:
            y[i] = x[i] * v[0] / v[1]

    return kernel


@row("x[n] -> y[n]", lambda x: x * (x * x).sum() / (1.0 + x.sum()), (4,))
def a_matrix_changed_in_parts(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        m = lang.Matrix([[0.0, 1.0], [1.0, 0.0]])
        for i in x:
            m[0, 0] += x[i] * x[i]
            m[1, 0] += x[i]
        for i in x:
            y[i] = x[i] * m[0, 0] / m[1, 0]

    return kernel


@row("x[n] -> y[n]", lambda x: x * x.max() + x.sum(), (4,))
def atomics_on_locals(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        most = 0.0
        s = 0.0
        for i in x:
            lang.atomic_max(most, x[i])
            lang.atomic_add(s, x[i])
        for i in x:
            y[i] = x[i] * most + s

    return kernel


@row("x[n] -> y[n]", lambda x: x * (x * x).sum(), (4,))
def a_local_lent_to_a_function(lang):
    @lang.func
    def add(total: lang.template(), value):
        total += value

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        s = 0.0
        for i in x:
            add(s, x[i] * x[i])
        for i in x:
            y[i] = x[i] * s

    return kernel


@row("x[n] -> y[n]", lambda x: torch.where(torch.arange(5) < (x > 0.9).sum(), x * x, 0.0), (5,))
def a_counter_that_a_range_uses(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        count = 0
        for i in x:
            if x[i] > 0.9:
                count += 1
        for i in range(count):
            y[i] = x[i] * x[i]

    return kernel


def _grouped(x):
    s = (x * x).sum()
    return x * s, s * s


@row("x[n, m] -> y[n, m], z[]", _grouped, (3, 2))
def a_sum_of_a_grouped_loop(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(ndim=2), y: lang.types.ndarray(ndim=2), z: lang.types.ndarray(ndim=0)):
        s = 0.0
        for place in lang.grouped(x):
            s += x[place] * x[place]
        for i, j in x:
            y[i, j] = x[i, j] * s
        z[None] = s * s

    return kernel


def _normalized(x, w):
    h = x * w
    return (h / h.sum()) ** 2


@row("x[n], w[n] -> y[n]", _normalized, (4,), (4,), scratch="h[n]")
def a_sum_and_scratch(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), w: lang.types.ndarray(), y: lang.types.ndarray(), h: lang.types.ndarray()):
        s = 0.0
        for i in x:
            h[i] = x[i] * w[i]
            s += h[i]
        for i in x:
            h[i] = h[i] / s
        for i in x:
            y[i] = h[i] * h[i]

    return kernel


def _powers(x):
    k, s = 0, torch.ones_like(x[0])
    while k < len(x) and x[k] <= 1.1:
        s = s * x[k]
        k += 1
    return x * s + k


@row("x[n] -> y[n]", _powers, (4,))
def a_while_loop_at_the_top(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        k = 0
        s = 1.0
        while k < x.shape[0]:
            if x[k] > 1.1:
                break
            s *= x[k]
            k += 1
        for i in x:
            y[i] = x[i] * s + k

    return kernel


# Loops that break, or run in order ----------------------------------------------------------------
def _until(x, limit, value):
    """Compute `value(x, i, y)` up to the first element above a limit."""
    y = list(0.0 * x)
    for i in range(len(x)):
        if x[i] > limit:
            break
        y[i] = value(x, i, y)
    return torch.stack(y)


@row("x[n] -> y[n]", lambda x: _until(x, 1.1, lambda x, i, y: x[i] * x[i]), (5,))
def a_serial_loop_that_breaks(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        lang.loop_config(serialize=True)
        for i in range(x.shape[0]):
            if x[i] > 1.1:
                break
            y[i] = x[i] * x[i]

    return kernel


@row("x[n] -> y[n]", lambda x: _until(x, 1.1, lambda x, i, y: x[i] ** 2 + (0.5 * y[i - 1] if i else 0.0)), (5,))
def a_recurrence_that_breaks(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        lang.loop_config(serialize=True)
        for i in range(x.shape[0]):
            if x[i] > 1.1:
                break
            y[i] = x[i] * x[i]
            if i > 0:
                y[i] += 0.5 * y[i - 1]

    return kernel


def _decayed(x):
    y, s = [], x.new_zeros(())
    for value in x:
        if value <= 1.2:
            s = 0.5 * s + value * value
        y.append(s)
    return torch.stack(y)


@row("x[n] -> y[n]", _decayed, (5,))
def a_local_carried_in_order(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        s = 0.0
        lang.loop_config(serialize=True)
        for i in range(x.shape[0]):
            y[i] = s
            if x[i] > 1.2:
                continue
            s = 0.5 * s + x[i] * x[i]
            y[i] = s

    return kernel


@row("x[n, m] -> y[n, m]", lambda x: _until(x.flatten(), 1.2, lambda x, i, y: x[i] ** 2).reshape(x.shape), (3, 2))
def a_serial_loop_over_pairs_that_breaks(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(ndim=2), y: lang.types.ndarray(ndim=2)):
        lang.loop_config(serialize=True)
        for place in lang.grouped(lang.ndrange(x.shape[0], x.shape[1])):
            if x[place] > 1.2:
                break
            y[place] = x[place] * x[place]

    return kernel


@row("x[n] -> y[n]", lambda x: 2 * _until(x, 1.1, lambda x, i, y: x[i] * x[i]), (5,))
def settings_around_a_static_loop(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        lang.loop_config(serialize=True)
        for _ in lang.static(range(1)):
            for i in range(x.shape[0]):
                if x[i] > 1.1:
                    break
                y[i] += x[i] * x[i]
        for _ in lang.static(range(1)):
            lang.loop_config(serialize=True)
            last = x.shape[0]
            for i in range(last):
                if x[i] > 1.1:
                    break
                y[i] += x[i] * x[i]

    return kernel
