"""ts.scan under torch.compile: one call in the graph where the step is an op, a break of the graph otherwise."""

import pytest
import setuptools  # noqa: F401 - before Quadrants, as tests/bridge/test_contract_compile.py says
import torch

import tinsmith as ts
from support.springs import run_loop, step_in_torch

pytestmark = pytest.mark.thinned(4)

KEEPS = {"last": lambda last, states: last, "all": lambda last, states: states}
KEEPS |= {3: lambda last, states: [one[2::3] for one in states]}


def compute_loss(states, outputs):
    return sum((one**2).sum() for one in states) + (outputs**3).sum()


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch.compiler.reset()


# Torch's compiler looks at `.grad` of what it is given after the break that a scan is.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("name", ["function", "torch"])
def test_a_function_breaks_the_graph(springs, numbers, name):
    x, v, force, stiffness = numbers

    def run(x, stiffness):
        return ts.scan(getattr(springs, name), (2.0 * x, v), force, parameters=stiffness)[0][0] * 3.0

    actual, right = torch.compile(run, backend="aot_eager")(x, stiffness), run(x, stiffness)
    torch.testing.assert_close(actual, right)
    torch.testing.assert_close(
        torch.autograd.grad(actual.sum(), (x, stiffness)), torch.autograd.grad(right.sum(), (x, stiffness))
    )


@pytest.mark.parametrize(
    ("name", "keep", "options"),
    [
        ("op", "last", {}),
        ("op", "last", {"checkpoint": 6}),
        ("op", "all", {}),
        ("op", "all", {"memory": 250}),
        ("op", 3, {"checkpoint": "all"}),
        ("updating", 3, {}),
        ("chain", "last", {"checkpoint": 1}),
    ],
    ids=str,
)
def test_an_op_does_not_break_the_graph(springs, numbers, name, keep, options):
    op = getattr(springs, name)

    def run(x, v, force, stiffness):
        states, outputs = ts.scan(op, (2.0 * x, v), force, parameters=stiffness, keep=keep, **options)
        return compute_loss(states, outputs)

    last, states, outputs = run_loop(step_in_torch, (2.0 * numbers[0], numbers[1]), *numbers[2:])
    wanted = compute_loss(KEEPS[keep](last, states), outputs)
    actual = torch.compile(run, backend="aot_eager", fullgraph=True)(*numbers)
    torch.testing.assert_close(actual, wanted)
    torch.testing.assert_close(torch.autograd.grad(actual, numbers), torch.autograd.grad(wanted, numbers))


@pytest.mark.parametrize("wanted", [(), (0,), (2,), (3,), (0, 3)])
def test_gradients_go_to_what_requires_them(springs, numbers, wanted):
    given = [one if place in wanted else one.detach() for place, one in enumerate(numbers)]

    def run(x, v, force, stiffness):
        return ts.scan(springs.op, {"v": v, "x": x}, force, parameters={"stiffness": stiffness})[0]

    actual = torch.compile(run, backend="aot_eager", fullgraph=True)(*given)
    assert list(actual) == ["v", "x"]
    last, _, _ = run_loop(step_in_torch, tuple(given[:2]), *given[2:])
    torch.testing.assert_close((actual["x"], actual["v"]), tuple(last))
    for place in wanted:
        one, other = (torch.autograd.grad(x.sum(), given[place], retain_graph=True) for x in (actual["x"], last[0]))
        torch.testing.assert_close(one, other)


TRANSFORMS = {
    "grad": lambda f, x, k, _: torch.func.grad(lambda x, k: f(x, k).pow(2).sum(), argnums=(0, 1))(x, k),
    "jacrev": lambda f, x, k, _: torch.func.jacrev(f, argnums=1)(x, k),
    "vmap": lambda f, x, k, batch: torch.func.vmap(f, (0, None))(batch, k),
    "vmap over parameters": lambda f, x, k, batch: torch.func.vmap(f, (None, 0), out_dims=1)(x, k * batch[:, 0]),
    "vmap of grad": lambda f, x, k, batch: torch.func.vmap(
        torch.func.grad(lambda x, k: f(x, k).pow(2).sum(), argnums=(0, 1)), (0, None)
    )(batch, k),
    "grad of vmap": lambda f, x, k, batch: torch.func.grad(lambda k: torch.func.vmap(f, (0, None))(batch, k).sum())(k),
}


@pytest.mark.thinned(4)
@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=list(TRANSFORMS))
@pytest.mark.parametrize("name", ["op", "chain"])
def test_transforms_in_a_graph(springs, numbers, name, transform):
    x, v, force, stiffness = (one.detach() for one in numbers)
    batch = torch.randn(3, 5, dtype=torch.float64)

    def run(x, stiffness):
        return ts.scan(getattr(springs, name), (x, v), force, parameters=stiffness)[0][0]

    def of_loop(x, stiffness):
        return run_loop(step_in_torch, (x, v), force, stiffness)[0][0]

    compiled = torch.compile(lambda *arguments: transform(run, *arguments), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, stiffness, batch), transform(of_loop, x, stiffness, batch))


