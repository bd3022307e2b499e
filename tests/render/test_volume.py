"""Direct volume rendering against its twin, values and gradients, in float64; and what it refuses."""

from __future__ import annotations

import functools
import re

import pytest
import torch

import tinsmith as ts
from tinsmith import reference
from tinsmith._errors import ArgumentError, DeviceError, DtypeError, ShapeError
from tinsmith.reference import Shading
from tinsmith.render import volume_render
from tinsmith.render._ops import get_op

pytestmark = pytest.mark.thinned(4)

BOX = [-1.0, 0.5, 2.0, 2.0, 1.5, 4.0]
NAMES = ("volume", "table", "origins", "directions", "background")
SHADED = Shading(light=(0.3, -1.0, 0.5), ambient=0.2, diffuse=0.6, specular=0.5, shininess=6.0, softness=0.2)


def scene(n=60, size=(5, 4, 6), rows=7, dtype=torch.float64):
    """Draw random values, some outside 0 to 1, and rays that cross the box, start in it, run beside faces, and miss."""
    low, high = torch.tensor(BOX, dtype=dtype).view(2, 3)
    origins = low + (torch.rand(n, 3, dtype=dtype) * 5 - 2) * (high - low)
    towards = low + torch.rand(n, 3, dtype=dtype) * (high - low)
    directions = (towards - origins) * (0.1 + torch.rand(n, 1, dtype=dtype))
    origins[::5] = towards[::5]
    directions[::6, 1] = 0.0
    directions[1::7] *= -1
    return {
        "volume": torch.rand(size, dtype=dtype) * 1.4 - 0.2,
        "table": torch.rand(rows, 4, dtype=dtype) * torch.tensor([1.0, 1.0, 1.0, 3.0], dtype=dtype),
        "origins": origins,
        "directions": directions,
        "background": torch.rand(n, 3, dtype=dtype),
    }


def opaque(given):
    return given | {"table": given["table"] * torch.tensor([1.0, 1.0, 1.0, 1e4], dtype=torch.float64)}


def missing(given):
    return given | {"origins": given["origins"] + 100.0}


# What is changed in the random scene, and what the call is given besides.
CASES = {
    "plain": (lambda: scene(), {}),
    "threshold": (lambda: scene(), {"threshold": 0.4}),
    "jitter": (lambda: scene(), {"jitter": True}),
    "one sample": (lambda: scene(), {"step": 100.0}),
    "opaque": (lambda: opaque(scene()), {}),
    "clear": (lambda: scene() | {"table": torch.rand(3, 4).double() * torch.tensor([1, 1, 1, 0])}, {}),
    "one cell": (lambda: scene() | {"volume": torch.full((1, 1, 1), 0.3).double()}, {}),
    "flat": (lambda: scene(size=(7, 1, 2)), {}),
    "one row": (lambda: scene(rows=1), {}),
    "one ray": (lambda: scene(n=1), {}),
    "no ray": (lambda: scene(n=0), {}),
    "all miss": (lambda: missing(scene()), {}),
    "shaded": (lambda: scene(), {"shading": SHADED}),
    "lit by the eye": (lambda: scene(), {"shading": Shading(specular=0.4, shininess=3.0)}),
    "shaded, opaque": (lambda: opaque(scene()), {"shading": SHADED}),
    "shaded, flat": (lambda: scene(size=(7, 1, 2)), {"shading": SHADED}),
    "shaded, threshold, jitter": (lambda: scene(), {"shading": SHADED, "threshold": 0.4, "jitter": True}),
}


@pytest.mark.thinned(4)
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_agree_with_the_twin(engine, case):
    make, options = CASES[case]
    given = make()
    ours, twins = both(given, engine=engine, **{"step": 0.11, **options})
    for name, expected in twins.items():
        close(ours[name], expected, name)
    if case in {"plain", "shaded", "lit by the eye"}:
        assert all(twins[f"gradient of {name}"].abs().max() > 1e-3 for name in NAMES), "the case shows nothing"


def both(given, step, jitter=None, engine=None, **options):
    """Compute outputs and gradients of ours and of the twin, by name."""
    offsets = torch.rand(len(given["origins"])).to(given["origins"]) if jitter else None
    ours = outputs_and_gradients(
        lambda *a, **k: volume_render(*a, jitter=offsets, engine=engine, **k), given, step, options
    )
    twin = lambda *a, **k: reference.volume_render(*a, offsets=offsets, **k)  # noqa: E731
    return ours, outputs_and_gradients(twin, given, step, options)


