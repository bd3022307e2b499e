"""Rows whose kernels treat every element alone: branches, functions, static loops, scalars."""

import torch

import tinsmith as ts
from cases._case import case


@case(lambda draw: (draw(7),), lambda x: x * x)
def square(lang, real):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def square(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    return square


def _branches(x):
    return torch.where(x > 0.5, x * x, torch.where(x > 0.0, torch.sin(x), 3.0 * x * x * x))


@case(lambda draw: (draw(9),), _branches)
def branches(lang, real):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def branches(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            if x[i] > 0.5:
                y[i] = x[i] * x[i]
            elif x[i] > 0.0:
                y[i] = lang.sin(x[i])
            else:
                v = x[i] * x[i]
                y[i] = 3.0 * v * x[i]

    return branches


def _clamped(x, low):
    return torch.minimum(torch.maximum(x, low), low + 1.0) + torch.where(x > low, x.abs(), 2.0 * low)


@case(lambda draw: (draw(8), draw(8)), _clamped)
def clamped(lang, real):
    @ts.op("x[n], low[n] -> y[n]")
    @lang.kernel
    def clamped(x: lang.types.ndarray(), low: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            inside = lang.min(lang.max(x[i], low[i]), low[i] + 1.0)
            y[i] = inside + lang.select(x[i] > low[i], abs(x[i]), 2.0 * low[i])

    return clamped


def _formula(x, k):
    return torch.exp(-x) * torch.log(k) + torch.tanh(x * k) / torch.sqrt(k) + torch.atan2(x, k) + k**1.7 + torch.cos(x)


@case(lambda draw: (draw(5), draw(5, low=0.5, high=2.0)), _formula)
def formula(lang, real):
    @ts.op("x[n], k[n] -> y[n]")
    @lang.kernel
    def formula(x: lang.types.ndarray(), k: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in range(x.shape[0]):
            a = lang.exp(-x[i]) * lang.log(k[i])
            b = lang.tanh(x[i] * k[i]) / lang.sqrt(k[i])
            y[i] = a + b + lang.atan2(x[i], k[i]) + k[i] ** 1.7 + lang.cos(x[i])

    return formula


@case(lambda draw: (draw(6, low=0.1, high=3.9),), lambda x: torch.remainder(x, 1.0) * x)
def fraction(lang, real):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def fraction(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = (x[i] % 1.0) * x[i]

    return fraction


def _polar(x, k):
    return torch.sqrt(x * x + k * k + 0.1) * torch.atan2(k, x + 3.0)


@case(lambda draw: (draw(6), draw(6)), _polar)
def functions(lang, real):
    @lang.func
    def squared_length(a, b):
        return a * a + b * b + 0.1

    @lang.func
    def polar(a, b):
        radius = lang.sqrt(squared_length(a, b))
        return radius * lang.atan2(b, a + 3.0)

    @ts.op("x[n], k[n] -> y[n]")
    @lang.kernel
    def functions(x: lang.types.ndarray(), k: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = polar(x[i], k[i])

    return functions


def _polynomial(x, c, degree):
    return sum(c[k] * x**k for k in range(degree + 1))


@case(lambda draw: (draw(5), draw(4), 3), _polynomial)
def polynomial(lang, real):
    @ts.op("x[n], c[_] -> y[n]")
    @lang.kernel
    def polynomial(x: lang.types.ndarray(), c: lang.types.ndarray(), degree: lang.template(), y: lang.types.ndarray()):
        for i in x:
            power = x[i] * 0.0 + 1.0
            for k in lang.static(range(degree + 1)):
                y[i] += c[k] * power
                power = power * x[i]

    return polynomial


@case(lambda draw: (draw(5), True), lambda x, cubed: x**3 if cubed else x**2)
def static_branch(lang, real):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def static_branch(x: lang.types.ndarray(), cubed: lang.template(), y: lang.types.ndarray()):
        for i in x:
            if lang.static(cubed):
                y[i] = x[i] * x[i] * x[i]
            else:
                y[i] = x[i] * x[i]

    return static_branch


@case(lambda draw: (draw(5), 1.75, 3), lambda x, scale, shift: scale * torch.sin(x) * x + shift)
def scalars(lang, real):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def scalars(x: lang.types.ndarray(), scale: real, shift: lang.i32, y: lang.types.ndarray()):
        for i in x:
            y[i] = scale * lang.sin(x[i]) * x[i] + shift

    return scalars


@case(lambda draw: (draw(), draw(6)), lambda m, x: m * m * x + torch.sin(m))
def learnable_scalar(lang, real):
    @ts.op("m[], x[n] -> y[n]")
    @lang.kernel
    def learnable_scalar(m: real, x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = m * m * x[i] + lang.sin(m)

    return learnable_scalar


@case(lambda draw: (draw(2, 3, 2), draw(2, 3, 2)), lambda x, k: torch.cos(x) * k * k)
def any_rank(lang, real):
    @ts.op("x[...], k[...] -> y[...]")
    @lang.kernel
    def any_rank(x: lang.types.ndarray(), k: lang.types.ndarray(), y: lang.types.ndarray()):
        for place in lang.grouped(x):
            y[place] = lang.cos(x[place]) * k[place] * k[place]

    return any_rank


@case(lambda draw: (draw(3, 4), draw(4)), lambda x, k: x * x * k[None, :] * torch.arange(3).to(x)[:, None])
def two_indices(lang, real):
    @ts.op("x[h, w], k[w] -> y[h, w]")
    @lang.kernel
    def two_indices(x: lang.types.ndarray(ndim=2), k: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=2)):
        for i, j in x:
            y[i, j] = x[i, j] * x[i, j] * k[j] * i

    return two_indices
