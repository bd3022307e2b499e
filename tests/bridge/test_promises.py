"""Promises in a spec: `unique`, `segments`, `ranges`, `offsets`. No atomic; the gradient is that of float64 torch."""

import textwrap

import pytest
import torch

import tinsmith as ts
from support.findings import sanitize_call
from support.written import compile_text
from tinsmith import DtypeError, SpecError
from tinsmith.operation.reports import adjoint_source

X = torch.rand(12, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.5
PLACES = torch.tensor([7, 2, 11, 0, 5], dtype=torch.int32)

UNIQUE = {  # the statements of an iteration, and whether the gradient of `x` is added atomically all the same
    "gathered": ("y[i] = x[idx[i]] * x[idx[i]]", False),
    "a multiple of the number": ("y[i] = x[2 * idx[i] // 2] + x[idx[i] + 1 - 1]", True),
    "shifted": ("y[i] = lang.sin(x[11 - idx[i]])", False),
    "by a local": ("k = int(idx[i])\n        y[i] = x[k] * lang.exp(x[k])", False),
    "two different places": ("y[i] = x[idx[i]] * x[11 - idx[i]]", True),
    "two numbers of the list": ("y[i] = x[idx[i]] * x[idx[4 - i]]", True),
    "a number that is cut off": ("y[i] = x[lang.min(idx[i], 5)] ** 2", True),
    "half of the numbers": ("y[i] = x[idx[i // 2]] ** 2", True),
    "the number of a number": ("y[i] = x[idx[idx[i] % 5]] ** 2", True),
    "in a branch": ("if i % 2 == 0:\n            y[i] = x[idx[i]] ** 2", False),
    "added up": ("for j in range(3):\n            y[i] += x[idx[i]] * (j + 1.0) * x[idx[i]]", False),
}


SAMPLES = """
def kernel(x: lang.types.ndarray(ndim=1), idx: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1)):
    for i in y:
        y[i] = x[idx[i]] * x[idx[i]]
"""


def gathered(lang, text, word="unique ", dtype=": i32"):
    body = f"""
def kernel(x: lang.types.ndarray(), idx: lang.types.ndarray(), y: lang.types.ndarray()):
    for i in idx:
        {text}
"""
    return ts.op(f"x[n], {word}idx[m]{dtype} -> y[m]")(compile_text(lang, body))


def has_atomics(source):
    return "atomic_add" in source


@pytest.mark.parametrize("name", UNIQUE)
def test_unique_indices_need_no_atomics(lang64, name):
    text, is_atomic = UNIQUE[name]
    op, plain = gathered(lang64, text), gathered(lang64, text, "")
    assert has_atomics(adjoint_source(op)) == is_atomic
    assert has_atomics(adjoint_source(plain))
    results = []
    for one in (op, plain):
        x = X.clone().requires_grad_()
        y = one(x, PLACES)
        results.append((y.detach(), *torch.autograd.grad((y * torch.arange(1.0, 6.0).double()).sum(), x)))
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))
    true = ts.oracle(op, X, PLACES, cotangents=torch.arange(1.0, 6.0).double())
    torch.testing.assert_close(results[0][1], true.gradients["x"].double(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.int16, torch.uint8])
def test_values_and_gradients_are_torchs(lang64, dtype):
    op = gathered(lang64, UNIQUE["gathered"][0], dtype="")
    x, other = (X.clone().requires_grad_() for _ in range(2))
    y, wanted = op(x, PLACES.to(dtype)), other[PLACES] ** 2
    y.sin().sum().backward()
    wanted.sin().sum().backward()
    torch.testing.assert_close(y, wanted)
    torch.testing.assert_close(x.grad, other.grad)


def test_a_list_of_pairs_and_two_loops(lang64):
    @ts.op("x[n, m], unique idx[k], unique pairs[k, 2]: i32 -> y[k, m], z[k]")
    @lang64.kernel
    def op(
        x: lang64.types.ndarray(),
        idx: lang64.types.ndarray(),
        pairs: lang64.types.ndarray(),
        y: lang64.types.ndarray(),
        z: lang64.types.ndarray(),
    ):
        for i, j in lang64.ndrange(idx.shape[0], x.shape[1]):
            y[i, j] = x[idx[i], j] ** 2
        for i in range(idx.shape[0]):
            for side in range(2):
                z[i] += x[pairs[i, side], 0] ** 3

    assert not has_atomics(adjoint_source(op))
    x, other = (X.reshape(6, 2).clone().requires_grad_() for _ in range(2))
    idx, pairs = torch.tensor([4, 0, 3]), torch.tensor([[0, 5], [3, 1], [2, 4]])
    y, z = op(x, idx, pairs.int())
    (y.sin().sum() + z.cos().sum()).backward()
    ((other[idx] ** 2).sin().sum() + (other[pairs, 0] ** 3).sum(1).cos().sum()).backward()
    torch.testing.assert_close(x.grad, other.grad)


