"""Kernels that compute row-major indices themselves: the values and gradients of float64, whatever the sizes."""

# pyright: reportInvalidTypeForm=false

import resource

import pytest
import torch

import tinsmith as ts
from tinsmith.engines import MOST_ELEMENTS

SIZES = [(0, 3), (1, 1), (5, 7), (70, 9), (3, 66)]


def weighted_rows(lang):
    """Build a kernel over three axes, of which the spec knows one."""
    array = lang.types.ndarray()

    @lang.kernel
    def kernel(x: array, w: array, y: array):
        for r in range(x.shape[0]):
            for s in range(x.shape[1]):
                for c in range(x.shape[2]):
                    y[r, c] += w[r, s] * x[r, s, c] * x[r, x.shape[1] - 1 - s, 1]

    def twin(x, w):
        return (w[..., None] * x * x.flip(1)[..., 1:2]).sum(1)

    return "x[n, m, 3], w[n, m] -> y[n, 3]", kernel, twin, lambda n, m: (torch.rand(n, m, 3), torch.rand(n, m))


def unequal_rows(lang):
    """Build a kernel with dims that the spec does not name, and that differ."""
    array = lang.types.ndarray()

    @lang.kernel
    def kernel(x: array, w: array, y: array):
        for r in range(x.shape[0]):
            for s in range(x.shape[1]):
                for k in range(w.shape[1]):
                    y[r, s] += x[r, s] * w[r, k]

    def twin(x, w):
        return x * w.sum(1, keepdim=True)

    return "x[n, m], w[n, _] -> y[n, m]", kernel, twin, lambda n, m: (torch.rand(n, m), torch.rand(n, m + 3))


def rows_by_index(lang):
    """Build a kernel that reads rows at indices from memory, one of 64 bits, in a `while`."""
    array = lang.types.ndarray()

    @lang.kernel
    def kernel(x: array, of: array, y: array):
        for r in range(of.shape[0]):
            s, total = 0, 0.0
            while s < x.shape[1]:
                total += x[of[r], s] * x[r, s]
                s += 1
            y[r, 1] = total
            y[r, 0] = total * total

    def twin(x, of):
        total = (x[of] * x).sum(1)
        return torch.stack([total**2, total], 1)

    def make(n, m):
        return torch.rand(n, m), torch.randint(max(n, 1), (n,))

    return "x[n, m], of[n]: i64 -> y[n, 2]", kernel, twin, make


def rows_of_vectors(lang):
    """Build a kernel on arrays of vectors with two axes."""
    vectors = lang.types.ndarray(dtype=lang.math.vec3, ndim=2)
    array = lang.types.ndarray()

    @lang.kernel
    def kernel(x: vectors, y: array):
        for r in range(x.shape[0]):
            for s in range(1, x.shape[1]):
                y[r, s] = x[r, s].dot(x[r, s - 1])

    def twin(x):
        return torch.nn.functional.pad((x[:, 1:] * x[:, :-1]).sum(2), (1, 0))

    return "x[n, m, 3] -> y[n, m]", kernel, twin, lambda n, m: (torch.rand(n, m, 3),)


CASES = [weighted_rows, unequal_rows, rows_by_index, rows_of_vectors]


def compare(op, twin, given):
    ours = [one.clone().requires_grad_(one.is_floating_point()) for one in given]
    theirs = [one.double().requires_grad_() if one.is_floating_point() else one for one in given]
    got, wanted = op(*ours), twin(*theirs)
    torch.testing.assert_close(got.double(), wanted, rtol=1e-4, atol=1e-5)
    cotangent = torch.rand_like(got)
    floats = [one for one in ours if one.requires_grad]
    gradients = torch.autograd.grad(got, floats, cotangent)
    exact = torch.autograd.grad(wanted, [one for one in theirs if one.requires_grad], cotangent.double())
    for one, other in zip(gradients, exact, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-5)


@pytest.mark.compiled_engine
@pytest.mark.parametrize("case", CASES, ids=lambda one: one.__name__)
def test_values_and_gradients(case, lang):
    spec, kernel, twin, make = case(lang)
    op = ts.op(spec)(kernel)
    for sizes in SIZES:
        torch.manual_seed(0)
        compare(op, twin, make(*sizes))
    op(*make(4, 6))
    assert "[0, at" in op.explain("all")


