"""Gradients that a launch fills are stored into memory that nobody cleared: right, and only where it is so."""

import pytest
import torch

import tinsmith as ts
from support.written import compile_text
from tinsmith.operation.reports import adjoint_source

HEAD = "def kernel(x: lang.types.ndarray(), w: lang.types.ndarray(), y: lang.types.ndarray()):\n"
THREE = "x[n, 3], w[n, 3] -> y[n, 3]"
VECTORS = "x[n, m], w[n, m] -> y[n, m]"
FORMS = {  # a kernel, the spec, and whether the gradient of `x` is stored without a sum, into memory of zeros or any
    "elementwise": ("for i, j in x:\n y[i, j] = x[i, j] * w[i, j]", VECTORS, True),
    "by another array": ("for i, j in y:\n y[i, j] = x[i, j] * w[i, j] * x[i, j]", VECTORS, True),
    "a loop inside": (
        "for i in range(x.shape[0]):\n t = 1.0\n for j in range(x.shape[1]):\n  t *= x[i, j] + 0.5\n"
        "  y[i, j] = t * w[i, j]",
        VECTORS,
        True,
    ),
    "turned": (
        "for j, i in lang.ndrange(x.shape[1], w.shape[0]):\n y[i, j] = x[i, j] * w[i, j]",
        VECTORS,
        True,
    ),
    "all but one": (
        "for i, j in lang.ndrange((1, x.shape[0]), x.shape[1]):\n y[i, j] = x[i, j] * w[i, j]",
        VECTORS,
        True,
    ),
    "a branch": ("for i, j in x:\n if w[i, j] > 0.5:\n  y[i, j] = x[i, j] * w[i, j]", VECTORS, True),
    "ends early": (
        "for i in range(x.shape[0]):\n for j in range(x.shape[1]):\n  y[i, j] = x[i, j] * w[i, j]\n"
        "  if w[i, j] > 0.7:\n   break",
        VECTORS,
        True,
    ),
    "a row": ("for i, j in y:\n y[i, j] = x[i, 0] * w[i, j]", VECTORS, False),
    "a diagonal": (
        "for i, j in lang.ndrange(x.shape[0], x.shape[1]):\n y[i, j] = x[i, i % 3] * w[i, j]",
        VECTORS,
        False,
    ),
    "twice": (
        "for i, j in x:\n y[i, j] = x[i, j] * w[i, j]\nfor i in range(x.shape[0]):\n y[i, 0] += x[i, 1] * w[i, 2]",
        VECTORS,
        False,
    ),
    "unrolled": (
        "for i in range(x.shape[0]):\n for j in lang.static(range(3)):\n  y[i, j] = x[i, j] * w[i, j]",
        THREE,
        True,
    ),
    "a loop over three": ("for i, j in lang.ndrange(x.shape[0], 3):\n y[i, j] = x[i, j] * w[i, j]", THREE, True),
    "two of three": (
        "for i in range(x.shape[0]):\n for j in lang.static(range(2)):\n  y[i, j] = x[i, j + 1] * w[i, j]",
        THREE,
        True,
    ),
    "one of three thrice": (
        "for i in range(x.shape[0]):\n for j in lang.static(range(3)):\n  y[i, j] = x[i, 1] * w[i, j]",
        THREE,
        True,
    ),
    "as many as three, says nobody": (
        "for i in range(x.shape[0]):\n for j in lang.static(range(3)):\n  y[i, j] = x[i, j] * w[i, j]",
        VECTORS,
        True,
    ),
    "rows shared in order": (
        "lang.loop_config(serialize=True)\nfor i, j in y:\n y[i, j] = x[i // 2, j] * w[i, j]",
        VECTORS,
        False,
    ),
    "rows shared": ("for i, j in y:\n y[i, j] = x[i // 2, j] * w[i, j]", VECTORS, False),
    "an element for two iterations of a loop inside": (
        "for i in range(x.shape[0]):\n for j in range(x.shape[1]):\n  y[i, j] = x[i, j // 2] * w[i, j]",
        VECTORS,
        False,
    ),
    "two columns that may be one": (
        "for i in range(x.shape[0]):\n c = i % 3\n y[i, 0] = x[i, c] * w[i, 0] + x[i, 1] * w[i, 1]",
        VECTORS,
        False,
    ),
    "a part of each row": (
        "for i in range(x.shape[0]):\n for j in range(i % 2, x.shape[1] - i % 3):\n  y[i, j] = x[i, j] * w[i, j]",
        VECTORS,
        True,
    ),
    "as long, says nobody": ("for i, j in y:\n y[i, j] = x[i, j] * w[i, j]", "x[_, _], w[n, m] -> y[n, m]", True),
    "as long, says the spec": ("for i, j in y:\n y[i, j] = x[i, j] * w[i, j]", "x[n, 3], w[n, 3] -> y[n, 3]", True),
}


def make_leaves():
    torch.manual_seed(0)
    return [torch.rand(4, 3, dtype=torch.float64) for _ in range(2)]


def spoil_memory():
    """Fill what is handed out next with NaN."""
    for _ in range(20):
        torch.full((4, 3), torch.nan, dtype=torch.float64)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("form", FORMS)
