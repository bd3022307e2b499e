"""TS109: indices that leave their array whatever its size are named; those that may stay inside are not."""

import pytest

import tinsmith as ts
from fuzz._grammar import write
from tinsmith.linter import lint_file, lint_kernels

HEAD = """
import taichi as ti
import tinsmith as ts
R = 2

"""
WITHOUT_A_SPEC = """
@ti.kernel
def bad1(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = x[i - 1]  #!
        y[i] += x[i + 1]  #!
    n = x.shape[0]
    y[0] = x[n]  #!
    y[0] = x[-1]  #!
    for i in range(n):
        y[i] = x[i + R]  #!
    for i in range(1, n - 1):
        y[i] = x[i + 2]  #!
        y[i] = x[i + 1] + x[i - 1]
        k = i - 2
        y[i] += x[k]  #!
    for i, j in ti.ndrange(x.shape[0], 3):
        y[i] += x[i - j]  #!
    for i in x:
        for d in ti.static(range(-1, 2)):
            y[i] += x[i + d]  #!
    for i in x:
        for d in ti.static([-1, 0]):
            y[i] += x[i + d]  #!
    for i in x:
        at = 0
        for _ in range(3):
            at += 2
            y[i] += x[i + at]  #!
        y[i] = 1.0 if x[i - 1] > 0 else 0.0  #!
"""
WITH_A_SPEC = """
@ts.op("x[n, m], k[3] -> y[n, m]")
@ti.kernel
def bad2(x: ti.types.ndarray(), k: ti.types.ndarray(), y: ti.types.ndarray()):
    for i, j in y:
        y[i, j] = x[i, j + 1]  #!
        for a in range(k.shape[0]):
            y[i, j] += x[i + a, j] * k[a]  #!
        for a in range(4):
            y[i, j] += k[a]  #!
        y[i, j] = k[3]  #!


@ts.op("x[n], k[m] -> y[n - m + 1]")
@ti.kernel
def conv(x: ti.types.ndarray(), k: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in y:
        for j in range(k.shape[0]):
            y[i] += x[i + j] * k[j]
            y[i] += x[i + j + 1]  #!
"""
MAY_STAY_INSIDE = """
@ts.op("x[n], k[m] -> y[n]")
@ti.kernel
def good(x: ti.types.ndarray(), k: ti.types.ndarray(), y: ti.types.ndarray(), r: int):
    n = x.shape[0]
    for i in x:
        if i > 0:
            y[i] = x[i - 1]
        y[i] = x[ti.max(i - 1, 0)] + x[(i + 1) % n]
        y[i] += x[i - 1] if i > 0 else 0.0
        if i > 0 and x[i - 1] > 0.0:
            y[i] += 1.0
        y[i] += ti.select(i > 0, x[i - 1], 0.0)
        for j in range(i):
            y[i] += x[i - 1]
        for j in range(r):
            y[i] += x[i - 1]
        for j in range(i, n):
            y[i] += x[j - i]
        for j in range(n - i):
            y[i] += x[i + j]
        y[i] += k[i - 1] if ti.static(R > 3) else 0.0
        if ti.static(R > 5):
            y[i] += k[i - 1]
    for i in x:
        if i == 0:
            continue
        y[i] = x[i - 1]
    for i in x:
        y[i] = x[x.shape[0] - 1 - i] + k[i + 1]
    for i in range(1, r):
        y[i] = x[i - 1]
    for i in range(n + 1):
        if i < n:
            y[i] = x[i]
    i = 0
    while i < n:
        y[i] = x[i - 1]
        i += 1
    for n in x:
        y[n] = x[n]
"""


def bounds_findings(text):
    return [one for one in lint_file("k.py", text) if one.rule == "TS109"]


@pytest.mark.parametrize("body", [WITHOUT_A_SPEC, WITH_A_SPEC, MAY_STAY_INSIDE], ids=["plain", "spec", "inside"])
def test_only_certain_violations_are_reported(body):
    text = HEAD + body
    marked = [number for number, line in enumerate(text.splitlines(), 1) if line.endswith("#!")]
    assert [one.line for one in bounds_findings(text)] == marked
    assert {one.severity for one in bounds_findings(text)} <= {"error"}


WORDS = {
    "y[i] = x[i - 1]": ("the index reaches -1 along axis 0, and negative indices do not count from the end", "if 0 <="),
    "y[i] = x[i + 1]": ("the index reaches n along axis 0, whose size is n", "if 0 <= i + 1 < x.shape[0]:"),
    "y[i] = x[x.shape[0]]": ("the index is n along axis 0, whose size is n", ""),
    "y[i] = x[-2]": ("the index is -2 along axis 0, and negative indices", "x[x.shape[0] - 2]"),
    "y[2 * i + 1] = x[i]": ("`y` whatever its size: the index reaches 2 * n - 1 along axis 0, whose size is n", "if"),
}


@pytest.mark.parametrize("line", WORDS)
def test_the_messages_and_remedies(line):
    head = '@ts.op("x[n] -> y[n]")\n@ti.kernel\ndef k(x: ti.types.ndarray(), y: ti.types.ndarray()):\n'
    (one,) = bounds_findings(f"{HEAD}{head}    for i in x:\n        {line}\n")
    words, remedy = WORDS[line]
    assert words in one.message and "is outside `" in one.message
    assert one.remedy.startswith(remedy) and bool(one.remedy) == bool(remedy)


def test_fields_are_measured(lang):
    dense, shifted = lang.field(lang.f32, 8), lang.field(lang.f32)
    lang.root.dense(lang.i, 8).place(shifted, offset=-4)

    def kernel_of(field):
        @lang.kernel
        def kernel(y: lang.types.ndarray()):
            for i in range(8):
                y[i] = field[i - 1]

        return kernel

    assert [one.rule for one in lint_kernels([kernel_of(dense)])] == ["TS109"]
    assert lint_kernels([kernel_of(shifted)]) == []


def test_an_op_that_is_always_outside_is_refused(lang):
    @lang.kernel
    def behind(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i + 1]

    with pytest.raises(ts.KernelError) as refused:
        ts.op("x[n] -> y[n]")(behind)
    words = str(refused.value)
    assert words.startswith("op `behind` uses an index that is out of range in every call\n")
    assert "`x[i + 1]` is outside `x` whatever its size: the index reaches n along axis 0" in words
    assert f"at       {__file__}:" in words
    assert [one.rule for one in ts.lint(behind)] == ["TS109"]


def test_kernels_of_the_fuzz_stay_inside():
    for seed in range(60):
        program = write(seed)
        decorated = program.source.replace("def kernel(", f'@ts.op("{program.spec}")\n@lang.kernel\ndef kernel(')
        assert bounds_findings(f"import tinsmith as ts\nimport taichi as lang\n{decorated}") == [], program.source
