"""Whichever way a batch comes to an op, it means a loop of calls, for kernels whose samples could meet.

Values, gradients and second derivatives of every way are compared with twins in torch, one sample at a time.
"""

import pytest
import torch
from torch.func import grad, hessian, jacfwd, jacrev, vmap

import cases
import tinsmith as ts
from support.batched_kernels import ROWS

pytestmark = [
    pytest.mark.thinned(4),
    # torch's forward mode compiles its own formulas when it is first used
    pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning"),
]

SAMPLES = 3
CLOSE = {"rtol": 1e-8, "atol": 1e-10}


@pytest.fixture(params=ROWS, ids=lambda row: row.name)
def row(request):
    return request.param


@pytest.fixture
def batch(row):
    return [torch.rand(SAMPLES, *shape, dtype=torch.float64) + 0.4 for shape in row.shapes]


def op_of(row, lang, *, is_batched=False):
    """Make the row's op, with `*b` in front of all dims if it is batched."""
    widen = (lambda text: text.replace("[]", "[*b]").replace("[n", "[*b, n")) if is_batched else str
    return ts.op(widen(row.spec), scratch=row.scratch and widen(row.scratch))(row.build(lang))


def make_loss(function):
    """Return a loss with curvature whose slopes differ from element to element."""

    def loss(*inputs):
        outputs = cases.list_tensors(function(*inputs))
        pairs = zip(outputs, cases.draw_cotangents(outputs), strict=True)
        return sum((seed * (out + 0.3 * out * out)).sum() for out, seed in pairs)

    return loss


def summed(function):
    """Return a function that sums the losses of a batch."""

    def loss(*batch):
        columns = cases.list_tensors(function(*batch))
        return sum(make_loss(lambda sample=sample: sample)() for sample in zip(*columns, strict=True))

    return loss


def compute_gradients(loss, inputs):
    fresh = [x.clone().requires_grad_() for x in inputs]
    return torch.autograd.grad(loss(*fresh), fresh, allow_unused=True, materialize_grads=True)


def compute_each(function, batch):
    """Call a function of one sample for each sample of a batch, and stack the results."""
    results = [cases.list_tensors(function(*sample)) for sample in zip(*batch, strict=True)]
    return tuple(torch.stack(column) for column in zip(*results, strict=True))


def flat(nested):
    return [one for part in nested for one in flat(part)] if isinstance(nested, tuple | list) else [nested]


def assert_same(actual, wanted, way):
    for mine, theirs in zip(flat(actual), flat(wanted), strict=True):
        torch.testing.assert_close(mine, theirs, msg=lambda text: f"{way}: {text}", **CLOSE)


@pytest.mark.thinned(6)
def test_values_and_gradients_of_a_batch(lang64, row, batch):
    op, whole = op_of(row, lang64), op_of(row, lang64, is_batched=True)
    values = compute_each(row.twin, batch)
    assert_same(tuple(cases.list_tensors(whole(*batch))), values, "values of *b")
    assert_same(tuple(cases.list_tensors(vmap(op)(*batch))), values, "values of vmap")
    wanted = compute_each(lambda *sample: compute_gradients(make_loss(row.twin), sample), batch)
    assert_same(compute_gradients(summed(whole), batch), wanted, "*b, then backward")
    assert_same(compute_gradients(summed(vmap(op)), batch), wanted, "vmap, then backward")
    assert_same(vmap(grad(make_loss(op), tuple(range(len(batch)))))(*batch), wanted, "vmap of grad")


@pytest.mark.thinned(6)
def test_gradients_if_only_one_input_is_batched(lang64, row, batch):
    op, places = op_of(row, lang64), tuple(range(len(batch)))
    for place in places:
        mixed = [x if place == other else x[:1].expand_as(x) for other, x in enumerate(batch)]
        wanted = compute_each(lambda *sample: compute_gradients(make_loss(row.twin), sample), mixed)
        dims = tuple(0 if place == other else None for other in places)
        given = [x if dim == 0 else x[0] for x, dim in zip(batch, dims, strict=True)]
        assert_same(vmap(grad(make_loss(op), places), dims)(*given), wanted, f"vmap of grad, dims {dims}")
        shared = tuple(one if dim == 0 else one.sum(0) for one, dim in zip(wanted, dims, strict=True))
        assert_same(compute_gradients(summed(vmap(op, dims)), given), shared, f"vmap, then backward, dims {dims}")


