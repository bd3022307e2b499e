"""Operations on which engines end the process are refused with their line before anything is compiled."""

import json
import linecache
import textwrap

import pytest
import torch

import tinsmith as ts
from support.forked import run_forked

pytestmark = pytest.mark.each_engine

DEADLY = {
    # statements of a loop over x, in which v is a vector of x and z: (dtypes of x and z, of y, words, a remedy's words)
    "m, e = lang.frexp(x[i])\ny[i] = m": ("f32 f32", "f32", "`frexp`", "torch.frexp"),
    "r = lang.frexp(x[i])\ny[i] = r[0]": ("f64 f32", "f32", "`frexp`", "torch.frexp"),
    "y[i] = x[i]": ("f32 f32", "u1", "an assignment of a float to a bool", "`x != 0.0`"),
    "y[i] = lang.exp(z[i])": ("f32 f32", "u1", "an assignment of a float to a bool", "`x != 0.0`"),
    "s = x[i]\ns = s * z[i]\ny[i] = s": (
        "u1 f32",
        "f32",
        "an assignment of a float to a bool",
        "make the variable a float",
    ),
    "s = x[i]\ns *= z[i]\ny[i] = s": (
        "u1 f32",
        "f32",
        "an assignment of a float to a bool",
        "make the variable a float",
    ),
    "s = x[i]\nif i > 1:\n    s = z[i]\ny[i] = s": (
        "u1 f32",
        "f32",
        "an assignment of a float to a bool",
        "make the variable",
    ),
    "y[i] = bool(x[i])": ("f32 f32", "i32", "an assignment of a float to a bool", "`x != 0.0`"),
    "y[i] = lang.cast(x[i], lang.u1)": ("f64 f32", "i32", "an assignment of a float to a bool", "`x != 0.0`"),
    "y[i] = lang.u1(x[i])": ("f32 f32", "i32", "an assignment of a float to a bool", "`x != 0.0`"),
    "lang.atomic_add(y[i], z[i])": ("u1 f32", "u1", "an assignment of a float to a bool", "`x != 0.0`"),
    "y[i] = x[i]\ny[i] /= z[i]": ("u1 i32", "u1", "an assignment of a float to a bool", "`x != 0.0`"),
    "lang.atomic_or(y[0], x[i])": ("u1 i32", "u1", "an atomic `or` on bools", "an array of i32"),
    "lang.atomic_max(y[i], x[i])": ("i8 i32", "i8", "an atomic `max` on i8", "an array of i32"),
    "y[i] = lang.min(x[i], z[i])": ("u8 u8", "u8", "`min` of u8", "to i32 first"),
    "y[i] = abs(x[i])": ("i16 i32", "f32", "`abs` of i16", "to i32 first"),
    "y[i] = lang.rsqrt(x[i])": ("i32 i32", "f32", "`rsqrt` of i32", "to a float first"),
    "y[i] = x[i] ** z[i]": ("i32 i8", "i32", "a power of i32 whose exponent is i8", "the exponent to i32"),
    "y[i] = x[i] ** (z[i] > 0)": ("f32 i32", "f32", "a power of f32 whose exponent is u1", "the exponent to i32"),
    "y[i] = lang.raw_mod(x[i], z[i])": ("f32 f32", "f32", "`raw_mod` of f32", "Use `%`"),
    "y[i] = x[i]\ny[i] &= z[i]": ("f32 i32", "f32", "an atomic `and` on f32", "array of integers"),
    "s = x[i]\ns |= z[i]\ny[i] = s": ("f32 i32", "f32", "`|` of f32 and f32", "Convert the operands"),
    "y[i] = lang.math.clz(x[i])": ("f32 i32", "f32", "`clz` of f32", "Convert the operands"),
    "y[i] = lang.bit_cast(x[i], lang.i64)": ("f32 i32", "i64", "`bit_cast` of f32 to i64", "type of 32 bits"),
    "y[i] = x[i] // 0": ("i32 i32", "i32", "a division of an integer by zero", "not zero"),
    "y[i] = x[i] % 0": ("i32 i32", "i32", "a division of an integer by zero", "not zero"),
    "y[i] = 1 // 0 + x[i]": ("i32 i32", "i32", "a division of an integer by zero", "not zero"),
    "y[i] = x[i] // ZERO": ("i64 i32", "i64", "a division of an integer by zero", "not zero"),
    "k = 0\ny[i] = x[i] % k": ("i32 i32", "i32", "a division of an integer by zero", "not zero"),
    "k = 2\nk -= 2\ny[i] = x[i] // (k * 1)": ("i32 i32", "i32", "a division of an integer by zero", "not zero"),
    "k = 3\nif z[i] > 0:\n    k = 0\n    y[i] = x[i] % k": (
        "i32 i32",
        "i32",
        "a division of an integer by zero",
        "not zero",
    ),
    "y[i] = x[i] // lang.static(ZERO * 2)": ("i32 i32", "i32", "a division of an integer by zero", "not zero"),
    "y[i] = lang.raw_div(x[i], 0)": ("u8 i32", "i32", "a division of an integer by zero", "not zero"),
}
ALIVE = {
    "y[i] = x[i] != 0.0": ("f32 f32", "u1"),
    "y[i] = x[i]": ("i32 f32", "u1"),
    "y[i] = 1.0 if x[i] else z[i]": ("u1 f32", "f32"),
    "y[i] |= x[i]": ("u1 f32", "u1"),
    "y[i] = x[i] // z[i]": ("i32 i32", "i32"),
    "y[i] = abs(x[i]) ** z[i]": ("f32 u8", "f32"),
    "k = 0\nfor j in range(3):\n    k += 1\n    y[i] = x[i] // k": ("i32 i32", "i32"),
    "k = 0\nif z[i] == z[i]:\n    k = 2\ny[i] = x[i] // k": ("i32 i32", "i32"),
    "y[i] = x[i] / 0": ("i32 i32", "f32"),
    "s = 0.0\ns += x[i]\ny[i] = s": ("u1 i32", "f32"),
}
DTYPES = {
    "u1": torch.bool, "i8": torch.int8, "u8": torch.uint8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64,
    "f32": torch.float32, "f64": torch.float64,
}  # fmt: skip


