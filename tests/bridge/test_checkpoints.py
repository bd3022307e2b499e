"""Tapes that would be too long: checkpoints in their place, with the same gradients."""

import pytest
import torch

import tinsmith as ts
from support.written import compile_text
from tinsmith.calls._tape_room import TapeRoom

F64 = torch.float64
ARRAY = "lang.types.ndarray()"
HEAD = f"def kernel(x: {ARRAY}, starts: {ARRAY}, y: {ARRAY}):\n    for r in y:\n        s = 1.0 + x[r]\n"
LOOPS = {
    "a range that sizes tell": """
        for i in range(x.shape[0]):
            s = lang.sin(s * x[i]) + 0.5 * s
        y[r] = s
""",
    "a range in memory": """
        for i in range(starts[r], starts[r + 1]):
            s = lang.sin(s * x[i]) + 0.5 * s
        y[r] = s
""",
    "a range with an early stop": """
        for i in range(starts[r], starts[r + 1]):
            s = lang.sin(s * x[i]) + 0.5 * s
            if s < 0.06:
                break
        y[r] = s
""",
    "a loop that ends by data": """
        steps = 0
        while s < 40.0 + x[r]:
            s = s * (1.02 + 0.1 * lang.sin(x[steps % 70]))
            steps += 1
        y[r] = s
""",
    "a loop in a loop": """
        for i in range(starts[r], starts[r + 1]):
            t = s
            for j in range(12):
                t = lang.sin(t * x[j])
            s = 0.3 * s + t * x[i]
        y[r] = s
""",
    "two that are handed on, one by a product that goes back": """
        t = 1.0
        for i in range(starts[r], starts[r + 1]):
            a = lang.min(0.9, lang.abs(x[i]))
            s = lang.sin(s * x[i]) * t + s
            t = t * (1.0 - 0.1 * a)
            if t < 0.01:
                break
        y[r] = s * t
""",
    "a loop in a branch": """
        if x[r] > 0.1:
            for i in range(starts[r], starts[r + 1]):
                s = lang.sin(s * x[i]) + 0.5 * s
        y[r] = s
""",
}


def arguments():
    torch.manual_seed(0)
    starts = torch.tensor([0, 70, 70, 71, 80, 80], dtype=torch.int32)
    return torch.rand(90, dtype=F64), starts


def made(lang, name, **options):
    return ts.op("x[n], starts[m]: i32 -> y[m - 1]", **options)(compile_text(lang, HEAD + LOOPS[name].lstrip("\n")))


def compute_gradient(op, x, starts):
    x = x.clone().requires_grad_()
    y = op(x, starts)
    return torch.autograd.grad(y, x, torch.linspace(1.0, 2.0, len(y), dtype=F64))[0]


@pytest.fixture
def tapes(monkeypatch):
    """Count how many numbers the tapes have that are made."""
    sizes = []
    make = TapeRoom.__call__

    def noted(room, count, dtype):
        sizes.append(count)
        return make(room, count, dtype)

    monkeypatch.setattr(TapeRoom, "__call__", noted)
    return sizes


@pytest.mark.thinned(4)
@pytest.mark.parametrize("serial_below", ["0", "1000000000"])
@pytest.mark.parametrize("name", LOOPS)
def test_gradients_are_those_of_the_tape(lang64, configure, tapes, name, serial_below):
    x, starts = arguments()
    configure(poison="1", serial_below=serial_below)
    taped = compute_gradient(made(lang64, name), x, starts)
    whole = sum(tapes)
    tapes.clear()
    configure(poison="1", serial_below=serial_below, tape_limit="0")
    op = made(lang64, name)
    torch.testing.assert_close(compute_gradient(op, x, starts), taped, rtol=1e-12, atol=1e-12)
    assert 0 < sum(tapes) < whole
    assert " from checkpoints" in op.explain("all")


def test_a_long_tape_is_left_for_checkpoints(lang64, configure, tapes):
    x, starts = arguments()
    configure(tape_limit="3000")
    op = made(lang64, "a range that sizes tell")
    compute_gradient(op, x[:60], starts)  # five iterations of 60 numbers, in float64
    assert tapes == [5 * 60]
    assert "so it ran from checkpoints" not in op.explain("all")
    compute_gradient(op, x, starts)
    assert tapes == [5 * 60, 5 * (12 + 8)]
    words = (
        "backward for x: 3,600 bytes of tape, more than the 3,000 of TINSMITH_TAPE_LIMIT, so it ran from checkpoints"
    )
    assert words in op.explain("all")
    assert "of one block of the loop in line" in op.explain("all")


def test_a_cached_call_of_another_size_switches_to_checkpoints(lang64, configure):
    """What was saved is unpacked once all the same: torch's own checkpoints refuse to do it again."""
    x, starts = arguments()
    right = compute_gradient(made(lang64, "a range that sizes tell"), x, starts)
    configure(tape_limit="3000")
    op = made(lang64, "a range that sizes tell")

    def again(x, starts):
        return torch.utils.checkpoint.checkpoint(op, x, starts, use_reentrant=False)

    for _ in range(2):
        compute_gradient(again, x[:60], starts)
    assert "from checkpoints" not in op.explain("all")
    for _ in range(2):
        torch.testing.assert_close(compute_gradient(again, x, starts), right)
    assert "from checkpoints" in op.explain("all")


def test_each_sample_of_a_batch_that_runs_one_by_one(lang64, configure):
    x, starts = arguments()
    right = torch.stack([compute_gradient(made(lang64, "a range in memory"), one, starts) for one in (x, 1.0 - x)])
    configure(tape_limit="0")
    op = made(lang64, "a range in memory")
    xs = torch.stack([x, 1.0 - x]).requires_grad_()
    y = torch.func.vmap(lambda one: op(one, starts))(xs)
    seed = torch.linspace(1.0, 2.0, y.shape[1], dtype=F64).expand(2, -1)
    torch.testing.assert_close(torch.autograd.grad(y, xs, seed)[0], right)


def test_second_derivatives(lang64, configure):
    x, starts = arguments()

    def hessian(op):
        return torch.func.hessian(lambda one: op(one, starts).square().sum())(x)

    right = hessian(made(lang64, "a range in memory"))
    configure(tape_limit="0")
    torch.testing.assert_close(hessian(made(lang64, "a range in memory")), right)


def test_switching_to_checkpoints_adds_nothing_twice(lang64, configure):
    """A backward pass that turns to checkpoints adds nothing twice, though kernels ran before its tape was counted."""
    array = lang64.types.ndarray()

    @lang64.kernel
    def scale(y: array, z: array):
        for i in z:
            z[i] = 3.0 * y[i] * y[i]

    first = compile_text(lang64, HEAD + LOOPS["a range in memory"].lstrip("\n"))
    ops = []
    for limit in ("0", "1000000000"):
        configure(tape_limit=limit)
        ops.append(ts.chain("x[n], starts[m]: i32 -> z[m - 1]", [first, scale], scratch="y[m - 1]"))
        compute_gradient(ops[-1], *arguments())
    op, other = ops
    x, starts = arguments()
    for _ in range(2):
        torch.testing.assert_close(compute_gradient(op, x, starts), compute_gradient(other, x, starts))
    assert "from checkpoints" in op.explain("all")