def outputs_and_gradients(render, given, step, options):
    leaves = {name: given[name].clone().requires_grad_() for name in NAMES}
    *inputs, background = leaves.values()
    seen = render(*inputs, BOX, step=step, background=background, **options)
    draw = torch.Generator().manual_seed(7)
    total = sum(
        (output * torch.randn(output.shape, generator=draw, dtype=torch.float64).to(output)).sum() for output in seen
    )
    gradients = torch.autograd.grad(total, list(leaves.values()))
    named = {f"gradient of {name}": gradient for name, gradient in zip(NAMES, gradients, strict=True)}
    return {name: output.detach() for name, output in seen._asdict().items()} | named


def close(ours, twins, what, rtol=1e-9):
    assert ours.shape == twins.shape and ours.dtype == twins.dtype
    scale = twins.abs().max().item() if twins.numel() else 0.0
    torch.testing.assert_close(ours, twins, rtol=rtol, atol=rtol * scale + 1e-14, msg=lambda words: f"{what}: {words}")


@pytest.mark.parametrize("shading", [None, pytest.param(SHADED, marks=pytest.mark.costly)], ids=["plain", "shaded"])
def test_float32_agrees_with_the_twin(engine, shading):
    given = scene()
    single = {name: tensor.float() for name, tensor in given.items()}
    ours = outputs_and_gradients(
        lambda *a, **k: volume_render(*a, engine=engine, **k), single, 0.11, {"shading": shading}
    )
    twins = outputs_and_gradients(reference.volume_render, given, 0.11, {"shading": shading})
    assert ours["color"].dtype == torch.float32
    for name, expected in twins.items():
        close(ours[name].double(), expected, name, rtol=2e-4)


@pytest.mark.costly
def test_the_whole_gradient_is_that_of_finite_differences(engine):
    given = scene(n=4, size=(3, 2, 3), rows=3)
    leaves = [given[name].requires_grad_() for name in NAMES[:4]]
    render = lambda *a: tuple(volume_render(*a, BOX, step=0.5, engine=engine))  # noqa: E731
    assert torch.autograd.gradcheck(render, leaves)


@pytest.mark.costly
@pytest.mark.parametrize("shading", [None, SHADED], ids=["plain", "shaded"])
def test_requesting_some_gradients_gives_the_same_as_all(engine, shading):
    given = scene()
    everything = outputs_and_gradients(
        functools.partial(volume_render, engine=engine), given, 0.11, {"shading": shading}
    )
    for wanted in (["volume", "table"], ["directions"]):
        leaves = {name: given[name].clone().requires_grad_(name in wanted) for name in NAMES}
        *inputs, background = leaves.values()
        seen = volume_render(*inputs, BOX, step=0.11, background=background, shading=shading, engine=engine)
        draw = torch.Generator().manual_seed(7)
        cotangents = [torch.randn(output.shape, generator=draw, dtype=torch.float64) for output in seen]
        gradients = torch.autograd.grad(seen, [leaves[name] for name in wanted], cotangents)
        for name, gradient in zip(wanted, gradients, strict=True):
            close(gradient, everything[f"gradient of {name}"], f"{name} of {wanted}", rtol=1e-12)


def on_a_gpu(name, *given):
    """Build `built` with the gradient's kernel as a GPU has it."""
    if name == "volume_gradient":
        engine, like, shaded, _apart, _volumes, _tables, wanted = given
        given = (engine, like, shaded, False, 1, 64, wanted)
    return get_op(name, *given)


def together(monkeypatch, way):
    """Let all rays add to one volume: as to a large one on a CPU, or as on a GPU."""
    if way == "on a GPU":
        monkeypatch.setattr("tinsmith.render._volume.get_op", on_a_gpu)
    else:
        monkeypatch.setattr("tinsmith.render._volume._MOST_BYTES", 0)


@pytest.mark.costly
@pytest.mark.parametrize("way", ["large", "on a GPU"])
@pytest.mark.parametrize("shading", [None, SHADED], ids=["plain", "shaded"])
def test_gradients_of_all_rays_add_up_in_one_volume(engine, way, shading, monkeypatch):
    given = scene(n=2000)
    render = functools.partial(volume_render, engine=engine)
    alone = outputs_and_gradients(render, given, 0.11, {"shading": shading})
    together(monkeypatch, way)
    results = outputs_and_gradients(render, given, 0.11, {"shading": shading})
    for name, expected in alone.items():
        close(results[name], expected, name, rtol=1e-12)


