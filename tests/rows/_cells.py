"""Rows with locals of the top level: some that a parallel loop changes, some that it only reads."""

import torch

from rows._table import Table

ROWS = Table()


@ROWS.row(lambda d: (d(40), d.integers(40), d.zeros(9), d.zeros(6, dtype=torch.int32)), exact=False)
def reductions(lang, real):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), k: lang.types.ndarray(), y: lang.types.ndarray(), n: lang.types.ndarray()):
        total = real(0.5)
        less = real(10.0)
        greatest, least = x[0], x[0]
        count, bits, flips = 0, 0, 5
        has_any = False
        for i in x:
            total += x[i]
            less -= x[i] * total * 0
            lang.atomic_max(greatest, x[i])
            lang.atomic_min(least, x[i] * 2)
            if k[i] > 2:
                count += 1
                has_any = True
            bits |= k[i] & 12
            flips ^= k[i]
        y[0], y[1], y[2], y[3] = total, less, greatest, least
        n[0], n[1], n[2], n[3] = count, bits, flips, has_any
        mean = total / x.shape[0]
        spread = mean * 0
        for i in x:
            spread += (x[i] - mean) ** 2
        y[4] = spread
        y[5] = mean
        for i in x:
            if i < 2:
                y[6 + i] = x[i] - mean + spread

    return kernel


@ROWS.row(lambda d: (d(30, 2), d.zeros(4), d.zeros(2, 3), d.integers(30, low=0, high=3)), exact=False)
def reductions_of_vectors(lang, real):
    vec2 = lang.types.vector(2, real)

    @lang.func
    def add(total: lang.template(), value):
        total += value

    @lang.kernel
    def kernel(
        p: lang.types.ndarray(dtype=vec2, ndim=1),
        y: lang.types.ndarray(),
        z: lang.types.ndarray(),
        k: lang.types.ndarray(),
    ):
        center = vec2(0.0)
        m = lang.Matrix([[real(0.0)] * 3 for _ in range(2)])
        count = 1
        hits = lang.Vector([0, 0, 0])
        for i in p:
            center += p[i] / p.shape[0]
            m[0, 1] += p[i].x
            add(m[1, 2], p[i].y)
            lang.atomic_add(count, 2)
            hits[k[i]] += 1
        for _ in range(1):
            y[0], y[1], y[2] = center.x, center.y, count
            y[3] = hits[0] + 10 * hits[1] + 100 * hits[2]
        for i, j in lang.ndrange(2, 3):
            for a, b in lang.static(lang.ndrange(2, 3)):
                if i == a and j == b:
                    z[i, j] = m[a, b]

    return kernel


@ROWS.row(lambda d: (d(12), d.zeros(12), 5))
def serial_state(lang, real):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray(), n: lang.i32):
        state = x[0]
        steps = 0
        while steps < n:
            state = state * 0.5 + x[steps]
            steps += 1
        lang.loop_config(serialize=True)
        for i in range(12):
            state += x[i] * 0.25
            y[i] = state
        scale = 1.0
        if n > 3:
            scale = 2.0
        for i in x:
            last = state
            last += i
            y[i] = y[i] * scale + last + steps

    return kernel
