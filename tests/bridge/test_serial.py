"""The serial twin: small problems on one thread, slow ones on all, the same numbers either way."""

import pytest
import torch

import cases
import tinsmith as ts
from tinsmith import _config
from tinsmith.bridge import _pace


@pytest.fixture
def serial_below(monkeypatch):
    """Set TINSMITH_SERIAL_BELOW for the ops that a test makes."""

    def set_to(elements):
        monkeypatch.setenv("TINSMITH_SERIAL_BELOW", str(elements))
        _config.config.cache_clear()

    yield set_to
    monkeypatch.undo()
    _config.config.cache_clear()


def squares(lang):
    @lang.kernel
    def squares(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    return squares


def test_size_decides(lang, serial_below):
    serial_below(1000)
    op = ts.op("x[n] -> y[n]")(squares(lang))
    op(torch.rand(499))
    assert "serialize=True" in op.explain() and op.explain().count("def squares") == 1
    op(torch.rand(500))
    assert op.explain().count("serialize=True") == 1 and op.explain().count("def squares") == 2


@pytest.mark.parametrize("name", ["convolution", "gather", "scratch_recurrence", "chained", "any_rank", "two_indices"])
def test_both_give_the_same(lang64, serial_below, name):
    case = cases.named(name)[0]
    inputs = case.inputs(torch.float64)
    results = []
    for elements in (0, 10**9):
        serial_below(elements)
        results.append(cases.gradients(case.op(lang64, torch.float64), inputs))
    for parallel, serial in zip(*results, strict=True):
        torch.testing.assert_close(parallel, serial)


def test_slow_serial_launches_go_parallel_for_every_size(lang, monkeypatch):
    monkeypatch.setattr(_pace, "SERIAL_LIMIT", 0.0)
    op = ts.op("x[n] -> y[n]")(squares(lang))
    op(torch.ones(99))  # not counted: the engine makes machine code
    for size in range(100, 100 + _pace.SLOW_LAUNCHES):
        assert torch.equal(op(torch.ones(size)), torch.ones(size))
    assert op.explain().count("def squares") == 1  # still serial: one variant
    op(torch.ones(5000))
    assert op.explain().count("def squares") == 2  # from now on parallel, though small
    op(torch.ones(3))
    assert op.explain().count("serialize=True") == 1


def test_one_fast_launch_forgives_a_slow_one():
    pace = _pace.Pace(1000)
    for seconds in (1.0, 1.0, 1.0, 1e-6, 1.0, 1.0, 1.0):
        pace.note(seconds, 10)
    assert pace.serial_below == 1000
    pace.note(1.0, 10)
    assert pace.serial_below == 10


def test_first_launches_are_not_counted(lang, monkeypatch):
    """A call forward and backward has more first launches than slow ones are allowed; and each makes machine code."""
    monkeypatch.setattr(_pace, "SERIAL_LIMIT", 0.0)

    @lang.kernel
    def begin(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i]

    @lang.kernel
    def step(g: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in y:
            g[i] = y[i] * y[i]
        for i in y:
            y[i] += 0.1 * g[i] * g[i]

    op = ts.chain("x[n] -> y[n]", [begin, step, step, step], scratch="g[n]")
    op(torch.rand(10, requires_grad=True)).sum().backward()
    texts = op.explain().count("def step")
    op(torch.rand(10, requires_grad=True)).sum().backward()
    assert op.explain().count("def step") == texts  # nothing was compiled again, for all threads


def test_kernels_that_were_launched_before_are_counted():
    pace, first, second = _pace.Pace(1000), print, repr
    for kernels in ((first,), (first, second), (second,), (first,), (second,)):
        pace.note(1.0, 10, kernels)
    assert pace.serial_below == 1000
    pace.note(1.0, 10, (first, second))
    assert pace.serial_below == 10


def test_a_slow_backward_pass_leaves_the_forward_pass_alone(lang, monkeypatch):
    op = ts.op("x[n] -> y[n]")(squares(lang))
    x = torch.ones(100, requires_grad=True)
    y = op(x).sum()
    monkeypatch.setattr(_pace, "SERIAL_LIMIT", 0.0)
    for _ in range(2 * _pace.SLOW_LAUNCHES):
        y.backward(retain_graph=True)
    forward, backward = op._core._paces
    assert backward.serial_below == 200  # elements of both arrays
    assert forward.serial_below > 200
