"""Functions that are given fields by parameters that are no templates: engines take that of fields, and of no array."""

import pytest
import torch

import cases
import tinsmith as ts

N = 6


def rand(*shape):
    return torch.randn(shape, dtype=torch.float64)


def sampled(q, at):
    """Interpolate `q` between its elements, clamped at its ends."""
    low = at.floor()
    index = low.long().clamp(0, N - 1)
    after = (low.long() + 1).clamp(0, N - 1)
    return q[index] + (at - low) * (q[after] - q[index])


def twin(velocity, carried):
    at = torch.arange(N) - 0.3 * sampled(velocity, torch.arange(N) - 0.1 * velocity)
    return sampled(carried, at)


def advection(lang):
    """Build kernels that move `carried` by `velocity` through functions with fields as arguments."""
    velocity, carried, moved = (lang.field(lang.f64, shape=N, needs_grad=True) for _ in range(3))

    @lang.func
    def sample(q, i):
        return q[lang.max(0, lang.min(N - 1, i))]

    @lang.func
    def between(q, at):
        low = lang.floor(at, lang.i32)
        return sample(q, low) + (at - low) * (sample(q, low + 1) - sample(q, low))

    @lang.func
    def back(by: lang.template(), i):
        return i - 0.3 * between(by, i - 0.1 * by[i])

    return velocity, carried, moved, between, back


def by_parameters(lang):
    velocity, carried, moved, between, back = advection(lang)

    @lang.kernel
    def advect(v: lang.template(), q: lang.template(), target: lang.template()):
        for i in v:
            target[i] = between(q, back(v, i))

    return velocity, carried, moved, [(advect, velocity, carried, moved)]


def by_names(lang):
    velocity, carried, moved, between, back = advection(lang)

    @lang.kernel
    def advect():
        for i in velocity:
            moved[i] = between(carried, back(velocity, i))

    return velocity, carried, moved, [(advect,)]


@pytest.mark.thinned(4)
@pytest.mark.parametrize("mode", ["fields", "tensors", "batched"])
@pytest.mark.parametrize("make", [by_parameters, by_names])
def test_values_and_gradients(lang64, make, mode):
    velocity, carried, moved, launches = make(lang64)
    layer = ts.EmptyTin(on_tensors=mode != "fields").register_output_field(moved)
    for field in (velocity, carried):
        layer.register_input_field(field, batched=mode == "batched")
    for kernel, *arguments in launches:
        layer.register_kernel(kernel, *arguments)
    layer.finish()
    lead = [2] if mode == "batched" else []
    given = [rand(*lead, N).requires_grad_() for _ in range(2)]
    ours = layer(*given)
    rows = zip(*(one.reshape(-1, N) for one in given), strict=True)
    theirs = torch.stack([twin(*row) for row in rows]).reshape(ours.shape)
    cases.assert_close(ours, theirs)
    seeds = torch.randn_like(theirs)
    cases.assert_close(torch.autograd.grad(ours, given, seeds), torch.autograd.grad(theirs, given, seeds))
