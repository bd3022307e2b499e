"""Outputs and scratch that kernels fill are not cleared before: values are right, and only what is filled is spared."""

import pytest
import torch

import tinsmith as ts
from support.written import compile_text

pytestmark = pytest.mark.compiled_engine

HEAD = "def kernel(x: lang.types.ndarray(), w: lang.types.ndarray(), y: lang.types.ndarray()):\n"
SPEC = "x[n, m], w[n, m] -> y[n, m]"
SQUARE = "x[n, n], w[n, n] -> y[n, n]"
FORMS = {  # a kernel, the spec, and whether it fills `y`
    "elementwise": ("for i, j in x:\n y[i, j] = x[i, j] * w[i, j]", SPEC, True),
    "by its own sizes": ("for i, j in lang.ndrange(y.shape[0], w.shape[1]):\n y[i, j] = x[i, j] + w[i, j]", SPEC, True),
    "sizes in locals": (
        "n = x.shape[0]\nm = y.shape[1]\nfor i in range(n):\n for j in range(m):\n  y[i, j] = x[i, j] - w[i, j]",
        SPEC,
        True,
    ),
    "turned": ("for i, j in x:\n y[j, i] = x[i, j] * w[i, j]", SQUARE, True),
    "turned, says nobody": ("for i, j in x:\n if i < y.shape[0]:\n  y[i, j] = x[i, j] * w[i, j]", SPEC, False),
    "backwards": ("for i, j in x:\n y[x.shape[0] - 1 - i, j] = x[i, j] * w[i, j]", SPEC, True),
    "cleared, then added to": (
        "for i in range(x.shape[0]):\n for j in range(x.shape[1]):\n  y[i, j] = 0.0\n"
        "  for k in range(x.shape[1]):\n   y[i, j] += x[i, k] * w[i, k]",
        SPEC,
        True,
    ),
    "cleared by a loop of its own": (
        "for i, j in y:\n y[i, j] = 0.0\nfor i, j in x:\n y[0, j] += x[i, j] * w[i, j]",
        SPEC,
        True,
    ),
    "cleared too late": (
        "for i, j in x:\n y[i, j] += x[i, j]\nfor i, j in y:\n y[i, j] = 2.0 * y[i, j] + w[i, j]",
        SPEC,
        False,
    ),
    "read before": ("for i, j in x:\n t = y[i, j]\n y[i, j] = x[i, j] * w[i, j] + t", SPEC, False),
    "read beside": (
        "lang.loop_config(serialize=True)\nfor i in range(x.shape[0]):\n for j in range(x.shape[1]):\n"
        "  y[i, j] = x[i, j] * w[i, j]\n  y[i, j] = y[i, j] + y[x.shape[0] - 1, j]",
        SPEC,
        False,
    ),
    "in both branches": (
        "for i, j in x:\n if w[i, j] > 0.5:\n  y[i, j] = x[i, j]\n else:\n  y[i, j] = w[i, j]",
        SPEC,
        True,
    ),
    "in both branches, elsewhere": (
        "for i, j in x:\n if w[i, j] > 0.5:\n  y[i, j] = x[i, j]\n else:\n  y[j, i] = w[i, j]",
        SQUARE,
        False,
    ),
    "in all of four branches": (
        "for i, j in x:\n if w[i, j] > 0.5:\n  if x[i, j] > 0.5:\n   y[i, j] = x[i, j]\n  else:\n   y[i, j] = 1.0\n"
        " else:\n  t = 2.0\n  if w[i, j] > 0.3:\n   t = w[i, j]\n  y[i, j] = t",
        SPEC,
        True,
    ),
    "in three of four branches": (
        "for i, j in x:\n if w[i, j] > 0.5:\n  if x[i, j] > 0.5:\n   y[i, j] = x[i, j]\n else:\n  y[i, j] = w[i, j]",
        SPEC,
        False,
    ),
    "in both branches, then added to": (
        "for i, j in x:\n if w[i, j] > 0.5:\n  y[i, j] = 1.0\n else:\n  y[i, j] = 0.0\n y[i, j] += x[i, j]",
        SPEC,
        True,
    ),
    "a branch": ("for i, j in x:\n if w[i, j] > 0.5:\n  y[i, j] = x[i, j] * w[i, j]", SPEC, False),
    "a branch over it": (
        "for i, j in x:\n if w[i, j] > 0.5:\n  y[i, j] = 5.0\n y[i, j] = x[i, j] * w[i, j]",
        SPEC,
        True,
    ),
    "a branch after it": (
        "for i, j in x:\n y[i, j] = x[i, j] * w[i, j]\n if w[i, j] > 0.5:\n  y[i, j] = y[i, j] * 5.0",
        SPEC,
        True,
    ),
    "left out": ("for i, j in x:\n if w[i, j] < 0.5:\n  continue\n y[i, j] = x[i, j] * w[i, j]", SPEC, False),
    "ends early": (
        "for i in range(x.shape[0]):\n for j in range(x.shape[1]):\n  y[i, j] = x[i, j] * w[i, j]\n"
        "  if w[i, j] > 0.7:\n   break",
        SPEC,
        False,
    ),
    "after a loop that ends early": (
        "for i, j in x:\n t = 0.0\n for k in range(x.shape[1]):\n  if w[i, k] > 0.7:\n   break\n  t += x[i, k]\n"
        " y[i, j] = t * w[i, j]",
        SPEC,
        True,
    ),
    "all but one": (
        "for i, j in lang.ndrange((1, x.shape[0]), x.shape[1]):\n y[i, j] = x[i, j] * w[i, j]",
        SPEC,
        False,
    ),
    "an edge missing": (
        "for i, j in lang.ndrange(x.shape[0] - 1, x.shape[1]):\n y[i, j] = x[i, j] * w[i, j]",
        SPEC,
        False,
    ),
    "a row": ("for i, j in x:\n y[i, 0] = x[i, 0] * w[i, 0]", SPEC, False),
    "a diagonal": ("for i in range(x.shape[0]):\n y[i, i % 3] = x[i, 0] * w[i, 0]", SPEC, False),
    "shuffled": ("for i, j in x:\n y[(i + 1) % x.shape[0], j] = x[i, j] * w[i, j]", SPEC, False),
    "one in a row": (
        "for i in range(x.shape[0]):\n for k in range(i):\n  y[i, 0] = x[i, k % 3] * w[i, 0]",
        SPEC,
        False,
    ),
    "a known length": (
        "for i in range(x.shape[0]):\n for j in lang.static(range(3)):\n  y[i, j] = x[i, j] * w[i, j]",
        "x[n, 3], w[n, 3] -> y[n, 3]",
        True,
    ),
    "two of a known length": (
        "for i in range(x.shape[0]):\n for j in lang.static(range(2)):\n  y[i, j] = x[i, j] * w[i, j]",
        "x[n, 3], w[n, 3] -> y[n, 3]",
        False,
    ),
    "another length": (
        "for i, j in lang.ndrange(w.shape[0], 2):\n y[i, j] = x[i, j] + w[i, j]",
        "x[_, _], w[n, m] -> y[n, m]",
        False,
    ),
    "as long, says nobody": (
        "for i, j in lang.ndrange(x.shape[0], x.shape[1]):\n y[i, j] = x[i, j] + w[i, j]",
        "x[_, _], w[n, m] -> y[n, m]",
        False,
    ),
    "any rank": ("for i, j in x:\n y[i, j] = x[i, j] + w[i, j]", "x[...], w[...] -> y[...]", False),
    "any rank, by itself": ("for i, j in y:\n y[i, j] = x[i, j] + w[i, j]", "x[...], w[...] -> y[...]", True),
}


