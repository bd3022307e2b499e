"""Bits of floats that only steer a kernel leave the gradient of the rest; floats made of a mantissa are refused."""

import pytest
import torch

import tinsmith as ts
from support.written import compile_text

X = [0.3, 1.7, 5.0, 9.1, 30.0]


def test_bits_that_only_select_do_not_prevent_gradients(lang):
    """Each column of y is a power of x times what is constant in x almost everywhere."""
    array = lang.types.ndarray()

    @lang.func
    def spread(v):
        v = (v * lang.u32(0x00010001)) & lang.u32(0xFF0000FF)
        return (v * lang.u32(0x00000101)) & lang.u32(0x0F00F00F)

    @lang.func
    def hash_of(v):
        h = lang.bit_cast(v, lang.u32)
        h = h * lang.u32(747796405) + lang.u32(2891336453)
        h = ((h >> ((h >> 28) + 4)) ^ h) * lang.u32(277803737)
        return (h >> 22) ^ h

    @lang.kernel
    def kernel(x: array, y: array):
        for i in x:
            bits = lang.bit_cast(x[i], lang.u32)
            exponent = lang.i32((bits & lang.u32(0x7F800000)) >> 23) - 127
            fraction = lang.bit_cast((bits & lang.u32(0x7FFFFF)) | lang.u32(0x3F800000), lang.f32)
            if fraction > 1.5:
                exponent += 1
            y[i, 0] = x[i] * exponent
            y[i, 1] = x[i] ** 2 * lang.bit_cast(bits & lang.u32(0xFF800000), lang.f32)
            y[i, 2] = x[i] / lang.bit_cast((lang.bit_cast(x[i], lang.i32) // 8388608 + 3) << 23, lang.f32)
            y[i, 3] = x[i] * lang.bit_cast((lang.i32(lang.log(x[i])) + 127) << 23, lang.f32)
            y[i, 4] = x[i] ** 3 * lang.floor(fraction * 4.0)
            cell = lang.cast(x[i] * 4.0, lang.u32)
            y[i, 5] = x[i] ** 2 * lang.bit_cast(((cell * lang.u32(73856093)) >> 9) | lang.u32(0x3F800000), lang.f32)
            y[i, 6] = x[i] ** 3 * lang.cast(spread(cell) & lang.u32(255), lang.f32)
            y[i, 7] = x[i] * (lang.cast(hash_of(x[i]), lang.f32) / 4294967296.0)
            y[i, 8] = x[i] ** 2 * (lang.bit_cast((hash_of(x[i] + 1.0) >> 9) | lang.u32(0x3F800000), lang.f32) - 1.0)
            drawn = bits
            drawn ^= drawn << 13
            drawn ^= drawn >> 17
            drawn ^= drawn << 5
            y[i, 9] = x[i] ** 3 * (lang.cast(drawn, lang.f32) / 4294967296.0)
            key = lang.bit_cast(x[i], lang.i32)
            key ^= (key >> 31) & 0x7FFFFFFF
            y[i, 10] = lang.select(key > 1074000000, x[i] ** 2, x[i] ** 2 * 3.0)

    powers = torch.tensor([1, 2, 1, 1, 3, 2, 3, 1, 2, 3, 2])
    op = ts.op("x[n] -> y[n, 11]", adjoint="source")(kernel)
    x = torch.tensor(X, requires_grad=True)
    y, cotangents = op(x), torch.randn(5, 11)
    expected = (powers * cotangents * y.detach() / x.detach()[:, None]).double().sum(1)
    torch.testing.assert_close(torch.autograd.grad(y, x, cotangents)[0].double(), expected, rtol=1e-5, atol=1e-5)


def test_depth_buffer_keys_decoded_only_for_comparison(lang):
    array = lang.types.ndarray()

    @lang.kernel
    def kernel(z: array, k: array, color: array, nearest: array, y: array):
        for j in nearest:
            nearest[j] = 2147483647
        for i in z:
            lang.atomic_min(nearest[k[i]], lang.bit_cast(z[i], lang.i32))
        for i in z:
            if z[i] <= lang.bit_cast(nearest[k[i]], lang.f32):
                y[k[i]] += color[i] * z[i]

    op = ts.op("z[n], k[n], color[n] -> y[2]", scratch="nearest[2]: i32", adjoint="source")(kernel)
    z, color = torch.rand(6).add(0.1).requires_grad_(), torch.rand(6, requires_grad=True)
    k = torch.tensor([0, 1, 0, 1, 1, 0], dtype=torch.int32)
    hits = torch.stack([torch.where(k == j, z, torch.inf).argmin() for j in range(2)])
    expected = (color * z)[hits]
    ours, weights = op(z, k, color), torch.rand(2)
    torch.testing.assert_close(ours, expected)
    for mine, theirs in zip(*(torch.autograd.grad(one @ weights, (z, color)) for one in (ours, expected)), strict=True):
        torch.testing.assert_close(mine, theirs)


REBUILT = {
    "the whole float": "lang.bit_cast(lang.bit_cast(x[i], lang.i32), lang.f32)",
    "a mantissa": "lang.bit_cast((lang.bit_cast(x[i], lang.i32) & 0x7FFFFF) | 0x3F800000, lang.f32) * x[i]",
    "the inverse root": "lang.bit_cast(0x5F3759DF - (lang.bit_cast(x[i], lang.i32) >> 1), lang.f32)",
    "a rounded mantissa": "lang.bit_cast((lang.bit_cast(x[i], lang.i32) + 0x7FFF) & -65536, lang.f32)",
    "an exponential": "lang.bit_cast(lang.cast(12102203.0 * x[i], lang.i32) + 1064866805, lang.f32)",
    "a logarithm": "lang.bit_cast(x[i], lang.i32) / 8388608 - 127.0",
    "a mantissa as a number": "x[i] + (lang.bit_cast(x[i], lang.i32) & 0x7FFFFF)",
    "a power": (
        "lang.bit_cast(lang.cast(0.5 * (lang.bit_cast(x[i], lang.i32) - 1064866805), lang.i32) + 1064866805, lang.f32)"
    ),
    "one of two": "lang.bit_cast(lang.bit_cast(x[i], lang.i32) ^ lang.bit_cast(x[i] * 2.0, lang.i32), lang.f32)",
}


@pytest.mark.parametrize("name", REBUILT)
def test_floats_rebuilt_from_differentiable_bits_are_refused(lang, name):
    array = "lang.types.ndarray()"
    text = f"def kernel(x: {array}, y: {array}):\n    for i in x:\n        y[i] = {REBUILT[name]}\n"
    op = ts.op("x[n] -> y[n]", adjoint="source")(compile_text(lang, text))
    x = torch.tensor(X, requires_grad=True)
    with pytest.raises(ts.GradientError, match=r"a derivative through the bits of a float\n +at +<written \w+>:3\n"):
        op(x)
    with pytest.raises(ts.GradientError, match=r"a derivative through the bits of a float\n +at +<written \w+>:3\n"):
        torch.func.jvp(op, (x.detach(),), (x.detach(),))
