"""Gradients handed on: where an input's is an output's, nobody copies it; where it is not, nobody mistakes it."""

import pytest
import torch

import tinsmith as ts
from support.written import compile_text
from tinsmith.operation.reports import adjoint_source

HEAD = "def kernel(x: lang.types.ndarray(), w: lang.types.ndarray(), y: lang.types.ndarray()):\n"
SPEC = "x[n, m], w[n, m] -> y[n, m]"
FORMS = {  # a kernel, the spec, and the inputs whose gradient is that of `y`
    "a sum": ("for i, j in y:\n y[i, j] = 2.5 * x[i, j] + w[i, j]", SPEC, "w"),
    "both": ("for i, j in y:\n y[i, j] = x[i, j] + w[i, j]", SPEC, "xw"),
    "a difference": ("for i, j in y:\n y[i, j] = x[i, j] - w[i, j]", SPEC, "x"),
    "turned": ("for i, j in y:\n y[i, j] = x[j, i] + w[i, j]", "x[n, n], w[n, n] -> y[n, n]", "w"),
    "backwards": (
        "for i, j in y:\n y[i, j] = x[y.shape[0] - 1 - i, j] + w[i, j]",
        SPEC,
        "w",
    ),
    "twice": ("for i, j in y:\n y[i, j] = x[i, j] * x[i, j] + w[i, j]\nfor i, j in y:\n y[i, j] += w[i, j]", SPEC, ""),
    "a part": ("for i, j in lang.ndrange(y.shape[0], 2):\n y[i, j] = x[i, j] + w[i, j]", SPEC, ""),
    "a branch": ("for i, j in y:\n if w[i, j] > 0.5:\n  y[i, j] = x[i, j] + w[i, j]", SPEC, ""),
    "as long, says nobody": ("for i, j in w:\n y[i, j] = x[i, j] + w[i, j]", "x[_, _], w[n, m] -> y[n, m]", "w"),
}


def make(lang, form):
    body, spec, _ = FORMS[form]
    return ts.op(spec, adjoint="source")(
        compile_text(lang, HEAD + "".join(f"    {line}\n" for line in body.splitlines()))
    )


def make_leaves(dtype=torch.float64):
    torch.manual_seed(0)
    return [torch.rand(4, 4, dtype=dtype).requires_grad_() for _ in range(2)]


def memory(tensor):
    return tensor.untyped_storage().data_ptr()


@pytest.mark.parametrize("form", FORMS)
def test_gradients(lang, form):
    op, given, c = make(lang, form), make_leaves(torch.float32), torch.rand(4, 4)
    before = c.clone()
    wanted = ts.oracle(op, *(one.detach() for one in given), cotangents=[c]).gradients
    gradients = dict(zip("xw", torch.autograd.grad(op(*given), given, c), strict=True))
    torch.testing.assert_close(gradients, dict(wanted), check_dtype=False)
    assert torch.equal(c, before)
    handed_on = {name for name, gradient in gradients.items() if memory(gradient) == memory(c)}
    assert handed_on == {*FORMS[form][2]}, adjoint_source(op)
    for name in "xw":
        assert (f"the gradient of `{name}` is that of `y`, not copied" in adjoint_source(op)) == (name in handed_on)


def test_gradients_of_leaves_are_not_shared(lang64):
    """Autograd takes a gradient for a leaf's only where nobody else holds it, and adds in place only there."""
    op, (x, w), c = make(lang64, "both"), make_leaves(), torch.rand(4, 4, dtype=torch.float64)
    before = c.clone()
    for count in (1, 2):
        (op(x, w) + op(w, x)).backward(c)
        torch.testing.assert_close(x.grad, 2.0 * count * before)
        torch.testing.assert_close(w.grad, 2.0 * count * before)
    assert torch.equal(c, before)
    assert len({memory(one) for one in (x.grad, w.grad, c)}) == 3


def test_an_expanded_gradient(lang64):
    op, (x, w) = make(lang64, "both"), make_leaves()
    gradients = torch.autograd.grad(op(x, w).sum(), (x, w))
    assert all(one.is_contiguous() and torch.equal(one, torch.ones_like(one)) for one in gradients)