def test_gradients_filled_by_one_launch_are_stored_without_zeroing(lang64, form):
    body, spec, is_stored = FORMS[form]
    op = ts.op(spec, adjoint="source")(
        compile_text(lang64, HEAD + "".join(f"    {line}\n" for line in body.splitlines()))
    )
    given = make_leaves()
    c = torch.rand(4, 3, dtype=torch.float64)
    wanted = ts.oracle(op, *given, cotangents=[c]).gradients
    for _ in range(2):
        x, w = (one.clone().requires_grad_() for one in given)
        y = op(x, w)
        spoil_memory()
        gradients = torch.autograd.grad(y, [x, w], c)
        torch.testing.assert_close(dict(zip("xw", gradients, strict=True)), dict(wanted), rtol=1e-11, atol=1e-13)
    lines = [line.strip() for line in adjoint_source(op).splitlines()]
    stores = [line for line in lines if line.startswith("grad_x[")]
    assert (bool(stores) and not any("= grad_x[" in store for store in stores)) == is_stored, adjoint_source(op)


def make_product(lang):
    return ts.op(VECTORS, adjoint="source")(
        compile_text(lang, HEAD + "    for i, j in x:\n        y[i, j] = x[i, j] * w[i, j]\n")
    )


@pytest.mark.parametrize("dims", [(0, 0), (0, None), (None, 0)])
def test_batches_sum_what_samples_share(lang64, dims):
    op = make_product(lang64)
    x, w = (torch.rand(*((5,) if dim == 0 else ()), 4, 3, dtype=torch.float64) for dim in dims)
    x.requires_grad_()
    w.requires_grad_()
    c = torch.rand(5, 4, 3, dtype=torch.float64)
    gradients = torch.autograd.grad(torch.vmap(op, dims)(x, w), [x, w], c)
    spoil_memory()
    torch.testing.assert_close(gradients, torch.autograd.grad(x * w, [x, w], c))


def test_samples_that_run_one_by_one_add_to_what_they_share(lang64):
    """A local of the top level that a loop adds to cannot be batched in one launch."""
    total = "    s = 0.0\n    for i, j in w:\n        s += w[i, j]\n"
    text = f"{HEAD}{total}    for i, j in x:\n        y[i, j] = x[i, j] * w[i, j] * s\n"
    op = ts.op(VECTORS, adjoint="source")(compile_text(lang64, text))
    x = torch.rand(4, 3, dtype=torch.float64, requires_grad=True)
    w = torch.rand(5, 4, 3, dtype=torch.float64, requires_grad=True)
    c = torch.rand(5, 4, 3, dtype=torch.float64)
    wanted = torch.autograd.grad(x * w * w.sum((1, 2), keepdim=True), [x, w], c)
    torch.testing.assert_close(torch.autograd.grad(torch.vmap(op, (None, 0))(x, w), [x, w], c), wanted)
    wanted = torch.autograd.grad(w * x * x.sum(), [x, w], c)
    torch.testing.assert_close(torch.autograd.grad(torch.vmap(op, (0, None))(w, x), [x, w], c), wanted)
    assert "one by one" in op.explain("all") or "sample" in op.explain("all")


def test_a_kernel_that_is_launched_twice_adds(lang64):
    step = compile_text(
        lang64,
        "def step(x: lang.types.ndarray(), y: lang.types.ndarray()):\n"
        "    for i in x:\n        y[i] += x[i] * x[i] + y[i]\n",
    )
    op = ts.chain("x[n] -> y[n]", [step, step], adjoint="source")
    x = torch.rand(5, dtype=torch.float64, requires_grad=True)
    y = op(x)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(y, 3 * x * x)
    torch.testing.assert_close(gradient, 6 * x)


def test_vectors_are_stored_entry_by_entry(lang64):
    array = lang64.types.ndarray(dtype=lang64.types.vector(3, lang64.f64), ndim=1)

    @ts.op("x[n, 3] -> y[n]", adjoint="source")
    @lang64.kernel
    def norms(x: array, y: lang64.types.ndarray()):
        for i in x:
            y[i] = x[i].dot(x[i]) * x[i][1]

    x = torch.rand(6, 3, dtype=torch.float64, requires_grad=True)
    y = norms(x)
    spoil_memory()
    (gradient,) = torch.autograd.grad(y.sum(), x)
    (wanted,) = torch.autograd.grad(((x * x).sum(1) * x[:, 1]).sum(), x)
    torch.testing.assert_close(gradient, wanted)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("is_batched", [False, True])
def test_adjoints_of_scratch_are_stored(lang64, first, is_batched):
    square = compile_text(
        lang64,
        "def square(x: lang.types.ndarray(), s: lang.types.ndarray()):\n"
        "    for i, j in x:\n        s[i, j] = x[i, j] * x[i, j]\n",
    )
    scale = compile_text(
        lang64,
        "def scale(s: lang.types.ndarray(), w: lang.types.ndarray(), y: lang.types.ndarray()):\n"
        f"    for i, j in lang.ndrange(({first}, s.shape[0]), s.shape[1]):\n        y[i, j] = s[i, j] * w[i, j]\n",
    )
    op = ts.chain(VECTORS, [square, scale], scratch="s[n, m]", adjoint="source")
    x, w, c = (torch.rand(2, 4, 3, dtype=torch.float64) for _ in range(3))
    x, w, c = (x, w, c) if is_batched else (x[0], w[0], c[0])
    x.requires_grad_()
    call = torch.vmap(op) if is_batched else op
    reached = (torch.arange(4) >= first)[:, None]
    for _ in range(2):
        y = call(x, w)
        spoil_memory()
        torch.testing.assert_close(torch.autograd.grad(y, x, c)[0], 2 * x * w * c * reached)
    assert "grad_s[i, j] = grad_s[i, j] + " not in adjoint_source(op), adjoint_source(op)
