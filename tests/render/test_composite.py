"""Compositing against its twin: values, and the gradients of all outputs in all inputs."""

from __future__ import annotations

import pytest
import torch

import tinsmith as ts
from support.packed import (
    CLOSE,
    COUNTS,
    assert_composites_agree,
    compute_outputs_and_gradients,
    draw_samples,
    make_rays,
)
from tinsmith import reference
from tinsmith.render import composite

NAMES = ("densities", "colors", "t", "steps", "background")


def make_leaves(*tensors):
    return [tensor.clone().requires_grad_() for tensor in tensors]


def assert_agrees(engine, given, rays, **options):
    return assert_composites_agree(composite, reference.composite, NAMES, engine, given, rays, **options)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("threshold", [0.0, 0.05])
@pytest.mark.parametrize("dense", [0.005, 0.5, 30.0], ids=["thin", "half", "opaque"])
@pytest.mark.parametrize("counts", COUNTS.values(), ids=COUNTS)
def test_packed_samples_agree_with_the_twin(engine, counts, dense, threshold):
    rays = make_rays(counts, gap=1)
    given = (*draw_samples(rays, dense=dense), torch.rand(len(rays), 3, dtype=torch.float64))
    ours = assert_agrees(engine, given, rays, threshold=threshold)
    assert ours.weights[0] == 0 == ours.weights[-1], "samples of no ray"


@pytest.mark.parametrize("shape", [(5, 8), (3, 0), (0, 4), (1, 1)], ids=str)
def test_dense_samples_agree_with_the_twin(engine, shape):
    n, k = shape
    rays = make_rays([k] * n)
    densities, colors, t, steps = (x[: n * k].reshape(n, k, *x.shape[1:]) for x in draw_samples(rays, dense=0.4))
    background = torch.rand(3, dtype=torch.float64)
    if n:
        ours = assert_agrees(engine, (densities, colors, t, steps, background), None, threshold=0.1)
    else:
        ours = composite(densities, colors, t, steps, background=background, engine=engine)
    assert ours.color.shape == (n, 3) and ours.weights.shape == (n, k)


@pytest.mark.parametrize("channels", [1, 17, pytest.param(5, marks=pytest.mark.costly)])
def test_any_number_of_channels_agrees_with_the_twin(engine, channels):
    rays = make_rays([3, 0, 6])
    assert_agrees(engine, (*draw_samples(rays, channels=channels), torch.rand(channels, dtype=torch.float64)), rays)


def test_rays_in_any_order(engine):
    rays = make_rays([3, 0, 7, 1, 5])[torch.tensor([4, 2, 0, 1, 3])].long()
    assert_agrees(engine, (*draw_samples(rays), torch.rand(3, dtype=torch.float64)), rays)


def test_no_ray_at_all(engine):
    rendered = composite(*(x[:0] for x in draw_samples(make_rays([2]))), torch.zeros(0, 2).int(), engine=engine)
    assert [tuple(y.shape) for y in rendered] == [(0, 3), (0,), (0,), (0,)]


@pytest.mark.parametrize("threshold", [0.0, 0.3])
def test_gradcheck(engine, threshold):
    rays = make_rays([3, 0, 2])
    samples = make_leaves(*draw_samples(rays, channels=2, dense=0.7), torch.rand(2, dtype=torch.float64))

    def outputs(densities, colors, t, steps, background):
        return composite(densities, colors, t, steps, rays, background=background, threshold=threshold, engine=engine)

    assert torch.autograd.gradcheck(outputs, samples)


