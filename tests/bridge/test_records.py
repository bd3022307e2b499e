"""Indices that atomics hand out in parallel loops: every derivative sees those of the forward pass."""

import pytest
import torch
from torch.autograd import gradcheck
from torch.func import grad, hessian, jvp, vmap

import tinsmith as ts
from tinsmith import GradientError


def packing(lang, **options):
    """Stream compaction: those above a limit, in whatever order, and who they are; each takes a while."""
    array = lang.types.ndarray()

    @ts.op("x[n] -> y[n], who[n]: i32, count[]: i32", **options)
    @lang.kernel
    def packed(x: array, y: array, who: array, count: array):
        for i in x:
            v = x[i]
            if v > 0.3:
                for _ in range(20):
                    v = lang.sin(v) + x[i]
                k = lang.atomic_add(count[None], 1)
                y[k] = v
                who[k] = i

    return packed


def packed_by_torch(x, who):
    v = x[who]
    for _ in range(20):
        v = torch.sin(v) + x[who]
    return v


def check_packing(op, x):
    x = x.requires_grad_()
    y, who, count = op(x)
    count = int(count)
    assert count == int((x > 0.3).sum())
    who = who[:count].long()
    assert torch.equal(who.sort().values, (x > 0.3).nonzero()[:, 0])
    weights = torch.rand_like(y)
    (gradient,) = torch.autograd.grad(y, x, weights)
    mine = x.detach().double().requires_grad_()
    expected = packed_by_torch(mine, who)
    torch.testing.assert_close(y[:count].double(), expected, rtol=1e-4, atol=1e-5)
    (wanted,) = torch.autograd.grad(expected, mine, weights[:count].double())
    tolerance = 1e-10 if x.dtype == torch.float64 else 2e-3
    torch.testing.assert_close(gradient.double(), wanted, rtol=tolerance, atol=tolerance)
    return who


@pytest.mark.thinned(4)
@pytest.mark.parametrize("serial_below", ["0", "1000000000"])
@pytest.mark.parametrize("size", [0, 1, 7, 1000])
def test_compaction(lang64, configure, serial_below, size):
    configure(serial_below=serial_below)
    check_packing(packing(lang64), torch.rand(size, dtype=torch.float64))


def test_compaction_in_single_precision(lang):
    check_packing(packing(lang), torch.rand(1000))


@pytest.mark.compiled_engine
def test_threads_race(lang64):
    """Twenty times, in some of which threads get indices in turn."""
    op = packing(lang64)
    orders = [check_packing(op, torch.rand(100_000, dtype=torch.float64)) for _ in range(20)]
    if torch.get_num_threads() > 1:
        assert any(bool((who[1:] < who[:-1]).any()) for who in orders)


def test_derivatives_of_all_kinds(lang64):
    op, x = packing(lang64), torch.rand(6, dtype=torch.float64)
    x[0], x[1] = 0.1, 0.9

    def mine(x):
        return (op(x).y ** 2).sum()

    def twin(x):
        who = (x > 0.3).detach()
        v = x
        for _ in range(20):
            v = torch.sin(v) + x
        return (torch.where(who, v, torch.zeros_like(v)) ** 2).sum()

    def compare(derivative, *inputs):
        torch.testing.assert_close(derivative(mine)(*inputs), derivative(twin)(*inputs))

    v, batch = torch.rand_like(x), torch.rand(4, 6, dtype=torch.float64)
    compare(grad, x)
    compare(lambda f: lambda x: jvp(f, (x,), (v,))[1], x)
    compare(hessian, x)
    compare(vmap, batch)
    compare(lambda f: vmap(grad(f)), batch)
    compare(lambda f: vmap(lambda x: jvp(f, (x,), (v,))[1]), batch)
    compare(lambda f: grad(lambda b: vmap(f)(b).sin().sum()), batch)
    compare(lambda f: torch.func.jacrev(torch.func.jacfwd(f)), x)
    compiled = torch.compile(mine, fullgraph=True, backend="aot_eager")
    leaf = x.clone().requires_grad_()
    compiled(leaf).backward()
    torch.testing.assert_close(leaf.grad, grad(twin)(x))
    assert gradcheck(mine, (x.clone().requires_grad_(),), check_forward_ad=True)
    report = ts.check(op, x)
    assert report.gradient.verdict == "right"


