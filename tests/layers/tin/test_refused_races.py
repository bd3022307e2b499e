"""A layer whose kernel certainly races is refused, as an op is; where that is allowed, it has values, no gradient."""

import pytest
import torch

import tinsmith as ts


@pytest.mark.compiled_engine
@pytest.mark.parametrize("is_sum", [True, False])
def test_a_race_on_fields(lang64, is_sum):
    @lang64.data_oriented
    class Sums:
        def __init__(self):
            self.x, self.y = (lang64.field(lang64.f64, 6, needs_grad=True) for _ in range(2))

        @lang64.kernel
        def run(self):
            for i in self.x:
                self.y[i] = self.x[i]
            for i in range(1, 6):
                if lang64.static(is_sum):
                    self.y[i] += 0.5 * self.y[i - 1]
                else:
                    self.y[i] = self.y[i - 1] + self.x[i]

    sums = Sums()
    with pytest.raises(ts.KernelError, match=r"Tin\(Sums\).run has a data race"):
        ts.Tin(sums).register_kernel("run")
    layer = ts.Tin(sums, races="allow").register_kernel("run")
    layer.register_input_field(sums.x).register_output_field(sums.y).finish()
    assert layer(torch.rand(6, dtype=torch.float64)).shape == (6,)
    words = r"(?s)Tin.* has no gradient: its result depends on the order.*\[i - 1\]`, in line.*serialize=True"
    with pytest.raises(ts.GradientError, match=words):
        layer(torch.rand(6, dtype=torch.float64).requires_grad_()).sum().backward()
    assert "gradient: refused: its result depends on the order of the iterations" in layer.explain("all")
    assert "the engine's reverse mode" not in layer.explain("all")


def test_a_check_of_a_race_says_that_it_is_refused(lang64):
    """The engine's gradient, which no call takes, was compared."""

    @lang64.kernel
    def sums(x: lang64.template(), y: lang64.template()):
        for i in range(1, 6):
            y[i] = y[i - 1] + x[i]

    def layer_by(adjoint):
        x, y = (lang64.field(lang64.f64, 6, needs_grad=True) for _ in range(2))
        layer = ts.EmptyTin(adjoint=adjoint, races="allow").register_kernel(sums, x, y)
        layer.register_input_field(x, name="x")
        return layer.register_output_field(y, name="y").finish()

    result = ts.gradcheck(layer_by("auto"), torch.rand(6, dtype=torch.float64))
    assert result.verdict == "refused"
    assert result.origin == "which is not generated, since iterations of a parallel loop race"
    assert [one.rule for one in result.findings] == ["TS703"]
    assert ts.gradcheck(layer_by("engine"), torch.rand(6, dtype=torch.float64)).origin.startswith("by the engine's")