def make(lang, form, **options):
    body, spec, _ = FORMS[form]
    text = HEAD + "".join(f"    {line}\n" for line in body.splitlines())
    # In one form data would have to tell that no two iterations store to one element.
    return ts.op(spec, races="allow", **options)(compile_text(lang, text))


@pytest.fixture(params=["0", "65536"], ids=["parallel", "serial"], autouse=True)
def _poisoned(configure, request):
    """Fill uninitialized memory with NaN, so that what is not cleared shows."""
    configure(poison="1", serial_below=request.param)


@pytest.fixture
def zeros_made(monkeypatch):
    """Return a list of the shapes of zeroed memory that ops allocate."""
    shapes, zeros, zeros_like = [], torch.zeros, torch.zeros_like
    monkeypatch.setattr(torch, "zeros", lambda *size, **kind: shapes.append(size) or zeros(*size, **kind))
    monkeypatch.setattr(torch, "zeros_like", lambda one: shapes.append(tuple(one.shape)) or zeros_like(one))
    return shapes


def make_leaves():
    torch.manual_seed(0)
    return [torch.rand(3, 3, dtype=torch.float64) for _ in range(2)]


@pytest.mark.thinned(4)
@pytest.mark.parametrize("form", FORMS)
def test_only_arrays_that_a_kernel_fills_are_not_zeroed(lang64, form, zeros_made):
    op, given = make(lang64, form), make_leaves()
    values = op(*given)
    assert (zeros_made == []) == FORMS[form][2]
    torch.testing.assert_close(values, ts.oracle(op, *given).outputs["y"], rtol=1e-12, atol=1e-13)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("form", ["elementwise", "cleared, then added to", "read before", "a branch after it"])