def test_batches_of_the_spec(lang64):
    array = lang64.types.ndarray(ndim=1)
    counter = lang64.types.ndarray(ndim=0)

    @ts.op("x[*b, n] -> y[*b, n]", scratch="count[*b]: i32")
    @lang64.kernel
    def packed(x: array, y: array, count: counter):
        for i in x:
            if x[i] > 0.5:
                y[lang64.atomic_add(count[None], 1)] = x[i] * x[i]

    x = torch.rand(3, 5, 40, dtype=torch.float64, requires_grad=True)
    y = packed(x)
    (gradient,) = torch.autograd.grad((y**2).sum(), x)
    assert torch.allclose(gradient, torch.where(x > 0.5, 4.0 * x**3, torch.zeros_like(x)))


def functions_on_pairs(lang):
    """Build functions that append to a list, and compute the squared distance of two particles."""

    @lang.func
    def enter(num: lang.template(), nb: lang.template(), i, j):
        k = lang.atomic_add(num[i], 1)
        if k < nb.shape[1]:
            nb[i, k] = j

    @lang.func
    def distance(x: lang.template(), i, j):
        return (x[i, 0] - x[j, 0]) ** 2 + (x[i, 1] - x[j, 1]) ** 2

    return enter, distance


def particles(lang, h):
    """Build smoothed particles: lists that both of a pair are appended to, then density, pressure and forces."""
    array, lists = lang.types.ndarray(), lang.types.ndarray(ndim=2)
    enter, distance = functions_on_pairs(lang)

    @ts.op("x[n, 2] -> force[n, 2], density[n], num[n]: i32, nb[n, c]: i32")
    @lang.kernel
    def forces(x: lists, force: lists, density: array, num: array, nb: lists):
        for i in range(x.shape[0]):
            for j in range(i + 1, x.shape[0]):
                if distance(x, i, j) < h * h:
                    enter(num, nb, i, j)
                    enter(num, nb, j, i)
        for i in range(x.shape[0]):
            s = h**6
            for k in range(lang.min(num[i], nb.shape[1])):
                s += (h * h - distance(x, i, nb[i, k])) ** 3
            density[i] = s
        for i in range(x.shape[0]):
            for k in range(lang.min(num[i], nb.shape[1])):
                j = nb[i, k]
                for a in range(2):
                    force[i, a] += (density[i] + density[j]) * (x[i, a] - x[j, a])

    return forces


def test_lists_of_neighbors(lang64):
    h = 0.3
    forces = particles(lang64, h)

    def twin(x):
        apart = x[:, None] - x[None]
        r2 = (apart**2).sum(-1)
        near = ((r2 < h * h) & ~torch.eye(len(x), dtype=torch.bool)).to(x.dtype)
        density = h**6 + ((h * h - r2) ** 3 * near).sum(1)
        force = ((density[:, None] + density[None])[..., None] * apart * near[..., None]).sum(1)
        return force, density

    x = torch.rand(60, 2, dtype=torch.float64)

    def mine(x):
        actual = forces(x, c=60)
        return actual.force, actual.density

    def loss(function):
        return lambda x: sum((one * torch.cos(one)).sum() for one in function(x))

    torch.testing.assert_close(grad(loss(mine))(x), grad(loss(twin))(x))
    v = torch.rand_like(x)
    torch.testing.assert_close(jvp(loss(mine), (x,), (v,))[1], jvp(loss(twin), (x,), (v,))[1])
    actual, wanted = (jvp(grad(loss(one)), (x,), (v,))[1] for one in (mine, twin))
    torch.testing.assert_close(actual, wanted)


