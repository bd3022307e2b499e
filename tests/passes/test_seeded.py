"""Random numbers from a seed: the same on every engine, different everywhere else, and uniform."""

import pytest
import torch

from support.backwards import build_backward, run_backward
from support.by_hand import array, assign, atomic, branch, kernel, local, loop, repeat, store
from support.interpreted import interpret, run_with_gradients
from support.tangents import DOUBLE, compile_kernel
from tinsmith.engines import DTYPES
from tinsmith.ir import NotCovered, nodes, walk
from tinsmith.passes import draws, seed_random
from tinsmith.passes.adjoint import Reserve

KINDS = ["f32", "f64", "i32", "u32", "i64", "u64"]
X, W, K = array("x", "f64"), array("w", "f64", 2), array("k", "i32")
J = local("j", "i32")


def draw(name, kind="f64"):
    return nodes.Draw(name, kind)


def table(kind):
    """Build a kernel that draws a number for every row and column, after one for every row."""
    out = array("out", kind, 2)
    first = [draw("r", kind), store(out, ("i", 0), local("r", kind))]
    rest = [draw("q", kind), store(out, ("i", "j"), local("q", kind))]
    inner = nodes.For(("j",), ((nodes.Const(1, "i32"), out.size(1).expr),), tuple(rest))
    return kernel([out], [loop("i", out.size(), [*first, inner], is_parallel=True)], r=kind, q=kind)


def draw_numbers(made, seed, rows, columns, **arrays):
    """Interpret a kernel and return what it stores in `out`."""
    out = torch.zeros(rows, columns, dtype=DTYPES[made.arrays["out"].type])
    whole = seed_random(made, "seed")
    return interpret(whole, {"out": out, "seed": torch.tensor(seed), **arrays}, {}, faithful=True)["out"]


@pytest.mark.parametrize("kind", KINDS)
def test_engines_draw_what_the_interpreter_draws(kind, lang):
    """Bit for bit."""
    whole = seed_random(table(kind), "seed")
    assert not draws(whole) and draws(table(kind))
    for seed in (0, 1, -1, 0x7FFF_1234_8765_FEDC):
        out = torch.zeros(50, 7, dtype=DTYPES[kind])
        compile_kernel(whole, lang, DOUBLE)(out, torch.tensor(seed))
        assert torch.equal(out, draw_numbers(table(kind), seed, 50, 7)), seed
        assert len(out.unique()) > 340 if kind != "f32" else len(out.unique()) > 345


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_numbers_are_uniform(lang, kind):
    """Moments, equal bins, and no correlation: of neighbors in an iteration, of neighboring iterations and seeds."""
    rows, columns = 20_000, 16
    whole = compile_kernel(seed_random(table(kind), "seed"), lang, DOUBLE)
    drawn = []
    for seed in (5, 6, 5 + 2**32):
        out = torch.zeros(rows, columns, dtype=DTYPES[kind])
        whole(out, torch.tensor(seed))
        drawn.append(out.double())
    one, other, far = drawn
    count = rows * columns
    assert one.min() >= 0 and one.max() < 1
    assert abs(one.mean() - 0.5) < 5 * (1 / 12 / count) ** 0.5
    assert abs(one.var() - 1 / 12) < 5 * (1 / 180 / count) ** 0.5
    bins = torch.histc(one, 256, 0, 1)
    assert ((bins - count / 256) ** 2 / (count / 256)).sum() < 255 + 5 * (2 * 255) ** 0.5
    pairs = [(one[:, 1:], one[:, :-1]), (one[1:], one[:-1]), (one[1:, 1:], one[:-1, :-1]), (one, other), (one, far)]
    for left, right in pairs:
        product = (left - 0.5) * (right - 0.5) * 12
        assert abs(product.mean()) < 5 / left.numel() ** 0.5
        squares = ((left - 0.5) ** 2 - 1 / 12) * ((right - 0.5) ** 2 - 1 / 12) * 180
        assert abs(squares.mean()) < 5 / left.numel() ** 0.5


def test_every_bit_is_set_half_of_the_time(lang):
    whole = compile_kernel(seed_random(table("i64"), "seed"), lang, DOUBLE)
    out = torch.zeros(20_000, 8, dtype=torch.int64)
    whole(out, torch.tensor(3))
    for bit in range(64):
        share = ((out >> bit) & 1).double().mean()
        assert abs(share - 0.5) < 5 * 0.5 / out.numel() ** 0.5, bit
        flips = (((out[1:] ^ out[:-1]) >> bit) & 1).double().mean()
        assert abs(flips - 0.5) < 5 * 0.5 / out.numel() ** 0.5, bit


