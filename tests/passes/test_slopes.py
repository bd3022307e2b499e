"""The table of derivatives: torch's, at random and at singular points, for operands of every type."""

import itertools

import pytest
import torch

from support.backwards import build_backward
from support.by_hand import E, array, assign, binary, cast, kernel, local, loop, store, unary
from support.interpreted import run_with_gradients
from tinsmith.analyses import slopes
from tinsmith.ir import Misfit, NotCovered, nodes, operators, types
from tinsmith.passes import generate_tangent

POINTS = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.7, *torch.randn(5, generator=torch.Generator().manual_seed(0)).tolist()]
POINTS += [-point for point in POINTS]
PAIRS = tuple(zip(*itertools.product(POINTS[:14], repeat=2), strict=True))
DTYPES = {"f16": torch.float16, "f32": torch.float32, "f64": torch.float64, "i32": torch.int32, "u8": torch.uint8}
UNARY = ["neg", "abs", "sqrt", "norm", "rsqrt", "exp", "log", "sin", "cos", "tan", "asin", "acos", "tanh"]
FLAT = ["floor", "ceil", "round", "sgn"]
BINARY = ["+", "-", "*", "/", "//", "%", "min", "max", "atan2", "pow", "straight_through"]
KINDS = [("f64", "f64"), ("f32", "f64"), ("f64", "f32"), ("f16", "f32"), ("f64", "i32"), ("i32", "f32"), ("f32", "u8")]
REGULAR = {
    "neg",
    "abs",
    "norm",
    "sin",
    "cos",
    "tan",
    "tanh",
    *FLAT,
    "+",
    "-",
    "*",
    "//",
    "min",
    "max",
    "atan2",
    "straight_through",
}
X, Z = array("x"), array("z")


def convert_points(kind, points):
    numbers = torch.tensor(points, dtype=torch.float64)
    return numbers.abs().to(torch.uint8) if kind == "u8" else numbers.to(DTYPES[kind])


def assert_types_are_right(expr):
    """Assert that all operands have equal types: nothing is left to the engines' promotion."""
    match expr:
        case nodes.Binary("and" | "or", left, right, kind):
            assert left.type == right.type == kind == "u1"
        case nodes.Binary(operator, left, right, kind):
            assert kind == ("u1" if operator in operators.COMPARISONS else left.type)
            assert left.type == right.type or (operator == "pow" and not types.is_float(right.type))
        case nodes.Unary(_, value, kind):
            assert value.type == kind
        case nodes.Select(condition, then, otherwise, kind):
            assert condition.type == "u1"
            assert then.type == otherwise.type == kind
    for part in ("left", "right", "value", "condition", "then", "otherwise"):
        inner = getattr(expr, part, None)
        if isinstance(inner, nodes.Expr):
            assert_types_are_right(inner)


def by_table(operation, values, kinds, seeds):
    """Return contributions to x and z, worked out by a kernel, and the slopes."""
    rows = slopes(operation, nodes.Local("value", operation.type))
    body = [assign("value", E(operation)), assign("s", array("seed")["i"])]
    targets = {}
    for slope in rows:
        name = slope.operand.array
        contribution = slope.of(nodes.Local("s", operation.type))
        assert_types_are_right(contribution)
        assert contribution.type == slope.operand.type == kinds[name]
        tangent = slope.along(nodes.Local("t", kinds[name]))
        assert_types_are_right(tangent)
        assert tangent.type == operation.type
        assert name not in targets
        targets[name] = array(f"{name}_bar", kinds[name])
        body.append(store(targets[name], "i", E(contribution)))
    arrays = [*(array(name, kind) for name, kind in kinds.items()), array("seed", "f64"), *targets.values()]
    mapped = kernel(arrays, [loop("i", array("seed").size(), body)], value=operation.type, s=operation.type)
    zeros = {f"{name}_bar": torch.zeros_like(seeds) for name in targets}
    after = run_with_gradients(mapped, {**values, "seed": seeds, **zeros}, {}).arrays
    return {name: after[f"{name}_bar"] for name in targets}, rows


def by_torch(operation, values, kinds, seeds):
    """Differentiate by torch's autograd, through the interpreter."""
    y = array("y", operation.type)
    arrays = [*(array(name, kind) for name, kind in kinds.items()), y]
    mapped = kernel(arrays, [loop("i", y.size(), [store(y, "i", E(operation))])])
    return run_with_gradients(mapped, {**values, "y": torch.zeros_like(seeds)}, {}, {"y": seeds}).gradients


def assert_slopes_are_torch_s(operation, points, kinds):
    values = {name: convert_points(kinds[name], column) for name, column in points.items()}
    seeds = torch.linspace(-0.7, 1.3, len(next(iter(points.values()))), dtype=torch.float64)
    seeds[::3] = 0.0
    mine, rows = by_table(operation, values, kinds, seeds)
    theirs = by_torch(operation, values, kinds, seeds)
    for name, kind in kinds.items():
        if types.is_float(kind):
            wanted = theirs[name]
            got = mine.get(name, torch.zeros_like(wanted))
            # 0 times infinity, which the adjoint does not ask of the table: it guards what is not regular.
            got = torch.where((seeds == 0) & ~got.isfinite() & wanted.isfinite(), 0.0, got)
            torch.testing.assert_close(got, wanted, rtol=1e-13, atol=1e-300, equal_nan=True)
    for slope in rows:
        is_wild = not mine[slope.operand.array][seeds == 0].isfinite().all()
        assert slope.is_singular or not is_wild
        assert not (slope.is_singular and operation.operator in REGULAR)