def test_neighbors_of_a_first_kernel_in_a_chain(lang64):
    array, lists = lang64.types.ndarray(), lang64.types.ndarray(ndim=2)

    @lang64.kernel
    def find(x: array, num: array, nb: lists):
        for i, j in lang64.ndrange(x.shape[0], x.shape[0]):
            if lang64.abs(x[i] - x[j]) < 0.2:
                k = lang64.atomic_add(num[i], 1)
                if k < nb.shape[1]:
                    nb[i, k] = j

    @lang64.kernel
    def weigh(x: array, num: array, nb: lists, y: array):
        for i in x:
            s = lang64.f64(0.0)
            for k in range(num[i]):
                s += (k + 1) * x[i] * x[nb[i, k]]
            y[i] = s

    op = ts.chain("x[n] -> y[n], num[n]: i32, nb[n, n]: i32", [find, weigh])
    x = torch.rand(30, dtype=torch.float64)

    def twin(x, num, nb):
        places = torch.arange(30)
        terms = (places + 1) * x[:, None] * x[nb.long()]
        return torch.where(places < num[:, None], terms, torch.zeros_like(terms)).sum(1)

    leaf = x.clone().requires_grad_()
    y, num, nb = op(leaf)
    torch.testing.assert_close(
        torch.autograd.grad(y.sin().sum(), leaf)[0], grad(lambda x: twin(x, num, nb).sin().sum())(x)
    )
    v = torch.rand_like(x)
    (y, num, nb), (moved, _, _) = jvp(lambda x: op(x), (x,), (v,))
    torch.testing.assert_close(moved, jvp(lambda x: twin(x, num, nb), (x,), (v,))[1])


def test_events_of_photons(lang64):
    """Two lists: one in a loop that is left early, whose counter counts by two; one whose counter counts down."""
    array = lang64.types.ndarray()

    @ts.op(
        "x[n] -> event[2 * n * most], who[2 * n * most]: i32, rest[n], count[]: i32",
        scratch="left[]: i32",
    )
    @lang64.kernel
    def trace(x: array, most: lang64.i32, event: array, who: array, rest: array, count: array, left: array):
        for i in x:
            energy = x[i]
            for step in range(most):
                energy *= 0.8 * x[i]
                if energy < 0.05:
                    break
                k = lang64.atomic_add(count[None], 2)
                event[k] = energy * energy
                event[k + 1] = lang64.sin(energy)
                who[k] = i
                who[k + 1] = step
            rest[-lang64.atomic_sub(left[None], 1)] = energy

    def mine(x, most):
        event, who, rest, count = trace(x, most)
        half = int(count) // 2
        pairs, notes = event[: 2 * half].reshape(half, 2), who[: 2 * half].reshape(half, 2)
        return ((notes[:, 1] + 1.0) * (pairs[:, 0] + 3.0 * pairs[:, 1])).sum() + (rest**3).sum()

    def twin(x, most):
        total, energy = x.new_zeros(()), x
        alive = torch.ones_like(x, dtype=torch.bool)
        for step in range(most):
            energy = torch.where(alive, energy * 0.8 * x, energy)
            alive = alive & (energy >= 0.05)
            total = total + torch.where(alive, (step + 1.0) * (energy**2 + 3.0 * torch.sin(energy)), 0.0 * x).sum()
        return total + (energy**3).sum()

    x = 0.5 + torch.rand(200, dtype=torch.float64)
    for most in (0, 1, 3, 7):
        torch.testing.assert_close(mine(x, most), twin(x, most))
        leaf, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(mine(leaf, most), leaf)
        (wanted,) = torch.autograd.grad(twin(theirs, most), theirs)
        torch.testing.assert_close(gradient, wanted)


def test_tiles_of_splats(lang64):
    """Counted by one op, summed up by torch, filled by another: the lists hold integers, floats go their own way."""
    array = lang64.types.ndarray()

    @ts.op("x[n], r[n] -> tally[t]: i32")
    @lang64.kernel
    def counted(x: array, r: array, tally: array):
        for g in x:
            first = lang64.max(lang64.cast(lang64.floor(x[g] - r[g]), lang64.i32), 0)
            end = lang64.min(lang64.cast(lang64.floor(x[g] + r[g]), lang64.i32) + 1, tally.shape[0])
            for t in range(first, end):
                lang64.atomic_add(tally[t], 1)

    @ts.op("x[n], r[n], start[t]: i32 -> weight[n], ids[m]: i32", scratch="cursor[t]: i32", adjoint="source")
    @lang64.kernel
    def filled(x: array, r: array, start: array, weight: array, ids: array, cursor: array):
        for g in x:
            weight[g] = lang64.exp(-x[g] * r[g])
            first = lang64.max(lang64.cast(lang64.floor(x[g] - r[g]), lang64.i32), 0)
            end = lang64.min(lang64.cast(lang64.floor(x[g] + r[g]), lang64.i32) + 1, start.shape[0])
            for t in range(first, end):
                ids[start[t] + lang64.atomic_add(cursor[t], 1)] = g

    x = (8.0 * torch.rand(500, dtype=torch.float64)).requires_grad_()
    r = (0.1 + torch.rand(500, dtype=torch.float64)).requires_grad_()
    tally = counted(x, r, t=8)
    start = (tally.cumsum(0) - tally).to(torch.int32)
    weight, ids = filled(x, r, start, m=int(tally.sum()))
    for t in range(8):
        mine = ids[start[t] : start[t] + tally[t]].sort().values
        inside = ((x - r).floor().clamp(min=0) <= t) & (t <= (x + r).floor())
        assert torch.equal(mine.long(), inside.nonzero()[:, 0])
    gx, gr = torch.autograd.grad((weight**2).sum(), (x, r))
    slope = -2.0 * torch.exp(-2.0 * x * r)
    assert torch.allclose(gx, slope * r) and torch.allclose(gr, slope * x)


