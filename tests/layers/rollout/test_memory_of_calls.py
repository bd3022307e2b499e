"""Which memory the calls of a rollout use: what was read for a call is changed in place, and used again after it."""

import pytest
import torch

import tinsmith as ts

pytestmark = pytest.mark.filterwarnings("ignore:[^$]*carries values from call to call")
T, N = 4, 20_000
ROUNDS = 3


class Chain:
    """A chain on a time axis, whose rows take more than the least memory that is recycled."""

    def __init__(self, lang):
        x = self.x = lang.field(lang.f64, (T + 1, N))

        @lang.kernel
        def step(t: lang.i32):
            for i in range(N):
                x[t + 1, i] = x[t, i] * x[t, i] + x[t + 1, i]

        def forward():
            for t in range(T):
                step(t)

        self.run = ts.rollout(forward, {"start": (x, 0)}, {"x": x})


def compute_expected(start, held):
    rows = [start]
    for row in held:
        rows.append(rows[-1] ** 2 + row)
    return torch.stack(rows)


@pytest.mark.parametrize("has_gradient", [True, False])
def test_results_and_gradients_of_calls_keep_apart(lang64, has_gradient):
    chain = Chain(lang64)
    calls = []
    for seed in range(ROUNDS):
        torch.manual_seed(seed)
        start = torch.rand(N, dtype=torch.float64, requires_grad=has_gradient)
        held = torch.rand(T, N, dtype=torch.float64) * 0.1
        chain.x.from_torch(torch.cat([torch.full((1, N), 7.0, dtype=torch.float64), held]))
        calls.append((start, held, chain.run(start)))
    for start, held, out in calls:
        reference = start.detach().clone().requires_grad_()
        want = compute_expected(reference, held)
        torch.testing.assert_close(out, want)
        if has_gradient:
            weight = torch.rand_like(want)
            (ours,) = torch.autograd.grad((out * weight).sum(), start, retain_graph=True)
            (theirs,) = torch.autograd.grad((want * weight).sum(), reference)
            torch.testing.assert_close(ours, theirs)
            (again,) = torch.autograd.grad((out * weight).sum(), start)
            torch.testing.assert_close(again, theirs)


def test_second_derivatives_have_the_values_that_fields_held(lang64):
    chain = Chain(lang64)
    held = torch.rand(T, N, dtype=torch.float64) * 0.1
    chain.x.from_torch(torch.cat([torch.zeros(1, N, dtype=torch.float64), held]))
    start = torch.rand(N, dtype=torch.float64, requires_grad=True)
    reference = start.detach().clone().requires_grad_()
    results = []
    for out, one in ((chain.run(start), start), (compute_expected(reference, held), reference)):
        (slope,) = torch.autograd.grad(out[-1].sum(), one, create_graph=True)
        results.append(torch.autograd.grad((slope**2).sum(), one)[0])
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("has_gradient", [True, False])
def test_a_result_may_be_changed_in_place(lang64, has_gradient):
    chain = Chain(lang64)
    chain.x.fill(0.0)
    start = torch.full((N,), 0.5, dtype=torch.float64, requires_grad=has_gradient)
    out = chain.run(start)
    kept = out.detach().clone()
    out.mul_(3.0)
    assert not out._is_view()
    torch.testing.assert_close(out.detach(), 3.0 * kept)


def test_inputs_are_changed_in_place_if_nothing_is_saved(lang64):
    chain = Chain(lang64)
    chain.run(torch.rand(N, dtype=torch.float64))
    (program,) = chain.run._programs.values()
    text = program.explain("all")
    assert "change x_before in place, as x" in text
    assert "copy x_before to x" not in text
