"""The contract with torch.func: grad, vjp, jacrev, vmap, and one inside the other."""

import contextlib

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap
from torch.utils._pytree import tree_leaves

import cases
import tinsmith as ts

pytestmark = pytest.mark.thinned(4)

SAMPLES = 3
SCALAR_LOSS = cases.select_cases(
    "convolution", "bilinear", "matrix_vector", "chained", "scatter", "own_backward", "two_outputs", "returned",
    "returned_several",
)  # fmt: skip
MAPPED = [case for case in cases.ALL if cases.select_differentiable(case.inputs(torch.float64))]


def make_loss(function, rest):
    """Return a scalar loss of the floating inputs alone; `rest` maps positions to the other arguments."""

    def loss(*floating):
        remaining = iter(floating)
        count = len(floating) + len(rest)
        arguments = [rest[k] if k in rest else next(remaining) for k in range(count)]
        outputs = cases.select_differentiable(cases.list_tensors(function(*arguments)))
        return sum((o * c).sum() for o, c in zip(outputs, cases.draw_cotangents(outputs), strict=True))

    return loss


def split(inputs):
    """Split arguments into the floating tensors, and the others by position."""
    floating = cases.select_differentiable(inputs)
    return floating, {k: v for k, v in enumerate(inputs) if not (torch.is_tensor(v) and v.is_floating_point())}


@pytest.mark.parametrize("case", SCALAR_LOSS, ids=str)
def test_grad_and_value(lang64, case):
    floating, rest = split(case.inputs(torch.float64))
    places = tuple(range(len(floating)))
    mine = grad_and_value(make_loss(case.op(lang64, torch.float64), rest), argnums=places)(*floating)
    twin = grad_and_value(make_loss(case.expected, rest), argnums=places)(*floating)
    cases.assert_close(mine[1], twin[1])
    cases.assert_close(mine[0], twin[0])


@pytest.mark.parametrize("case", cases.select_cases("convolution", "cross", "softmax", "splat"), ids=str)
def test_vjp(lang64, case):
    inputs = case.inputs(torch.float64)
    mine, pull = vjp(case.op(lang64, torch.float64), *inputs)
    twin, pull_twin = vjp(case.expected, *inputs)
    cases.assert_close(mine, twin)
    incoming = cases.draw_cotangents([twin])[0]
    for factor in (1.0, -2.0):  # a pull-back may be used again
        cases.assert_close(pull(factor * incoming), pull_twin(factor * incoming))


@pytest.mark.parametrize("case", cases.select_cases("convolution", "cross", "softmax", "chained_network"), ids=str)
def test_jacrev(lang64, case):
    inputs = case.inputs(torch.float64)
    places = tuple(range(len(inputs)))
    mine = jacrev(case.op(lang64, torch.float64), argnums=places)(*inputs)
    cases.assert_close(mine, jacrev(case.expected, argnums=places)(*inputs))


def stack_draws(case, dtype=torch.float64):
    """Return several draws of a case: floating tensors stacked, the rest as in the first; and the vmap in_dims."""
    draws = [case.inputs(dtype, seed) for seed in range(SAMPLES)]
    batch = [
        torch.stack(same) if torch.is_tensor(same[0]) and same[0].is_floating_point() else same[0]
        for same in zip(*draws, strict=True)
    ]
    return batch, tuple(0 if torch.is_tensor(v) and v.is_floating_point() else None for v in draws[0])


def loop_of_calls(function, batch, in_dims):
    """Compute what vmap means: call once per sample, and stack the outputs."""
    results = []
    for sample in range(SAMPLES):
        inputs = [v if dim is None else v.select(dim, sample) for v, dim in zip(batch, in_dims, strict=True)]
        results.append(cases.list_tensors(function(*inputs)))
    return tuple(torch.stack(same) for same in zip(*results, strict=True))


@pytest.mark.thinned(6)
@pytest.mark.parametrize("case", MAPPED, ids=str)
def test_vmap_is_a_loop_of_calls_values_and_gradients(lang64, case):
    batch, in_dims = stack_draws(case)
    cases.assert_same_values_and_gradients(
        vmap(case.op(lang64, torch.float64), in_dims),
        lambda *inputs: loop_of_calls(case.expected, inputs, in_dims),
        batch,
    )


