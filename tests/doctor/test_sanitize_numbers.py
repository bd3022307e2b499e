"""`ts.sanitize` on numbers: integers that overflow, divisions by zero, NaN and infinity. Mistakes and their twins."""

import pytest
import torch

import tinsmith as ts
from support.findings import read_pointed_text, sanitize_call

X = torch.tensor([0.0, 1.0, 2.0, 4.0])
K = torch.tensor([0, 1, 2, 3], dtype=torch.int32)


# Integers (TS605) -------------------------------------------------------------------------------


def test_products_sums_powers_shifts_and_signs_overflow(lang):
    @ts.op("k[n] -> y[n, 4]: i32")
    @lang.kernel
    def grow(k: lang.types.ndarray(dtype=lang.i32, ndim=1), y: lang.types.ndarray(dtype=lang.i32, ndim=2)):
        for i in k:
            y[i, 0] = k[i] * 1000000000  # product
            y[i, 1] = k[i] + 2147483645  # sum
            y[i, 2] = k[i] ** 25  # power
            y[i, 3] = lang.abs(-2147483647 - k[i] // 3)  # sign

    findings = sanitize_call(grow, K)
    product = findings.one("TS605", "product")
    assert product.severity == "error"
    assert "3 * 1000000000 is 3000000000 in iteration i = 3, which i32 does not hold" in product.message
    assert "wraps around to -1294967296" in product.message
    assert read_pointed_text(product).startswith("* 1000000000")
    assert "i64" in product.remedy
    assert "3 + 2147483645 is 2147483648" in findings.one("TS605", "sum").message
    assert "3 ** 25 is 847288609443" in findings.one("TS605", "power").message
    assert "abs(-2147483648) is 2147483648" in findings.one("TS605", "sign").message
    assert sanitize_call(grow, K[:1]) == []


def test_overflow_of_an_atomic_sum(lang):
    @ts.op("k[n] -> y[]: i32")
    @lang.kernel
    def total(k: lang.types.ndarray(dtype=lang.i32, ndim=1), y: lang.types.ndarray(dtype=lang.i32, ndim=0)):
        for i in k:
            y[None] += k[i] * 500000000  # here

    assert "1500000000 + 1500000000 is 3000000000" in sanitize_call(total, K).one("TS605", "here").message
    assert sanitize_call(total, K[:3]) == []


def test_hashes_wrap_by_intent(lang):
    @ts.op("k[n] -> y[n]: i32")
    @lang.kernel
    def hashed(k: lang.types.ndarray(dtype=lang.i32, ndim=1), y: lang.types.ndarray(dtype=lang.i32, ndim=1)):
        for i in k:
            h = k[i] * 1103515245  # first
            h = h ^ (h >> 7)
            u = lang.cast(k[i], lang.u32) * lang.u32(2654435761)  # unsigned
            y[i] = (h & 1023) + lang.cast(u >> 20, lang.i32)

    findings = sanitize_call(hashed, K)
    assert findings.errors == []
    assert "as in a hash" in findings.one("TS605", "first").message
    assert findings.one("TS605", "unsigned").severity == "info"


def test_comparisons_are_no_hash(lang):
    @ts.op("k[n] -> y[n]: i32")
    @lang.kernel
    def counted(k: lang.types.ndarray(dtype=lang.i32, ndim=1), y: lang.types.ndarray(dtype=lang.i32, ndim=1)):
        for i in k:
            square = k[i] * 1000000000  # here
            if square > 5 and square < 7:
                y[i] = square

    assert sanitize_call(counted, K).one("TS605", "here").severity == "error"


def test_a_float_that_no_integer_holds(lang):
    @ts.op("x[n] -> y[n]: i32, z[n]: i32")
    @lang.kernel
    def cut(
        x: lang.types.ndarray(ndim=1),
        y: lang.types.ndarray(dtype=lang.i32, ndim=1),
        z: lang.types.ndarray(dtype=lang.i32, ndim=1),
    ):
        for i in x:
            y[i] = lang.cast(x[i] * 1e9, lang.i32)  # great
            z[i] = lang.cast(lang.cast(x[i] * 100.0, lang.i32), lang.i8)  # narrow

    findings = sanitize_call(cut, X)
    assert (
        "4e+09 is cast to i32 in iteration i = 3, which holds -2147483648 to 2147483647"
        in findings.one("TS605", "great").message
    )
    assert "clamp" in findings.one("TS605", "great").remedy
    assert read_pointed_text(findings.one("TS605", "great")).startswith("lang.cast(x[i] * 1e9")
    assert (
        "400 is cast to i8 in iteration i = 3, which drops bits: it becomes -112"
        in findings.one("TS605", "narrow").message
    )
    assert sanitize_call(cut, X[:2]) == []


# Divisions (TS607) ------------------------------------------------------------------------------


@pytest.mark.parametrize("sign", ["//", "%"])
def test_an_integer_is_divided_by_zero(lang, sign):
    def quotient(k: lang.types.ndarray(dtype=lang.i32, ndim=1), y: lang.types.ndarray(dtype=lang.i32, ndim=1)):
        for i in k:
            y[i] = 7 // k[i]  # quotient

    def rest(k: lang.types.ndarray(dtype=lang.i32, ndim=1), y: lang.types.ndarray(dtype=lang.i32, ndim=1)):
        for i in k:
            y[i] = 7 % k[i]  # quotient

    op = ts.op("k[n] -> y[n]: i32")(lang.kernel(quotient if sign == "//" else rest))
    finding = sanitize_call(op, K).one("TS607", "quotient")
    assert finding.severity == "error"
    assert f"7 {sign} 0 in iteration i = 0: an integer divided by zero" in finding.message
    assert read_pointed_text(finding).startswith(f"{sign} k[i]")
    assert "guard the divisor" in finding.remedy
    assert sanitize_call(op, K[1:]) == []


# NaN and infinity (TS606) -----------------------------------------------------------------------


def test_nan_is_reported_where_it_first_appears(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def roots(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            d = x[i] - 1.5
            r = lang.sqrt(d)  # born
            y[i] = r * 2.0 + 1.0  # passed on

    findings = sanitize_call(roots, X)
    born = findings.one("TS606", "born")
    assert born.severity == "error"
    assert "NaN first appears in iteration i = 0: sqrt(-1.5), of finite operands" in born.message
    assert "(once more)" in born.message
    assert "sqrt(max(v, 1e-12))" in born.remedy
    assert read_pointed_text(born).startswith("lang.sqrt(d)")
    assert len(findings.of("TS606")) == 1
    assert sanitize_call(roots, X[2:]) == []


def test_an_unused_nan_is_a_warning(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def unused(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            r = lang.log(x[i] - 1.5)  # born
            y[i] = 1.0
            if x[i] > 1.5:
                y[i] = r

    born = sanitize_call(unused, X).one("TS606", "born")
    assert born.severity == "warning"
    assert "no output has it" in born.message


def test_single_precision_overflows_where_double_does_not(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def powers(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = lang.exp(30.0 * x[i])  # here

    born = sanitize_call(powers, X).one("TS606", "here")
    assert "infinity first appears in iteration i = 3: exp(120)" in born.message
    assert born.severity == "error"
    assert "the gradient of the inputs is not finite" in born.message
    assert sanitize_call(powers, X[:3]) == []


def test_double_precision_does_not(lang64):
    @ts.op("x[n] -> y[n]")
    @lang64.kernel
    def powers(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in x:
            y[i] = lang64.exp(30.0 * x[i])

    assert sanitize_call(powers, X.double()) == []


def test_an_infinity_that_is_meant(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def nearest(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            d = 1.0 / lang.floor(x[i])  # born
            y[i] = 5.0
            if d < 2.0:
                y[i] = d * x[i]

    findings = sanitize_call(nearest, X)
    assert findings.one("TS606", "born").severity == "warning"
    assert "infinity first appears in iteration i = 0: 1 / 0" in findings.one("TS606", "born").message
    assert findings.errors == []


@pytest.mark.parametrize("name", ["sqrt", "norm"])
def test_a_gradient_that_is_infinite_where_the_value_is_not(lang, name):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def roots(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = lang.sqrt(x[i])  # here

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def norms(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = lang.Vector([x[i], 0.0]).norm()

    if name == "norm":  # whose derivative at zero is zero
        assert sanitize_call(norms, X) == []
        return
    finding = sanitize_call(roots, X).one("TS606", "here")
    assert finding.severity == "error"
    assert "the derivative of sqrt(0) is infinity in iteration i = 0" in finding.message
    assert "the value is finite, the gradient of the inputs is not" in finding.message
    assert sanitize_call(roots, X[1:]) == []


def test_nan_of_zero_times_infinity_in_the_gradient(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def hidden(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            r = lang.sqrt(x[i])  # here
            y[i] = lang.min(r, -1.0) + x[i]

    assert "the derivative of sqrt(0) is NaN" in sanitize_call(hidden, X).one("TS606", "here").message


def test_a_branch_that_is_not_taken_has_no_part(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def guarded(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            if x[i] > 0.0:
                y[i] = 1.0 / x[i] + lang.sqrt(x[i])
            y[i] += lang.select(x[i] > 0.0, lang.sqrt(x[i]), 0.0)

    assert sanitize_call(guarded, X) == []


def test_the_gradient_of_every_kernel_of_a_chain(lang):
    @lang.kernel
    def first(x: lang.types.ndarray(), t: lang.types.ndarray()):
        for i in x:
            t[i] = lang.sqrt(x[i])  # here

    @lang.kernel
    def second(t: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in t:
            y[i] = 2.0 * t[i]

    op = ts.chain("x[n] -> y[n]", [first, second], scratch="t[n]")
    finding = sanitize_call(op, X).one("TS606", "here")
    assert "in iteration i = 0" in finding.message


def test_a_gradient_by_hand_is_not_the_autograd_s(lang):
    @lang.kernel
    def root(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = lang.sqrt(x[i])

    @lang.kernel
    def root_by_hand(x: lang.types.ndarray(), grad_y: lang.types.ndarray(), grad_x: lang.types.ndarray()):
        for i in x:
            if x[i] > 0.0:
                grad_x[i] = 0.5 * grad_y[i] / lang.sqrt(x[i])

    assert sanitize_call(ts.op("x[n] -> y[n]", backward=root_by_hand)(root), X) == []


# Locals that are less precise than what they are given (TS609) --------------------------------------


def test_literals_that_round_what_they_are_given(lang):
    @lang.func
    def kept(v):
        s = 0.5  # function
        s += v
        return s

    @ts.op("x[n] -> y[1]")
    @lang.kernel
    def total(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in range(1):
            said: lang.f32 = 0.0
            cast = lang.f32(0.0)
            s, product = 0.0, 1.0  # pair
            v = lang.Vector([0.0, 1.0])  # vector
            alone = 0.0
            for j in range(x.shape[0]):
                said += x[j]
                cast += x[j]
                product *= x[j]
                v += x[j]
                alone += 1.0
                s += alone
            y[i] = s + product + v[0] + kept(x[0]) + said + cast

    findings = sanitize_call(total, X.double())
    assert {one.severity for one in findings} == {"warning"}
    assert [read_pointed_text(one).split(" ")[0] for one in findings] == ["s", "product", "v"]
    product = findings.one("TS609", "pair")
    assert product.message.startswith("`product` begins as a literal, so it is float32, and line ")
    assert "f64(0.0)" in product.remedy
    assert "`lang.Vector([...], lang.f64)`" in findings.one("TS609", "vector").remedy
    assert findings.one("TS609", "function")
    assert sanitize_call(total, X) == []


def test_vectors_that_round_what_they_are_given(lang):
    vec2 = lang.types.vector(2, lang.f64)

    @ts.op("x[n, 2] -> y[n]")
    @lang.kernel
    def squares(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in y:
            p = lang.math.vec2(x[i, 0], x[i, 1])  # here
            q = lang.Vector([x[i, 0], x[i, 1]])
            r = vec2(x[i, 0], x[i, 1])
            s = lang.Vector([x[i, 0], x[i, 1]], lang.f32)
            y[i] = p.dot(p) + q.dot(q) + r.dot(r) + s.dot(s)

    findings = sanitize_call(squares, X.double().reshape(-1, 2))
    rounded = findings.one("TS609", "here")
    assert len(findings) == 1 and read_pointed_text(rounded).startswith("lang.math.vec2(")
    assert rounded.message == "`vec2` holds float32, and is given a float64 value: all but 24 of its 53 bits are lost"
    assert rounded.remedy.startswith("`lang.Vector([...])`, which keeps float64, ")
    assert sanitize_call(squares, X.reshape(-1, 2)) == []


def test_literals_with_default_fp_f64(lang64):
    @ts.op("x[n] -> y[1]")
    @lang64.kernel
    def total(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        for i in range(1):
            s = 0.0
            for j in range(x.shape[0]):
                s += x[j] * 0.1
            y[i] = s

    assert sanitize_call(total, X.double()) == []


def test_truncated_fractions(lang):
    """The commonest mistake of all: the gradient is 0, and nobody says so."""

    @ts.op("x[n] -> y[], z[n]: i32")
    @lang.kernel
    def mean(x: lang.types.ndarray(), y: lang.types.ndarray(), z: lang.types.ndarray()):
        for _ in range(1):
            total = 0
            for i in range(x.shape[0]):
                total += x[i]  # added
            y[None] = total / x.shape[0]
        for i in x:
            z[i] = lang.max(x[i], 0.25)
            z[i] = int(x[i])
            k = lang.cast(x[i] * 2.0, lang.i32)
            z[i] += k

    findings = sanitize_call(mean, torch.tensor([0.5, 2.0, 0.75]))
    added = findings.one("TS301", "added")
    assert added.severity == "error" and read_pointed_text(added).startswith("total += ")
    expected = "`total` holds integers, i32: 0.5 is cut to 0 in iteration _ = 0, i = 0, and no gradient goes through it"
    assert added.message == f"{expected} (once more)"
    other = [one for one in findings.of("TS301") if one is not added]
    assert [read_pointed_text(one).startswith("z[i] = lang.max(") for one in other] == [True]
    assert findings.rules == {"TS301"} | ({"TS603"} & findings.rules)