# After a break inside a transform torch compiles whatever runs next, and warns of what it meets there.
@pytest.mark.costly
@pytest.mark.filterwarnings("ignore:Dynamo ")
def test_forward_mode_breaks_the_graph(springs, numbers):
    x, v, force, stiffness = (one.detach() for one in numbers)

    def run(x):
        return ts.scan(springs.op, (x, v), force[:3], parameters=stiffness)[0][0]

    def push(x):
        return torch.func.jvp(run, (x,), (torch.ones_like(x),))[1]

    right = push(x)
    torch.testing.assert_close(torch.compile(push, backend="aot_eager")(x), right)


@pytest.mark.parametrize("checkpoint", ["auto", 2])
def test_steps_that_are_more_than_launches(lang64, checkpoint):
    """In half precision nothing is prepared: steps run one by one, and autograd records them."""
    ti = lang64
    array = ti.types.ndarray()

    @ts.op("x[n], k[] -> y[n]")
    @ti.kernel
    def scale(x: array, k: array, y: array):
        for i in x:
            y[i] = ti.sin(x[i]) * k[None]

    def run(x, k):
        return ts.scan(scale, x, length=5, parameters=k, checkpoint=checkpoint)[0].sum()

    x, k = (torch.rand(shape, dtype=torch.bfloat16, requires_grad=True) for shape in ((4,), ()))
    actual = torch.compile(run, backend="aot_eager", fullgraph=True)(x, k)
    right = run(x, k)
    torch.testing.assert_close(actual, right)
    gradients = torch.autograd.grad(actual, (x, k))
    assert all(bool(one.any()) for one in gradients)
    torch.testing.assert_close(gradients, torch.autograd.grad(right, (x, k)))


def test_numbers_and_sizes_are_passed_to_steps(lang64):
    ti = lang64
    array = ti.types.ndarray()

    @ts.op("x[n] -> y[n], padded[m]")
    @ti.kernel
    def scale(x: array, factor: float, y: array, padded: array):
        for i in x:
            y[i] = factor * x[i]
            padded[i] = y[i]

    def run(x, factor):
        return ts.scan(scale, x, length=3, parameters={"m": 6, "factor": factor})

    x = torch.rand(4, dtype=torch.float64, requires_grad=True)
    y, padded = torch.compile(run, backend="aot_eager", fullgraph=True)(x, 0.5)
    torch.testing.assert_close(y, x / 8)
    assert padded.shape == (3, 6)
    torch.testing.assert_close(padded[:, :4], torch.stack([x / 2, x / 4, x / 8]))
    torch.testing.assert_close(torch.autograd.grad(padded.sum(), x)[0], torch.full_like(x, 0.875))


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_a_field_breaks_the_graph(lang64):
    """A graph would not hand on to the backward pass what the field held."""
    ti = lang64
    array = ti.types.ndarray()
    field = ti.field(float, shape=())
    field[None] = 2.0

    @ts.op("x[n] -> y[n]")
    @ti.kernel
    def scale(x: array, y: array):
        for i in x:
            y[i] = field[None] * x[i]

    def run(x):
        return ts.scan(scale, x, length=3)[0].sum()

    x = torch.rand(4, dtype=torch.float64, requires_grad=True)
    assert scale.scan_operator() is None
    torch.testing.assert_close(torch.compile(run, backend="aot_eager")(x), 8.0 * x.sum())


def test_an_op_that_is_gone_is_named(lang64):
    ti = lang64
    array = ti.types.ndarray()

    def make():
        @ts.op("x[n] -> y[n]")
        @ti.kernel
        def halve_once_more(x: array, y: array):
            for i in x:
                y[i] = 0.5 * x[i]

        return halve_once_more

    name = make().scan_operator()
    scan = getattr(torch.ops.tinsmith, name)
    with pytest.raises(ts.GraphError, match="scans over the op of `halve_once_more_.*`, which no longer exists"):
        scan([torch.ones(3, dtype=torch.float64)], [], ["x"], [1, 0, 0], 2, None, None, None, 1, [])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.costly
def test_by_inductor(springs, numbers):
    x, v, force, stiffness = numbers

    def run(x, stiffness):
        return ts.scan(springs.op, (2.0 * x, v), force, parameters=stiffness)[0][0].sin().sum()

    actual, right = torch.compile(run, fullgraph=True)(x, stiffness), run(x, stiffness)
    torch.testing.assert_close(actual, right)
    torch.testing.assert_close(torch.autograd.grad(actual, (x, stiffness)), torch.autograd.grad(right, (x, stiffness)))