@pytest.mark.parametrize("in_dims", [(0, None), (None, 0), (1, 0), (-1, 1), (2, None)], ids=str)
@pytest.mark.parametrize("case", cases.select_cases("matrix_product", "pairs_of_rows"), ids=str)
def test_vmap_over_any_dim_of_some_inputs(lang64, case, in_dims):
    inputs = [
        v if dim is None else torch.stack([v, 2.0 * v, v - 1.0], dim % (v.ndim + 1))
        for v, dim in zip(case.inputs(torch.float64), in_dims, strict=True)
    ]
    normal = tuple(d if d is None else d % v.ndim for d, v in zip(in_dims, inputs, strict=True))
    cases.assert_same_values_and_gradients(
        vmap(case.op(lang64, torch.float64), in_dims),
        lambda *batch: loop_of_calls(case.expected, batch, normal),
        inputs,
    )


def test_vmap_over_indices_alone(lang64):
    op = cases.select_cases("gather")[0].op(lang64, torch.float64)
    x, index = torch.rand(5, dtype=torch.float64), torch.tensor([[0, 4], [4, 4], [2, 1]], dtype=torch.int32)
    cases.assert_same_values_and_gradients(
        lambda x: vmap(op, (None, 0))(x, index), lambda x: x[index.long()] ** 2, (x,)
    )


def test_vmap_of_integer_outputs(lang64):
    op = cases.select_cases("counted")[0].op(lang64, torch.float64)
    x = torch.randn(4, 5, dtype=torch.float64)
    out = vmap(op)(x)
    cases.assert_close(out.y, x * x)
    assert torch.equal(out.positive, (x > 0).sum(1, keepdim=True).int())


def test_vmap_with_out_dims_and_chunks(lang64):
    op = cases.select_cases("square")[0].op(lang64, torch.float64)
    x = torch.rand(5, 3, dtype=torch.float64)
    cases.assert_close(vmap(op, out_dims=1)(x), (x * x).t())
    cases.assert_close(vmap(op, chunk_size=2)(x), x * x)
    cases.assert_close(vmap(op, in_dims=1, out_dims=1)(x), x * x)


def test_nested_vmap(lang64):
    case = cases.select_cases("convolution")[0]
    op = case.op(lang64, torch.float64)
    x, k = torch.rand(2, 3, 6, dtype=torch.float64), torch.rand(4, 3, dtype=torch.float64)
    every = vmap(vmap(vmap(op, (None, 0)), (0, None)), (0, None))
    cases.assert_same_values_and_gradients(
        every, lambda x, k: torch.einsum("abij,cj->abci", x.unfold(-1, 3, 1), k), (x, k)
    )


def test_vmap_of_one_sample(lang64):
    op = cases.select_cases("two_loops")[0].op(lang64, torch.float64)
    x = torch.rand(1, 5, dtype=torch.float64)
    cases.assert_same_values_and_gradients(vmap(op), lambda x: torch.sin(x * x), (x,))


@pytest.mark.parametrize("case", SCALAR_LOSS, ids=str)
def test_vmap_of_grad(lang64, case):
    batch, _ = stack_draws(case)
    floating = cases.select_differentiable(batch)
    _, rest = split(case.inputs(torch.float64))
    places = tuple(range(len(floating)))
    mine = vmap(grad(make_loss(case.op(lang64, torch.float64), rest), argnums=places))(*floating)
    each = [
        grad(make_loss(case.expected, rest), argnums=places)(*[v[sample] for v in floating])
        for sample in range(SAMPLES)
    ]
    cases.assert_close(mine, tuple(torch.stack(same) for same in zip(*each, strict=True)))


