"""Additions of loops in locals, and additions without atomics: the values and gradients of torch in float64."""

# pyright: reportInvalidTypeForm=false

import pytest
import torch

import tinsmith as ts


@pytest.fixture(params=[0, 10**9], ids=["threads", "serial"], autouse=True)
def is_serial(request, configure):
    """Run each test with one thread for all launches, and without."""
    configure(serial_below=str(request.param))
    return request.param > 0


def read_kernel_text(op):
    """Return the source of the kernel that ran, as the engine got it."""
    (stage,) = op._core.signature.stages
    return "\n".join(stage.texts.values())


def compare(op, reference, inputs, rtol=1e-10):
    leaves, exact = ([one.clone().requires_grad_(one.is_floating_point()) for one in inputs] for _ in range(2))
    floats, exacts = ([one for one in group if one.requires_grad] for group in (leaves, exact))
    with torch.no_grad():
        torch.testing.assert_close(op(*inputs), reference(*inputs), rtol=rtol, atol=rtol)
    ours, wanted = op(*leaves), reference(*exact)
    torch.testing.assert_close(ours, wanted, rtol=rtol, atol=rtol)
    if floats:
        weights = torch.randn_like(wanted)
        unused = {"allow_unused": True, "materialize_grads": True}
        expected = torch.autograd.grad(wanted, exacts, weights, **unused)
        for gradient, other in zip(torch.autograd.grad(ours, floats, weights, **unused), expected, strict=True):
            torch.testing.assert_close(gradient, other, rtol=rtol, atol=rtol)


@pytest.mark.compiled_engine
@pytest.mark.parametrize("shape", [(5, 7, 6), (1, 0, 3), (0, 4, 2), (70, 66, 3)])
def test_a_product_of_matrices(lang64, shape):
    """No atomic is left: an iteration owns its element, and adds to it once."""
    array = lang64.types.ndarray()

    @lang64.kernel
    def product(a: array, b: array, y: array):
        for i, j in lang64.ndrange(a.shape[0], b.shape[1]):
            for k in range(a.shape[1]):
                y[i, j] += a[i, k] * b[k, j]

    n, k, m = shape
    op = ts.op("a[n, k], b[k, m] -> y[n, m]")(product)
    compare(op, torch.matmul, (torch.randn(n, k, dtype=torch.float64), torch.randn(k, m, dtype=torch.float64)))
    assert "atomic" not in read_kernel_text(op) and "y_sum" in read_kernel_text(op)


@pytest.mark.compiled_engine
def test_elements_shared_by_iterations(lang64, is_serial):
    """One atomic for each loop, after it; subtractions, branches, and two elements that are sometimes the same."""
    array = lang64.types.ndarray()

    @lang64.kernel
    def shared(x: array, at: array, y: array):
        for i in range(x.shape[0]):
            first = at[i]
            for j in range(x.shape[1]):
                y[first, 0] += x[i, j]
                if x[i, j] > 0:
                    y[first, 1] -= x[i, j] * x[i, j]
                y[1, 0] += 2 * x[i, j]

    def reference(x, at):
        y = x.new_zeros(4, 2).index_add(0, at.long(), torch.stack([x.sum(1), -(x.clamp(min=0) ** 2).sum(1)], 1))
        return y + torch.nn.functional.pad(2 * x.sum().reshape(1, 1), (0, 1, 1, 2))

    op = ts.op("x[n, m], at[n]: i32 -> y[4, 2]")(shared)
    compare(op, reference, (torch.randn(9, 11, dtype=torch.float64), torch.randint(4, (9,), dtype=torch.int32)))
    text = read_kernel_text(op)
    assert text.count("atomic_add") == (0 if is_serial else 3)
    loop, _, after = text.partition("if not y_sum")
    assert "atomic" not in loop and "y_sum" in after


def test_elements_that_are_never_added_to_may_be_out_of_range(lang64):
    """Nothing is added to an element that is named in a loop which adds nothing: it may lie outside of the array."""
    array = lang64.types.ndarray()

    @lang64.kernel
    def sparse(x: array, at: array, y: array):
        for i in range(x.shape[0]):
            place = at[i]
            for j in range(x.shape[1]):
                if place >= 0:
                    y[place, 0] += x[i, j]
            for j in range(at[i]):
                y[at[i] - 1, 1] += x[i, j]

    def reference(x, at):
        y = x.new_zeros(6, 2)
        for row, place in zip(x, at.tolist(), strict=True):
            if place >= 0:
                y = y.index_put((torch.tensor(place), torch.tensor(0)), row.sum(), accumulate=True)
            if place > 0:
                y = y.index_put((torch.tensor(place - 1), torch.tensor(1)), row[:place].sum(), accumulate=True)
        return y

    at = torch.tensor([-(2**30), 5, 0, -1, 3, 3, -(2**30)]).int()
    compare(ts.op("x[n, m], at[n]: i32 -> y[6, 2]")(sparse), reference, (torch.randn(7, 6, dtype=torch.float64), at))