@pytest.mark.gpu
@pytest.mark.parametrize("shading", [None, SHADED], ids=["plain", "shaded"])
def test_on_cuda_it_agrees_with_the_twin(engine, shading):
    given = {name: tensor.cuda() for name, tensor in scene(n=2000).items()}
    ours, twins = both(given, engine=engine, step=0.11, shading=shading)
    for name, expected in twins.items():
        close(ours[name], expected, name)


def test_under_autocast_in_float32(engine):
    *inputs, _ = scene(dtype=torch.float32).values()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        seen = volume_render(inputs[0].bfloat16(), *inputs[1:], BOX, step=0.11, engine=engine)
    expected = volume_render(inputs[0].bfloat16().float(), *inputs[1:], BOX, step=0.11, engine=engine)
    assert seen.color.dtype == torch.float32
    torch.testing.assert_close(seen.color, expected.color, rtol=1e-5, atol=1e-5)


@pytest.mark.costly
def test_one_and_two_threads_give_the_same_bits(engine, lang):
    given = scene(n=10_000, dtype=torch.float32)  # so many that it does not begin on one thread anyway
    seen = []
    for threads in (1, 2, None):
        if threads:
            lang.init(arch=lang.cpu, cpu_max_num_threads=threads, offline_cache=False, log_level=lang.WARN)
        seen.append(outputs_and_gradients(functools.partial(volume_render, engine=engine), given, 0.11, {}))
    for again in seen[1:]:
        assert all(torch.equal(again[name], expected) for name, expected in seen[0].items())


def test_gradients_of_hidden_cells_are_small(engine):
    """In float32, behind a wall: what is subtracted from a sum would leave the sum's rounding."""
    volume = torch.zeros(40, 1, 1)
    volume[10:14] = 1.0
    table = torch.tensor([[0.2, 0.4, 0.6, 0.5], [1.0, 0.5, 0.0, 300.0]])
    ray = torch.tensor([[-1.0, 0.5, 0.5]]), torch.tensor([[1.0, 0.0, 0.0]])

    def gradient(render, dtype, **options):
        leaf = volume.to(dtype).requires_grad_()
        given = (tensor.to(dtype) for tensor in (table, *ray))
        seen = render(leaf, *given, [0, 0, 0, 1, 1, 1], step=0.01, **options)
        return torch.autograd.grad(seen.color.sum() + seen.depth.sum(), leaf)[0]

    ours = gradient(volume_render, torch.float32, engine=engine)
    twin = gradient(reference.volume_render, torch.float64)
    assert twin[16:].abs().max() < 1e-11 < 1e-3 < twin.abs().max()
    torch.testing.assert_close(ours.double(), twin, rtol=1e-4, atol=0.0)


@pytest.mark.costly
def test_box_and_offsets_have_gradients_too(engine):
    given = scene()
    *inputs, _ = given.values()

    def gradients(render, name, **options):
        box = torch.tensor(BOX, dtype=torch.float64, requires_grad=True)
        offsets = torch.linspace(0, 0.99, len(given["origins"]), dtype=torch.float64, requires_grad=True)
        seen = render(*inputs, box, step=0.11, **{name: offsets}, **options)
        return torch.autograd.grad(seen.color.square().sum() + seen.depth.sum(), [box, offsets])

    ours = gradients(volume_render, "jitter", engine=engine)
    for mine, twin, what in zip(ours, gradients(reference.volume_render, "offsets"), ("box", "offsets"), strict=True):
        assert twin.abs().max() > 1e-3
        close(mine, twin, what)


@pytest.mark.costly
@pytest.mark.parametrize("shading", [None, SHADED], ids=["plain", "shaded"])
def test_second_derivatives_agree_with_the_twin(engine, shading):
    given = scene(n=12)

    def second(render, **options):
        leaves = [given[name].clone().requires_grad_() for name in NAMES[:4]]
        seen = render(*leaves, BOX, step=0.3, shading=shading, **options)
        first = torch.autograd.grad((seen.color**3).sum() + seen.depth.square().sum(), leaves, create_graph=True)
        return torch.autograd.grad(sum(gradient.square().sum() for gradient in first), leaves)

    for mine, twin, name in zip(
        second(volume_render, engine=engine), second(reference.volume_render), NAMES, strict=False
    ):
        close(mine, twin, f"second derivative in {name}", rtol=1e-8)


