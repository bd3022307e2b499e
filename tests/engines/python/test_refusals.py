"""What the Python engine does not run is refused, with the true cause."""

import pytest
import torch

import tinsmith as ts
from support.pythonic import on_python


def test_a_gradient_that_cannot_be_generated(lang):
    """The engine has no reverse mode of its own to fall back on."""

    @lang.kernel
    def halves(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            for j in range(2) if x[i] > 0.0 else range(1):
                y[i] += x[i] * (j + 1)

    op = ts.op("x[n] -> y[n]", engine="python")(halves)
    assert op(torch.tensor([1.0, -1.0])).tolist() == [3.0, -1.0]
    with pytest.raises(ts.GradientError, match=r"its adjoint cannot be generated for\n.*whose condition is not"):
        op(torch.ones(2, requires_grad=True))


def test_the_engine_s_own_gradient(lang):
    @lang.kernel
    def double(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = 2.0 * x[i]

    op = ts.op("x[n] -> y[n]", engine="python", adjoint="engine")(double)
    with pytest.raises(ts.GradientError, match="the Python engine has no reverse mode of its own"):
        op(torch.ones(2, requires_grad=True)).sum().backward()


def test_a_module_names_the_language_of_its_kernels():
    encoding = ts.nn.Encoding(2, {"otype": "Frequency", "n_frequencies": 2}, engine="python")
    with pytest.raises(ts.EngineError, match=r"own kernels are written for a compiled engine.*\n.*\n.*TINSMITH_ENGINE"):
        encoding(torch.ones(1, 2))


def test_networks_run_where_everything_does(lang):
    """Their kernels too, and the values are those of the compiled engine."""
    encoding = ts.nn.Encoding(2, {"otype": "Frequency", "n_frequencies": 2}, engine=lang.__name__)
    points = torch.rand(4, 2)
    compiled = encoding(points)
    with on_python():
        again = ts.nn.Encoding(2, {"otype": "Frequency", "n_frequencies": 2}, engine=lang.__name__)(points)
    torch.testing.assert_close(again, compiled)
