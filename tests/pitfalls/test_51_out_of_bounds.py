"""Pitfall 51: an index behind its array reads, and in reverse writes, other memory: the sanitizer names it."""

import pytest
import torch

import tinsmith as ts
from support.findings import read_pointed_text, sanitize_call


@pytest.fixture
def slopes(lang64):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def slopes(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in range(x.shape[0]):
            y[i] = x[i + 1] - x[i]  # tinsmith: ignore[TS109]  # here

    return slopes


def test_an_op_is_refused(lang64):
    @lang64.kernel
    def slopes(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in range(x.shape[0]):
            y[i] = x[i + 1] - x[i]

    with pytest.raises(ts.KernelError, match=r"out of range in every call"):
        ts.op("x[n] -> y[n]")(slopes)


def test_the_index_is_named_and_nothing_is_launched(slopes, draw):
    findings = sanitize_call(slopes, draw(5))
    assert findings.rules == {"TS604"}
    outside = findings.one("TS604", "here")
    assert outside.severity == "error"
    assert "`x[5]` is read in iteration i = 4, and `x` has the shape (5,)" in outside.message
    assert read_pointed_text(outside).startswith("x[i + 1]")


def test_a_check_does_not_differentiate_it(slopes, draw):
    report = ts.check(slopes, draw(5))
    assert not report.ok
    assert report.gradient is None


def test_a_loop_that_stops_in_time_is_right(lang64, draw):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def slopes(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in range(x.shape[0] - 1):
            y[i] = x[i + 1] - x[i]

    x = draw(5).requires_grad_()
    assert sanitize_call(slopes, x) == []
    slopes(x).sum().backward()
    torch.testing.assert_close(x.grad, torch.tensor([-1.0, 0.0, 0.0, 0.0, 1.0], dtype=torch.float64))