@pytest.mark.costly
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own forward mode uses it
def test_transforms_and_compilation_agree_with_plain_calls(engine):
    given = scene(n=20)
    *inputs, _ = given.values()

    def loss(volume, table, origins, directions):
        seen = volume_render(volume, table, origins, directions, BOX, step=0.3, threshold=0.01, engine=engine)
        return seen.color.square().sum() + seen.depth.sum()

    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    plain = torch.autograd.grad(loss(*leaves), leaves)
    for mine, expected in zip(torch.func.grad(loss, (0, 1, 2, 3))(*inputs), plain, strict=True):
        close(mine, expected, "torch.func.grad", rtol=1e-10)
    compiled = torch.autograd.grad(torch.compile(loss, fullgraph=True, backend="aot_eager")(*leaves), leaves)
    for mine, expected in zip(compiled, plain, strict=True):
        close(mine, expected, "torch.compile", rtol=1e-10)
    volumes = torch.stack([inputs[0], inputs[0].flip(0)])
    batched = torch.func.vmap(lambda volume: loss(volume, *inputs[1:]))(volumes)
    close(batched, torch.stack([loss(volume, *inputs[1:]) for volume in volumes]), "vmap", rtol=1e-12)
    _, moved = torch.func.jvp(lambda volume: loss(volume, *inputs[1:]), (inputs[0],), (inputs[0].flip(1),))
    close(moved, (plain[0] * inputs[0].flip(1)).sum(), "jvp", rtol=1e-10)


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), 1e30, 0.0])
@pytest.mark.parametrize("name", ["volume", "table", "origins", "directions"])
def test_nan_and_inf_inputs_do_not_corrupt_memory(engine, name, broken):
    given = {key: tensor.float() for key, tensor in scene(n=30).items()}
    given[name].view(-1)[::3] = broken
    seen = outputs_and_gradients(functools.partial(volume_render, engine=engine), given, 0.11, {})
    assert seen["color"].shape == (30, 3) and seen["gradient of volume"].shape == given["volume"].shape


def test_rays_may_have_any_shape(engine):
    given = scene()
    *inputs, background = given.values()
    flat = volume_render(*inputs, BOX, step=0.11, background=background, engine=engine)
    shaped = [inputs[0], inputs[1], *(tensor.view(5, 12, 3) for tensor in inputs[2:])]
    seen = volume_render(*shaped, BOX, step=0.11, background=background.view(5, 12, 3), engine=engine)
    assert torch.equal(seen.color, flat.color.view(5, 12, 3))
    assert torch.equal(seen.depth, flat.depth.view(5, 12))
    one = volume_render(
        *inputs[:2], inputs[2][0], inputs[3][0], BOX, step=0.11, background=background[0], engine=engine
    )
    assert torch.equal(one.color, flat.color[0])


def test_tensors_may_lie_in_memory_as_they_like(engine):
    given = scene()
    given["volume"] = given["volume"].permute(2, 0, 1)
    given["origins"] = torch.tensor([[4.0, 1.0, 3.0]]).double().expand(60, 3)
    given["directions"] = given["directions"].repeat(1, 2)[:, 1::2]
    ours, twins = both(given, engine=engine, step=0.11)
    for name, expected in twins.items():
        close(ours[name], expected, name)


def test_a_ray_has_65536_samples_at_most(engine):
    volume, fog = torch.rand(2, 2, 2).double(), torch.tensor([[1.0, 0.5, 0.2, 0.7]]).double()
    ray = torch.tensor([[-1.0, 0.5, 0.5]]).double(), torch.tensor([[1.0, 0.0, 0.0]]).double()
    seen = volume_render(volume, fog, *ray, [0, 0, 0, 1, 1, 1], step=1e-300, engine=engine)
    torch.testing.assert_close(seen.opacity, 1 - torch.exp(torch.tensor([-0.7]).double()), rtol=1e-9, atol=0.0)


