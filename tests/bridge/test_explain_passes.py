"""`op.explain(passes=True)`: the IR after each pass, for the calls so far."""

import pytest
import torch

import tinsmith as ts
from tinsmith.ir import parse_ir


@pytest.fixture
def wave(lang):
    @ts.op("x[n], w[n] -> y[n]")
    @lang.kernel
    def wave(x: lang.types.ndarray(), w: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = lang.sin(x[i] * w[i])

    return wave


def titles(text):
    return [line for line in text.splitlines() if line.startswith("# after ")]


def test_the_passes_before_a_call(wave):
    assert wave.explain(passes=True).endswith("passes: known after a call")
    assert "passes:" not in wave.explain("all")


def test_a_forward_pass(wave):
    wave(torch.rand(3), torch.rand(3))
    shown = titles(wave.explain(passes=True))
    assert shown[0] == "# after lower, kernel wave"
    assert "# after order-races, kernel wave: no change" in shown
    assert not any("normalize" in title for title in shown)


def test_a_gradient(wave):
    x = torch.rand(3, requires_grad=True)
    wave(x, torch.rand(3)).sum().backward()
    text = wave.explain(passes=True)
    shown = titles(text)
    assert [title for title in shown if title.startswith("# after emit")] == ["# after emit, kernel wave_adjoint_0"]
    normalized = text.partition("# after normalize, kernel wave\n")[2].partition("\n# after")[0]
    assert parse_ir(normalized).name == "wave"
    assert "grad_x[i]" in text and "grad_w" not in text
    # What was shown did not change what is kept of the call.
    assert titles(wave.explain(passes=True)) == shown


def test_a_batch(wave):
    torch.func.vmap(wave)(torch.rand(2, 3), torch.rand(2, 3))
    text = wave.explain(passes=True)
    assert "# after batch, kernel wave\n" in text
    assert "for sample, i in 0 .. x.shape[0]" in text


def test_with_the_engine_s_gradient(lang):
    @ts.op("x[n] -> y[n]", adjoint="engine", trust_engine=True)
    @lang.kernel
    def odd(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = 0.0
            for k in lang.static(range(2)):
                y[i] += x[i] * k

    odd(torch.rand(3))
    assert titles(odd.explain(passes=True))[0] == "# after lower, kernel odd"


@pytest.mark.compiled_engine
def test_a_kernel_that_cannot_be_lowered(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def odd(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            one = lang.types.struct(v=lang.f32)(v=1.0)
            y[i] = x[i] * one.v

    odd(torch.rand(3))
    words = odd.explain(passes=True).splitlines()[-1]
    assert words.startswith("passes: none, since tinsmith cannot follow `lang.types.struct`")
    assert words.endswith("test_explain_passes.py:77")


def test_a_tangent(wave):
    x, w = torch.rand(3), torch.rand(3)
    torch.func.jvp(lambda x: wave(x, w), (x,), (torch.ones(3),))
    shown = titles(wave.explain(passes=True))
    assert "# after differentiate, kernel wave_tangent" in shown
    assert any(title.startswith("# after drop-unneeded, kernel wave_tangent") for title in shown)