def test_second_derivatives(engine):
    rays = make_rays([3, 0, 2])
    samples = make_leaves(*draw_samples(rays, channels=2, dense=0.7))

    def outputs(*samples):
        return composite(*samples, rays, engine=engine)

    assert torch.autograd.gradgradcheck(outputs, samples)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_opaque_samples_have_weight_one(engine, dtype):
    rays = make_rays([3, 2])
    densities, colors, t, steps = make_leaves(*draw_samples(rays, dtype=dtype))
    with torch.no_grad():
        densities[1] = densities[3] = 1e30
    rendered = composite(densities, colors, t, steps, rays, engine=engine)
    assert rendered.weights[0] + rendered.weights[1] == 1 and rendered.weights[2] == 0
    assert rendered.weights[3] == 1 and rendered.weights[4] == 0
    assert rendered.opacity.tolist() == [1, 1]
    torch.testing.assert_close(rendered.color[1], colors[3])
    for slope in torch.autograd.grad(sum(y.sum() for y in rendered), [densities, colors, t, steps]):
        assert slope.isfinite().all()


def test_a_thin_sample_keeps_its_digits_in_float32(engine):
    densities = torch.logspace(-12, -1, 40)
    given = torch.stack([densities, *torch.zeros(7, 40)], 1)  # a whole group of samples, and below one by itself
    one = torch.ones_like(given)
    expected = -torch.expm1(-densities.double())
    for n in (8, 1):
        rendered = composite(given[:, :n], one[:, :n, None], one[:, :n], one[:, :n], engine=engine)
        torch.testing.assert_close(rendered.weights[:, 0].double(), expected, rtol=1e-6, atol=0)


def test_all_exponentials_agree_in_float32(engine):
    """What shines through, down to what float32 has no number for, and up."""
    x = torch.cat([torch.linspace(-80, 120, 4001), torch.rand(2000) * 2, torch.tensor([1e30, torch.inf, 0.0])])
    given = torch.stack([x, *torch.zeros(7, len(x))], 1)
    one = torch.ones_like(given)
    opacity = composite(given, one[..., None], one, one, engine=engine).opacity
    torch.testing.assert_close(1 - opacity.double(), torch.exp(-x.double()), rtol=5e-6, atol=1e-7)
    behind = torch.stack([x, torch.ones_like(x), *torch.zeros(6, len(x))], 1)
    weights = composite(behind, one[..., None], one, one, engine=engine).weights
    expected = torch.exp(-x.double()) * -torch.expm1(torch.tensor(-1.0).double())
    torch.testing.assert_close(weights[:, 1].double(), expected, rtol=5e-6, atol=1e-37)


@pytest.mark.parametrize("n", [1, 8])
def test_a_nan_is_not_hidden(engine, n):
    given = torch.ones(1, n)
    given[0, 0] = torch.nan
    one = torch.ones(1, n)
    rendered = composite(given, one[..., None], one, one, engine=engine)
    assert rendered.color.isnan().all() and rendered.opacity.isnan().all()


def test_behind_something_opaque_gradients_keep_their_digits_in_float32(engine):
    """A sweep that took 1 - opacity for what is left would have none."""
    densities = torch.tensor([[3.0, 20.0, 2.0, 1.0]])
    given = [densities, torch.rand(1, 4, 3), torch.tensor([[1.0, 2.0, 3.0, 4.0]]), torch.ones(1, 4)]
    slopes = []
    for function, dtype in ((composite, torch.float32), (reference.composite, torch.float64)):
        samples = make_leaves(*(tensor.to(dtype) for tensor in given))
        slopes.append(torch.autograd.grad(function(*samples).color[0, 1], samples[0])[0].double())
    assert 0 < slopes[1][0, 3].abs() < 1e-9
    torch.testing.assert_close(slopes[0], slopes[1], rtol=1e-4, atol=0)


def test_rays_end_at_opaque_samples(engine):
    densities = torch.tensor([[1.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0]], requires_grad=True)
    colors, one = torch.rand(2, 4, 3, requires_grad=True), torch.ones(2, 4)
    rendered = composite(densities, colors, one, one, threshold=0.2, engine=engine)
    rendered.color.sum().backward()
    assert rendered.weights[0, 3] == 0 and densities.grad[0, 3] == 0, "exp(-2) < 0.2"
    assert (colors.grad[0, 3] == 0).all()
    assert (densities.grad[1] != 0).all(), "without a weight, but seen: density 0 could grow"
    again = composite(densities, colors, one, one, threshold=0.5, engine=engine)
    assert again.weights[0].count_nonzero() == 1


