"""`ts.sanitize`: what it takes, how it is refused, what it cannot run, and that it leaves everything as it was."""

import time

import pytest
import torch
from torch.func import vmap

import tinsmith as ts
from support.findings import sanitize_call
from tinsmith.doctor.sanitizer import sanitize


def square(lang, **options):
    @ts.op("x[n] -> y[n]", **options)
    @lang.kernel
    def square(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i]

    return square


def test_a_right_kernel_is_clean_and_inputs_stay_as_they_were(lang):
    x = torch.rand(4, requires_grad=True)
    before = x.detach().clone()
    assert sanitize(square(lang), x) == []
    assert torch.equal(x, before)
    assert x.grad is None


@pytest.mark.parametrize("grad", [True, False])
def test_grad_mode_and_random_numbers_do_not_matter(lang, grad):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def noisy(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = lang.sqrt(x[i]) + lang.random(lang.f32)  # here

    state = torch.get_rng_state()
    with torch.set_grad_enabled(grad):
        assert sanitize_call(noisy, torch.zeros(2)).one("TS606", "here")
    assert torch.equal(state, torch.get_rng_state())


def test_scalars_templates_sizes_and_structs(lang):
    ray = lang.types.struct(origin=lang.f32, step=lang.f32)

    @lang.func
    def at(r: ray, t):
        return r.origin + t * r.step

    @ts.op("x[n] -> y[n, m]")
    @lang.kernel
    def march(x: lang.types.ndarray(), a: float, k: lang.template(), y: lang.types.ndarray()):
        for i, j in y:
            y[i, j] = at(ray(origin=x[i], step=a), j * k)
            y[i + k, j] += 1.0  # here

    findings = sanitize_call(march, torch.rand(3), 0.5, 1, m=2)
    assert findings.rules == {"TS601", "TS604"}
    assert "`y[3, 0]` is written in iteration i = 2, j = 0" in findings.one("TS604", "here").message


def test_unanalyzable_code_is_a_finding(lang):
    def outside(v):
        return v.undoable

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def strange(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = outside(x[i])  # here

    finding = sanitize_call(strange, torch.rand(3)).one("TS608", "here")
    assert finding.severity == "warning"
    assert "the Python function `outside`" in finding.message
    assert "was not checked at run time" in finding.message


def test_an_operation_without_a_rule_is_a_finding(lang, monkeypatch):
    from tinsmith.engines.python import _exact_numbers

    monkeypatch.delitem(_exact_numbers.FLOAT_UNARY, "tanh")

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def bent(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = lang.tanh(x[i])  # here

    assert "`tanh` on f32 is not known" in sanitize_call(bent, torch.rand(3)).one("TS608", "here").message


def test_a_run_that_takes_too_long_is_refused(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def endless(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            v = 0.0
            while v < 1.0:
                v *= 0.5
            y[i] = v

    begin = time.process_time()
    with pytest.raises(ts.ShapeError) as caught:
        sanitize(endless, torch.rand(3))
    assert "ts.sanitize of op `endless` was stopped after 400,000 operations" in str(caught.value)
    assert "Pass smaller inputs" in str(caught.value)
    assert "at     line" in str(caught.value)
    assert time.process_time() - begin < 60


def test_other_objects_are_refused(lang):
    with pytest.raises(ts.ArgumentError, match="ts.sanitize takes an op"):
        sanitize(square(lang).kernel, torch.rand(3))
    with pytest.raises(
        ts.ArgumentError, match=r"ts.sanitize of op `square` got no inputs\n.*`ts.sanitize\(square, x\)`"
    ):
        sanitize(square(lang))
    with pytest.raises(ts.ArgumentError, match="cannot run inside a transform"):
        vmap(lambda x: (sanitize(square(lang), x), x)[1])(torch.rand(2, 3))


@pytest.mark.parametrize("size", [0, 1])
def test_small_inputs(lang, size):
    assert sanitize(square(lang), torch.rand(size)) == []