def test_a_counter_of_the_kernels_own_in_an_expression(lang64):
    """A local of the top level counts, and what it returns is a factor, a condition and an index to read at."""
    array = lang64.types.ndarray()

    @ts.op("x[n] -> y[n], order[n]: i32")
    @lang64.kernel
    def ranked(x: array, y: array, order: array):
        count = 0
        for i in x:
            k = lang64.atomic_add(count, 1)
            order[i] = k
            if k % 2 == 0:
                y[i] = (k + 1.0) * x[i] * x[k]
            else:
                y[i] = x[i] ** 2

    x = torch.rand(2000, dtype=torch.float64, requires_grad=True)
    y, order = ranked(x)
    theirs = x.detach().clone().requires_grad_()
    k = order.long()
    expected = torch.where(k % 2 == 0, (k + 1.0) * theirs * theirs[k], theirs**2)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(
        torch.autograd.grad(y.sin().sum(), x)[0], torch.autograd.grad(expected.sin().sum(), theirs)[0]
    )


@pytest.mark.parametrize("kind", ["u32", "i64"])
def test_counters_of_other_integers(lang64, kind):
    array = lang64.types.ndarray()

    @ts.op(f"x[n], begin[]: {kind} -> y[n]", scratch=f"count[]: {kind}")
    @lang64.kernel
    def packed(x: array, begin: array, y: array, count: array):
        count[None] = begin[None]
        for i in x:
            k = lang64.atomic_add(count[None], 1) - begin[None]
            y[lang64.cast(k, lang64.i32)] = x[i] ** 3

    large = {"u32": 2**32 - 50, "i64": 2**40}[kind]
    begin = torch.tensor(large, dtype={"u32": torch.uint32, "i64": torch.int64}[kind])
    x = torch.rand(30, dtype=torch.float64, requires_grad=True)
    y = packed(x, begin)
    torch.testing.assert_close(torch.autograd.grad((y**2).sum(), x)[0], 6.0 * x.detach() ** 5)


def test_atomics_on_floats_or_of_unknown_number_are_not_recorded(lang64):
    array = lang64.types.ndarray()

    @ts.op("x[n] -> y[n], total[]", adjoint="source")
    @lang64.kernel
    def summed(x: array, y: array, total: array):
        for i in x:
            y[i] = lang64.atomic_add(total[None], x[i])

    @ts.op("x[n] -> y[n]", scratch="count[]: i32", adjoint="source")
    @lang64.kernel
    def halved(x: array, y: array, count: array):
        for i in x:
            v = x[i]
            while v > 0.5:
                v *= 0.5
                y[lang64.atomic_add(count[None], 1)] = v

    x = torch.rand(5, dtype=torch.float64, requires_grad=True)
    for op in (summed, halved):
        with pytest.raises(
            GradientError,
            match="the return value of atomic_add in a parallel loop, which depends on the order of the iterations",
        ):
            op(x)
        assert torch.equal(op(x.detach())[0].isnan().any(), torch.tensor(False))


def test_an_op_says_what_it_keeps(lang64):
    op = packing(lang64)
    op(torch.rand(5, dtype=torch.float64, requires_grad=True))
    text = op.explain("all")
    assert "with what atomics returned in the forward pass: returned_0" in text
    assert "not generated" not in text