@pytest.mark.parametrize("wanted", [[0], [1], [2], [3], [0, 1], [1, 3]], ids=str)
@pytest.mark.parametrize("output", range(4), ids=["color", "opacity", "depth", "weights"])
def test_gradients_of_one_output_in_some_inputs(output, wanted):
    rays = make_rays([3, 0, 4])
    given = draw_samples(rays)
    slopes = []
    for function in (composite, reference.composite):
        samples = [x.clone().requires_grad_(j in wanted) for j, x in enumerate(given)]
        loss = (function(*samples, rays)[output] ** 2).sum() + 0 * samples[wanted[0]].sum()  # which may move nothing
        chosen = [samples[j] for j in wanted]
        slopes.append(torch.autograd.grad(loss, chosen, allow_unused=True, materialize_grads=True))
    for slope, twin in zip(*slopes, strict=True):
        torch.testing.assert_close(slope, twin, **CLOSE)


def make_loss(function, rays, **options):
    def loss(densities, colors, t, steps):
        rendered = function(densities, colors, t, steps, rays, **options)
        return (rendered.color**2).sum() + (rendered.depth * rendered.opacity).sum() + (rendered.weights**2).sum()

    return loss


def test_compiled_it_stays_one_graph(engine):
    rays = make_rays([3, 0, 4])
    given = draw_samples(rays)
    samples, twins = make_leaves(*given), make_leaves(*given)
    compiled = torch.compile(
        make_loss(composite, rays, engine=engine, threshold=0.1), fullgraph=True, backend="aot_eager"
    )
    compiled(*samples).backward()
    make_loss(reference.composite, rays, threshold=0.1)(*twins).backward()
    for sample, twin in zip(samples, twins, strict=True):
        torch.testing.assert_close(sample.grad, twin.grad, **CLOSE)


def test_under_func_grad_and_vmap(engine):
    rays = make_rays([3, 0, 4])
    batches = [torch.stack(pair) for pair in zip(draw_samples(rays), draw_samples(rays), strict=True)]
    every = (0, 1, 2, 3)
    slopes = torch.func.vmap(torch.func.grad(make_loss(composite, rays, engine=engine), argnums=every))(*batches)
    for j in range(2):
        samples = make_leaves(*(batch[j] for batch in batches))
        expected = torch.autograd.grad(make_loss(reference.composite, rays)(*samples), samples)
        for slope, twin in zip(slopes, expected, strict=True):
            torch.testing.assert_close(slope[j], twin, **CLOSE)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own forward mode uses it
@pytest.mark.parametrize("derivative", ["jvp", pytest.param("hessian", marks=pytest.mark.costly)])
def test_forward_mode_and_hessians(engine, derivative):
    rays = make_rays([3, 0, 4])
    densities, *others = draw_samples(rays)
    derivatives = []
    for loss in (make_loss(composite, rays, engine=engine), make_loss(reference.composite, rays)):

        def of_densities(densities, loss=loss):
            return loss(densities, *others)

        if derivative == "jvp":
            derivatives.append(torch.func.jvp(of_densities, (densities,), (densities.cos(),))[1])
        else:
            derivatives.append(torch.func.hessian(of_densities)(densities))
    torch.testing.assert_close(*derivatives, **CLOSE)


def test_many_cotangents_at_once(engine):
    rays = make_rays([3, 0, 4])
    samples = make_leaves(*draw_samples(rays))
    color = composite(*samples, rays, engine=engine).color
    cotangents = torch.randn(4, *color.shape, dtype=torch.float64)
    slopes = torch.autograd.grad(color, samples, cotangents, is_grads_batched=True, retain_graph=True)
    for j, cotangent in enumerate(cotangents):
        expected = torch.autograd.grad(color, samples, cotangent, retain_graph=True)
        for slope, twin in zip(slopes, expected, strict=True):
            torch.testing.assert_close(slope[j], twin, **CLOSE)