OUT = array("out", "f64", 2)
TAKEN = store(OUT, ("i", "j"), local("r", "f64"))
NEXT = assign("j", J + 1)
SHAPES = {
    "while": [
        assign("j", 0),
        repeat([branch(J >= K["i"], [nodes.Break()]), draw("r"), TAKEN, branch(J > 3, [nodes.Break()]), NEXT]),
    ],
    "branches": [loop("j", 4, [branch(J > K["i"], [draw("r"), TAKEN], [draw("r"), draw("r"), TAKEN])])],
    "nested": [
        loop("j", 5, [loop("l", K["i"], [draw("r"), store(OUT, ("i", "j"), OUT["i", "j"] + local("r", "f64"))])])
    ],
    "left early": [
        loop("j", 5, [branch(J > K["i"], [nodes.Break()]), draw("r"), TAKEN]),
        branch(K["i"] > 2, [nodes.Continue()]),
        draw("r"),
        store(OUT, ("i", 5), local("r", "f64")),
    ],
}


@pytest.mark.parametrize("is_parallel", [True, False])
@pytest.mark.parametrize("name", SHAPES)
def test_no_number_is_drawn_twice(name, is_parallel, lang):
    """In no loop, on no way through it; interpreted as compiled."""
    made = kernel([K, OUT], [loop("i", K.size(), SHAPES[name], is_parallel=is_parallel)], r="f64", j="i32")
    twice = kernel([K, OUT], [made.body[0], made.body[0]], r="f64", j="i32")
    k = torch.randint(0, 6, (30,), generator=torch.Generator().manual_seed(1)).int()
    drawn = draw_numbers(made, 9, 30, 6, k=k)
    held = drawn[drawn != 0]
    assert len(held) > 25 and len(held.unique()) == len(held)
    again = draw_numbers(twice, 9, 30, 6, k=k)
    assert not torch.equal(again, drawn)  # the second task draws others
    out = torch.zeros(30, 6, dtype=torch.float64)
    compile_kernel(seed_random(made, "seed"), lang, DOUBLE)(k, out, torch.tensor(9))
    torch.testing.assert_close(out, drawn, rtol=1e-15, atol=1e-15)


def test_kernels_of_one_op_draw_other_numbers():
    out = torch.zeros(5, 4, dtype=torch.float64)
    given = {"out": out, "seed": torch.tensor(7)}
    one, other = (interpret(seed_random(table("f64"), "seed", number), given, {})["out"] for number in (0, 3 << 12))
    assert not {*one.flatten().tolist()} & {*other.flatten().tolist()}


def test_the_adjoint_sees_the_same_numbers():
    """Nothing is kept for them: their number is known from loops' variables."""
    y = array("y", "f64")
    body = [
        assign("s", X["i"]),
        loop("j", 4, [draw("r"), assign("s", local("s", "f64") * local("r", "f64") + X["i"])]),
        draw("r"),
        atomic("add", y, 0, local("s", "f64") * local("r", "f64")),
    ]
    made = seed_random(kernel([X, y], [loop("i", X.size(), body, is_parallel=True)], s="f64", r="f64"), "seed")
    arrays = {"x": torch.rand(6, dtype=torch.float64), "y": torch.zeros(1, dtype=torch.float64)}
    arrays["seed"] = torch.tensor(11)
    cotangents = {"y": torch.tensor([1.5], dtype=torch.float64)}
    program = build_backward([made], ["x"], ["y"], ["y"])
    wanted = run_with_gradients(made, arrays, {}, cotangents)
    actual = run_backward(program, {**arrays, **wanted.arrays}, {}, cotangents)
    torch.testing.assert_close(actual["x"], wanted.gradients["x"], rtol=1e-12, atol=0)
    assert not any(isinstance(action, Reserve) for action in program.actions)


def test_other_types_are_refused():
    made = kernel([array("out", "i8")], [nodes.Draw("r", "i8", 4)], r="i8")
    with pytest.raises(NotCovered, match="a random i8, at by_hand.py:4"):
        seed_random(made, "seed")


def test_kernels_without_random_numbers_are_unchanged():
    made = kernel([X], [store(X, 0, 1.0)])
    assert seed_random(made, "seed") is made and not any(walk.loads(made.body))
