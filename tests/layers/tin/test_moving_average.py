"""The exponentially weighted moving average, in place on fields: a state goes on, a weight is learned."""

import pytest
import torch

import cases
import tinsmith as ts

STEPS = 6


def in_rows(lang):
    """Build `y[t]` from `y[t - 1]`; the first row is `a * x[0]`."""

    @lang.data_oriented
    class Average:
        def __init__(self):
            self.x, self.y = (lang.field(lang.f64, STEPS, needs_grad=True) for _ in range(2))
            self.a = lang.field(lang.f64, (), needs_grad=True)

        @lang.kernel
        def run(self):
            lang.loop_config(serialize=True)
            for t in range(STEPS):
                if t == 0:
                    self.y[t] = self.a[None] * self.x[t]
                else:
                    self.y[t] = self.a[None] * self.x[t] + (1 - self.a[None]) * self.y[t - 1]

    return Average(), False


def in_one_field(lang):
    """Make a layer with a running state that the next call continues."""

    @lang.data_oriented
    class Average:
        def __init__(self):
            self.x, self.y = (lang.field(lang.f64, STEPS, needs_grad=True) for _ in range(2))
            self.a, self.s = (lang.field(lang.f64, (), needs_grad=True) for _ in range(2))

        @lang.kernel
        def run(self):
            for _ in range(1):
                for t in range(STEPS):
                    self.s[None] = self.a[None] * self.x[t] + (1 - self.a[None]) * self.s[None]
                    self.y[t] = self.s[None]

    return Average(), True


def averaged(x, a, s):
    rows = []
    for one in x:
        s = a * one + (1 - a) * s
        rows.append(s)
    return torch.stack(rows)


@pytest.mark.parametrize("make", [in_rows, in_one_field])
def test_a_moving_average_trains_as_in_torch(lang64, make):
    average, goes_on = make(lang64)
    layer = ts.Tin(average).register_kernel("run").register_input_field(average.x).register_output_field(average.y)
    layer.register_weight_field(average.a, name="a", value=torch.tensor(0.3, dtype=torch.float64)).finish()
    a = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    optimizers = [torch.optim.SGD([one], 0.05) for one in (layer.a, a)]
    state = torch.zeros((), dtype=torch.float64)
    for _ in range(4):
        x, goal = torch.randn(STEPS, dtype=torch.float64).requires_grad_(), torch.randn(STEPS, dtype=torch.float64)
        ours, theirs = layer(x), averaged(x, a, state)
        cases.assert_close(ours, theirs)
        losses = [(one - goal).square().sum() for one in (ours, theirs)]
        gradients = torch.autograd.grad(losses[0], (x, layer.a))
        wanted = torch.autograd.grad(losses[1], (x, a))
        cases.assert_close(gradients, wanted)
        layer.a.grad, a.grad = gradients[1], wanted[1]
        for optimizer in optimizers:
            optimizer.step()
        state = theirs[-1].detach() if goes_on else state
        cases.assert_close(average.y.to_torch(), ours.detach())  # fields show what a call left


@pytest.mark.compiled_engine
@pytest.mark.parametrize("make", [in_rows, in_one_field])
def test_the_engines_gradient_is_refused(lang64, make):
    average, _ = make(lang64)
    layer = ts.Tin(average, adjoint="engine").register_kernel("run").register_input_field(average.x)
    layer.register_output_field(average.y).register_weight_field(average.a, name="a").finish()
    with pytest.raises(ts.GradientError):
        layer(torch.randn(STEPS, dtype=torch.float64))
