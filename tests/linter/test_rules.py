"""Each rule finds its mistake in its line, in a file that nobody runs and in a kernel that lives; not in its twin."""

import linecache
import textwrap
from pathlib import Path

import pytest

from tinsmith.linter import RULES, lint_file, lint_kernels

HEAD = {"taichi": "import taichi as ti\n", "quadrants": "import quadrants as ti\n"}

# name: (rule, severity, the engine that alone it is about, the kernel with the mistake in a line marked `#!`, its twin)
CASES = {
    "an index behind the end": (
        "TS109",
        "error",
        "",
        """
        def k(x: A, y: A):
            for i in x:
                y[i] = x[i + 1]  #!
        """,
        """
        def k(x: A, y: A):
            for i in range(x.shape[0] - 1):
                y[i] = x[i + 1]
        """,
    ),
    "an index before the beginning": (
        "TS109",
        "error",
        "",
        """
        def k(x: A, y: A):
            for i, j in ti.ndrange(x.shape[0], 3):
                y[i] += x[i - j]  #!
        """,
        """
        def k(x: A, y: A):
            for i, j in ti.ndrange(x.shape[0], 3):
                if i >= j:
                    y[i] += x[i - j]
        """,
    ),
    "overwritten": (
        "TS101",
        "warning",
        "",
        """
        def k(x: A, y: A):
            for i in x:
                s = y[i] * x[i]
                y[i] = x[i]  #!
                y[i] += s
        """,
        """
        def k(x: A, y: A):
            for i in x:
                y[i] = x[i] * x[0]
        """,
    ),
    "overwritten across iterations": (
        "TS101",
        "warning",
        "",
        """
        def k(x: A, y: A):
            for _ in range(1):
                s = 0.0
                for i in range(x.shape[0] - 1):
                    s += ti.sin(y[i + 1])
                    y[i] = s * x[i]  #!
        """,
        """
        def k(x: A, y: A):
            for _ in range(1):
                for i in range(x.shape[0] - 1):
                    y[i + 1] = ti.sin(y[i]) + x[i]
        """,
    ),
    "in place": (
        "TS102",
        "warning",
        "",
        """
        def k(x: A, y: A):
            for i in y:
                y[i] = ti.sin(y[i])  #!
        """,
        """
        def k(x: A, y: A):
            for i in y:
                y[i] = y[i] * 0.5 + x[i]
        """,
    ),
    "a store that everybody makes": (
        "TS105",
        "error",
        "",
        """
        def k(x: A, y: A):
            for i in x:
                y[0] = x[i]  #!
        """,
        """
        def k(x: A, y: A):
            for i in x:
                if i == 0:
                    y[0] = x[i]
                y[1] += x[i]
                y[2] = 1.0
        """,
    ),
    "an addition that is no atomic": (
        "TS105",
        "error",
        "",
        """
        def k(x: A, y: A):
            for i in x:
                y[None] = y[None] + x[i]  #!
        """,
        """
        def k(x: A, y: A):
            for i in x:
                y[None] += x[i]
            for i in x:
                y[i] = y[i] + x[i]
            for _ in range(1):
                for i in range(9):
                    y[None] = y[None] + x[i]
        """,
    ),
    "a product in a local of the top level": (
        "TS105",
        "error",
        "",
        """
        def k(x: A, y: A):
            s = 1.0
            for i in x:
                s *= x[i]  #!
            y[0] = s
        """,
        """
        def k(x: A, y: A):
            s = 1.0
            for i in x:
                s += x[i]
            last = 0.0
            for i in x:
                last = 1.0
                for j in range(3):
                    last *= x[j]
                y[i] = last
            greatest = 0.0
            for _ in range(1):
                for i in range(x.shape[0]):
                    if x[i] > 1.0:
                        greatest = greatest * x[i]
            for _ in range(1):
                for i in range(3):
                    s *= x[i]
            ti.loop_config(serialize=True)
            for i in x:
                s = ti.max(s, x[i])
            for i in ti.static(range(3)):
                s = s * x[i]
            y[0] = s + greatest
        """,
    ),
    "an addition to a local of the top level that is no atomic": (
        "TS105",
        "error",
        "",
        """
        def k(x: A, y: A):
            s = 0.0
            for i in x:
                for j in range(3):
                    s = s + x[i] * x[j]  #!
            y[0] = s
        """,
        """
        def k(x: A, y: A):
            s = 0.0
            for i in x:
                for j in range(3):
                    s += x[i] * x[j]
            y[0] = s
        """,
    ),
    "a row that everybody stores": (
        "TS105",
        "error",
        "",
        """
        def k(x: A, y: A):
            for i in range(x.shape[0]):
                for j in range(3):
                    y[j] = x[i]  #!
        """,
        """
        def k(x: A, y: A):
            for i in range(x.shape[0]):
                for j in range(3):
                    y[i, j] = x[i]
            for i, j in ti.ndrange(4, 5):
                s = x[i] * 2.0
                y[i, 0] = s
        """,
    ),
    "a range that begins where all others do": (
        "TS105",
        "error",
        "",
        """
        def k(x: A, y: A):
            for i in range(x.shape[0]):
                for j in range(0, i):
                    y[j] = x[i]  #!
        """,
        """
        def k(x: A, y: A):
            for i in range(x.shape[0]):
                for j in range(3 * i, 3 * i + 3):
                    y[j] = x[i]
            for i in range(x.shape[0]):
                first, last = divmod(i, 4)
                for j, axis in ti.ndrange((first, last), 3):
                    y[j, axis] = x[i]
        """,
    ),
    "the next one's element": (
        "TS106",
        "error",
        "",
        """
        def k(x: A, y: A):
            for i in range(x.shape[0] - 1):
                y[i + 1] = y[i] + x[i]  #!
        """,
        """
        def k(x: A, y: A):
            for i in range(x.shape[0] - 1):
                y[i] = x[i + 1] + x[i]
        """,
    ),
    "state of the outermost loop": (
        "TS108",
        "warning",
        "",
        """
        def k(x: A, y: A):
            ti.loop_config(serialize=True)
            for i in range(x.shape[0] - 1):
                y[i + 1] = 2.0 * y[i] + x[i]  #!
        """,
        """
        def k(x: A, y: A):
            for _ in range(1):
                for i in range(x.shape[0] - 1):
                    y[i + 1] = 2.0 * y[i] + x[i]
        """,
    ),
    "steered": (
        "TS107",
        "warning",
        "",
        """
        def k(x: A, y: A):
            for i in x:
                if y[i] < 0.5:  #!
                    y[i] = x[i]
        """,
        """
        def k(x: A, y: A):
            for i in x:
                if x[i] < 0.5 and y.shape[0] > 2:
                    y[i] = x[i]
        """,
    ),
    "mixed": (
        "TS201",
        "warning",
        "",
        """
        def k(x: A, y: A):
            y[0] = 1.0  #!
            for i in x:
                y[i] += x[i]
        """,
        """
        def k(x: A, y: A):
            n = x.shape[0]
            for i in range(n):
                y[i] += x[i]
        """,
    ),
    "a value read beside": (
        "TS201",
        "warning",
        "",
        """
        def k(x: A, y: A):
            s = x[0] * x[0]  #!
            for i in x:
                y[i] += x[i] * s
        """,
        """
        def k(x: A, y: A):
            for i in x:
                s = x[0] * x[0]
                y[i] += x[i] * s
        """,
    ),
    "while": (
        "TS202",
        "warning",
        "",
        """
        def k(x: A, y: A):
            for i in x:
                j = 0
                while j < i:  #!
                    y[i] += x[j]
                    j += 1
        """,
        """
        def k(x: A, y: A):
            for i in x:
                for j in range(i):
                    y[i] += x[j]
        """,
    ),
    "break": (
        "TS203",
        "warning",
        "",
        """
        def k(x: A, y: A):
            for i in x:
                for j in range(i):
                    if x[j] > 0.5:
                        break  #!
                    y[i] += x[j]
        """,
        """
        def k(x: A, y: A):
            for i in x:
                for j in ti.static(range(3)):
                    if ti.static(j == 2):
                        break
                    y[i] += x[j]
        """,
    ),
    "a deep loop": (
        "TS204",
        "warning",
        "taichi",
        """
        def k(x: A, y: A):
            for i in x:
                p = 1.0
                for j in range(40):  #!
                    p = p * x[j]
                y[i] = p
        """,
        """
        def k(x: A, y: A):
            for i in x:
                p = 1.0
                for j in range(8):
                    p = p * x[j]
                y[i] = p
        """,
    ),
    "a deep loop around an unrolled one": (
        "TS204",
        "warning",
        "taichi",
        """
        def k(x: A, y: A):
            for i in x:
                for j in range(40):  #!
                    p = 1.0
                    for c in ti.static(range(3)):
                        p = p * x[c]
                    for c in range(3):
                        y[i] += p * x[j]
        """,
        """
        def k(x: A, y: A):
            for i in x:
                p = 1.0
                for c in ti.static(range(3)):
                    p = p * x[c]
                y[i] = p
        """,
    ),
    "exp in a function that a loop calls": (
        "TS404",
        "warning",
        "taichi",
        """
        @ti.func
        def decay(v):
            return ti.exp(-v)

        @ti.func
        def through(v):
            return 2.0 * decay(v)

        @ti.kernel
        def k(x: A, y: A):
            for i in x:
                t = 1.0
                for j in range(3):
                    t *= through(x[j] * t)  #!
                y[i] = t
        """,
        """
        @ti.func
        def decay(v):
            return ti.exp(-v)

        @ti.kernel
        def k(x: A, y: A):
            for i in x:
                for j in range(3):
                    y[i] += decay(x[i])
        """,
    ),
    "a local that a loop uses": (
        "TS411",
        "warning",
        "",
        """
        def k(x: A, y: A):
            for i in x:
                r = x[i] * 2.0
                for j in range(3):
                    y[j] += r  #!
        """,
        """
        def k(x: A, y: A):
            for i in x:
                r = x[i]
                n = int(x[i] * 2.0)
                m = 0.0
                for j in range(n):
                    y[j] += r * n
                    m += x[j]
                for j in range(3):
                    y[j] += m + x[i] * 2.0
                s = x[i] * 2.0
                for _ in range(1):
                    y[i] += s
                for j in ti.static(range(3)):
                    y[j] += s
                for j in range(3):
                    if s > 0.5:
                        y[j] += 1.0
        """,
    ),
    "a local that changes itself, and that a loop uses": (
        "TS411",
        "warning",
        "",
        """
        def k(x: A, y: A):
            for i in x:
                r = x[i]
                r += 1.0
                for j in range(3):
                    y[j] += r  #!
        """,
        """
        def k(x: A, y: A):
            for i in x:
                r = x[i]
                for j in range(3):
                    y[j] += r
                    r += 1.0
        """,
    ),
    "a vector that a loop uses": (
        "TS411",
        "warning",
        "",
        """
        def k(x: A, y: A):
            for i in x:
                for m in range(2):
                    v = ti.Vector([x[i], x[m]])
                    for j in range(3):
                        y[j] += v[0]  #!
        """,
        """
        def k(x: A, y: A):
            for i in x:
                for m in range(2):
                    for j in range(3):
                        v = ti.Vector([x[i], x[m]])
                        y[j] += v[0]
        """,
    ),
    "a function's parameter that its loop uses": (
        "TS411",
        "warning",
        "",
        """
        @ti.func
        def spread(v):
            s = 0.0
            for j in range(3):
                s += v * j  #!
            return s

        @ti.kernel
        def k(x: A, y: A):
            for i in x:
                y[i] = spread(x[i] * 2.0)
        """,
        """
        @ti.func
        def spread(v: ti.template(), n: ti.i32):
            s = 0.0
            for j in range(3):
                s += v[j] * n
            return s

        @ti.kernel
        def k(x: A, y: A):
            for i in x:
                y[i] = spread(x, i)
        """,
    ),
    "a division by an element": (
        "TS303",
        "info",
        "",
        """
        def k(x: A, y: A):
            for i in y:
                y[i] = 1.0 / (x[i] - x[0])  #!
        """,
        """
        def k(x: A, n: ti.types.ndarray(dtype=ti.i32), y: A):
            for i in y:
                y[i] = 1.0 / (x[i] + 1e-6) + 2.0 / x.shape[0] + 3.0 / n[i]
                if x[i] != 0.0:
                    y[i] += 1.0 / x[i]
        """,
    ),
    "a power that is not whole": (
        "TS303",
        "info",
        "",
        """
        def k(x: A, y: A):
            for i in y:
                y[i] = x[i] ** 0.5  #!
        """,
        """
        def k(x: A, y: A):
            for i in y:
                y[i] = x[i] ** 2 + x[i] ** 3.0 + (x[i] + 1e-6) ** 0.5
        """,
    ),
    "truncation": (
        "TS301",
        "error",
        "",
        """
        def k(x: A, y: A):
            for i in x:
                a = 0
                a += 0.5  #!
                y[i] = a * x[i]
        """,
        """
        def k(x: A, y: A):
            for i in x:
                a = 0.0
                a += 1
                n = 0
                n += i // 2
                y[i] = a * x[i] + n
        """,
    ),
    "a sum in an integer": (
        "TS301",
        "warning",
        "",
        """
        def k(x: A, y: A):
            for i in y:
                a = 0
                for j in range(3):
                    a += x[j]  #!
                y[i] = a
        """,
        """
        def k(x: A, n: ti.types.ndarray(dtype=ti.i32), y: A):
            for i in y:
                a = 0
                k = 0
                for j in range(3):
                    a += n[j] + int(x[j])
                    k = x[j]
                y[i] = a + k
        """,
    ),
    "a greatest one in an integer": (
        "TS301",
        "warning",
        "",
        """
        def k(x: A, y: A):
            for i in y:
                a = 0
                for j in range(3):
                    a = ti.max(a, x[j])  #!
                y[i] = a
        """,
        """
        def k(x: A, y: A):
            for i in y:
                a = 0.0
                for j in range(3):
                    a = ti.max(a, x[j])
                y[i] = a
        """,
    ),
    "truncation of a function's value": (
        "TS301",
        "error",
        "",
        """
        def k(x: A, y: A):
            for i in x:
                a = 0
                for j in range(3):
                    a = ti.sqrt(2.0) * j  #!
                y[i] = a * x[i]
        """,
        """
        def k(x: A, y: A):
            for i in x:
                a = 0
                for j in range(3):
                    a = ti.max(a, j) + int(ti.sqrt(2.0))
                y[i] = a * x[i]
        """,
    ),
    "an integer on the gradient's way": (
        "TS302",
        "info",
        "",
        """
        def k(x: A, y: A):
            for i in x:
                y[i] = int(x[i]) * 0.5  #!
        """,
        """
        def k(x: A, y: A):
            for i in x:
                j = int(x[i])
                y[i] = x[int(x[j] * 4.0)] * 0.5
        """,
    ),
    "a norm": (
        "TS303",
        "warning",
        "",
        """
        def k(x: A, y: A):
            for i in y:
                v = ti.Vector([x[i], x[i + 1]])
                y[i] = v.norm()  #!
        """,
        """
        def k(x: A, y: A):
            for i in y:
                v = ti.Vector([x[i], x[i + 1]])
                y[i] = v.norm(1e-8)
        """,
    ),
    "a root on a side": (
        "TS303",
        "warning",
        "",
        """
        def k(x: A, y: A):
            for i in x:
                y[i] = ti.select(x[i] > 0.0, ti.sqrt(x[i]), 0.0)  #!
        """,
        """
        def k(x: A, y: A):
            for i in x:
                if x[i] > 0.0:
                    y[i] = ti.sqrt(x[i])
        """,
    ),
    "a root": (
        "TS303",
        "info",
        "",
        """
        def k(x: A, y: A):
            for i in x:
                y[i] = ti.sqrt(x[i])  #!
        """,
        """
        def k(x: A, y: A):
            for i in x:
                y[i] = ti.sqrt(x[i] * x[i] + 1e-6) + ti.log(ti.max(x[i], 0.1))
        """,
    ),
    "half sums": (
        "TS304",
        "warning",
        "",
        """
        def k(x: A, y: ti.types.ndarray(dtype=ti.f16, ndim=1)):
            for i in x:
                y[0] += x[i]  #!
        """,
        """
        def k(x: A, y: ti.types.ndarray(dtype=ti.f32, ndim=1), z: ti.types.ndarray(dtype=ti.f16, ndim=1)):
            for i in x:
                y[0] += x[i]
                z[i] *= x[i]
        """,
    ),
    "a narrow literal": (
        "TS305",
        "warning",
        "",
        """
        def k(x: ti.types.ndarray(dtype=ti.f64, ndim=1), y: ti.types.ndarray(dtype=ti.f64, ndim=1)):
            for i in y:
                s = 0.0  #!
                for j in range(x.shape[0]):
                    s += x[j]
                y[i] = s
        """,
        """
        def k(x: ti.types.ndarray(dtype=ti.f64, ndim=1), y: ti.types.ndarray(dtype=ti.f64, ndim=1)):
            for i in y:
                s = ti.f64(0.0)
                for j in range(x.shape[0]):
                    s += x[j]
                y[i] = s
        """,
    ),
    "a changed loop variable": (
        "TS205",
        "warning",
        "",
        """
        def k(x: A, y: A):
            for i in y:
                for j in range(3):
                    if x[i] > 0.5:
                        j += 2  #!
                        j = 2 * j
                    y[i] += x[j]
        """,
        """
        def k(x: A, y: A):
            for i in y:
                for j in range(3):
                    own = j
                    own += 2
                    y[i] += x[own]
                for j, m in ti.ndrange(2, 2):
                    j += m
                    y[i] += x[j]
                j = 0
                while j < 3:
                    y[i] += x[j]
                    j += 2
                for m in range(2):
                    for j in range(m):
                        y[i] += x[j]
                    j = m
        """,
    ),
    "a loop variable that a function changes": (
        "TS205",
        "warning",
        "",
        """
        @ti.func
        def advance(n: ti.template(), by):
            n += by

        @ti.kernel
        def k(x: A, y: A):
            for i in y:
                for j in range(3):
                    advance(j, 2)  #!
                    y[i] += x[j]
        """,
        """
        @ti.func
        def advance(n: ti.template(), by):
            n += by

        @ti.kernel
        def k(x: A, y: A):
            for i in y:
                for j in range(3):
                    own = j
                    advance(own, 2)
                    y[i] += x[own]
        """,
    ),
    "a known division": (
        "TS306",
        "warning",
        "",
        """
        def k(x: A, y: A):
            for i in x:
                step = 3
                y[i] = x[(-step // 2) % 4]  #!
        """,
        """
        def k(x: A, y: A):
            for i in x:
                step = 3
                left, even = ti.static(-3), -4
                y[i] = x[even // 2 % 2] + x[step // 2 % 4] + x[left // 2 % 4] + x[(i - step) % x.shape[0]] + x[-3 % 4]
                for j in ti.static(range(4)):
                    y[i] += x[(j - 3) // 2 % 4]
        """,
    ),
    "a known rest": (
        "TS306",
        "warning",
        "",
        """
        def k(x: A, y: A):
            for i in x:
                n = 4
                at = ti.cast(n - 7, ti.i32)
                at_left = at
                y[i] = x[at_left % n]  #!
        """,
        """
        def k(x: A, y: A):
            for i in x:
                n = 4
                at = n + 7
                at -= 1
                y[i] = x[at % n]
        """,
    ),
    "atomic_max": (
        "TS401",
        "warning",
        "",
        """
        def k(x: A, y: A):
            for i in x:
                ti.atomic_max(y[0], x[i])  #!
        """,
        """
        def k(x: A, y: ti.types.ndarray(dtype=ti.i32, ndim=1)):
            for i in x:
                ti.atomic_max(y[0], i)
        """,
    ),
    "an atomic's result": (
        "TS402",
        "warning",
        "",
        """
        def k(x: A, y: A):
            for i in x:
                old = ti.atomic_add(y[0], x[i])  #!
                y[i + 1] = old
        """,
        """
        def k(x: A, y: A):
            for i in x:
                ti.atomic_add(y[0], x[i])
        """,
    ),
    "random": (
        "TS403",
        "warning",
        "",
        """
        def k(x: A, y: A):
            for i in x:
                y[i] = x[i] * ti.random()  #!
        """,
        """
        def k(x: A, y: A):
            for i in x:
                y[i] = x[i] * ti.cos(x[i])
        """,
    ),
    "exp in a loop": (
        "TS404",
        "warning",
        "taichi",
        """
        def k(x: A, y: A):
            for i in y:
                s = 0.0
                for j in range(x.shape[0]):
                    s += ti.exp(x[j])  #!
                y[i] = s
        """,
        """
        def k(x: A, y: A):
            for i in y:
                for j in range(x.shape[0]):
                    e = ti.exp(x[j] * x[i])
                    y[i] += e * e
        """,
    ),
    "max of what is carried": (
        "TS405",
        "warning",
        "taichi",
        """
        def k(x: A, y: A):
            for i in y:
                m = 0.0
                for j in range(x.shape[0]):
                    m = ti.max(m, x[j])  #!
                y[i] = m
        """,
        """
        def k(x: A, y: A):
            for i in y:
                m = 0.0
                for j in range(x.shape[0]):
                    m += ti.max(0.5, x[j])
                y[i] = m
        """,
    ),
    "max of what is carried unless a static condition holds": (
        "TS405",
        "warning",
        "taichi",
        """
        def k(x: A, y: A, restarts: ti.template()):
            for i in y:
                m = 0.0
                for j in range(x.shape[0]):
                    if ti.static(restarts):
                        m = x[j]
                    m = ti.max(m, x[j] * x[j])  #!
                y[i] = m
        """,
        """
        def k(x: A, y: A, restarts: ti.template()):
            for i in y:
                m = 0.0
                for j in range(x.shape[0]):
                    if ti.static(restarts):
                        m = x[j]
                    else:
                        m = 2.0 * x[j]
                    m = ti.max(m, x[j] * x[j])
                y[i] = m
        """,
    ),
    "exp beside a load": (
        "TS404",
        "warning",
        "taichi",
        """
        def k(x: A, y: A, s: A):
            for i in y:
                for j in range(x.shape[0]):
                    s[i, j] = ti.exp(x[j])  #!
                y[i] = s[i, 0]
        """,
        """
        def k(x: A, y: A, s: A):
            for i in y:
                y[i] = 1.0
                for j in range(x.shape[0]):
                    s[i, j] = ti.exp(x[j])
        """,
    ),
    "max beside an addition": (
        "TS405",
        "warning",
        "taichi",
        """
        def k(x: A, y: A, z: A):
            for i in y:
                z[i] += 1.0
                for j in range(x.shape[0]):
                    y[i] += ti.max(x[j], 0.5)  #!
        """,
        """
        def k(x: A, y: A, z: A):
            for i in y:
                z[i] = x[i]
                for j in range(x.shape[0]):
                    before = ti.max(j - 1, 0)
                    y[i] += x[before] * ti.abs(x[j])
        """,
    ),
    "a branch beside a load": (
        "TS412",
        "warning",
        "taichi",
        """
        def k(x: A, y: A, z: A):
            for i in y:
                z[i] = x[i]
                for j in range(x.shape[0]):
                    if j % 2 == 0:  #!
                        y[i] += x[j]
        """,
        """
        def k(x: A, y: A, z: A):
            for i in y:
                z[i] = x[i]
                for j in range(x.shape[0]):
                    if z.shape[0] > 2:
                        y[i] += x[j]
                    y[i] += x[j] if x[j] > 0.5 else 0.0
            for i in y:
                for j in range(x.shape[0]):
                    if x[j] > 0.5:
                        y[i] += x[j]
        """,
    ),
    "a loop whose length changes, beside a load": (
        "TS412",
        "warning",
        "taichi",
        """
        def k(x: A, y: A, z: A):
            for i in y:
                for j in range(x.shape[0]):
                    for m in range(j):  #!
                        y[i] += x[m]
                z[i] = x[i]
        """,
        """
        def k(x: A, y: A, z: A):
            for i in y:
                for j in range(x.shape[0]):
                    for m in range(i):
                        y[i] += x[m]
                z[i] = x[i]
        """,
    ),
    "a carried vector": (
        "TS406",
        "warning",
        "taichi",
        """
        def k(x: A, y: A):
            for i in y:
                v = ti.Vector([x[i], 1.0])
                for j in range(3):
                    v = ti.Vector([v[0] * v[1], v[1] * x[j]])  #!
                y[i] = v[0]
        """,
        """
        def k(x: A, y: A):
            for i in y:
                for j in range(3):
                    v = ti.Vector([x[i], x[j]])
                    y[i] += v[0] * v[1]
        """,
    ),
    "tan": (
        "TS407",
        "warning",
        "taichi",
        """
        def k(x: A, y: A):
            for i in x:
                y[i] = ti.tan(x[i])  #!
        """,
        """
        def k(x: A, y: A):
            for i in x:
                y[i] = ti.sin(x[i]) / ti.cos(x[i])
        """,
    ),
    "returned": (
        "TS408",
        "warning",
        "",
        """
        def k(x: A, y: A) -> ti.f32:
            s = 0.0
            for i in range(1):
                s += x[i] + y[i]
            return s  #!
        """,
        """
        def k(x: A, y: A):
            for i in range(1):
                y[i] = x[i]
        """,
    ),
    "a scalar": (
        "TS410",
        "info",
        "",
        """
        def k(x: A, y: A, scale: ti.f32):  #!
            for i in x:
                y[i] = x[i] * scale
        """,
        """
        def k(x: A, y: A, times: ti.i32):
            for i in x:
                y[i] = x[i] * times
        """,
    ),
    "a vector": (
        "TS410",
        "info",
        "",
        """
        def k(x: A, y: A, light: ti.math.vec3):  #!
            for i in x:
                y[i] = x[i] * light.x
        """,
        """
        def k(x: A, y: A, cell: ti.math.ivec3):
            for i in x:
                y[i] = x[i] * cell.x
        """,
    ),
    "a parameter that hides a number": (
        "TS503",
        "info",
        "",
        """
        dt = 0.01

        @ti.kernel
        def k(x: A, y: A, dt: ti.f32):  #!
            for i in x:
                y[i] = x[i] + dt

        def run(x, y):
            k(x, y, 0)
            k(x, y, dt=0.0)
            return dt
        """,
        """
        dt = 0.01
        begin = 0

        @ti.kernel
        def k(x: A, y: A, dt: ti.f32, begin: ti.i32, end: ti.i32):
            for i in range(begin, end):
                y[i] = x[i] + dt

        def run(x, y):
            k(x, y, 0, 0, 8)
            k(x, y, dt, 0, 8)
        """,
    ),
    "a parenthesis that closes too early": (
        "TS504",
        "error",
        "",
        """
        def k(x: A, y: A):
            for i in x:
                ti.atomic_add(y[0], x[i] - 1.0) ** 2  #!
        """,
        """
        def k(x: A, y: A):
            for i in x:
                ti.atomic_add(y[0], (x[i] - 1.0) ** 2)
        """,
    ),
    "a factor of what an atomic returned": (
        "TS504",
        "error",
        "",
        """
        def k(x: A, y: A):
            for i in x:
                2.0 * ti.atomic_add(y[0], x[i])  #!
        """,
        """
        def k(x: A, n: ti.types.ndarray(dtype=ti.i32), y: A):
            for i in x:
                slot = ti.atomic_add(n[0], 1) + 1
                y[slot] = x[i]
        """,
    ),
    "a loop that uses a local from outside": (
        "TS204",
        "warning",
        "taichi",
        """
        def k(x: A, y: A):
            for i in x:
                c = 2.0 * x[i]
                for j in range(40):  #!
                    y[j] += c
        """,
        """
        def k(x: A, cell: ti.types.ndarray(dtype=ti.i32), y: A):
            for i in x:
                n, a, b, c = 40, i * 2, cell[i], 0.5 * i
                size = x.shape[0]
                for j in range(40):
                    y[a] += n * c * x[j] + x[b] * size
        """,
    ),
    "the length of a vector": (
        "TS303",
        "warning",
        "",
        """
        @ti.kernel
        def k(x: ti.types.ndarray(dtype=ti.math.vec2, ndim=1), y: A):
            for i in x:
                for j in range(x.shape[0]):
                    y[i] += (x[i] - x[j]).norm()  #!
        """,
        """
        @ti.kernel
        def k(
            x: ti.types.ndarray(dtype=ti.math.vec2, ndim=1),
            ends: ti.types.ndarray(dtype=ti.i32, ndim=2),
            y: A,
        ):
            for s in range(1, x.shape[0] - 1):
                a, b = ends[s, 0], ends[s, 1]
                d = x[a] - x[b]
                y[s] = d.norm() + (x[ends[s, 0]] - x[ends[s, 1]]).normalized().x + ti.math.distance(x[a], x[b])
                y[s] += (x[s + 1] - x[s]).norm() + ti.math.length(x[s - 1] - x[s])
                n = s * 1
                y[s] += (x[n] - x[n + 1]).norm()
                for j in range(x.shape[0]):
                    if s != j:
                        y[s] += (x[s] - x[j]).norm()
        """,
    ),
    "unused": (
        "TS501",
        "info",
        "",
        """
        def k(x: A, y: A, idle: ti.i32):  #!
            for i in x:
                y[i] = x[i]
        """,
        """
        def k(x: A, y: A, _idle: ti.i32):
            for i in x:
                y[i] = x[i]
        """,
    ),
}