def test_batches_and_derivatives(lang64, form):
    op, (x, w) = make(lang64, form), make_leaves()
    many = torch.stack([x, w, x + w])
    torch.testing.assert_close(torch.vmap(op, (0, None))(many, w), torch.stack([op(one, w) for one in many]))
    assert ts.gradcheck(op, x, w).findings == []
    values = torch.compile(op, backend="aot_eager", fullgraph=True)(x, w)
    torch.testing.assert_close(values, op(x, w))


def test_loops_up_to_an_argument_that_is_a_dim_fill_the_array(lang64, zeros_made):
    text = "def kernel(n: lang.i32, x: lang.types.ndarray(), y: lang.types.ndarray()):\n    for i in range(n):\n"
    kernel = compile_text(lang64, text + "        y[i] = 2.0 * x[i]\n")
    x = torch.rand(5, dtype=torch.float64)
    assert torch.equal(ts.op("x[n] -> y[n]")(kernel)(5, x), 2 * x)
    assert zeros_made == []
    values = ts.op("x[m] -> y[m]")(kernel)(3, x)
    assert torch.equal(values, torch.cat([2 * x[:3], torch.zeros(2, dtype=torch.float64)]))


def test_vectors_are_filled_by_all_of_their_numbers(lang64, zeros_made):
    head = "def kernel(x: lang.types.ndarray(), y: lang.types.ndarray(dtype=lang.math.vec3)):\n    for i in y:\n"
    x = torch.rand(5, dtype=torch.float64)
    for body, is_filled in {"y[i] = lang.math.vec3(x[i], 0.0, 1.0)": True, "y[i][1] = x[i]": False}.items():
        zeros_made.clear()
        op = ts.op("x[n] -> y[n, 3]")(compile_text(lang64, f"{head}        {body}\n"))
        values = op(x)
        assert (zeros_made == []) == is_filled
        torch.testing.assert_close(values, ts.oracle(op, x).outputs["y"])


def test_the_first_kernel_of_a_chain_decides(lang64, zeros_made):
    spread = "def spread(x: lang.types.ndarray(), h: lang.types.ndarray()):\n    for i in x:\n        h[i] = x[i]\n"
    gather = (
        "def gather(h: lang.types.ndarray(), y: lang.types.ndarray()):\n    for i in h:\n        y[i // 2] += h[i]\n"
    )
    chain = ts.chain("x[n] -> y[n]", [compile_text(lang64, spread), compile_text(lang64, gather)], scratch="h[n]")
    x = torch.arange(4, dtype=torch.float64)
    assert chain(x).tolist() == [1.0, 5.0, 0.0, 0.0]
    assert zeros_made == [(4,)]
