"""Kinks and singular points: the table of docs/reference/conventions.md, on both engines and by the oracle."""

import math
from pathlib import Path

import pytest
import torch

import tinsmith as ts

pytestmark = pytest.mark.thinned(4)

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "conventions.md"
INF, NAN = math.inf, math.nan
OTHER = 0.7  # what `b` is where an expression has none


# The expressions of the table, as an engine's functions. The docstring of each is what the table calls it.


def _of_one_number(lang):
    def absolute(a, b):
        """abs(a)"""
        return abs(a)

    def square_root(a, b):
        """sqrt(a)"""
        return lang.sqrt(a)

    def reciprocal_root(a, b):
        """rsqrt(a)"""
        return lang.rsqrt(a)

    def logarithm(a, b):
        """log(a)"""
        return lang.log(a)

    def exponential(a, b):
        """exp(a)"""
        return lang.exp(a)

    def reciprocal(a, b):
        """1.0 / a"""
        return 1.0 / a

    def quotient(a, b):
        """a / b"""
        return a / b

    def arc_sine(a, b):
        """asin(a)"""
        return lang.asin(a)

    def arc_cosine(a, b):
        """acos(a)"""
        return lang.acos(a)

    return locals()


def _of_two_numbers(lang):
    def angle(a, b):
        """atan2(a, b)"""
        return lang.atan2(a, b)

    def power(a, b):
        """a ** b"""
        return a**b

    return locals()


def _powers(lang):
    def squared(a, b):
        """a ** 2"""
        return a**2

    def to_nothing(a, b):
        """a ** 0"""
        return a**0

    def half_power(a, b):
        """a ** 0.5"""
        return a**0.5

    return locals()


def _choices(lang):
    def larger(a, b):
        """max(a, b)"""
        return lang.max(a, b)

    def smaller(a, b):
        """min(a, b)"""
        return lang.min(a, b)

    def rectified(a, b):
        """max(a, 0.0)"""
        return lang.max(a, 0.0)

    def rectified_downwards(a, b):
        """min(a, 0.0)"""
        return lang.min(a, 0.0)

    def at_least(a, b):
        """max(a, 0.5)"""
        return lang.max(a, 0.5)

    def chosen(a, b):
        """select(a > 0.0, sqrt(a), 0.0)"""
        return lang.select(a > 0.0, lang.sqrt(a), 0.0)

    def ternary(a, b):
        """sqrt(a) if a > 0.0 else 0.0"""
        return lang.sqrt(a) if a > 0.0 else 0.0

    return locals()


def _lengths_and_steps(lang):
    def length(a, b):
        """Vector([a, b]).norm()"""
        return lang.Vector([a, b]).norm()

    def length_by_hand(a, b):
        """sqrt(a * a + b * b)"""
        return lang.sqrt(a * a + b * b)

    def sign(a, b):
        """math.sign(a)"""
        return lang.math.sign(a)

    def lower(a, b):
        """floor(a)"""
        return lang.floor(a)

    def upper(a, b):
        """ceil(a)"""
        return lang.ceil(a)

    def nearest(a, b):
        """round(a)"""
        return lang.round(a)

    def remainder(a, b):
        """a % b"""
        return a % b

    def whole_quotient(a, b):
        """a // b"""
        return a // b

    return locals()


def formula(lang, expression):
    """Return the function with this name in the table."""
    families = (_of_one_number, _of_two_numbers, _powers, _choices, _lengths_and_steps)
    functions = [value for family in families for name, value in family(lang).items() if name != "lang"]
    return lang.func(next(function for function in functions if function.__doc__ == expression))


def pair(f):
    """Return f as a function of a alone, or of both."""
    return lambda a, b: f(a)


def chosen(a, b):
    return torch.where(a > 0, torch.sqrt(torch.where(a > 0, a, 1.0)), 0.0)


