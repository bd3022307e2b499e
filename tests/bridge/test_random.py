"""Kernels that draw random numbers: torch's seed, the same numbers in the backward pass, and in every derivative."""

import pytest
import torch
from torch.autograd import gradcheck
from torch.func import grad, jvp, vmap

import tinsmith as ts

pytestmark = [pytest.mark.thinned(4), pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")]


def dropouts(lang, **options):
    """Build a kernel that drops or scales each element; the scale is drawn only if the element is kept."""

    @ts.op("x[*b, n] -> y[*b, n], factor[*b, n]", **options)
    @lang.kernel
    def dropout(x: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1), factor: lang.types.ndarray(ndim=1)):
        for i in x:
            f = 0.0
            if lang.random(lang.f64) > 0.3:
                f = 1.0 + lang.random(lang.f64)
            factor[i] = f
            y[i] = f * lang.sin(x[i])

    return dropout


def seeded(function, *given, seed=3):
    torch.manual_seed(seed)
    return function(*given)


def test_numbers_follow_torchs_seed(lang64):
    op, x = dropouts(lang64), torch.rand(1000, dtype=torch.float64)
    one, two, other = seeded(op, x), seeded(op, x), seeded(op, x, seed=4)
    torch.testing.assert_close(one, two, rtol=0, atol=0)
    assert (one.factor != other.factor).double().mean() > 0.5
    assert (op(x).factor != op(x).factor).double().mean() > 0.5
    assert 0.65 < (one.factor > 0).double().mean() < 0.75
    assert abs(one.factor[one.factor > 0].mean() - 1.5) < 0.05


