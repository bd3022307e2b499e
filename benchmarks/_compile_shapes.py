"""Kernels of any number of statements, in several shapes: the compiler's time must be linear in the size of each.

Annotations here are values that the engines read: this file must not say `from __future__ import annotations`.
"""

import linecache
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tinsmith as ts

_HEAD = """\
@lang.kernel
def kernel(x: array, w: array, y: array):
    for i in range(x.shape[0]):
        n = x.shape[0]
        s, t = x[i], w[i]
"""
_SPEC = "x[n], w[n] -> y[n]"


def _make(lang: Any, shape: str, text: str, spec: str = _SPEC) -> ts.Op:
    file = f"<{shape} of {text.count(chr(10))} lines, on {lang.__name__}>"
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)  # where engines look for a kernel's source
    space: dict[str, Any] = {"lang": lang, "array": lang.types.ndarray(dtype=lang.f32, ndim=1), "__name__": __name__}
    exec(compile(text, file, "exec"), space)
    return ts.op(spec)(space["kernel"])


def _repeat(text: str, places: int | Iterable[int]) -> str:
    return "".join(text.format(k=k) for k in (range(places) if isinstance(places, int) else places))


def chain(lang: Any, count: int) -> ts.Op:
    """Build a kernel with an unrolled loop in which each statement depends on the ones before."""
    body = f"""\
        for k in lang.static(range({count // 4})):
            a = s * w[(i + k) % n] + 0.5
            s = lang.sin(a) * t + x[i]
            t += s * 0.1
            y[(i + k) % n] += s / (1.0 + a * a)
"""
    return _make(lang, "chain", _HEAD + body)


def branches(lang: Any, count: int) -> ts.Op:
    """Build a kernel with conditions nested three levels deep."""
    body = """\
        if s > {k}.5:
            s = s * t + 1.0
            if t > s:
                t = t * s
                if t > 3.0:
                    s = s - t * w[i]
                else:
                    t = s
            else:
                s = lang.sin(s)
"""
    return _make(lang, "branches", f"{_HEAD}{_repeat(body, count // 10)}        y[i] += s + t\n")


def deep_branches(lang: Any, count: int) -> ts.Op:
    """Build a kernel with conditions that are each the `else` of another one, 25 levels deep."""
    first = "        if s > 0.5:\n            s = s * t + 1.0\n"
    rest = _repeat("        elif s > {k}.5:\n            s = s * t + {k}.0\n", range(1, 25))
    return _make(lang, "deep branches", f"{_HEAD}{(first + rest) * max(1, count // 50)}        y[i] += s + t\n")