TWINS = {
    "abs(a)": pair(torch.abs),
    "sqrt(a)": pair(torch.sqrt),
    "rsqrt(a)": pair(torch.rsqrt),
    "log(a)": pair(torch.log),
    "exp(a)": pair(torch.exp),
    "1.0 / a": pair(torch.reciprocal),
    "a / b": torch.div,
    "asin(a)": pair(torch.asin),
    "acos(a)": pair(torch.acos),
    "atan2(a, b)": torch.atan2,
    "a ** b": torch.pow,
    "a ** 2": lambda a, b: a**2,
    "a ** 0": lambda a, b: a**0,
    "a ** 0.5": lambda a, b: a**0.5,
    "max(a, b)": torch.maximum,
    "min(a, b)": torch.minimum,
    "max(a, 0.0)": pair(torch.relu),
    "min(a, 0.0)": lambda a, b: -torch.relu(-a),
    "max(a, 0.5)": lambda a, b: torch.maximum(a, torch.full_like(a, 0.5)),
    "select(a > 0.0, sqrt(a), 0.0)": chosen,
    "sqrt(a) if a > 0.0 else 0.0": chosen,
    "Vector([a, b]).norm()": lambda a, b: torch.linalg.vector_norm(torch.stack([a, b]), dim=0),
    "sqrt(a * a + b * b)": lambda a, b: torch.sqrt(a * a + b * b),
    "math.sign(a)": pair(torch.sign),
    "floor(a)": pair(torch.floor),
    "ceil(a)": pair(torch.ceil),
    "round(a)": pair(torch.round),
    "a % b": torch.remainder,
    "a // b": lambda a, b: torch.div(a, b, rounding_mode="floor"),
}


def rows():
    """Return the rows of the page's table: expression, a, b, derivative by a, by b."""
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.read_text().splitlines()]
    for name, *numbers in (row[:5] for row in cells if len(row) == 5 and row[0].strip("`") in TWINS):
        a, b, by_a, by_b = ({"": None, "−∞": -INF, "∞": INF, "NaN": NAN}.get(text, text) for text in numbers)
        yield name.strip("`"), *(None if text is None else float(text) for text in (a, b, by_a, by_b))


ROWS = list(rows())