def make(lang, body, spec, **options):
    text = "def kernel(x: lang.types.ndarray(), z: lang.types.ndarray(), y: lang.types.ndarray()):\n    for i in x:\n"
    text += textwrap.indent(body, " " * 8) + "\n"
    name = f"<deadly {abs(hash(body))}>"
    linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
    space = {"lang": lang, "ZERO": 0}
    exec(compile(text, name, "exec"), space)
    return ts.op(spec, **options)(lang.kernel(space["kernel"]))


def call(lang, body, dtypes, output):
    first, second = dtypes.split()
    op = make(lang, body, f"x[n]: {first}, z[n]: {second} -> y[n]: {output}")
    return op(torch.tensor([1, 0, 3], dtype=DTYPES[first]), torch.tensor([2, 1, 1], dtype=DTYPES[second]))


def describe(run, *arguments, **options):
    """Return the error that a call raises, or its result, as text."""
    try:
        return f"gave {run(*arguments, **options)}"
    except Exception as error:  # noqa: BLE001  # the test says which it is
        return f"{type(error).__name__}: {error}"


def test_deadly_operations_are_refused(lang):
    def run():
        return json.dumps([describe(call, lang, body, *kinds[:2]) for body, kinds in DEADLY.items()])

    wrong = []
    for (body, (_, _, words, remedy)), said in zip(DEADLY.items(), json.loads(run_forked(run, 200)), strict=True):
        is_right = said.startswith("KernelError: ") and words in said and remedy in said.splitlines()[-1]
        if not is_right or "end the process\n  at  <deadly " not in said:
            wrong.append(f"{body!r}: {said}")
    assert not wrong, "\n".join(wrong)


def test_similar_operations_are_not_refused(lang):
    def run():
        return [call(lang, body, *kinds).tolist() for body, kinds in ALIVE.items()]

    infinity = float("inf")
    assert run_forked(run, 100) == str(
        [
            [True, False, True],
            [True, False, True],
            [1.0, 1.0, 1.0],
            [True, False, True],
            [0, 0, 3],
            [1.0, 0.0, 3.0],
            [0, 0, 1],
            [0, 0, 1],
            [infinity, float("nan"), infinity],
            [1.0, 0.0, 1.0],
        ]
    )