def test_jitter_is_drawn_as_asked(engine):
    *inputs, _ = scene().values()
    render = lambda jitter: volume_render(*inputs, BOX, step=0.11, jitter=jitter, engine=engine).color  # noqa: E731
    drawn = lambda: render(torch.Generator().manual_seed(3))  # noqa: E731
    assert torch.equal(drawn(), drawn())
    offsets = torch.rand(60, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    assert torch.equal(drawn(), render(offsets))
    moved = render(True)
    assert not torch.equal(drawn(), moved)
    assert (drawn() - moved).abs().mean() < 0.1


REFUSED = {
    "volume of two dims": ({"volume": torch.rand(3, 3)}, ShapeError, "volume.*[x, y, z] = (3, 3)"),
    "empty volume": ({"volume": torch.rand(3, 0, 3)}, ShapeError, "with a cell at least"),
    "table of three": ({"table": torch.rand(5, 3)}, ShapeError, "table.*[k, 4] = (5, 3)"),
    "origins of two": ({"origins": torch.rand(5, 2)}, ShapeError, "origins.*[..., 3] = (5, 2)"),
    "other directions": ({"directions": torch.rand(4, 3)}, ShapeError, "<- as origins"),
    "two dtypes": ({"table": torch.rand(5, 4).double()}, DtypeError, "table.*torch.float64"),
    "half": (dict.fromkeys(NAMES[:4]), DtypeError, "works in float32 or float64"),
    "two devices": ({"volume": torch.rand(3, 3, 3, device="meta")}, DeviceError, "volume.*meta"),
    "no step": ({"step": 0.0}, ArgumentError, "`step` of `volume_render` is out of range"),
    "threshold of 1": ({"threshold": 1.0}, ArgumentError, "0 or more, and less than 1"),
    "box of 4": ({"aabb": [0, 0, 1, 1]}, ArgumentError, "min x, y, z, max x, y, z"),
    "box inside out": ({"aabb": [0, 0, 1, 1, 1, 0]}, ArgumentError, "each min below its max"),
    "tensor of 4 as box": ({"aabb": torch.rand(4)}, ArgumentError, "a tensor of shape (4,)"),
    "dark": ({"shading": Shading(light=(0, 0, 0))}, ArgumentError, "not all 0"),
    "dull": ({"shading": Shading(shininess=0.5)}, ArgumentError, "shininess  0.5.*<- 1 or more"),
    "other offsets": ({"jitter": torch.rand(3)}, ShapeError, "one offset per ray"),
    "other background": ({"background": torch.rand(4)}, ShapeError, "one color, [3], or one per ray"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_arguments_are_refused(engine, case):
    changed, error, words = REFUSED[case]
    given = {
        "volume": torch.rand(3, 3, 3),
        "table": torch.rand(5, 4),
        "origins": torch.rand(5, 3),
        "directions": torch.rand(5, 3),
        "aabb": [0, 0, 0, 1, 1, 1],
        "step": 0.1,
    }
    if case == "half":
        changed = {name: given[name].half() for name in changed}
    with pytest.raises(error, match=re.escape(words).replace(r"\.\*", ".*")):
        volume_render(**(given | changed), engine=engine)


@pytest.mark.parametrize(
    ("shading", "way"),
    [
        (None, None),
        pytest.param(None, "large", marks=pytest.mark.costly),
        pytest.param(None, "on a GPU", marks=pytest.mark.costly),
        pytest.param(SHADED, None, marks=pytest.mark.costly),
        pytest.param(SHADED, "on a GPU", marks=pytest.mark.costly),
    ],
)
def test_no_two_rays_race(engine, shading, way, monkeypatch):
    if way:
        together(monkeypatch, way)
    launched = {}
    build = on_a_gpu if way == "on a GPU" else get_op
    monkeypatch.setattr("tinsmith.render._volume.get_op", spied(build, launched))
    given = scene(n=10, size=(2, 1, 2), rows=3)
    outputs_and_gradients(functools.partial(volume_render, engine=engine), given, 1.0, {"shading": shading})
    assert len(launched) == 2
    for op, inputs in launched.items():
        # A worker adds to copies that begin as zeros: it reads what none wrote, and writes over what it read.
        assert {finding.rule for finding in ts.sanitize(op, *inputs)} <= {"TS602", "TS603"}


def spied(build, launched):
    """Wrap `build`, noting what its ops are called with."""

    def note(op):
        def call(*inputs):
            launched[op] = [tensor.detach().clone() for tensor in inputs]
            return op(*inputs)

        return call

    def noting(name, *static):
        rule = build(name, *static)
        return rule._replace(value=note(rule.value)) if name == "volume_render" else note(rule)

    return noting
