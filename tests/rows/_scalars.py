"""Rows with numbers: types, casts, functions, atomics."""

import torch

from rows._table import Table

ROWS = Table()


@ROWS.row(lambda d: (d(9), d.integers(9), d.zeros(9), d.zeros(9, dtype=torch.int32)))
def types_of_locals(lang, real):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), k: lang.types.ndarray(), y: lang.types.ndarray(), n: lang.types.ndarray()):
        for i in x:
            a = 1
            a = a * x[i] * 3
            b = k[i]
            b += x[i] * 2.9
            c = x[i]
            c = k[i]
            e = lang.cast(k[i], lang.i64)
            e = e * 1000000007
            f = k[i] / 4
            g = k[i] // 4 + k[i] % 4
            h: lang.f64 = 3
            h = h / 7 + x[i]
            u = lang.u8(200)
            u += 100
            q = lang.cast(k[i], lang.i8) * lang.i8(77)
            b *= 1.5
            b -= 0.9
            b //= 2
            t = k[i] > 0
            y[i] = a + b + c + f + h + u + x[i] // 0.7 + x[i] % 0.7 + (t + 1)
            n[i] = e + g + q + (k[i] >> 1) + (k[i] << 2) + (k[i] & 6) + (k[i] | 1) + (k[i] ^ 3) + ~k[i] + x[i] * 3

    return kernel


@ROWS.row(lambda d: (d(9), d.integers(9), d.zeros(9, 8), d.zeros(9, 5, dtype=torch.int32)))
def casts(lang, real):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), k: lang.types.ndarray(), y: lang.types.ndarray(), n: lang.types.ndarray()):
        for i in x:
            y[i, 0] = float(k[i]) / 3
            y[i, 1] = int(x[i]) + bool(k[i])
            y[i, 2] = lang.f32(x[i]) * 0.1
            y[i, 3] = lang.cast(x[i], lang.f16)
            y[i, 4] = lang.cast(x[i] * 3, int) * lang.cast(k[i], float)
            y[i, 5] = lang.bit_cast(lang.bit_cast(lang.cast(x[i], lang.f32), lang.i32) ^ 1, lang.f32)
            y[i, 6] = lang.f64(0.1) + lang.i64(5) * lang.f32(0.3)
            y[i, 7] = lang.floor(x[i], lang.i32) + lang.round(x[i] * 2, dtype=int) + lang.ceil(x[i])
            n[i, 0] = int(x[i] * 10)
            n[i, 1] = lang.cast(k[i], lang.u8)
            n[i, 2] = lang.cast(k[i], lang.u32) >> 3
            n[i, 3] = lang.bit_shr(k[i], 3)
            n[i, 4] = lang.i32(7) + True

    return kernel


@ROWS.row(lambda d: (d(9), d(9, low=0.1, high=0.9), d.integers(9), d.zeros(9, 24)))
def functions_of_numbers(lang, real):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), u: lang.types.ndarray(), k: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i, 0] = lang.sin(x[i]) + lang.cos(x[i])
            y[i, 1] = lang.tan(x[i])
            y[i, 2] = lang.asin(u[i]) + lang.acos(u[i])
            y[i, 3] = lang.tanh(x[i])
            y[i, 4] = lang.exp(x[i]) + lang.log(u[i])
            y[i, 5] = lang.sqrt(u[i]) + lang.rsqrt(u[i])
            y[i, 6] = lang.abs(x[i]) + abs(k[i]) + abs(-2)
            y[i, 7] = lang.floor(x[i]) + lang.ceil(x[i]) + lang.round(x[i])
            y[i, 8] = lang.atan2(x[i], u[i])
            y[i, 9] = lang.max(x[i], k[i], 0.5) + min(x[i], 1, k[i]) + max(1, 2)
            y[i, 10] = x[i] ** 2 + u[i] ** x[i] + lang.pow(u[i], 3) + pow(x[i], k[i]) + k[i] ** 2
            y[i, 11] = lang.select(x[i] > 0, k[i], x[i])
            y[i, 12] = -x[i] + (not (x[i] > 0)) + +x[i]
            y[i, 13] = lang.math.sign(x[i]) + lang.math.fract(x[i])
            y[i, 14] = lang.math.clamp(x[i], -0.5, 0.5) + lang.math.step(0.2, x[i])
            y[i, 15] = lang.math.smoothstep(0.1, 0.8, x[i]) + lang.math.mix(x[i], u[i], 0.3)
            y[i, 16] = lang.math.pi * lang.math.e + lang.math.degrees(x[i]) + lang.math.radians(x[i])
            y[i, 17] = lang.math.log2(u[i]) + lang.math.mod(x[i], 0.7)
            y[i, 18] = lang.math.isnan(x[i]) + lang.math.isinf(x[i])
            y[i, 19] = lang.sqrt(lang.abs(k[i])) + lang.exp(k[i] * 0.1)
            y[i, 20] = lang.sin(1.0) + lang.sqrt(2.0)
            y[i, 21] = lang.raw_div(k[i], 3) + lang.raw_mod(k[i], 4)
            y[i, 22] = lang.zero(x[i]) + lang.one(k[i])
            y[i, 23] = lang.math.popcnt(k[i] + 20) + lang.math.inf * 0 if k[i] == 99 else 3e-7

    return kernel


@ROWS.row(lambda d: (d.integers(8, low=0, high=4), d.integers(8), d.zeros(4, 8, dtype=torch.int32)))
def atomics(lang, real):
    @lang.kernel
    def kernel(k: lang.types.ndarray(), v: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in k:
            y[k[i], 0] += v[i]
            y[k[i], 1] -= v[i]
            lang.atomic_add(y[k[i], 2], 1.9)
            lang.atomic_sub(y[k[i], 2], v[i])
            lang.atomic_max(y[k[i], 3], v[i])
            lang.atomic_min(y[k[i], 4], v[i])
            lang.atomic_or(y[k[i], 5], v[i])
            y[k[i], 6] ^= v[i]
            y[k[i], 5] |= 8
        for _ in range(1):
            for i in range(8):
                old = lang.atomic_add(y[k[i], 7], 1)
                y[old % 4, 6] = old

    return kernel


@ROWS.row(lambda d: (d(8), d.zeros(8)))
def atomics_on_locals(lang, real):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            most = -1e9
            total = 0
            for j in range(8):
                before = lang.atomic_max(most, x[j])
                y[i] += before * 0.01 if j else 0
                lang.atomic_add(total, x[j])
            y[i] += most + total

    return kernel


@ROWS.row(lambda d: (d(4), 2.5, 7, d.zeros(4)))
def scalar_arguments(lang, real):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), gain: float, count: lang.i64, y: lang.types.ndarray()):
        for i in x:
            y[i] = gain * x[i] + count + gain * 0.1

    return kernel


@ROWS.row(lambda d: (d(4), d.zeros(4)))
def assignments(lang, real):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for _ in range(1):
            a, b = x[0], x[1]
            a, b = b, a + b
            y[0], y[1] = y[1] + a, y[0] + b
            c = d = a * 2
            c += 1
            y[2] = c - d
            y[3] = y[2] = b
            i = 0
            i, y[i + 1] = 2, 7.0
            e, f = 1, a
            y[3] += e + f * i

    return kernel
