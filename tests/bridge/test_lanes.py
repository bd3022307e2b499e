"""Kernels whose loops end by data, in lanes: values and gradients of float64, for any number of iterations.

Numbers of iterations are 0 and 1, those around 16 and 32, where a block of lanes ends, and more.
"""

# pyright: reportInvalidTypeForm=false

import pytest
import torch

import tinsmith as ts
from tinsmith import passes

pytestmark = pytest.mark.compiled_engine

COUNTS = (0, 1, 15, 16, 33, 100)


@pytest.fixture(autouse=True, params=["several threads", "one thread"])
def threads(configure, request):
    """Run all launches on several threads, or all on one, which otherwise only small calls use."""
    # A kernel in lanes that another test wrote to disk would be read from there.
    configure(cache="0", serial_below="0" if request.param == "several threads" else str(10**12))


@pytest.fixture
def ran(monkeypatch):
    """Return the names of the kernels with a loop that runs in lanes."""
    kernel_names = []

    def run(task, kernel, names, **options):
        lanes = run_in_lanes(task, kernel, names, **options)
        kernel_names.extend([kernel.name] if lanes is not None else [])
        return lanes

    run_in_lanes = passes.run_in_lanes
    monkeypatch.setattr(passes, "run_in_lanes", run)
    return kernel_names


def march(lang):
    """Build a kernel with a `while` over floats, whose state differs between lanes."""
    array = lang.types.ndarray()

    @lang.kernel
    def kernel(x: array, y: array):
        for i in range(x.shape[0]):
            t, through = 0.0, 1.0
            while through > 0.1 and t < 4.0:
                e = lang.exp(-0.3 - x[i] * x[i] * t)
                y[i] += through * (1.0 - e) * x[i]
                through *= e
                t += 0.3 + 0.1 * x[i]

    def twin(x):
        t, through, y = torch.zeros_like(x), torch.ones_like(x), torch.zeros_like(x)
        for _ in range(20):
            runs = (through > 0.1) & (t < 4.0)
            e = torch.exp(-0.3 - x * x * t)
            y = torch.where(runs, y + through * (1 - e) * x, y)
            through = torch.where(runs, through * e, through)
            t = torch.where(runs, t + 0.3 + 0.1 * x, t)
        return y

    return kernel, twin


def nested(lang):
    """Build a kernel with a `while` in a `while`, `continue` in a branch, and integers."""
    array = lang.types.ndarray()

    @lang.kernel
    def kernel(x: array, y: array):
        for i in range(x.shape[0]):
            n, total = 0, 0.0
            while n < 5:
                n += 1
                if x[i] * n > 2.0:
                    continue
                a, k = x[i], 0
                while a < 2.0:
                    a += a * a + 0.3
                    k += 1
                    if k > n:
                        break
                total += a * k
            y[i] = total

    def twin(x):
        total = torch.zeros_like(x)
        for n in range(1, 6):
            a, k = x, torch.zeros_like(x)
            runs = x * n <= 2.0
            added = runs
            for _ in range(n + 1):
                runs = runs & (a < 2.0) & (k <= n)
                a, k = torch.where(runs, a + a * a + 0.3, a), k + runs
            total = torch.where(added, total + a * k.detach(), total)
        return total

    return kernel, twin


def gathered(lang):
    """Build a kernel whose lanes read different elements; none may be read beyond the last one."""
    array = lang.types.ndarray()

    @lang.kernel
    def kernel(x: array, y: array):
        for i in range(x.shape[0]):
            k, a, total = i, 1.0, 0.0
            while k < x.shape[0]:
                a = a * 0.5 + x[k] * x[k] * 0.25 + lang.exp(-x[k]) * a
                total += a * x[k] + a * a * 0.01
                k += 1 + lang.cast(x[i] * 4.0, lang.i32)
            y[i] = total

    def twin(x):
        totals = []
        for i in range(len(x)):
            k, a, total = i, torch.ones((), dtype=x.dtype), torch.zeros((), dtype=x.dtype)
            while k < len(x):
                a = a * 0.5 + x[k] ** 2 * 0.25 + torch.exp(-x[k]) * a
                total = total + a * x[k] + a * a * 0.01
                k += 1 + int(x[i].float() * 4.0)
            totals.append(total)
        return torch.stack(totals) if totals else x * 1.0

    return kernel, twin


