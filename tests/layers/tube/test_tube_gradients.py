"""Where gradients flow in a Tube, and where they were registered not to: beside torch's `detach`."""

import itertools

import pytest
import torch

import tinsmith as ts
from support.dropin import make_leaf

F64 = torch.float64
SWITCHES = list(itertools.product([True, False], repeat=4))
"""Whether the inputs `a` and `b`, the field `t` and the output `u` have a gradient. The output `y` has."""


def tube_of(lang, flags, lead=()):
    """Make t = a b; u = t sin(a); y = t u b: everything is used twice."""

    @lang.kernel
    def first(a: lang.template(), b: lang.template(), t: lang.template(), u: lang.template()):
        for i in a:
            t[i] = a[i] * b[i]
        for i in a:
            u[i] = t[i] * lang.sin(a[i])

    @lang.kernel
    def second(t: lang.template(), u: lang.template(), b: lang.template(), y: lang.template()):
        for i in t:
            y[i] = t[i] * u[i] * b[i]

    n = (*lead, ts.MatchDim("n"))
    has_a, has_b, has_t, has_u = flags
    tube = ts.Tube().register_input_tensor(n, F64, "a", None if has_a else False)
    tube.register_input_tensor(n, F64, "b", has_b).register_intermediate_field(n, lang.f64, "t", has_t)
    tube.register_output_tensor(n, F64, "y", True).register_output_tensor(n, F64, "u", has_u)
    return tube.register_kernel(first, ["a", "b", "t", "u"]).register_kernel(second, ["t", "u", "b", "y"]).finish()


def expected_of(flags):
    def kept(tensor, has_gradient):
        return tensor if has_gradient else tensor.detach()

    def expected(a, b):
        a, b = kept(a, flags[0]), kept(b, flags[1])
        t = kept(a * b, flags[2])
        u = kept(t * a.sin(), flags[3])
        return t * u * b, u

    return expected


def by_autograd(function, inputs):
    outputs = function(*inputs)
    wanted = [part for part in outputs if part.requires_grad]
    if not wanted:
        return [None, None]
    return torch.autograd.grad(sum((k + 2.0) * p.sum() for k, p in enumerate(wanted)), inputs, allow_unused=True)


def by_transform(function, inputs):
    def total(*given):
        return sum((k + 2.0) * part.sum() for k, part in enumerate(function(*given)))

    return torch.func.grad(total, (0, 1))(*[tensor.detach() for tensor in inputs])


@pytest.mark.thinned(8)
@pytest.mark.parametrize(
    "flags", SWITCHES, ids=lambda flags: "".join(n if f else "-" for n, f in zip("abtu", flags, strict=True))
)
@pytest.mark.parametrize(
    ("lead", "gradients"),
    [((), by_autograd), ((), by_transform), ((ts.BatchDim,), by_autograd)],
    ids=["single", "single by a transform", "batch"],
)
def test_a_gradient_flows_where_it_is_registered(lang64, flags, lead, gradients):
    inputs = [make_leaf(*[3] * len(lead), 4), make_leaf(*[3] * len(lead), 4)]
    ours = gradients(tube_of(lang64, flags, lead), inputs)
    for mine, right in zip(ours, gradients(expected_of(flags), inputs), strict=True):
        torch.testing.assert_close(none_is_zero(mine), none_is_zero(right))


def none_is_zero(gradient):
    return torch.zeros((), dtype=F64) if gradient is None or not gradient.any() else gradient


@pytest.mark.thinned(8)
@pytest.mark.parametrize("flags", SWITCHES, ids=str)
def test_results_require_a_gradient_where_torch_s_do(lang64, flags):
    inputs = [make_leaf(4), make_leaf(4)]
    y, u = tube_of(lang64, flags)(*inputs)
    assert u.requires_grad == (flags[3] and (flags[0] or flags[1]))
    assert y.requires_grad == (flags[0] or flags[1])


def test_nothing_is_saved_where_no_result_has_a_gradient(lang64):
    @lang64.kernel
    def square(x: lang64.template(), y: lang64.template()):
        for i in x:
            y[i] = x[i] * x[i]

    tube = ts.Tube().register_input_tensor((4,), F64, "x").register_output_tensor((4,), F64, "y", False)
    tube.register_kernel(square, ["x", "y"]).finish()
    saved, x = [], make_leaf(4)
    with torch.autograd.graph.saved_tensors_hooks(saved.append, lambda tensor: tensor):
        result = tube(x)
    assert not saved
    assert not result.requires_grad
    torch.testing.assert_close(result, x.detach() ** 2)
