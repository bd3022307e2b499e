"""Rows with loops, branches and what leaves them."""

import math

import torch

from rows._table import Table

ROWS = Table()


@ROWS.row(lambda d: (d(6), d.zeros(6)))
def over_an_array(lang, real):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i] - 0.5

    return kernel


@ROWS.row(lambda d: (d(3, 4), d.zeros(3, 4), d.zeros()))
def over_two_dims(lang, real):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray(), z: lang.types.ndarray()):
        for i, j in x:
            y[i, j] = x[i, j] * (i + 2 * j)
        for ij in lang.grouped(x):
            y[ij] += x[ij] * ij[0] + ij.y
        z[None] = x[0, 0] + x.shape[0] * x.shape[1]

    return kernel


@ROWS.row(lambda d: (d(7), d.zeros(7), 2, 6))
def ranges(lang, real):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray(), first: lang.i32, end: int):
        for i in range(first, end):
            for j in range(i):
                for k in range(j, i + 1):
                    y[i] += x[k] * (j - k)
        for _ in range(1):
            for i in range(end, first):
                y[i] = 1e6

    return kernel


@ROWS.row(lambda d: (d(5, 6), d.zeros(5, 6)))
def ndranges(lang, real):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i, j in lang.ndrange((1, x.shape[0] - 1), (1, x.shape[1] - 1)):
            y[i, j] = x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1] - 4 * x[i, j]
        for ij in lang.grouped(lang.ndrange((2, 4), 3)):
            y[ij] = x[ij + 1] * 2
            for o in lang.static(lang.grouped(lang.ndrange((-1, 2), (0, 2)))):
                y[ij] += x[ij + o]
        for i in lang.ndrange((1, 3)):
            y[i, 0] = 3 + i

    return kernel


@ROWS.row(lambda d: (d(6), d.zeros(6)))
def serial(lang, real):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        lang.loop_config(serialize=True)
        for i in range(1, 6):
            y[i] = y[i - 1] * 0.5 + x[i]
        lang.loop_config(block_dim=64)
        for i in range(6):
            y[i] *= 2

    return kernel


@ROWS.row(lambda d: (d(8), d.zeros(8), d.zeros(8)))
def leaving_loops(lang, real):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray(), count: lang.types.ndarray()):
        for i in x:
            total = 0.0
            for j in range(8):
                if j == i:
                    continue
                if x[j] > 1.5:
                    break
                total += x[j]
            steps = 0
            while True:
                total = total * 0.5 + x[i]
                steps += 1
                if steps > 20 or total < 0.1:
                    break
            while steps > 3:
                steps -= 2
                if steps % 3 == 1:
                    continue
                total += 1
            y[i] = total
            count[i] = steps

    return kernel


@ROWS.row(lambda d: (d(9), d.zeros(9)))
def branches(lang, real):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            if x[i] > 1:
                y[i] = 1
            elif x[i] < -1 and i > 2:
                y[i] = -1
            elif not (x[i] > 0):
                t = x[i] * 2
                y[i] = t
            else:
                t = i
                y[i] = t
            if i % 2:
                y[i] += 10
            z = x[i] if x[i] > 0 else i
            y[i] += z + (1 if i > 3 else 2.5)

    return kernel


@ROWS.row(lambda d: (d(9), d.integers(9, low=0, high=9), d.zeros(9)))
def short_circuits(lang, real):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), k: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            if i > 0 and x[i - 1] > 0 and x[k[i]] > x[k[i - 1]]:
                y[i] = 1
            if i == 0 or k[i - 1] == 0 or k[i] // k[i - 1] > 1:
                y[i] += 2
            y[i] += x[i + 1] if i + 1 < 9 else x[k[i]] if k[i] < 9 else 5
            inside = 0 < i <= 7
            if inside and not (i == 3 or i == 4):
                y[i] *= 3
            while i + y[i] < 4 and (i < 2 or x[i - 2] < 1.9):
                y[i] += 1

    return kernel