DIVISIONS = {
    "y[i] = x[i] // z[i]": "divides an integer by zero",
    "y[i] = x[i] % z[i]": "divides an integer by zero",
    "y[i] = lang.raw_div(x[i], z[i])": "divides an integer by zero",
    "for j in range(x[i] // z[i]):\n    y[i] += 1": "divides an integer by zero",
    "if z[i] != 0 and x[i] // z[i] > 0:\n    y[i] = 1\ny[i] += x[i] // (z[i] - 1)": "divides an integer by zero",
    "k = -1\ny[i] = (-2147483647 - z[i] - 1) // k": "divides the smallest integer by -1, which overflows",
}


@pytest.mark.compiled_engine
def test_check_bounds_finds_divisions(lang):
    spec = "x[n]: i32, z[n]: i32 -> y[n]: i32"
    x, z = torch.tensor([4, 5, 6], dtype=torch.int32), torch.tensor([1, 2, 0], dtype=torch.int32)
    guarded = "if z[i] != 0:\n    y[i] = x[i] // z[i]"

    def run():
        ops = [make(lang, one, spec, check_bounds=True) for one in (*DIVISIONS, guarded)]
        return json.dumps([describe(op, x, z) for op in ops])

    *said, last = json.loads(run_forked(run, 100))
    assert last == "gave tensor([4, 2, 0], dtype=torch.int32)"
    for body, words, one in zip(DIVISIONS, DIVISIONS.values(), said, strict=True):
        assert one.startswith("BoundsError: "), f"{body}: {one}"
        assert words in one, f"{body}: {one}"
        assert ("Guard the division" in one) == ("by zero" in words), f"{body}: {one}"
        assert "\n  at        <deadly " in one, f"{body}: {one}"


@pytest.mark.compiled_engine
def test_a_generated_gradient_checks_its_divisions(lang):
    @lang.kernel
    def pick(x: lang.types.ndarray(), k: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in range(y.shape[0]):
            y[i] = x[i // k[i]] * x[i]

    def run():
        op = ts.op("x[n], k[n]: i32 -> y[n]", check_bounds=True)(pick)
        x, k = torch.ones(3, requires_grad=True), torch.ones(3, dtype=torch.int32)
        y = op(x, k)
        y.sum().backward()
        assert x.grad.tolist() == [2.0, 2.0, 2.0]
        k[1] = 0
        return op(x, k)

    assert run_forked(run).startswith("BoundsError: op `pick` divides an integer by zero")


def test_powers_of_powers_have_gradients(lang64):
    @lang64.kernel
    def one(w: lang64.types.ndarray(), k: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in y:
            y[i] = w[i] + 1.0 / (1.5 + ((w[k[i]] ** 2) ** 2) ** 2)

    @lang64.kernel
    def two(w: lang64.types.ndarray(), k: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in y:
            p = w[i] ** 2
            y[i] = w[k[i]] * w[i] * p ** (i + 1)

    @lang64.kernel
    def written(w: lang64.types.ndarray(), k: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for _ in range(1):
            for i in range(w.shape[0]):
                y[i] += (w[i] ** 2) ** 2
                y[k[i]] = y[k[i]] + (w[i] ** 3) ** 2

    def twin(w, k, which):
        if which is one:
            return w + 1.0 / (1.5 + w[k] ** 8)
        return w[k] * w * (w**2) ** (torch.arange(3) + 1)

    def run():
        k = torch.tensor([2, 0, 0])
        for kernel in (one, two):
            w = torch.tensor([0.5, -0.25, 1.5], dtype=torch.float64, requires_grad=True)
            op = ts.op("w[n], k[n]: i32 -> y[n]")(kernel)
            (ours,) = torch.autograd.grad(op(w, k.int()).sum(), w)
            (theirs,) = torch.autograd.grad(twin(w, k, kernel).sum(), w)
            torch.testing.assert_close(ours, theirs)
        op = ts.op("w[n], k[n]: i32 -> y[n]")(written)
        (ours,) = torch.autograd.grad(op(w, k.int()).sum(), w)
        torch.testing.assert_close(ours, 4 * w**3 + 6 * w**5)
        return "right"

    assert run_forked(run, 100) == "right"
