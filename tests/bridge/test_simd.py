"""Machine vectors: the same numbers as with components one by one, wherever the memory begins."""

import pytest
import torch
from torch.func import vmap

from support.written import compile_text
from tinsmith.engines import of_kernel
from tinsmith.operation import Op, OpOptions

SPEC = "x[n, {size}], w[n, {size}], b[n] -> y[n, {size}]"


def kernels(lang, size, dtype):
    array = f"lang.types.ndarray(lang.types.vector({size}, lang.{dtype}), ndim=1)"
    number = f"lang.types.ndarray(lang.{dtype}, ndim=1)"
    forward = f"""
def bent(x: {array}, w: {array}, b: {number}, y: {array}):
    for i in x:
        v = x[i] * w[i] + b[i]
        y[i] = lang.select(v > 0.1, v / (w[i] * w[i] + 1.0), lang.min(x[i], -1.0)) + v[1]
"""
    backward = f"""
def back(x: {array}, w: {array}, b: {number}, grad_y: {array}, grad_x: {array}, grad_b: {number}):
    for i in x:
        v = x[i] * w[i] + b[i]
        bent = lang.select(v > 0.1, grad_y[i] / (w[i] * w[i] + 1.0), 0.0 * v)
        total = 0.0 * grad_b[i]
        for k in lang.static(range({size})):
            total = total + grad_y[i][k]
        bent[1] = bent[1] + total
        cut = lang.select(x[i] < -1.0, lang.select(v > 0.1, 0.0 * v, grad_y[i]), 0.0 * v)
        grad_x[i] = bent * w[i] + cut
        for k in lang.static(range({size})):
            grad_b[i] = grad_b[i] + bent[k]
"""
    return compile_text(lang, forward), compile_text(lang, backward)


def of_torch(x, w, b):
    v = x * w + b[..., None]
    return torch.where(v > 0.1, v / (w * w + 1), torch.where(x < -1, x, -1.0)) + v[..., 1:2]


def made(lang, size, dtype):
    forward, backward = kernels(lang, size, dtype)
    return Op([forward], SPEC.format(size=size), OpOptions(backward=backward, simd=True))


def inputs(size, dtype, batch=()):
    generator = torch.Generator().manual_seed(size)
    shapes = [(*batch, 6, size), (*batch, 6, size), (*batch, 6)]
    return [2 * torch.randn(shape, generator=generator, dtype=dtype) for shape in shapes]


def shifted(tensor):
    """Copy a tensor to memory that starts one element after an aligned address."""
    return torch.cat([tensor.new_zeros(1), tensor.flatten()])[1:].view(tensor.shape)


def compute_gradients(function, x, w, b, cotangent):
    x, b = x.detach().requires_grad_(), b.detach().requires_grad_()
    y = function(x, w, b)
    return y.detach(), *torch.autograd.grad(y, (x, b), cotangent)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [2, 4, 8, 16])
def test_values_and_gradients(lang, size, dtype):
    op = made(lang, size, {torch.float32: "f32", torch.float64: "f64"}[dtype])
    x, w, b = inputs(size, dtype)
    cotangent = torch.randn_like(x)
    true = compute_gradients(of_torch, x, w, b, cotangent)
    for place in (lambda t: t, shifted):
        ours = compute_gradients(op, place(x), place(w), place(b), place(cotangent))
        for one, other in zip(ours, true, strict=True):
            torch.testing.assert_close(one, other)


def test_a_batch(lang):
    op = made(lang, 4, "f32")
    batch = inputs(4, torch.float32, (3,))
    torch.testing.assert_close(vmap(op)(*batch), of_torch(*batch))


@pytest.mark.compiled_engine
def test_vectors_are_whole_where_memory_begins_right_and_only_there(lang, monkeypatch):
    seen = []
    engine = type(of_kernel(kernels(lang, 8, "f32")[0]))
    compiled = engine.compile

    def noting(self, function, templates, options, *others):
        seen.append(options.is_simd)
        return compiled(self, function, templates, options, *others)

    monkeypatch.setattr(engine, "compile", noting)
    op = made(lang, 8, "f32")
    x, w, b = inputs(8, torch.float32)
    op(x, w, b)
    assert seen == [True]
    op(shifted(x), w, b)
    assert seen == [True, False]


def test_the_user_s_setting_is_as_before(lang):
    op = made(lang, 4, "f32")
    op(*inputs(4, torch.float32))
    assert lang.lang.impl.get_runtime().prog.config().real_matrix_scalarize