@pytest.mark.parametrize("kind", ["f64", "f32", "f16"])
@pytest.mark.parametrize("name", UNARY + FLAT)
def test_derivatives_of_unary_operations(name, kind):
    operation = unary(name, array("x", kind)["i"]).expr
    points = [point * point for point in POINTS] if name == "norm" else POINTS  # of a square, always
    assert_slopes_are_torch_s(operation, {"x": points}, {"x": kind})
    assert len(slopes(operation, nodes.Local("value", kind))) == (name not in FLAT)


@pytest.mark.parametrize("kinds", KINDS, ids="-".join)
@pytest.mark.parametrize("name", BINARY)
def test_derivatives_of_binary_operations(name, kinds):
    """Every point with every other: both zero, equal, of either sign."""
    left, right = PAIRS
    if name in ("//", "%") and kinds[1] == "u8":
        right = [abs(point) + 1 for point in right]
    operation = binary(name, array("x", kinds[0])["i"], array("z", kinds[1])["i"]).expr
    assert_slopes_are_torch_s(operation, {"x": left, "z": right}, dict(zip("xz", kinds, strict=True)))


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, -1, -2, 0.0, 0.5, 1.0, 2.0, 3.0, 2.5, -1.0, -0.5])
def test_known_powers(exponent):
    operation = binary("pow", X["i"], exponent).expr
    assert_slopes_are_torch_s(operation, {"x": POINTS}, {"x": "f32"})


@pytest.mark.parametrize("base", [0.0, 0.5, 1.0, 2.0, -1.5])
def test_powers_of_what_is_known(base):
    operation = binary("pow", base, X["i"]).expr
    assert_slopes_are_torch_s(operation, {"x": POINTS}, {"x": "f32"})


@pytest.mark.parametrize("name", ["+", "-", "*", "/", "%", "min", "max"])
@pytest.mark.parametrize("number", [0.0, 1.0, -1.0, 2, 3, 0.3])
def test_known_operands(name, number):
    if name != "/" or number:
        assert_slopes_are_torch_s(binary(name, X["i"], number).expr, {"x": POINTS}, {"x": "f32"})
    assert_slopes_are_torch_s(binary(name, number, X["i"]).expr, {"x": POINTS}, {"x": "f32"})


@pytest.mark.parametrize(
    ("source", "target"), [*itertools.product(["f16", "f32", "f64"], ["f16", "f32", "f64", "i32"])]
)
def test_casts(source, target):
    operation = cast(array("x", source)["i"], target).expr
    rows = slopes(operation, nodes.Local("value", target))
    if target == "i32":
        assert not rows
        return
    assert rows[0].of(nodes.Local("s", target)) == (
        nodes.Local("s", target) if source == target else nodes.Cast(nodes.Local("s", target), source)
    )
    assert rows[0].along(nodes.Local("t", source)).type == target
    wholes = slopes(nodes.Cast(nodes.Local("k", "i32"), target), nodes.Local("value", target))
    assert not wholes


def test_integers_and_booleans_have_no_derivative():
    for operation in (
        binary("<", X["i"], Z["i"]),
        binary("+", local("j", "i32"), 2),
        binary("and", local("a", "u1"), local("b", "u1"), "u1"),
        unary("not", local("a", "u1")),
        cast(local("x"), "i32", keeps_bits=True),
        cast(local("j", "i32"), "f32", keeps_bits=True),
        binary("/", local("j", "i32"), 2),
    ):
        assert slopes(operation.expr, nodes.Local("value", operation.expr.type)) == ()


def test_one_operand_twice_has_two():
    x = local("x")
    square = slopes(binary("*", x, x).expr, nodes.Local("y", "f32"))
    assert [slope.operand for slope in square] == [x.expr, x.expr]
    assert {slope.of(nodes.Local("s", "f32")) for slope in square} == {(local("s") * x).expr}


def test_derivatives_reuse_the_result():
    seed, y = nodes.Local("s", "f32"), local("y")
    (slope,) = slopes(unary("exp", local("x")).expr, y.expr)
    assert slope.of(seed) == (E(seed) * y).expr
    (slope,) = slopes(unary("sqrt", local("x")).expr, y.expr)
    assert slope.of(seed) == (E(seed) / (2.0 * y)).expr


def test_constant_operands_have_no_derivative():
    seed = nodes.Const(1.0, "f32")
    left, right = slopes((local("a") * local("b")).expr, nodes.Local("y", "f32"))
    assert left.of(seed) == local("b").expr
    assert right.of(nodes.Const(0.0, "f32")) == nodes.Const(0.0, "f32")
    assert right.of(nodes.Const(-1.0, "f32")) == unary("neg", local("a")).expr


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        (unary("erf", local("x")), "the derivative of `erf`"),
        (binary("raw_mod", local("x"), local("z")), "the derivative of `raw_mod`"),
    ],
)
def test_operations_without_a_derivative_rule_are_refused(operation, words):
    with pytest.raises(Misfit, match=words):
        slopes(operation.expr, nodes.Local("value", operation.expr.type))


def test_a_refused_operation_is_named_with_its_line():
    made = store(Z, "i", binary("raw_mod", X["i"], 2.0), line=4)
    in_loop = kernel([X, Z], [loop("i", X.size(), [made], is_parallel=True)])
    for differentiate in (
        lambda: build_backward([in_loop], ["x"], ["z"], ["z"]),
        lambda: generate_tangent(in_loop, frozenset({"x"})),
    ):
        with pytest.raises(NotCovered, match="the derivative of `raw_mod`, at by_hand.py:4"):
            differentiate()