@pytest.mark.parametrize("case", [weighted_rows, rows_by_index], ids=lambda one: one.__name__)
def test_batches(case, lang):
    """A batch is an axis more, of which no spec speaks."""
    spec, kernel, twin, make = case(lang)
    op = ts.op(spec)(kernel)
    samples = [make(4, 6) for _ in range(5)]
    given = [torch.stack(one) for one in zip(*samples, strict=True)]
    compare(torch.vmap(op), torch.vmap(twin), given)


def test_views_are_made_contiguous(lang):
    spec, kernel, twin, make = weighted_rows(lang)
    x, w = make(6, 8)
    compare(ts.op(spec)(kernel), twin, (x.transpose(0, 1).contiguous().transpose(0, 1), w[:, :1].expand(6, 8)))


def test_float64(lang64):
    array = lang64.types.ndarray()

    @ts.op("x[n, m] -> y[n, m]")
    @lang64.kernel
    def running(x: array, y: array):
        for r in range(x.shape[0]):
            total = 0.0
            for s in range(x.shape[1]):
                total += x[r, s] * x[r, s]
                y[r, s] = total

    x = torch.rand(5, 7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(running, (x,))


def test_arrays_too_large_for_an_index_are_refused(lang):
    """Both engines end the process on them. The memory is asked for and never touched."""
    array = lang.types.ndarray()

    @ts.op("x[n, m] -> y[n]: i32")
    @lang.kernel
    def first(x: array, y: array):
        for r in range(x.shape[0]):
            y[r] = x[r, 0]

    x = torch.empty(3, MOST_ELEMENTS // 3 + 1, dtype=torch.int8)
    with pytest.raises(ts.ShapeError) as refused:
        first(x)
    assert str(refused.value) == (
        "array `x` of op `first` has more elements than an engine can index\n"
        "  shape     (3, 715827883)\n"
        "  elements  2,147,483,649\n"
        "  at most   2,147,483,647\n"
        "Split the call: pass a part of the array at a time."
    )


MANY = 2**31
# Views of a few bytes, as arguments of an op of one dim: the elements of a call that reaches a kernel.
EXPANDED = {
    "expanded": lambda op: op(torch.zeros(1).expand(MANY)),
    "with a gradient": lambda op: op(torch.zeros(1, requires_grad=True).expand(MANY)),
    "overlapping": lambda op: op(torch.zeros(2**18).as_strided((2**16, 2**15), (1, 1)).T[None]),
    "half": lambda op: op(torch.zeros(1, dtype=torch.bfloat16).expand(MANY)),
    "autocast": lambda op: autocast(op, torch.zeros(1, dtype=torch.bfloat16).expand(MANY)),
    "vmap": lambda op: torch.vmap(op)(torch.zeros(1, 1).expand(2**16, 2**15)),
    "vmap inside": lambda op: torch.vmap(lambda x: op(x.expand(2**30)))(torch.zeros(2, 1)),
    "vmap of half": lambda op: torch.vmap(op)(torch.zeros(1, 1, dtype=torch.bfloat16).expand(2**16, 2**15)),
    "jvp": lambda op: torch.func.jvp(op, *[(torch.zeros(1).expand(MANY),)] * 2),
    "scan, state": lambda op: ts.scan(op, torch.zeros(1).expand(MANY), length=2, memory="100GB"),
    "scan, mapped": lambda op: torch.vmap(lambda x: ts.scan(op, x, length=2))(torch.zeros(1, 1).expand(2**16, 2**15)),
}


def autocast(op, x):
    with torch.autocast("cpu", torch.bfloat16):
        return op(x)


@pytest.mark.parametrize("call", EXPANDED.values(), ids=EXPANDED)
def test_expanded_arrays_beyond_an_index_are_refused_before_they_are_copied(lang, call):
    array = lang.types.ndarray()

    @ts.op("x[...] -> y[...]")
    @lang.kernel
    def halve(x: array, y: array):
        for place in lang.grouped(x):
            y[place] = 0.5 * x[place]

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ts.ShapeError, match="has more elements than an engine can index"):
        call(halve)
    # A copy has 4 GiB at least.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**20