def op_of(lang, expression):
    f = formula(lang, expression)

    @ts.op("a[n], b[n] -> y[n]")
    @lang.kernel
    def kernel(a: lang.types.ndarray(), b: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in a:
            y[i] = f(a[i], b[i])

    return kernel


def points_of(expression):
    pairs = [(a, OTHER if b is None else b) for name, a, b, *_ in ROWS if name == expression]
    return tuple(torch.tensor(column, dtype=torch.float64) for column in zip(*pairs, strict=True))


def compute_gradients(f, points, seed):
    a, b = (x.clone().requires_grad_() for x in points)
    grads = torch.autograd.grad(f(a, b), (a, b), torch.full_like(a, seed), allow_unused=True)
    return [torch.zeros_like(a) if g is None else g.detach() for g in grads]


def test_every_expression_is_in_the_table():
    assert {name for name, *_ in ROWS} == set(TWINS)


@pytest.mark.thinned(1)
@pytest.mark.parametrize("expression", TWINS)
def test_the_table_is_torch_s(expression):
    wanted = [row[3:] for row in ROWS if row[0] == expression]
    by_a, by_b = compute_gradients(TWINS[expression], points_of(expression), 1.0)
    for (a, b), mine_a, mine_b in zip(wanted, by_a, by_b, strict=True):
        assert a == pytest.approx(mine_a.item(), nan_ok=True)
        assert (0.0 if b is None else b) == pytest.approx(mine_b.item(), nan_ok=True)


@pytest.mark.thinned(9)
@pytest.mark.parametrize("expression", TWINS)
def test_derivatives(lang64, expression):
    op, points = op_of(lang64, expression), points_of(expression)
    mine, theirs = (compute_gradients(f, points, 1.5) for f in (op, TWINS[expression]))
    torch.testing.assert_close(mine, theirs, equal_nan=True)
    answer = ts.oracle(op, *points, cotangents=torch.full_like(points[0], 1.5))
    torch.testing.assert_close([answer.gradients["a"], answer.gradients["b"]], theirs, equal_nan=True)


@pytest.mark.parametrize("expression", TWINS)
def test_no_incoming_gradient_is_no_gradient(lang64, expression):
    """Where torch may give 0 times infinity."""
    op, points = op_of(lang64, expression), points_of(expression)
    zero = torch.zeros_like(points[0])
    answer = ts.oracle(op, *points, cotangents=zero)
    for gradient in (*compute_gradients(op, points, 0.0), answer.gradients["a"], answer.gradients["b"]):
        torch.testing.assert_close(gradient, zero)


# Where the gradient is an engine's own: the page's second table -----------------------------------
DIFFERENT = {  # (expression, a, b): derivatives by a and b, of the page
    (name.strip("`"), *(None if text == "" else float(text) for text in (a, b))): (by_a, by_b)
    for name, a, b, by_a, by_b, *_ in (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.read_text().splitlines()
        if line.count("|") == 8 and not line.startswith(("| expression", "|---"))
    )
}
TEXTS = {"": None, "−∞": -INF, "∞": INF, "NaN": NAN}
INFINITE = [row[:3] for row in ROWS if any(one is not None and math.isinf(one) for one in row[3:])]


def make_layer(lang, expression, size, adjoint="engine"):
    f = formula(lang, expression)
    a, b, y = (lang.field(lang.f64, size, needs_grad=True) for _ in range(3))

    @lang.kernel
    def kernel():
        for i in a:
            y[i] = f(a[i], b[i])

    layer = ts.EmptyTin(adjoint=adjoint).register_kernel(kernel).register_input_field(a).register_input_field(b)
    return layer.register_output_field(y).finish()


def test_the_table_was_found():
    assert len(DIFFERENT) == 11
    assert DIFFERENT.keys() <= {row[:3] for row in ROWS}


@pytest.mark.thinned(9)
@pytest.mark.filterwarnings("ignore:.*was not checked")
@pytest.mark.parametrize("expression", [one for one in TWINS if one != "round(a)"])
def test_derivatives_on_fields(lang64, expression):
    points = points_of(expression)
    columns = compute_gradients(make_layer(lang64, expression, len(points[0])), points, 1.0)
    rows = [row for row in ROWS if row[0] == expression]
    for row, *mine in zip(rows, *columns, strict=True):
        texts = DIFFERENT.get(row[:3])
        wanted = row[3:] if texts is None else [float(TEXTS[t] or 0) if t in TEXTS else float(t) for t in texts]
        for one, other in zip(mine, wanted, strict=True):
            assert one.item() == pytest.approx(0.0 if other is None else other, nan_ok=True), row


@pytest.mark.thinned(9)
@pytest.mark.parametrize("expression", list(TWINS))
def test_generated_derivatives_on_fields(lang64, expression):
    """They are those of ops."""
    points = points_of(expression)
    columns = compute_gradients(make_layer(lang64, expression, len(points[0]), "auto"), points, 1.0)
    rows = [row for row in ROWS if row[0] == expression]
    for row, *mine in zip(rows, *columns, strict=True):
        for one, other in zip(mine, row[3:], strict=True):
            assert one.item() == pytest.approx(0.0 if other is None else other, nan_ok=True), row


@pytest.mark.parametrize("expression", sorted({name for name, *_ in INFINITE}))
def test_no_incoming_gradient_is_none_but_not_a_number(lang64, expression):
    points = points_of(expression)
    columns = compute_gradients(make_layer(lang64, expression, len(points[0])), points, 0.0)
    assert any(one.isnan().any() for one in columns)


def test_a_tie_goes_to_the_second(lang64):
    x, y = (lang64.field(lang64.f64, 2, needs_grad=True) for _ in range(2))

    @lang64.kernel
    def kernel():
        for i in x:
            if i == 0:
                y[i] = lang64.max(x[i], 0.0)
            else:
                y[i] = lang64.max(0.0, x[i])

    layer = ts.EmptyTin(adjoint="engine").register_kernel(kernel).register_input_field(x).register_output_field(y)
    layer.finish()
    given = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    layer(given).sum().backward()
    assert given.grad.tolist() == [0.0, 1.0]


def test_round_is_refused(lang64):
    with pytest.raises(ts.GradientError, match="cannot differentiate"):
        compute_gradients(make_layer(lang64, "round(a)", 1), points_of("round(a)"), 1.0)