def test_scattered_elements_may_be_read_again(lang64):
    @ts.op("x[m], unique idx[m] -> y[n]")
    @lang64.kernel
    def op(x: lang64.types.ndarray(), idx: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[idx[i]] += x[i]
            y[idx[i]] *= x[i]

    assert not has_atomics(adjoint_source(op))
    x, other = (X[:5].clone().requires_grad_() for _ in range(2))
    y = op(x, PLACES, n=12)
    wanted = torch.zeros(12, dtype=torch.float64).index_put((PLACES,), other**2)
    torch.testing.assert_close(y, wanted)
    y.sin().sum().backward()
    wanted.sin().sum().backward()
    torch.testing.assert_close(x.grad, other.grad)


# Segments ---------------------------------------------------------------------------------------

SEGMENTS = {  # the loop of a ray; the spec's word; whether the gradient of `w` is added atomically all the same
    "start and count": ("for s in range(rays[r, 0], rays[r, 0] + rays[r, 1]):", "s", "segments", False),
    "start and end": ("for s in range(rays[r, 0], rays[r, 1]):", "s", "ranges", False),
    "by a count": ("for j in range(rays[r, 1]):", "rays[r, 0] + j", "segments", False),
    "from behind": ("for j in range(rays[r, 1]):", "rays[r, 0] + rays[r, 1] - 1 - j", "segments", False),
    "cut to the array": (
        "first = lang.max(rays[r, 0], 0)\n"
        "for s in range(first, first + lang.max(lang.min(rays[r, 1], w.shape[0] - first), 0)):",
        "s",
        "segments",
        False,
    ),
    "all but one": ("for s in range(rays[r, 0] + 1, rays[r, 0] + rays[r, 1]):", "s", "segments", False),
    "an end as a count": ("for s in range(rays[r, 0], rays[r, 0] + rays[r, 1]):", "s % 9", "ranges", True),
    "less than the count": ("for s in range(rays[r, 0], rays[r, 1]):", "s", "segments", False),
    "one too many": ("for s in range(rays[r, 0], rays[r, 0] + rays[r, 1] + 1):", "s", "segments", True),
    "one before": ("for s in range(rays[r, 0] - 1, rays[r, 0] + rays[r, 1]):", "lang.max(s, 0)", "segments", True),
    "half a segment": ("for s in range(rays[r // 2, 0], rays[r // 2, 0] + rays[r // 2, 1]):", "s", "segments", True),
    "of another ray": ("for s in range(rays[0, 0], rays[0, 0] + rays[r, 1]):", "s", "segments", True),
}
RAYS = {
    "segments": torch.tensor([[5, 3], [0, 2], [3, 0], [8, 3]]).int(),
    "ranges": torch.tensor([[5, 8], [0, 2], [3, 3], [8, 11]]).int(),
}


def composited(lang, loop, place, word):
    text = f"""
def kernel(w: lang.types.ndarray(), rays: lang.types.ndarray(), z: lang.types.ndarray()):
    for r in z:
        t = 1.0
        total = 0.0
{textwrap.indent(loop, " " * 8)}
            total += t * w[{place}]
            t *= lang.exp(-w[{place}])
        z[r] = total
"""
    return ts.op(f"w[n], {word}rays[r, 2]: i32 -> z[r]")(compile_text(lang, text))


def composite(w, rays):
    colors = []
    for start, count in rays.tolist():
        t, total = torch.ones((), dtype=w.dtype), torch.zeros((), dtype=w.dtype)
        for s in range(start, start + count):
            total, t = total + t * w[s], t * torch.exp(-w[s])
        colors.append(total)
    return torch.stack(colors)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("name", SEGMENTS)
def test_segments_need_no_atomics(lang64, name):
    loop, place, word, is_atomic = SEGMENTS[name]
    op, plain = composited(lang64, loop, place, f"{word} "), composited(lang64, loop, place, "")
    assert has_atomics(adjoint_source(op)) == is_atomic
    assert has_atomics(adjoint_source(plain))
    results = []
    for one in (op, plain):
        w = X.clone().requires_grad_()
        z = one(w, RAYS[word])
        results.append((z.detach(), *torch.autograd.grad((z * z).sum(), w)))
    assert all(torch.allclose(one, other, rtol=1e-13) for one, other in zip(*results, strict=True))


@pytest.mark.parametrize("name", ["start and count", "by a count", "from behind", "cut to the array"])
def test_compositing_is_torchs(lang64, name):
    loop, place, word, _ = SEGMENTS[name]
    w, other = (X.clone().requires_grad_() for _ in range(2))
    z = composited(lang64, loop, place, f"{word} ")(w, RAYS[word])
    z.sin().sum().backward()
    source = (
        other
        if name != "from behind"
        else torch.cat([other[:2].flip(0), other[2:5], other[5:8].flip(0), other[8:11].flip(0), other[11:]])
    )
    wanted = composite(source, RAYS[word])
    wanted.sin().sum().backward()
    torch.testing.assert_close(z, wanted)
    torch.testing.assert_close(w.grad, other.grad)


OFFSETS = {  # as SEGMENTS; `start` has a number more than there are rays
    "to the next": ("for s in range(start[r], start[r + 1]):", "s", False),
    "by a count": ("for j in range(start[r + 1] - start[r]):", "start[r] + j", False),
    "from behind": ("for j in range(start[r + 1] - start[r]):", "start[r + 1] - 1 - j", False),
    "two further": ("for s in range(start[r], start[lang.min(r + 2, 4)]):", "s", True),
    "to the end of all": ("for s in range(start[r], start[4]):", "s", True),
    "one too many": ("for s in range(start[r], start[r + 1] + 1):", "s", True),
    "half a segment": ("for s in range(start[r // 2], start[r // 2 + 1]):", "s", True),
    "backwards": ("for s in range(start[3 - r], start[4 - r]):", "s", False),
}
STARTS = torch.tensor([0, 2, 2, 7, 11]).int()


def composited_by_offsets(lang, loop, place, word):
    text = f"""
def kernel(w: lang.types.ndarray(), start: lang.types.ndarray(), z: lang.types.ndarray()):
    for r in z:
        t = 1.0
        total = 0.0
        {loop}
            total += t * w[{place}]
            t *= lang.exp(-w[{place}])
        z[r] = total
"""
    return ts.op(f"w[n], {word}start[r]: i32 -> z[r - 1]")(compile_text(lang, text))


@pytest.mark.parametrize("name", OFFSETS)
def test_offsets_need_no_atomics(lang64, name):
    loop, place, is_atomic = OFFSETS[name]
    op, plain = composited_by_offsets(lang64, loop, place, "offsets "), composited_by_offsets(lang64, loop, place, "")
    assert has_atomics(adjoint_source(op)) == is_atomic
    assert has_atomics(adjoint_source(plain))
    results = []
    for one in (op, plain):
        w = X.clone().requires_grad_()
        z = one(w, STARTS)
        results.append((z.detach(), *torch.autograd.grad((z * z).sum(), w)))
    assert all(torch.allclose(one, other, rtol=1e-13) for one, other in zip(*results, strict=True))
    true = ts.oracle(op, X, STARTS, cotangents=2 * results[0][0])
    torch.testing.assert_close(results[0][1], true.gradients["w"].double(), rtol=1e-12, atol=1e-12)


def test_rows_of_vectors(lang64):
    pair = lang64.types.vector(2, lang64.i32)

    @ts.op("w[n], segments rays[r, 2] -> z[r]")
    @lang64.kernel
    def op(w: lang64.types.ndarray(), rays: lang64.types.ndarray(dtype=pair, ndim=1), z: lang64.types.ndarray()):
        for r in z:
            for s in range(rays[r][0], rays[r][0] + rays[r][1]):
                z[r] += w[s] ** 2

    assert not has_atomics(adjoint_source(op))
    w = X.clone().requires_grad_()
    op(w, RAYS["segments"]).sum().backward()
    mask = torch.ones(12, dtype=torch.float64).index_fill(0, torch.tensor([2, 3, 4, 11]), 0.0)
    torch.testing.assert_close(w.grad, 2 * X * mask)


# Batches, compiling, chains ---------------------------------------------------------------------


@pytest.mark.parametrize("batched", ["both", "numbers", "values"])
def test_promises_hold_per_sample_of_a_batch(lang64, batched):
    stars = {"both": ("*b, ", "*b, "), "numbers": ("", "*b, "), "values": ("*b, ", "")}[batched]
    op = ts.op(f"x[{stars[0]}n], unique idx[{stars[1]}m] -> y[*b, m]")(compile_text(lang64, SAMPLES))
    idx = torch.stack([PLACES, PLACES.flip(0), PLACES]) if stars[1] else PLACES
    x = torch.stack([X, 2 * X, 3 * X]) if stars[0] else X
    own, other = (x.clone().requires_grad_() for _ in range(2))
    y = op(own, idx)
    if stars[0]:
        wanted = other.gather(1, idx.expand(3, 5)) ** 2
    else:
        wanted = other[idx] ** 2
    torch.testing.assert_close(y, wanted)
    y.sin().sum().backward()
    wanted.sin().sum().backward()
    torch.testing.assert_close(own.grad, other.grad)
    # Samples that share `x` may meet there.
    assert has_atomics(str(op.explain("all"))) == (batched == "numbers")


@pytest.mark.parametrize("dims", [(0, 0), (None, 0), (0, None)])
def test_under_vmap(lang64, dims):
    op = gathered(lang64, UNIQUE["gathered"][0])
    idx = PLACES if dims[1] is None else torch.stack([PLACES, PLACES, PLACES.flip(0)])
    x = X if dims[0] is None else torch.stack([X, 2 * X, 3 * X])
    own, other = (x.clone().requires_grad_() for _ in range(2))
    y = torch.vmap(op, dims)(own, idx)
    wanted = torch.vmap(lambda x, idx: x[idx] ** 2, dims)(other, idx)
    torch.testing.assert_close(y, wanted)
    y.sin().sum().backward()
    wanted.sin().sum().backward()
    torch.testing.assert_close(own.grad, other.grad)


def test_compiled(lang64):
    op = gathered(lang64, UNIQUE["gathered"][0])
    own, other = (X.clone().requires_grad_() for _ in range(2))
    y = torch.compile(lambda x: op(2.0 * x, PLACES), fullgraph=True, backend="aot_eager")(own)
    y.sin().sum().backward()
    ((2.0 * other[PLACES]) ** 2).sin().sum().backward()
    torch.testing.assert_close(own.grad, other.grad)


def test_in_a_chain(lang64):
    @lang64.kernel
    def first(x: lang64.types.ndarray(), idx: lang64.types.ndarray(), t: lang64.types.ndarray()):
        for i in idx:
            t[i] = x[idx[i]] ** 2

    @lang64.kernel
    def second(
        x: lang64.types.ndarray(), idx: lang64.types.ndarray(), t: lang64.types.ndarray(), y: lang64.types.ndarray()
    ):
        for i in idx:
            y[i] = lang64.sin(t[i]) * x[idx[i]]

    op = ts.chain("x[n], unique idx[m] -> y[m]", [first, second], scratch="t[m]")
    assert not has_atomics(adjoint_source(op))
    own, other = (X.clone().requires_grad_() for _ in range(2))
    op(own, PLACES).cos().sum().backward()
    ((other[PLACES] ** 2).sin() * other[PLACES]).cos().sum().backward()
    torch.testing.assert_close(own.grad, other.grad)


def test_second_derivatives(lang64):
    op = gathered(lang64, UNIQUE["by a local"][0])
    assert torch.autograd.gradgradcheck(lambda x: op(x, PLACES), X.clone().requires_grad_())


# What is said where a promise is wrong ----------------------------------------------------------


def test_a_repeated_index_is_found(lang):
    op = gathered(lang, UNIQUE["gathered"][0])
    x = torch.rand(6)
    assert sanitize_call(op, x, torch.tensor([1, 4, 2]).int()) == []
    (finding,) = sanitize_call(op, x, torch.tensor([1, 4, 2, 4, 1]).int()).of("TS611")
    assert finding.severity == "error" and "leave out `unique`" in finding.remedy
    assert finding.message == (
        "`idx` of op `kernel` is `unique` in the spec (all of its numbers are different), "
        "but `idx[1]` and `idx[3]` are both 4"
    )
    assert not ts.check(op, x, torch.tensor([1, 1]).int()).ok


def test_indices_equal_after_truncation_are_found(lang):
    op = gathered(lang, "y[i] = x[int(idx[i])]", dtype=": i64")
    (finding,) = sanitize_call(op, torch.rand(6), torch.tensor([3, 2**32 + 3])).of("TS611")
    assert "`idx[0]` and `idx[1]` are both 3" in finding.message


BROKEN = {
    "that overlap": ("segments", [[0, 3], [5, 1], [2, 2]], "`rays[0]` = [0, 3] and `rays[2]` = [2, 2] share place 2"),
    "one in another": ("ranges", [[1, 9], [2, 3], [5, 6]], "`rays[0]` = [1, 9] and `rays[1]` = [2, 3] share place 2"),
    "before the array": ("segments", [[0, 3], [-1, 1]], "`rays[1]` = [-1, 1] is not a part of an array"),
    "that end before they start": ("ranges", [[0, 3], [4, 3]], "`rays[1]` = [4, 3] is not a part of an array"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_overlapping_segments_are_found(lang, name):
    word, rows, words = BROKEN[name]
    loop, empty = ("start and count", 0) if word == "segments" else ("start and end", 9)
    loop, place, *_ = SEGMENTS[loop]
    op = composited(lang, loop, place, f"{word} ")
    (finding,) = sanitize_call(op, torch.rand(12), torch.tensor(rows).int()).of("TS611")
    assert finding.message.endswith(words)
    assert sanitize_call(op, torch.rand(12), torch.tensor([[9, empty], [9, empty]]).int()).of("TS611") == []


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ([0, 3, 2, 9], "`start[2]` = 2 is below `start[1]` = 3"),
        ([-1, 3, 4, 9], "`start[0]` = -1 is below 0"),
    ],
)
def test_decreasing_offsets_are_found(lang, numbers, words):
    op = composited_by_offsets(lang, *OFFSETS["to the next"][:2], "offsets ")
    (finding,) = sanitize_call(op, torch.rand(12), torch.tensor(numbers).int()).of("TS611")
    assert finding.message.endswith(words)
    assert sanitize_call(op, torch.rand(12), torch.tensor([0, 3, 3, 9]).int()).of("TS611") == []


def test_offsets_of_each_sample(lang64):
    text = """
def kernel(w: lang.types.ndarray(ndim=1), start: lang.types.ndarray(ndim=1), z: lang.types.ndarray(ndim=1)):
    for r in z:
        for s in range(start[r], start[r + 1]):
            z[r] += w[s] ** 2
"""
    op = ts.op("w[*b, n], offsets start[*b, r]: i32 -> z[*b, r - 1]")(compile_text(lang64, text))
    w = torch.stack([X, 2 * X]).requires_grad_()
    starts = torch.tensor([[0, 4, 12], [0, 12, 12]]).int()
    op(w, starts).sum().backward()
    torch.testing.assert_close(w.grad, 2 * w.detach())
    (finding,) = sanitize_call(op, w.detach(), torch.tensor([[0, 4, 12], [3, 2, 12]]).int()).of("TS611")
    assert finding.message.endswith("`start[1]` = 2 is below `start[0]` = 3 in sample 1")


def test_samples_may_have_the_same_numbers(lang):
    op = ts.op("x[*b, n], unique idx[*b, m] -> y[*b, m]")(compile_text(lang, SAMPLES))
    x, idx = torch.rand(2, 4), torch.tensor([[1, 2], [1, 2]])
    assert sanitize_call(op, x, idx).of("TS611") == []
    (finding,) = sanitize_call(op, x, torch.tensor([[1, 2], [3, 3]])).of("TS611")
    assert finding.message.endswith("`idx[0]` and `idx[1]` are both 3 in sample 1")


def test_floats_cannot_be_promised(lang):
    op = gathered(lang, UNIQUE["gathered"][0], dtype="")
    with pytest.raises(DtypeError, match=r"`unique` in the spec(.|\n)*torch.int32"):
        op(torch.rand(4), torch.rand(3))
    text = """
def kernel(x: lang.types.ndarray(), w: lang.types.ndarray(dtype=lang.f32), y: lang.types.ndarray()):
    for i in y:
        y[i] = x[i] * w[i]
"""
    with pytest.raises(SpecError, match=r"`w` of op `kernel` is `unique`(.|\n)*Leave out `unique`"):
        ts.op("x[n], unique w[n] -> y[n]")(compile_text(lang, text))
