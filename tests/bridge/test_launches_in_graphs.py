"""Operators in graphs that a compiler has differentiated: one look-up, and none of what autograd needs."""

import gc
import weakref

import torch

import tinsmith as ts
from tinsmith.torch_side import _operator


def make_scaled(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def scaled(x: lang.types.ndarray(), factor: lang.f32, y: lang.types.ndarray()):
        for i in x:
            y[i] = factor * x[i] * x[i]

    return scaled


def refuse(*_arguments, **_named):
    raise AssertionError("a call of a known kind was handed to autograd, or checked again")


def test_a_known_call_is_neither_differentiated_nor_checked_again(lang, monkeypatch):
    scaled = make_scaled(lang)
    x = torch.rand(5, requires_grad=True)
    compiled = torch.compile(lambda x: scaled(x, 3.0).sum(), fullgraph=True, backend="aot_eager")
    (first,) = torch.autograd.grad(compiled(x), x)
    for name in ("apply_at_one_level", "make_checked_call"):
        monkeypatch.setattr(_operator, name, refuse)
    (again,) = torch.autograd.grad(compiled(x), x)
    torch.testing.assert_close(first, 6.0 * x.detach())
    torch.testing.assert_close(again, first)


def test_what_differs_is_another_call(lang):
    """Sizes, memory order and numbers; 2 and 2.0 are equal, and so are hashes of them."""
    scaled = make_scaled(lang)
    operator = scaled.operator
    x = torch.rand(6)
    for given in (x, x[:4], x[::2], x.flip(0)):
        for factor in (2.0, 3.0, 2.0):
            torch.testing.assert_close(operator(given, factor), factor * given * given)
    y = operator(x.double(), 2.0)
    assert y.dtype == torch.float64
    torch.testing.assert_close(y, 2.0 * x.double() ** 2)


def test_calls_in_graphs_keep_no_op_alive(lang):
    scaled = make_scaled(lang)
    scaled.operator(torch.rand(3), 2.0)
    core = weakref.ref(scaled._core)
    gc.collect()
    gc.disable()
    try:
        del scaled
        assert core() is None
    finally:
        gc.enable()