def loops(lang: Any, count: int) -> ts.Op:
    """Build a kernel with inner loops that carry values."""
    body = """\
        for j in range(4):
            s = s * w[j] + t
            t = lang.sin(t) + x[j]
        y[i] += s * t
"""
    return _make(lang, "loops", _HEAD + body * (count // 4))


def nested_loops(lang: Any, count: int) -> ts.Op:
    """Build a kernel with loops and a branch inside loops."""
    body = """\
        for j in range(4):
            a = s * w[j]
            for k in range(3):
                s = s * w[k] + a
            if s > 100.0:
                s = s * 0.5
        y[i] += s * t
"""
    return _make(lang, "nested loops", _HEAD + body * (count // 10))


def while_loops(lang: Any, count: int) -> ts.Op:
    """Build a kernel with `while` loops whose trip count depends on data."""
    body = """\
        c{k} = 0
        while s > 0.5 and c{k} < 4:
            s = s * 0.5 + w[i] * 0.1
            c{k} += 1
        y[i] += s
"""
    return _make(lang, "while loops", _HEAD + _repeat(body, count // 5))


def tasks(lang: Any, count: int) -> ts.Op:
    """Build a kernel with parallel loops, one after the other."""
    head = "@lang.kernel\ndef kernel(x: array, w: array, y: array):\n"
    body = """\
    for i in range(x.shape[0]):
        s = x[i] * w[i]
        y[i] += s * s + {k}.0
"""
    return _make(lang, "tasks", head + _repeat(body, count // 3))


def locals_(lang: Any, count: int) -> ts.Op:
    """Build a kernel with many locals, each overwritten, some under a condition."""
    many = max(2, count // 4)
    body = _repeat("        a{k} = x[i] * {k}.5\n", many)
    body += "".join(f"        a{k} = lang.sin(a{k}) * a{(7 * k + 1) % many} + t\n" for k in range(many))
    body += "".join(f"        if a{k} > t:\n            a{k} = a{k} * a{(5 * k + 3) % many}\n" for k in range(many))
    return _make(lang, "locals", f"{_HEAD}{body}{_repeat('        y[i] += a{k}' + chr(10), many)}")


def carried(lang: Any, count: int) -> ts.Op:
    """Build a kernel with many locals that one loop carries; half of them are only added to."""
    many = max(2, count // 3)
    body = _repeat("        a{k} = x[i] * {k}.5\n", many) + "        for j in range(5):\n"
    body += "".join(f"            a{k} = a{k} * a{(6 * k + 2) % many} + t\n" for k in range(0, many, 2))
    body += _repeat("            a{k} = a{k} + x[j] * {k}.0\n", range(1, many, 2))
    return _make(lang, "carried", f"{_HEAD}{body}{_repeat('        y[i] += a{k}' + chr(10), many)}")


def arrays(lang: Any, count: int) -> ts.Op:
    """Build a kernel with many arrays."""
    many = max(2, count // 2)
    names = [f"x{k}" for k in range(many)]
    head = f"@lang.kernel\ndef kernel({', '.join(f'{one}: array, y{one}: array' for one in names)}):\n"
    body = "    for i in range(x0.shape[0]):\n"
    body += "".join(
        f"        a{k} = x{k}[i] * x{(3 * k + 1) % many}[i]\n        yx{k}[i] += a{k} * a{k}\n" for k in range(many)
    )
    spec = f"{', '.join(f'{one}[n]' for one in names)} -> {', '.join(f'y{one}[n]' for one in names)}"
    return _make(lang, "arrays", head + body, spec)


def copies(lang: Any, count: int) -> ts.Op:
    """Build a kernel with many arrays whose gradients equal their cotangents."""
    many = max(2, count)
    parameters = ", ".join(f"x{k}: array, y{k}: array" for k in range(many))
    head = f"@lang.kernel\ndef kernel({parameters}):\n    for i in range(x0.shape[0]):\n"
    spec = f"{', '.join(f'x{k}[n]' for k in range(many))} -> {', '.join(f'y{k}[n]' for k in range(many))}"
    return _make(lang, "copies", head + _repeat("        y{k}[i] = x{k}[i] + {k}.0\n", many), spec)


def expressions(lang: Any, count: int) -> ts.Op:
    """Build a kernel with expressions of 50 operations, which count as 50 statements."""
    deep = "s"
    for place in range(50):
        deep = f"({deep} * t + x[i])" if place % 2 else f"lang.sin({deep})"
    body = f"        s = {deep}\n" * max(1, count // 50)
    return _make(lang, "expressions", f"{_HEAD}{body}        y[i] += s\n")


def functions(lang: Any, count: int) -> ts.Op:
    """Build a kernel with calls of functions that call functions."""
    text = """\
@lang.func
def inner(a, b):
    c = a * b
    if c > 1.0:
        c = c * 0.5
    return c + a

@lang.func
def outer(a, b):
    c = inner(a, b)
    d = inner(c, a)
    return d * b

"""
    calls = _repeat("        s = outer(s, t + {k}.0)\n", count // 10)
    return _make(lang, "functions", f"{text}{_HEAD}{calls}        y[i] += s\n")


def matrices(lang: Any, count: int) -> ts.Op:
    """Build a kernel with products of 3 x 3 matrices, which count as 10 statements."""
    body = """\
        m = lang.Matrix([[s, t, s], [t, s, t], [s, s, t]])
        q = lang.Matrix([[t, t, s], [t, s, s], [s, t, t]])
"""
    body += "        q = q @ m.inverse() * m.determinant()\n        m = m @ q + m.transpose() * 0.5\n" * (count // 20)
    return _make(lang, "matrices", f"{_HEAD}{body}        y[i] += m.trace() + q.sum()\n")


def stores(lang: Any, count: int) -> ts.Op:
    """Build a kernel that overwrites one element and reads it again."""
    return _make(lang, "stores", _HEAD + "        y[i] = y[i] * s + w[i]\n        s = lang.sin(y[i])\n" * (count // 2))


SHAPES: Mapping[str, Callable[[Any, int], ts.Op]] = {
    one.__name__.rstrip("_").replace("_", " "): one
    for one in (
        chain,
        branches,
        deep_branches,
        loops,
        nested_loops,
        while_loops,
        tasks,
        locals_,
        carried,
        arrays,
        copies,
        expressions,
        functions,
        matrices,
        stores,
    )
}
"""Kernels by shape: each is made for an engine's module, with about a number of statements."""
