"""Rules on integers: what compiled kernels of both engines give, wrap-around and signs included."""

import pytest
import torch

from support.by_hand import array, binary, cast, const, kernel, loop, store, to_expression, unary
from support.interpreted import run_with_gradients
from tinsmith import KernelError

A, B = array("a", "i32"), array("b", "i32")
FIRST = [7, -7, -7, 300, 0, 2**31 - 1, -(2**31), 12345]
SECOND = [-2, 2, -2, 7, -3, 3, 5, -678]


def of_ints(expression, a=FIRST, b=SECOND, kind="i32"):
    out = array("out", kind)
    made = kernel([A, B, out], [loop("i", A.size(), [store(out, "i", expression)])])
    dtype = {"i64": torch.int64, "u1": torch.bool}.get(kind, torch.int32)
    arrays = {"a": torch.tensor(a, dtype=torch.int32), "b": torch.tensor(b, dtype=torch.int32)}
    return (
        run_with_gradients(made, {**arrays, "out": torch.zeros(len(a), dtype=dtype)}, {}, faithful=True)
        .arrays["out"]
        .tolist()
    )


EXPRESSIONS = {  # what is interpreted, and the same in an engine's language
    "floor": (lambda a, b: binary("//", a, b), "a // b"),
    "mod": (lambda a, b: binary("%", a, b), "a % b"),
    "raw_div": (lambda a, b: binary("raw_div", a, b), "ti.raw_div(a, b)"),
    "raw_mod": (lambda a, b: binary("raw_mod", a, b), "ti.raw_mod(a, b)"),
    "product": (lambda a, b: a * 2000000000 + b, "a * 2000000000 + b"),
    "difference": (lambda a, b: b - a, "b - a"),
    "sar": (lambda a, _: binary(">>", a, 1), "a >> 1"),
    "shr": (lambda a, _: binary(">>>", a, 1), "ti.bit_shr(a, 1)"),
    "shl": (lambda a, _: binary("<<", a, 30), "a << 30"),
    "bitwise": (lambda a, b: binary("^", binary("&", a, b), binary("|", a, 12)), "(a & b) ^ (a | 12)"),
    "invert": (lambda a, _: unary("~", a), "~a"),
    "not": (lambda a, _: cast(unary("not", a, "u1"), "i32"), "ti.i32(not a)"),
    "abs": (lambda a, b: unary("abs", a) - unary("abs", b), "abs(a) - abs(b)"),
    "neg": (lambda a, _: unary("neg", a), "-a"),
    "min": (lambda a, b: binary("min", a, b) * 3 + binary("max", a, b), "min(a, b) * 3 + max(a, b)"),
    "cube": (lambda _, b: binary("pow", b, 3), "b ** 3"),
    "power": (lambda a, _: binary("pow", a, 7), "a ** 7"),
    "i8": (lambda a, _: cast(cast(a, "i8"), "i32"), "ti.i32(ti.i8(a))"),
    "u8": (lambda a, _: cast(cast(a, "u8") + const(200, "u8"), "i32"), "ti.i32(ti.u8(a) + ti.u8(200))"),
    "u1": (lambda a, _: cast(cast(a, "u1"), "i32"), "ti.i32(ti.u1(a))"),
    "u32": (lambda a, _: cast(binary("//", cast(a, "u32"), const(3, "u32")), "i32"), "ti.i32(ti.u32(a) // ti.u32(3))"),
    "u32 >>": (lambda a, _: cast(binary(">>", cast(a, "u32"), 3), "i32"), "ti.i32(ti.u32(a) >> 3)"),
    "u32 <": (lambda a, _: cast(binary("<", a, const(5, "u32")), "i32"), "ti.i32(a < ti.u32(5))"),
    "truths": (lambda a, b: cast(binary("+", a > 0, b > 0, "u1"), "i32"), "ti.i32((a > 0) + (b > 0))"),
    "through f32": (lambda a, b: cast(cast(a, "f32") / cast(b, "f32"), "i32"), "ti.i32(ti.f32(a) / ti.f32(b))"),
    "bits": (lambda a, _: cast(const(2.5, "f32"), "i32", keeps_bits=True) + a, "ti.bit_cast(ti.f32(2.5), ti.i32) + a"),
    "f32": (lambda a, _: cast(cast(a, "f32", True), "i32", True), "ti.bit_cast(ti.bit_cast(a, ti.f32), ti.i32)"),
    "popcnt": (lambda a, _: unary("popcnt", a), "ti.math.popcnt(a)"),
    "clz": (lambda a, _: unary("clz", a), "ti.math.clz(a)"),
}  # fmt: skip


def test_integers_agree_with_an_engine(lang, tabled):
    texts = [text for _, text in EXPRESSIONS.values()]
    given = [torch.tensor(values, dtype=torch.int32) for values in (FIRST, SECOND)]
    theirs = tabled(lang, texts, *given).T.tolist()
    mine = [of_ints(expression(A["i"], B["i"])) for expression, _ in EXPRESSIONS.values()]
    assert dict(zip(EXPRESSIONS, mine, strict=True)) == dict(zip(EXPRESSIONS, theirs, strict=True))


def test_and_and_or_run_their_right_side_only_if_it_matters():
    past = A[to_expression("i") + 1] > 0  # outside in the last iteration
    last = binary("<", to_expression("i") + 1, A.size())
    assert of_ints(cast(binary("and", last, past), "i32"), [1, 2, -3, 4], [0] * 4) == [1, 0, 1, 0]
    at_end = binary(">=", to_expression("i") + 1, A.size())
    assert of_ints(cast(binary("or", at_end, past), "i32"), [1, 2, -3, 4], [0] * 4) == [1, 0, 1, 1]


def test_a_division_by_zero_is_refused():
    with pytest.raises(KernelError, match=r"Line 0 divides an integer by zero\n  operation  4 // 0\n"):
        of_ints(binary("//", A["i"], B["i"]), [4], [0])


def test_an_unknown_operation_is_refused():
    with pytest.raises(KernelError, match=r"The interpreter has no rule for `gcd` on i32, in line 0"):
        of_ints(binary("gcd", A["i"], B["i"], "i32"))