def test_derivatives_of_many_cotangents_at_once(engine):
    rays = make_rays([3, 0, 4])
    samples = make_leaves(*draw_samples(rays))
    color = composite(*samples, rays, engine=engine).color
    cotangents = torch.randn(4, *color.shape, dtype=torch.float64)
    slopes = torch.autograd.grad(color, samples, cotangents, is_grads_batched=True, create_graph=True)
    actual = torch.autograd.grad(sum(one.sin().sum() for one in slopes), samples, retain_graph=True)
    each = [torch.autograd.grad(color, samples, one, create_graph=True) for one in cotangents]
    wanted = torch.autograd.grad(sum(one.sin().sum() for slopes in each for one in slopes), samples)
    torch.testing.assert_close(actual, wanted, **CLOSE)


def test_under_autocast_in_float32(engine):
    rays = make_rays([3, 0, 4])
    given = draw_samples(rays, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rendered = composite(given[0].bfloat16(), *given[1:], rays, engine=engine)
    assert rendered.color.dtype == torch.float32
    expected = reference.composite(given[0].bfloat16().float(), *given[1:], rays)
    torch.testing.assert_close(rendered.color, expected.color, rtol=1e-4, atol=1e-5)


@pytest.mark.gpu
def test_on_cuda_it_agrees_with_the_twin(engine):
    rays = make_rays([3, 0, 70, 1, 5], gap=1)
    given = (*draw_samples(rays, dense=0.5), torch.rand(len(rays), 3, dtype=torch.float64))
    cotangents = [torch.randn_like(y) for y in reference.composite(*given[:-1], rays, background=given[-1])]
    twins, expected = compute_outputs_and_gradients(reference.composite, given, rays, cotangents)
    there = [one.cuda() for one in given]
    ours, slopes = compute_outputs_and_gradients(
        composite, there, rays.cuda(), [c.cuda() for c in cotangents], engine=engine
    )
    for one, twin in zip((*ours, *slopes), (*twins, *expected), strict=True):
        torch.testing.assert_close(one.cpu(), twin, **CLOSE)


REFUSALS = {
    "no tensor": (lambda given: given | {"t": [1.0]}, ts.ArgumentError, "`t` of `composite` must be a tensor"),
    "None": (lambda given: given | {"t": None}, ts.ArgumentError, "got  NoneType\nPass a tensor."),
    "dtypes": (lambda given: given | {"t": given["t"].double()}, ts.DtypeError, "t          torch.float64"),
    "half": (lambda given: {k: v if k == "rays" else v.half() for k, v in given.items()}, ts.DtypeError, "float16"),
    "sizes": (lambda given: given | {"steps": given["steps"][1:]}, ts.ShapeError, r"should be \(7,\)"),
    "packed without rays": (lambda given: given | {"rays": None}, ts.ShapeError, "should be .n, k."),
    "rays of floats": (
        lambda given: given | {"rays": given["rays"].float()},
        ts.DtypeError,
        "must be a tensor of integers",
    ),
    "rays of three": (lambda given: given | {"rays": torch.zeros(2, 3).int()}, ts.ShapeError, r"expected  \[n, 2\]"),
    "rays outside": (lambda given: given | {"rays": given["rays"] + 4}, ts.ShapeError, "points outside the samples"),
    "rays before": (lambda given: given | {"rays": given["rays"] - 1}, ts.ShapeError, "the smallest is -1"),
    "background": (lambda given: given | {"background": torch.ones(4)}, ts.ShapeError, r"background.*should be \(3,\)"),
}


@pytest.mark.parametrize("case", REFUSALS.values(), ids=REFUSALS)
def test_invalid_arguments_are_refused(case):
    change, error, words = case
    rays = make_rays([3, 2])
    given = dict(zip(("densities", "colors", "t", "steps"), draw_samples(rays, dtype=torch.float32), strict=True))
    with pytest.raises(error, match=words):
        composite(**change(given | {"rays": rays}))