def test_elements_that_a_loop_reads_are_not_kept_in_locals(lang64):
    """A loop that reads what it adds to, or changes which element it is, adds in memory, in order."""
    array, f64 = lang64.types.ndarray(), lang64.f64

    @lang64.kernel
    def running(x: array, y: array):
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                y[i, 0] += x[i, j]
                y[i, 1] += y[i, 0] * x[i, j]
            k = 0
            for j in range(x.shape[1]):
                y[i, 2 + k] += x[i, j]
                k = (k + 1) % 2
            total = f64(0.0)
            while total < 1.0:
                y[i, 4] += 0.25
                total += y[i, 4]

    def reference(x):
        runs = x.cumsum(1)
        four = x.new_full((len(x),), 0.75)
        return torch.stack([runs[:, -1], (runs * x).sum(1), x[:, ::2].sum(1), x[:, 1::2].sum(1), four], 1)

    compare(ts.op("x[n, m] -> y[n, 5]")(running), reference, (torch.randn(4, 5, dtype=torch.float64),))


def test_nested_loops_with_early_ends(lang64):
    """Loops in loops add to one local each, which may end early or go on; sums of rows of vectors too."""
    array = lang64.types.ndarray()
    vectors = lang64.types.ndarray(dtype=lang64.types.vector(2, lang64.f64), ndim=2)

    @lang64.kernel
    def nested(x: vectors, limit: array, y: array):
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                if x[i, j][0] > limit[i]:
                    continue
                for k in range(3):
                    if k > j:
                        break
                    y[i, 0] += x[i, j][0] * k
                    y[i, 1] -= x[i, j][1]
                y[i, 0] += 1

    def reference(x, limit):
        rows = []
        for row, bound in zip(x, limit.tolist(), strict=True):
            first = second = x.new_zeros(())
            for j, pair in enumerate(row):
                if pair[0] > bound:
                    continue
                for k in range(min(3, j + 1)):
                    first, second = first + pair[0] * k, second - pair[1]
                first = first + 1
            rows.append(torch.stack([first, second]))
        return torch.stack(rows)

    op = ts.op("x[n, m, 2], limit[n] -> y[n, 2]")(nested)
    compare(op, reference, (torch.randn(6, 5, 2, dtype=torch.float64), torch.rand(6, dtype=torch.float64)))
    assert "atomic" not in read_kernel_text(op)


@pytest.mark.parametrize("kind", ["i32", "i64"])
def test_whole_numbers_and_what_atomics_return(lang, kind):
    """Counts in locals; an atomic whose old value is used stays one."""
    array = lang.types.ndarray()

    @lang.kernel
    def counts(x: array, seen: array, slots: array):
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                if x[i, j] > 0:
                    seen[i, 0] += 1
                    seen[0, 1] -= 2
                    place = lang.atomic_add(seen[i, 2], 1)
                    slots[i, place] = j

    dtype = {"i32": torch.int32, "i64": torch.int64}[kind]
    op = ts.op(f"x[n, m] -> seen[n, 3]: {kind}, slots[n, m]: {kind}")(counts)
    x = torch.randn(8, 5)
    seen, slots = op(x)
    many = (x > 0).sum(1).to(dtype)
    assert torch.equal(seen[:, 0], many) and torch.equal(seen[:, 2], many)
    assert seen[0, 1] == -2 * many.sum() and not seen[1:, 1].any()
    for row, places, count in zip(x, slots, many.tolist(), strict=True):
        assert places[:count].tolist() == (row > 0).nonzero().flatten().tolist()


def test_infinities_and_nan(lang):
    array = lang.types.ndarray()

    @lang.kernel
    def rows(x: array, y: array):
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                y[i, 0] += x[i, j]

    inf, nan = torch.inf, torch.nan
    x = torch.tensor([[1.0, inf], [-inf, 2.0], [nan, 0.0], [1.0, -1.0]])
    torch.testing.assert_close(
        ts.op("x[n, m] -> y[n, 1]")(rows)(x)[:, 0], torch.tensor([inf, -inf, nan, 0.0]), equal_nan=True
    )


def test_half_precision_and_serial_loops(lang):
    """Half precision stays as it was written. A loop that runs in order sums in a local too."""
    array = lang.types.ndarray()

    @lang.kernel
    def rows(x: array, y: array):
        lang.loop_config(serialize=True)
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                y[i % 2, 0] += x[i, j] * 2

    op = ts.op("x[n, m] -> y[2, 1]")(rows)
    for dtype, rtol in ((torch.float16, 1e-2), (torch.float32, 1e-5)):
        x = torch.rand(6, 9).to(dtype)
        wanted = torch.stack([x[::2].sum(), x[1::2].sum()]).reshape(2, 1) * 2
        torch.testing.assert_close(op(x), wanted, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [0, 5, 1000])
def test_elements_of_one_axis(lang, dtype, size):
    """Additions to the loop's own element are plain, so the loop can run in strips."""
    array = lang.types.ndarray()

    @lang.kernel
    def curve(x: array, y: array):
        for i in range(x.shape[0]):
            y[i] += 2 * x[i]
            y[i] -= lang.exp(-x[i])

    op = ts.op("x[n] -> y[n]")(curve)
    compare(op, lambda x: 2 * x - torch.exp(-x), (torch.rand(size, dtype=dtype),), 1e-5)
    assert "atomic" not in read_kernel_text(op)