@pytest.mark.parametrize("case", SCALAR_LOSS, ids=str)
def test_grad_of_vmap(lang64, case):
    batch, in_dims = stack_draws(case)
    floating, rest = split(batch)
    places = tuple(range(len(floating)))
    ours = make_loss(vmap(case.op(lang64, torch.float64), in_dims), rest)
    twin = make_loss(lambda *inputs: loop_of_calls(case.expected, inputs, in_dims), rest)
    cases.assert_close(grad(ours, argnums=places)(*floating), grad(twin, argnums=places)(*floating))


META = {
    "vmap": lambda f: vmap(f, (0, 0)),
    "vmap over one": lambda f: lambda x, w: vmap(f, (0, None))(x, w[0]),
    "grad": lambda f: lambda x, w: grad(lambda x: f(x, w[0]).sum())(x[0]),
    "vmap of grad": lambda f: vmap(grad(lambda x, w: f(x, w).sum())),
    "vjp": lambda f: lambda x, w: vjp(f, x[0], w[0])[1](x[0]),
    "jacrev": lambda f: lambda x, w: jacrev(f)(x[0], w[0]),
    "jacfwd": lambda f: lambda x, w: jacfwd(f)(x[0], w[0]),
    "jvp": lambda f: lambda x, w: jvp(f, (x[0], w[0]), (x[1], w[1])),
    "linearize": lambda f: lambda x, w: linearize(f, x[0], w[0])[1](x[1], w[1]),
    "hessian": lambda f: lambda x, w: hessian(lambda x: f(x, w[0]).sum())(x[0]),
    "autograd.functional.hessian": lambda f: (
        lambda x, w: torch.autograd.functional.hessian(lambda x: f(x, w[0]).sum(), x[0], vectorize=True)
    ),
    "functional_call": lambda f: lambda x, w: functional_call(Layer(f), {"w": w[0]}, (x[0],)),
}


class Layer(torch.nn.Module):
    def __init__(self, op):
        super().__init__()
        self.op, self.w = op, torch.nn.Parameter(torch.ones(5, dtype=torch.float64))

    def forward(self, x):
        return self.op(x, self.w)


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning", "ignore:Attempted to insert a get_attr Node")
@pytest.mark.parametrize("where", ["meta", "fake"])
@pytest.mark.parametrize("name", META)
def test_transforms_of_tensors_without_memory(lang64, name, where):
    """Shapes, dtypes and devices are those of torch, and nothing is launched."""

    @ts.op("x[n], w[n] -> y[n]")
    @lang64.kernel
    def product(x: lang64.types.ndarray(), w: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i] * w[i]

    def run(function):
        given = [torch.empty(3, 5, dtype=torch.float64, device="meta" if where == "meta" else "cpu") for _ in range(2)]
        return [(one.shape, one.dtype, one.device) for one in tree_leaves(META[name](function)(*given))]

    with FakeTensorMode(allow_non_fake_inputs=True) if where == "fake" else contextlib.nullcontext():
        assert run(product) == run(lambda x, w: x * x * w)


def test_gradients_of_many_losses_at_once(lang64):
    """`is_grads_batched` maps the backward pass alone."""
    case = cases.select_cases("compositing")[0]
    inputs = cases.make_leaves(case.inputs(torch.float64))
    out = case.op(lang64, torch.float64)(*inputs)
    every = torch.autograd.grad(out, inputs, torch.eye(3, dtype=torch.float64), is_grads_batched=True)
    cases.assert_close(every, jacrev(case.expected, argnums=(0, 1))(*inputs))


def test_per_sample_gradients_of_a_module(lang64):
    op = cases.select_cases("convolution")[0].op(lang64, torch.float64)

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.kernel = torch.nn.Parameter(torch.rand(3, dtype=torch.float64))

        def forward(self, x):
            return torch.tanh(op(x, self.kernel)).sum()

    layer, x = Layer(), torch.rand(4, 6, dtype=torch.float64)
    parameters = dict(layer.named_parameters())

    def loss(parameters, x):
        return functional_call(layer, parameters, (x,))

    mine = vmap(grad(loss), (None, 0))(parameters, x)["kernel"]
    for sample in range(4):
        (one,) = torch.autograd.grad(layer(x[sample]), layer.kernel)
        cases.assert_close(mine[sample], one)