def test_the_operator_returns_copies(lang64):
    """Compilers take an operator's results for memory of their own, and what it was given for memory to use again."""
    op, (x, w), c = make(lang64, "both"), make_leaves(), torch.rand(4, 4, dtype=torch.float64)
    y, pull = torch.func.vjp(op, x.detach(), w.detach())
    gradients = pull(c)
    assert len({memory(one) for one in (*gradients, c, y)}) == 4
    both = torch.autograd.grad(op(x, w), (x, w), c, create_graph=True)
    assert len({memory(one) for one in (*both, c)}) == 3


def test_second_derivatives_and_batches(lang64):
    op, given = make(lang64, "a sum"), make_leaves()
    assert torch.autograd.gradgradcheck(op, given)
    x, w = (torch.rand(3, 4, 4, dtype=torch.float64) for _ in range(2))

    def loss(call):
        return torch.func.grad(lambda x, w: torch.func.vmap(call, (0, None))(x, w).square().sum(), (0, 1))

    torch.testing.assert_close(loss(op)(x, w[0]), loss(lambda x, w: 2.5 * x + w)(x, w[0]))
    for one, other in zip(loss(op)(x, w[0]), loss(lambda x, w: 2.5 * x + w)(x, w[0]), strict=True):
        assert one.shape == other.shape


def test_an_output_that_is_updated_and_has_no_cotangent(lang64):
    """Its adjoint is memory of the pass, which the reverse of the update clears after another gradient copied it."""

    @ts.op("x[n, m], b[n] -> y[n, m], z[n, m]")
    @lang64.kernel
    def op(x: lang64.types.ndarray(), b: lang64.types.ndarray(), y: lang64.types.ndarray(), z: lang64.types.ndarray()):
        for s in range(x.shape[0]):
            for i in range(x.shape[1]):
                y[s, i] = x[s, i]
            shift = b[s] * 0.4
            for i in range(x.shape[1]):
                y[s, i] += shift
                z[s, i] += 3.0 * y[s, i]

    x, b = torch.rand(2, 4, dtype=torch.float64), torch.rand(2, dtype=torch.float64)
    for chosen in ((0,), (1,), (0, 1)):
        pairs = []
        for call in (op, lambda x, b: (x + 0.4 * b[:, None], 3.0 * (x + 0.4 * b[:, None]))):
            given = x.clone().requires_grad_(), b.clone().requires_grad_()
            outputs = call(*given)
            loss = sum(outputs[place].sin().sum() for place in chosen)
            pairs.append(torch.autograd.grad(loss, given))
        torch.testing.assert_close(*pairs)


def test_a_batch_of_updates_of_which_one_has_a_cotangent(lang64):
    @ts.op("x[*b, n], inout y[*b, n], inout v[*b, n] ->")
    @lang64.kernel
    def op(x: lang64.types.ndarray(), y: lang64.types.ndarray(), v: lang64.types.ndarray()):
        first = x[0] * 0.4
        for i in range(1, x.shape[0]):
            y[i] += first
            v[i] += y[i] * y[i]

    torch.manual_seed(0)
    given = [torch.rand(2, 4, dtype=torch.float64) for _ in range(3)]
    for name in ("y", "v"):
        x, y, v = leaves = [one.clone().requires_grad_() for one in given]
        first = torch.cat([torch.zeros(2, 1), (0.4 * x[:, :1]).expand(2, 3)], 1)
        moved = y + first
        inner = torch.tensor([0.0, 1.0, 1.0, 1.0], dtype=torch.float64)
        wanted = torch.autograd.grad({"y": moved, "v": v + inner * moved**2}[name].sum(), leaves, allow_unused=True)
        x, y, v = leaves = [one.clone().requires_grad_() for one in given]
        new = {"y": y.clone(), "v": v.clone()}
        op(x, **new)
        gradients = torch.autograd.grad(new[name].sum(), leaves, allow_unused=True)
        pairs = [[torch.zeros_like(x) if one is None else one for one in some] for some in (gradients, wanted)]
        torch.testing.assert_close(*pairs)