@pytest.mark.compiled_engine
@pytest.mark.parametrize("size", [7, 50_000])
def test_the_backward_pass_draws_the_same_numbers(lang64, size):
    op, x = dropouts(lang64), torch.rand(size, dtype=torch.float64, requires_grad=True)
    y, factor = op(x)
    c = torch.rand(size, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(y, x, c)
    torch.testing.assert_close(gradient, c * factor.detach() * torch.cos(x.detach()))


def test_gradients_of_all_kinds(lang64):
    op, x = dropouts(lang64), torch.rand(6, dtype=torch.float64)

    def fixed(x):
        return seeded(op, x).y

    assert gradcheck(fixed, (x.clone().requires_grad_(),), check_forward_ad=True)
    factor = seeded(op, x).factor
    _, moved = jvp(fixed, (x,), (torch.ones_like(x),))
    torch.testing.assert_close(moved, factor * torch.cos(x))
    second = grad(lambda x: grad(lambda x: fixed(x).sum())(x).sum())(x)
    torch.testing.assert_close(second, -factor * torch.sin(x))


def test_samples_of_a_batch_draw_different_numbers(lang64):
    op, x = dropouts(lang64), torch.rand(3, 400, dtype=torch.float64, requires_grad=True)
    y, factor = op(x)
    assert (factor[0] != factor[1]).double().mean() > 0.5
    (gradient,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(gradient, factor.detach() * torch.cos(x.detach()))


def test_vmap_says_what_is_random(lang64):
    op, x = dropouts(lang64), torch.rand(3, 400, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="randomness"):
        vmap(op)(x)
    different = vmap(op, randomness="different")(x).factor
    assert (different[0] != different[1]).double().mean() > 0.5
    same = vmap(op, randomness="same")(x).factor
    torch.testing.assert_close(same[0], same[1], rtol=0, atol=0)


def distinct(numbers):
    return numbers.detach().unique().numel()


def inner(op, x, z, **options):
    """Call an op in a vmap inside another one."""
    return vmap(lambda u: op(x).factor + z + u, randomness="different", **options)(torch.zeros(3).to(x))


INSIDE = {
    "an unbatched tensor": lambda op, x, z: op(x).factor + z,
    "an unbatched tensor with dims `*b`": lambda op, x, z: op(x.expand(2, 5)).factor + z,
    "a batch": lambda op, x, z: op(x + z).factor,
    "nested": inner,
    "nested, the outer one's batch": lambda op, x, z: inner(op, x + z, z),
    "chunks": lambda op, x, z: inner(op, x, z, chunk_size=1),
}


@pytest.mark.parametrize("inside", INSIDE)
def test_each_example_of_vmap_has_its_own_numbers(lang64, inside):
    @ts.op("x[*b, n] -> factor[*b, n], y[*b, n]")
    @lang64.kernel
    def draw(x: lang64.types.ndarray(ndim=1), factor: lang64.types.ndarray(ndim=1), y: lang64.types.ndarray(ndim=1)):
        for i in x:
            factor[i] = lang64.random(lang64.f64)
            y[i] = factor[i] * x[i]

    x, z = torch.rand(5, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)

    def one(z):
        return INSIDE[inside](draw, x, z)

    drawn = vmap(one, randomness="different")(z)
    assert distinct(drawn) == drawn.numel()
    if "nested" not in inside and "chunks" not in inside:
        same = vmap(one, randomness="same")(z)
        assert distinct(same) == same[0].numel()
        with pytest.raises(RuntimeError, match="vmap: called random operation while in randomness error mode"):
            vmap(one)(z)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("randomness", ["different", "same"])
def test_derivatives_by_an_unbatched_tensor_use_each_examples_numbers(lang64, randomness, compiled):
    op, x, z = dropouts(lang64), torch.rand(5, dtype=torch.float64), torch.rand(3, dtype=torch.float64)

    def loss(x, z):
        y, factor = op(x)
        return (y * z).sum(), factor

    def run(z):
        return vmap(lambda z: grad(loss, has_aux=True)(x, z), randomness=randomness)(z)

    slopes, factor = (torch.compile(run, backend="aot_eager", fullgraph=True) if compiled else run)(z)
    torch.testing.assert_close(slopes, factor * torch.cos(x) * z[:, None])
    assert (factor[0] == factor[1]).all() == (randomness == "same")
    inputs = x.clone().requires_grad_()
    y, factor = vmap(lambda z: op(inputs), randomness=randomness)(z)
    (slope,) = torch.autograd.grad(y.sum(), inputs)
    torch.testing.assert_close(slope, factor.detach().sum(0) * torch.cos(x))


def test_a_batch_of_cotangents_uses_the_same_numbers(lang64):
    op, x = dropouts(lang64), torch.rand(5, dtype=torch.float64, requires_grad=True)
    y, factor = op(x)
    (jacobian,) = torch.autograd.grad(y, x, torch.eye(5, dtype=torch.float64), is_grads_batched=True)
    torch.testing.assert_close(jacobian, torch.diag(factor.detach() * torch.cos(x.detach())))


def test_under_compile(lang64):
    op, x = dropouts(lang64), torch.rand(50, dtype=torch.float64, requires_grad=True)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def run(x):
        return op(x)

    y, factor = run(x)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(gradient, factor.detach() * torch.cos(x.detach()))
    assert (run(x)[1] != factor).any()


@pytest.mark.compiled_engine
def test_a_walk_in_a_loop(lang64):
    """Draws in a loop whose length depends on them, with state that they carry."""

    @ts.op("x[n] -> y[n], steps[n]: i32, total[n]")
    @lang64.kernel
    def walk(
        x: lang64.types.ndarray(),
        y: lang64.types.ndarray(),
        steps: lang64.types.ndarray(dtype=lang64.i32),
        total: lang64.types.ndarray(),
    ):
        for i in x:
            at = x[i]
            far = 0.0
            while far < 2.0:
                step = lang64.random(lang64.f64)
                at = at * step + x[i]
                far += step
                steps[i] += 1
            y[i] = at
            total[i] = far

    x = torch.rand(20, dtype=torch.float64)
    assert gradcheck(lambda x: seeded(walk, x).y, (x.clone().requires_grad_(),), check_forward_ad=True)
    walked = walk(x)
    assert (walked.total >= 2).all() and walked.steps.unique().numel() > 2


@pytest.mark.compiled_engine
def test_the_engines_own_numbers_have_no_gradient(lang64):
    op, x = dropouts(lang64, adjoint="engine"), torch.rand(8, dtype=torch.float64)
    assert op(x).y.shape == (8,)
    with pytest.raises(ts.GradientError):
        op(x.requires_grad_()).y.sum().backward()


def test_a_construct_that_cannot_be_analyzed_is_refused(lang64):
    def outside(v):
        return v

    @lang64.kernel
    def kernel(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = lang64.random() * outside(x[i])

    words = r"(?s)`kernel` cannot draw random numbers from torch's.*`outside`.*test_random.py:\d+\n.*the op has no"
    with pytest.raises(ts.KernelError, match=words):
        ts.op("x[n] -> y[n]")(kernel)(torch.ones(4, dtype=torch.float64))