def early_return(lang):
    """Build a kernel in which some iterations end before the loop; lanes that left must read nothing."""
    array = lang.types.ndarray()

    @lang.kernel
    def kernel(x: array, y: array):
        for i in range(x.shape[0]):
            if x[i] > 0.7:
                y[i] = x[i] * 3.0
                continue
            a = x[i]
            for _ in range(50):
                step = (a * a * a - x[i] - 1.0) / (3.0 * a * a + 1.0)
                a -= step
                if lang.abs(step) < 0.1:
                    break
            y[i] = a

    def twin(x):
        a, runs = x, torch.ones_like(x) > 0
        for _ in range(50):
            step = (a**3 - x - 1.0) / (3.0 * a * a + 1.0)
            a = torch.where(runs, a - step, a)
            runs = runs & (step.abs() >= 0.1)
        return torch.where(x > 0.7, x * 3.0, a)

    return kernel, twin


def of_all_operations(lang):
    """Build a kernel of operations that vectors of the engine have, and of some that are written per entry."""
    array = lang.types.ndarray()

    @lang.kernel
    def kernel(x: array, y: array):
        for i in range(x.shape[0]):
            a, k, left = x[i], 0, 3 + lang.cast(x[i] * 5.0, lang.i32)
            while left > 0:
                b = lang.max(lang.abs(0.5 - a), 0.1) + lang.sqrt(a + 0.25) * lang.exp(a - 1.5)
                is_odd = ((k >> 1) ^ k) & 1 == 1
                if not is_odd or a > 0.95:
                    b = -b + lang.exp(-b) * lang.ceil(b)
                a = lang.min(a * 0.5 + b * 0.125 + 0.3, 0.9 + k) - lang.floor(b) * 0.01
                k = lang.min(k + 1, 7) + lang.max(left - 6, 0)
                left -= 1
            y[i] = a

    def twin(x):
        a, k, left = x, torch.zeros(len(x), dtype=torch.int32), 3 + (x.float() * 5.0).int()
        for _ in range(8):
            runs = left > 0
            b = (0.5 - a).abs().clamp(min=0.1) + (a + 0.25).sqrt() * (a - 1.5).exp()
            is_odd = ((k >> 1) ^ k) & 1 == 1
            b = torch.where(~is_odd | (a > 0.95), -b + (-b).exp() * b.ceil(), b)
            a = torch.where(runs, torch.minimum(a * 0.5 + b * 0.125 + 0.3, 0.9 + k) - b.floor() * 0.01, a)
            k = torch.where(runs, (k + 1).clamp(max=7) + (left - 6).clamp(min=0), k)
            left = left - runs.int()
        return a

    return kernel, twin


def no_trips(lang):
    """Build a kernel with a loop that most lanes do not run at all."""
    array = lang.types.ndarray()

    @lang.kernel
    def kernel(x: array, y: array):
        for i in range(x.shape[0]):
            a = x[i]
            while a > 0.9:
                a = a * a * 0.99
            y[i] = a + 1.0

    def twin(x):
        a = x
        for _ in range(50):
            a = torch.where(a > 0.9, a * a * 0.99, a)
        return a + 1.0

    return kernel, twin


