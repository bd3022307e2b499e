"""Random expressions over integers of every type: lowered and interpreted, they give what compiled ones give."""

import random

import pytest
import torch

from support.interpreted import run_with_gradients
from tinsmith.engines import of_kernel
from tinsmith.frontend import read
from tinsmith.frontend.lowering import lower
from tinsmith.ir import nodes

TYPES = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
COUNT = 40


def expression(dice, depth=3):
    """Draw an expression whose divisors are positive and shift counts small, so that it is defined.

    Nor is what both engines get wrong (Taichi 1.7.4, Quadrants 1.3.3): `//` and `%` of 8 bits, `raw_mod` of
    unsigned integers; `max` of u8 kills the process.
    """
    if depth == 0:
        return dice.choice(["a", "b", f"ti.{dice.choice(TYPES)}(a)", f"ti.{dice.choice(TYPES)}(b)"])
    one, two = (expression(dice, depth - 1) for _ in range(2))
    wide = dice.choice(["i32", "i64", "u32", "u64"])
    forms = [
        *(f"({one} {name} {two})" for name in ("+", "-", "*", "&", "|", "^", "+", "-", "*")),
        *(f"(ti.{wide}({one}) {name} ti.{wide}(({two} & 15) | 1))" for name in ("//", "%")),
        f"ti.raw_div({one}, ({two} & 15) | 1)",
        f"ti.raw_mod(ti.i32({one}), ti.i32(({two} & 15) | 1))",
        *(f"({one} {name} {dice.randint(0, 7)})" for name in ("<<", ">>")),
        f"ti.bit_shr({one}, {dice.randint(0, 7)})",
        *(f"ti.{name}(ti.{wide}({one}), ti.{wide}({two}))" for name in ("min", "max")),
        *(f"ti.select({one} {name} {two}, {one}, {two})" for name in ("<", "==", ">=")),
        f"({one} if {one} != {two} and {two} > 3 else {two})",
        f"ti.{dice.choice(TYPES)}({one})",
        f"ti.i32({one} > {two})",
        f"abs(ti.i32({one}))",
        f"(~{one})",
        f"(-{one})",
        *(f"({one} {name} {dice.randint(-9, 99)})" for name in ("+", "*", "&", "-")),
        f"({one}) ** {dice.randint(0, 4)}",
        f"ti.i32(not {one})",
    ]
    return dice.choice(forms)


def exact(dice, depth=2):
    """Draw an expression whose value float32 holds exactly, however intermediate results are rounded."""
    if depth == 0:
        name = dice.choice(["f32", "f64", "i8", "i16", "i32", "i64"])
        return dice.choice(
            [f"ti.{name}(a)", f"ti.{name}(b)", f"ti.f32(a) * {dice.choice([0.25, 0.5, 1.5])}", "ti.f64(b) / 8"]
        )
    one, two = (exact(dice, depth - 1) for _ in range(2))
    forms = [
        *(f"({one} {name} {two})" for name in ("+", "-", "*")),
        *(f"ti.{name}(ti.f32({one}))" for name in ("floor", "ceil", "round")),
        *(f"({one} {name} {dice.choice(['2.0', '0.5', '4.0', '-8.0'])})" for name in ("/", "//", "%")),
        *(f"ti.{name}(ti.f32({one}), {two})" for name in ("min", "max")),
        f"ti.select({one} < {two}, {one}, {two})",
        f"({one} if {one} > 1 or {two} != 0 else {two})",
        f"ti.i32({one})",
        f"(ti.i32({one}) / 4)",
        f"(ti.f32({one}) ** 2)",
        f"abs(ti.f64({one}))",
        f"(-{one})",
    ]
    return dice.choice(forms)


@pytest.fixture
def kernel(lang, seed, tmp_path, writer):
    dice = random.Random(seed)
    lines = ["def build(ti):", "    @ti.kernel"]
    lines += ["    def table(x: ti.types.ndarray(), z: ti.types.ndarray(), out: ti.types.ndarray()):"]
    lines += ["        for i in range(x.shape[0]):", "            a = x[i]", "            b = z[i]"]
    kind, expression = writer
    lines += [f"            out[i, {row}] = ti.{kind}({expression(dice)})" for row in range(COUNT)]
    path = tmp_path / "table.py"
    path.write_text("\n".join([*lines, "    return table", ""]))
    names = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    return names["build"](lang), lines[-COUNT:]


def disagreements(kernel, kind, x, z):
    """Return lines whose values differ."""
    kernel, lines = kernel
    out = torch.zeros(len(x), COUNT, dtype=torch.int64 if kind == "i64" else torch.float64)
    kernel(x, z, out)
    engine = of_kernel(kernel)
    arrays = {"x": nodes.Array("x", "i32", 1), "z": nodes.Array("z", "i32", 1), "out": nodes.Array("out", kind, 2)}
    lowered = lower(read(engine.function_of(kernel)), engine, arrays).kernel
    computed = run_with_gradients(lowered, {"x": x, "z": z, "out": torch.zeros_like(out)}, {}, faithful=True).arrays[
        "out"
    ]
    same = computed.eq(out).all(0).tolist()
    return [
        (line.strip(), computed[:, row].tolist(), out[:, row].tolist())
        for row, line in enumerate(lines)
        if not same[row]
    ]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("writer", [("i64", expression)], ids=["integers"])
def test_integers_of_all_types(kernel):
    x, z = torch.randint(-(2**31), 2**31, (2, 12), generator=torch.Generator().manual_seed(5)).int()
    x[:6] %= 200
    z[3:9] %= 7
    assert not disagreements(kernel, "i64", x, z)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("writer", [("f64", exact)], ids=["floats"])
def test_floats_and_integers_together(kernel):
    x, z = torch.randint(-8, 9, (2, 12), generator=torch.Generator().manual_seed(6)).int()
    assert not disagreements(kernel, "f64", x, z)