def write_source(body, engine, *, is_decorated=True):
    decorator = "@ti.kernel\n" if is_decorated and "@ti.kernel" not in body else ""
    text = textwrap.dedent(body).strip().replace(": A", ": ti.types.ndarray()")
    return f"{HEAD[engine]}\n{decorator}{text}\n"


def lines_of(findings, rule):
    return [one.line for one in findings if one.rule == rule]


def marked(text):
    return [number for number, line in enumerate(text.splitlines(), 1) if "#!" in line]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("engine", HEAD)
def test_rules_in_a_file(name, engine):
    rule, severity, alone, wrong, right = CASES[name]
    findings = lint_file("kernels.py", write_source(wrong, engine))
    if alone and alone != engine:
        assert not lines_of(findings, rule)
        return
    assert lines_of(findings, rule) == marked(write_source(wrong, engine)), findings
    (finding,) = [one for one in findings if one.rule == rule]
    assert finding.severity == severity
    assert finding.path == "kernels.py"
    assert finding.column > 0
    assert not lines_of(lint_file("kernels.py", write_source(right, engine)), rule)


@pytest.mark.parametrize("name", CASES)
def test_rules_in_a_kernel_in_memory(name, engine, lang):
    rule, _, alone, wrong, right = CASES[name]
    for body, is_wrong in ((wrong, True), (right, False)):
        text = write_source(body, engine)
        path = f"<lint {name} {engine} {is_wrong}>"
        linecache.cache[path] = (len(text), None, text.splitlines(keepends=True), path)
        scope = {"__name__": "linted"}
        exec(compile(text, path, "exec", dont_inherit=True), scope)
        expected = marked(text) if is_wrong and alone in ("", engine) else []
        assert lines_of(lint_kernels([scope["k"]]), rule) == expected


def test_every_rule_of_lint_has_a_case():
    """But for those that need a spec, an object, or something that is not followed."""
    rules = {rule for rule in RULES if "TS100" < rule < "TS600"}
    assert rules - {case[0] for case in CASES.values()} == {"TS103", "TS104", "TS409", "TS502"}


def test_the_docs_have_every_rule():
    text = (Path(__file__).parents[2] / "docs" / "reference" / "lint" / "index.md").read_text(encoding="utf-8")
    for rule in RULES.values():
        assert f"| [{rule.id}]({rule.id}.md) | {rule.name} | {rule.about} |" in text


def test_no_case_is_wrong_in_a_second_way():
    """A mistake of severity error is named by one rule; its twin by none."""
    for name, (rule, _, _, wrong, right) in CASES.items():
        errors = {one.rule for one in lint_file("k.py", write_source(wrong, "taichi")) if one.severity == "error"}
        assert errors <= {rule}, name
        errors = {one.rule for one in lint_file("k.py", write_source(right, "taichi")) if one.severity == "error"}
        assert not errors, name
