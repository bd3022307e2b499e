"""Pitfall 32: a sum of float64 begins as `0.0`, which is float32 unless the engine is told otherwise.

The sanitizer names it. The op gives what its source says, so no gradient is wrong; 29 bits of every value are gone.
"""

import torch

import tinsmith as ts
from support.findings import read_pointed_text, sanitize_call


def sums(lang):
    @ts.op("x[n] -> y[1]")
    @lang.kernel
    def sums(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in range(1):
            s = 0.0  # here
            for j in range(x.shape[0]):
                s += x[j] * x[j]
            y[i] = s

    return sums


def test_the_literal_is_named(lang, draw):
    findings = sanitize_call(sums(lang), draw(10))
    assert findings.rules == {"TS609"}
    narrow = findings.one("TS609", "here")
    assert "it is float32" in narrow.message
    assert read_pointed_text(narrow).startswith("s = 0.0")
    assert sanitize_call(sums(lang), draw(10).float()) == []


def test_the_error_of_a_float32_local(lang, draw):
    x = draw(10)
    assert (sums(lang)(x) - (x * x).sum()).abs() > 1e-10


def test_lint_knows_where_the_arrays_say_their_type(lang):
    doubles = lang.types.ndarray(dtype=lang.f64, ndim=1)

    @lang.kernel
    def sums(x: doubles, y: doubles):
        for i in range(1):
            s = 0.0
            for j in range(x.shape[0]):
                s += x[j] * x[j]
            y[i] = s

    assert [one.rule for one in ts.lint(sums) if one.severity != "info"][:1] == ["TS305"]


def test_an_engine_that_says_float64_is_exact(lang64, draw):
    x = draw(10)
    assert sanitize_call(sums(lang64), x) == []
    torch.testing.assert_close(sums(lang64)(x)[0], (x * x).sum(), rtol=1e-14, atol=0.0)