@pytest.mark.thinned(6)
def test_jacobians(lang64, row, batch):
    op, one = op_of(row, lang64), tuple(x[0] for x in batch)
    places = tuple(range(len(one)))
    wanted = torch.autograd.functional.jacobian(row.twin, one)
    assert_same(jacrev(op, places)(*one), wanted, "jacrev")
    assert_same(jacfwd(op, places)(*one), wanted, "jacfwd")
    assert_same(torch.autograd.functional.jacobian(op, one, vectorize=True), wanted, "jacobian(vectorize=True)")


@pytest.mark.thinned(6)
def test_second_derivatives(lang64, row, batch):
    op, one = op_of(row, lang64), tuple(x[0] for x in batch)
    places = tuple(range(len(one)))
    wanted = torch.autograd.functional.hessian(make_loss(row.twin), one)
    assert_same(hessian(make_loss(op), places)(*one), wanted, "hessian")
    for strategy in ("reverse-mode", "forward-mode"):
        vectorized = {"vectorize": True, "outer_jacobian_strategy": strategy}
        ours = torch.autograd.functional.hessian(make_loss(op), one, **vectorized)
        assert_same(ours, wanted, f"hessian(vectorize=True), {strategy}")
    assert_same(jacrev(jacrev(make_loss(op), places), places)(*one), wanted, "jacrev of jacrev")


@pytest.mark.costly
def test_compiled_gradients_of_a_batch(lang64, row, batch):
    torch._dynamo.reset()
    whole = op_of(row, lang64, is_batched=True)
    compiled = torch.compile(lambda *given: whole(*given), backend="aot_eager", fullgraph=True)
    wanted = compute_each(lambda *sample: compute_gradients(make_loss(row.twin), sample), batch)
    assert_same(compute_gradients(summed(compiled), batch), wanted, "compile")


def test_the_gradient_of_a_batch_may_read_more_than_that_of_a_sample(lang64):
    """The statement at the end puts a sample's loops into one loop over the batch, whose reverse reads `x` as well."""

    @lang64.kernel
    def kernel(
        x: lang64.types.ndarray(), w: lang64.types.ndarray(), y: lang64.types.ndarray(), z: lang64.types.ndarray()
    ):
        for _ in range(1):
            for i in range(1, x.shape[0]):
                z[i] = lang64.cos(z[0] * z[i])
        for i in x:
            z[i] += x[i] * w[i]
        y[0] += x[1] * w[2]

    op = ts.op("x[n], w[n] -> y[n], z[n]")(kernel)
    x, w = torch.rand(2, SAMPLES, 4, dtype=torch.float64) + 0.4
    twin = lambda x, w: (torch.eye(4).to(x)[0] * x[1] * w[2], (torch.arange(4) > 0) + x * w)  # noqa: E731
    loss, wanted = make_loss(op), make_loss(twin)
    assert_same(vmap(grad(loss))(x, w), vmap(grad(wanted))(x, w), "vmap of grad")
    assert_same(vmap(grad(loss), (0, None))(x, w[0]), vmap(grad(wanted), (0, None))(x, w[0]), "vmap of grad, one w")
    compiled = torch.compile(vmap(grad(loss)), backend="aot_eager")
    assert_same(compiled(x, w), vmap(grad(wanted))(x, w), "compiled vmap of grad")
    assert_same(jacrev(op)(x[0], w[0]), jacrev(twin)(x[0], w[0]), "jacrev")
    jacobian = torch.autograd.functional.jacobian
    assert_same(
        jacobian(lambda x: op(x, w[0]), x[0], vectorize=True), jacrev(twin)(x[0], w[0]), "jacobian(vectorize=True)"
    )


def test_an_unused_search_loop_saves_nothing(lang64):
    @lang64.kernel
    def kernel(x: lang64.types.ndarray(), w: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = w[i] * w[i] * w[i]
        k = 0
        while k < x.shape[0]:
            if x[k] > 1.1:
                break
            k += 1

    op = ts.op("x[n], w[n] -> y[n]")(kernel)
    x, w = torch.rand(2, 4, dtype=torch.float64)
    assert_same(hessian(lambda w: op(x, w).sum())(w), torch.diag(6 * w), "hessian")