def by_lists(lang, group=16):
    """Build a kernel on lists of groups of 16, on which lanes agree: sums of all lanes go to one element."""
    array = lang.types.ndarray()

    @lang.kernel
    def kernel(x: array, starts: array, y: array):
        for i in range(x.shape[0]):
            t, total, least = 1.0, 0.0, lang.f32(1.0) / 10.0
            for k in range(starts[i // group], starts[i // group + 1]):
                alpha = x[k % x.shape[0]] * x[i] * 0.5
                total += t * alpha
                if alpha > least:
                    t *= 1.0 - alpha
                    if t < 0.3:
                        break
            y[i] = total

    def twin(x, starts):
        totals = []
        for i in range(len(x)):
            t, total = x.new_ones(()), 0.0 * x[i]
            for k in range(int(starts[i // group]), int(starts[i // group + 1])):
                alpha = x[k % len(x)] * x[i] * 0.5
                total = total + t * alpha
                if alpha > 0.1:
                    t = t * (1.0 - alpha)
                    if t < 0.3:
                        break
            totals.append(total)
        return torch.stack(totals) if totals else x * 1.0

    return kernel, twin


def by_other_lists(lang):
    """Build a kernel on lists of groups of 12, on which the lanes of most blocks do not agree."""
    return by_lists(lang, 12)


def of_vectors(lang):
    """Build a kernel with locals that are vectors, and an atomic whose lanes may add to one element."""
    array = lang.types.ndarray()

    @lang.kernel
    def kernel(x: array, y: array):
        for i in range(x.shape[0]):
            p, v = lang.Vector([x[i], 0.5]), lang.Vector([1.0, -x[i]])
            n = 0
            while p.dot(p) < 3.0 and n < 20:
                p += 0.1 * v + 0.05 * lang.exp(-p)
                v = 0.9 * v + 0.1 * p
                n += 1
            y[i // 3] += p[0] * p[1] + n

    def twin(x):
        p, v = torch.stack([x, torch.full_like(x, 0.5)]), torch.stack([torch.ones_like(x), -x])
        n = torch.zeros_like(x)
        for _ in range(20):
            runs = (p * p).sum(0) < 3.0
            moved = p + 0.1 * v + 0.05 * torch.exp(-p)
            v = torch.where(runs, 0.9 * v + 0.1 * moved, v)
            p, n = torch.where(runs, moved, p), n + runs
        return torch.zeros_like(x).index_add(0, torch.arange(len(x)) // 3, p[0] * p[1] + n)

    return kernel, twin


def of_pairs(lang):
    """Build a kernel with a loop over two variables, on a grid that no block of lanes divides."""
    array = lang.types.ndarray()

    @lang.kernel
    def kernel(x: array, y: array):
        for j, i in lang.ndrange((1, 8), x.shape[0]):
            a, n = x[i] / j, 0
            while a < 1.5:
                a += 0.1 * j + x[i] * lang.exp(-a)
                n += 1
            y[i] += a * (n + j)

    def twin(x):
        y = torch.zeros_like(x)
        for j in range(1, 8):
            a, n = x / j, torch.zeros_like(x)
            for _ in range(30):
                runs = a < 1.5
                a, n = torch.where(runs, a + 0.1 * j + x * torch.exp(-a), a), n + runs
            y = y + a * (n + j)
        return y

    return kernel, twin


def powers(lang):
    """Build a kernel with powers of positive and negative numbers, which lanes compute by arithmetic if faster."""
    array = lang.types.ndarray()

    @lang.kernel
    def kernel(x: array, y: array):
        for i in range(x.shape[0]):
            a, n = x[i] + 0.2, 0
            while a < 1.5 and n < 20:
                a = 0.9 * a ** (0.5 + 0.25 * x[i]) + 0.1 * (lang.f32(0.5) - a) ** lang.f32(3.0) + 0.3
                a += 0.02 * x[i] * x[i] + 0.01 * lang.exp(-a)
                n += 1
            y[i] = a + n

    def twin(x):
        a, n = x + 0.2, torch.zeros_like(x)
        for _ in range(20):
            runs = a < 1.5
            b = 0.9 * a ** (0.5 + 0.25 * x) + 0.1 * (0.5 - a) ** 3.0 + 0.3
            b = b + 0.02 * x * x + 0.01 * torch.exp(-b)
            a, n = torch.where(runs, b, a), n + runs
        return a + n

    return kernel, twin


KERNELS = (
    march,
    nested,
    gathered,
    early_return,
    of_all_operations,
    no_trips,
    by_lists,
    by_other_lists,
    of_vectors,
    of_pairs,
)


@pytest.mark.thinned(5)
@pytest.mark.parametrize("make", KERNELS)
def test_values_and_gradients(lang, make, ran):
    kernel, twin = make(lang)
    is_by_lists = make in (by_lists, by_other_lists)
    op = ts.op("x[n], starts[m]: i32 -> y[n]" if is_by_lists else "x[n] -> y[n]")(kernel)
    for count in COUNTS:
        torch.manual_seed(count)
        x = torch.rand(count, requires_grad=True)
        exact = x.detach().double().requires_grad_()
        others = (torch.randint(0, 9, (count // 12 + 2,)).cumsum(0).int(),) if is_by_lists else ()
        y, wanted = op(x, *others), twin(exact, *others)
        torch.testing.assert_close(y.double(), wanted, rtol=2e-5, atol=2e-6, msg=f"{count}: {{}}".format)
        assert "kernel" in ran
        if count:
            cotangent = torch.rand(count)
            (slope,) = torch.autograd.grad(y, x, cotangent)
            (gradient,) = torch.autograd.grad(wanted, exact, cotangent.double())
            torch.testing.assert_close(slope.double(), gradient, rtol=5e-4, atol=2e-5, msg=f"{count}: {{}}".format)


@pytest.mark.each_engine
def test_powers_in_lanes(lang, engine, ran):
    """Taichi 1.7.4 does not know CPUs of today, and lanes of float64 lose there."""
    kernel, twin = powers(lang)
    x = torch.rand(1000, requires_grad=True)
    exact = x.detach().double().requires_grad_()
    op = ts.op("x[n] -> y[n]")(kernel)
    y, wanted = op(x), twin(exact)
    torch.testing.assert_close(y.double(), wanted, rtol=2e-5, atol=2e-6)
    y.sum().backward()
    wanted.sum().backward()
    torch.testing.assert_close(x.grad.double(), exact.grad, rtol=5e-4, atol=2e-5)
    assert ("kernel" in ran) == ("_pow(" in op.explain("all")) == (engine == "quadrants")


def test_float64_runs_as_written(lang64, ran):
    kernel, twin = no_trips(lang64)
    x = torch.rand(100, dtype=torch.float64)
    torch.testing.assert_close(ts.op("x[n] -> y[n]")(kernel)(x), twin(x), rtol=1e-14, atol=0)
    assert not ran


def test_an_empty_array_is_not_read_by_inactive_lanes(lang, ran):
    array = lang.types.ndarray()

    @lang.kernel
    def kernel(x: array, table: array, y: array):
        for i in range(x.shape[0]):
            a, k = x[i], 0
            while k < table.shape[0]:
                a = (a * 0.5 + table[k] + 1.0) * (a - 0.1) + a * a * a - 0.2 * (a + 1.0)
                k += 1
            y[i] = a

    x = torch.rand(40)
    torch.testing.assert_close(ts.op("x[n], table[m] -> y[n]")(kernel)(x, torch.empty(0)), x)
    assert ran


@pytest.mark.each_engine
@pytest.mark.parametrize("size", [1, 3])
def test_a_branch_reads_a_known_element(lang, ran, size):
    """All lanes run the branch, by masks. Where the element does not exist, nobody takes it, and nobody may read it."""
    array = lang.types.ndarray()

    @lang.kernel
    def kernel(x: array, table: array, y: array):
        for i in range(x.shape[0]):
            a, t = x[i], 0.0
            if x[i] > 0.5:
                a = a * table[2] + table[0]
            while t < x[i]:
                if a > 0.25 and table.shape[0] > 1:
                    a = a * table[1] * lang.exp(-t) * lang.exp(-2.0 * t) + lang.exp(-3.0 * t) * lang.exp(-4.0 * t)
                t += 0.1 + 0.1 * t
            y[i] = a

    x = torch.rand(75) * (1.0 if size == 3 else 0.5)
    x.requires_grad_()
    table = torch.rand(size, requires_grad=True)
    y = ts.op("x[n], table[m] -> y[n]")(kernel)(x, table)
    exact, entries = (one.detach().double().requires_grad_() for one in (x, table))
    rows = []
    for one in exact:
        a, t = one, torch.zeros((), dtype=torch.float64)
        if one > 0.5:
            a = a * entries[2] + entries[0]
        while t < one:
            if a > 0.25 and size > 1:
                a = a * entries[1] * torch.exp(-3.0 * t) + torch.exp(-7.0 * t)
            t = t + 0.1 + 0.1 * t
        rows.append(a)
    wanted = torch.stack(rows)
    torch.testing.assert_close(y.double(), wanted, rtol=2e-5, atol=2e-6)
    ours = torch.autograd.grad(y.sum(), (x, table))
    theirs = torch.autograd.grad(wanted.sum(), (exact, entries), materialize_grads=True)
    torch.testing.assert_close(tuple(one.double() for one in ours), theirs, rtol=5e-4, atol=2e-5)
    assert "kernel" in ran


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_finished_lanes_keep_their_values(lang, ran, dtype):
    """What the others add, subtract or multiply by leaves values as they are, infinities too."""
    array = lang.types.ndarray()

    @ts.op("x[n], turns[n] -> added[n], less[n], times[n], counted[n]: i32", adjoint="source")
    @lang.kernel
    def op(x: array, turns: array, added: array, less: array, times: array, counted: array):
        for i in range(x.shape[0]):
            a, b, c, k, t = x[i], x[i], x[i], 0, 0.0
            while t < turns[i]:
                e = lang.exp(-t) + lang.exp(-2.0 * t) + lang.exp(-3.0 * t) + lang.exp(-4.0 * t)
                a += e
                b -= e
                c *= e
                k += 3
                t += 1.0
            added[i], less[i], times[i], counted[i] = a, b, c, k

    x = torch.tensor([0.0, 1e-30, 1.5, -torch.inf], dtype=dtype).repeat(20)
    turns = torch.randint(0, 4, (80,), generator=torch.Generator().manual_seed(0)).to(dtype)
    own = op(x, turns)
    # Taichi's vectors of float64 are too short to gain anything.
    assert ran or dtype == torch.float64
    e = sum((-k * torch.arange(3, dtype=dtype)).exp() for k in range(1, 5))
    a, b, c = x.clone(), x.clone(), x.clone()
    for turn in range(3):
        runs = turns > turn
        a[runs], b[runs], c[runs] = a[runs] + e[turn], b[runs] - e[turn], c[runs] * e[turn]
    torch.testing.assert_close(own[:3], (a, b, c), rtol=1e-6, atol=0.0)
    for one in own[:3]:
        assert torch.equal(one[turns == 0], x[turns == 0])
    assert torch.equal(own[3], (turns * 3).int())