@ROWS.row(lambda d: (d(5), d.zeros(5)))
def static(lang, real):
    weights = [0.25, 0.5, 0.25]
    table = {"gain": 1.5, "names": ("a", "b")}
    wanted = True

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in range(1, 4):
            total = 0.0
            for j in lang.static(range(3)):
                if lang.static(j == 1):
                    continue
                total += weights[j] * x[i + j - 1]
            for k, w in lang.static(enumerate(weights)):
                if lang.static(k > 1):
                    break
                total -= w
            for a, b in lang.static(zip(range(3), weights, strict=True)):
                total += a * b
            for p, q in lang.static(lang.ndrange(2, 2)):
                total += p * x[q]
            if lang.static(wanted and "a" in table["names"]):
                total *= table["gain"]
            else:
                total = undefined_on_purpose  # noqa: F821  # never lowered
            bias = lang.static(math.sqrt(2.0))
            total += bias * lang.static(len(weights)) + sum([w * x[i] for w in lang.static(weights)])
            lang.static_assert(bias > 1)
            y[i] = total

    return kernel


@ROWS.row(lambda d: (d(4), d.zeros(4)))
def scopes(lang, real):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            a = x[i]
            for i2 in range(2):
                b = a + i2
                a = b * 0.5
            if a > 0:
                b = 3
                y[i] = b + a
            else:
                b = 2.5
                y[i] = b - a
            a, c = y[i], a
            y[i] = c - a
            print(a, "dropped")  # noqa: T201
            assert c > -1e9, "dropped"

    return kernel


@ROWS.row(lambda d: (d(4), d.zeros(4)))
def top_level(lang, real):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        """Have a docstring."""
        gain = x[0] + 1
        y[0] = gain
        if gain > 0:
            for i in range(1, 4):
                y[i] = gain * x[i]
        while gain < 3:
            gain += 0.75
        for i in range(1, 4):
            y[i] += gain

    return kernel


@ROWS.row(lambda d: (d(6), d.integers(6, low=1, high=5, dtype=torch.int64), d.zeros(6)))
def bounds_of_other_types(lang, real):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), k: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            for j in range(lang.cast(k[i], lang.i32)):
                y[i] += j * 0.5
            for j in lang.ndrange((k[0] - k[0], k[i])):
                y[i] += x[j] * j

    return kernel


@ROWS.row(lambda d: (d(3, 4), d.zeros(3, 4), d.zeros(9)))
def loop_variables_that_change(lang, real):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray(), z: lang.types.ndarray()):
        for i, j in lang.ndrange(3, (1, 4)):
            at = i
            i += 2
            j = j * 1.75
            y[at, j % 4] += x[at, 0] * i
        for ij in lang.grouped(lang.ndrange(3, 3)):
            at = ij[0] * 3 + ij[1]
            ij[0] += 1
            ij.y *= 2
            z[at] = ij[0] * 10 + ij[1]

    return kernel


@ROWS.row(lambda d: (d(9), d.zeros(9, 4)))
def assignments_in_expressions(lang, real):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            if (a := x[i] * 2) > 1:
                y[i, 0] = a
            n = 0
            y[i, 1] = (n := x[i] * 3) + (b := x[i] + 1) * b + n
            k = 0
            while (m := k * k) < i:
                k += 1 + m // 100
            y[i, 2] = (c := lang.Vector([x[i], 1.0])).x + c.sum() + k
            y[i, 3] = (x[i + 1] if i < 8 else 0.0) + (x[(k := i // 2)] if k >= 0 and x[k] > 0 else x[0])

    return kernel


@ROWS.row(lambda d: (d(9), d.zeros(9, 5)))
def choices_beside_changes(lang, real):
    @lang.func
    def bump(total: lang.template(), by):
        total += by
        return total

    @lang.func
    def first(x: lang.template(), i, total: lang.template()):
        total += 1
        return x[i + 1] if i < 8 and x[i + 1] > 0 else total

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            total = x[i]
            y[i, 0] = (x[i + 1] if i < 8 else total) + bump(total, x[i])
            y[i, 1] = bump(total, 1) + (total if x[i] > 0 else 7 // (i + 1))
            if (i < 8 and x[i + 1] > 0) or bump(total, 2) > total:
                y[i, 2] = total
            y[i, 3] = (y[i, 0] if y[i, 1] > 0 else -1.0) + bump(y[i, 0], 1) + (y[i, 0] > 1 or y[i, 1] > y[i, 2])
            y[i, 4] = first(x, i, total) * (total if i > 4 else first(x, i, total)) + total
            y[i, 4] += bump(y[i, 4], x[i + 1] if i < 8 else 0.0)

    return kernel
