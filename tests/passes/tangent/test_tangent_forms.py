"""Tangents of every form of statement: names, types, what is left, what is random, what has no tangent."""

import ast
from dataclasses import fields

import pytest
import torch

from support.by_hand import (
    E,
    argument,
    array,
    assign,
    binary,
    branch,
    cast,
    const,
    kernel,
    local,
    loop,
    repeat,
    select,
    store,
    unary,
)
from support.tangents import (
    DOUBLE,
    assert_compiled_agrees,
    assert_tangents_agree,
    draw_directions,
    run_second_tangent,
    run_second_tangent_in_torch,
)
from tinsmith.codegen import print_kernel
from tinsmith.ir import NotCovered, nodes
from tinsmith.passes import generate_tangent

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
GENERATOR = torch.Generator().manual_seed(11)
X, Y = array("x", "f64"), array("y", "f64")
S, V = local("s", "f64"), local("v", "f64")


def rand(*shape):
    return torch.rand(*shape, dtype=torch.float64, generator=GENERATOR) - 0.4


def over(body, arrays=(X, Y), arguments=None, **kinds):
    return kernel([*arrays], [loop("i", X.size(), body, is_parallel=True, line=2)], arguments, **kinds)


def text(made):
    names = [name for name in [*made.arrays, *made.arguments] if name not in made.cells]
    return ast.unparse(print_kernel(made, dict.fromkeys(names, "_"), DOUBLE))


def test_a_tangent_reads_like_its_kernel():
    body = [
        assign("s", X["i"]),
        loop("j", 3, [assign("s", unary("sin", S * X["i"]) / (S + 2.0))]),
        store(Y, "i", S),
    ]
    made = generate_tangent(over(body, s="f64"), frozenset({"x"}))
    assert made.companions == {"x": "x_dot", "y": "y_dot"}
    assert made.scratch == {}
    assert (
        text(made.kernel)
        == """\
def by_hand_tangent(x: _, y: _, x_dot: _, y_dot: _):
    for i in range(x.shape[0]):
        s_dot = x_dot[i]
        s = x[i]
        for j in range(3):
            s_1 = x[i]
            s_2 = s * s_1
            s_3 = s + _lang.f32(2.0)
            s_4 = _lang.sin(s_2) / s_3
            s_dot = (s_dot * s_1 + x_dot[i] * s) * _lang.cos(s_2) / s_3 - s_dot * (s_4 / s_3)
            s = s_4
        y_dot[i] = s_dot
        y[i] = s"""
    )


def test_a_local_that_is_carried(lang64):
    body = [
        assign("s", 1.0),
        loop("j", 4, [assign("v", S), assign("s", S * X["i"] + V), assign("v", 0.5), assign("s", S * V)]),
        store(Y, "i", S * S * S),
    ]
    made = over(body, s="f64", v="f64")
    assert_tangents_agree(made, {"x": rand(5), "y": rand(5)}, {})
    assert_compiled_agrees(made, {"x": rand(5), "y": rand(5)}, {}, lang64, DOUBLE)


def test_a_local_whose_new_value_has_none():
    """The tangent of an older value goes."""
    body = [
        assign("s", X["i"]),
        branch(X["i"] > 0.0, [assign("s", 2.0)], [assign("s", local("i", "i32"))]),
        store(Y, "i", S * X["i"]),
    ]
    assert_tangents_agree(over(body, s="f64"), {"x": rand(7), "y": rand(7)}, {})


def test_loops_and_iterations_that_end_early():
    j = local("j", "i32")
    body = [
        assign("s", X["i"]),
        assign("n", const(0, "i32")),
        repeat(
            [
                branch(binary(">=", local("n", "i32"), 6), [nodes.Break()]),
                assign("n", local("n", "i32") + 1),
                assign("s", S * S + 0.1),
                branch(S > 0.3, [nodes.Continue()]),
                loop("j", 5, [branch(S < 0.05, [nodes.Break()]), assign("s", S * (1.0 - 0.1 * cast(j, "f64")))]),
            ]
        ),
        store(Y, "i", S),
    ]
    assert_tangents_agree(over(body, s="f64", n="i32"), {"x": 2 * rand(9), "y": rand(9)}, {})


def test_arguments(lang64):
    scale, matrix = argument("scale", "f64"), argument("m", "f64", (1, 0))
    body = [store(Y, "i", unary("exp", X["i"] * scale) * argument("gain", "f64") * matrix)]
    arguments = {"scale": ("f64", ()), "gain": ("f64", ()), "m": ("f64", (2, 2)), "n": ("i32", ())}
    made = over(body, arguments=arguments)
    numbers = {"scale": 0.7, "gain": 1.3, "m": rand(2, 2), "n": 3}
    arrays = {"x": rand(4), "y": rand(4)}
    forward = generate_tangent(made, frozenset({"x", "scale", "m", "n"}))
    assert forward.companions == {"x": "x_dot", "y": "y_dot", "scale": "scale_dot", "m": "m_dot"}
    assert {**forward.kernel.arguments} == {**arguments, "scale_dot": ("f64", ()), "m_dot": ("f64", (2, 2))}
    assert_tangents_agree(made, arrays, numbers)
    assert_tangents_agree(made, arrays, numbers, still=["x", "gain"])
    plain = over([store(Y, "i", X["i"] * scale * scale)], arguments={"scale": ("f64", ())})
    assert_compiled_agrees(plain, arrays, {"scale": 0.7}, lang64, DOUBLE)


def test_types_are_kept(lang64):
    """A tangent has its value's type, and is worked out in its operation's: in f64 where that is."""
    x, w, y = array("x", "f32"), array("w", "f64"), array("y", "f32")
    body = [
        assign("a", x["i"] * w["i"]),
        assign("b", local("a", "f64") * x["i"]),
        store(y, "i", local("b", "f32") + cast(local("a", "f64") * 0.5, "f32")),
    ]
    made = over(body, (x, w, y), a="f64", b="f32")
    forward = generate_tangent(made, frozenset({"x", "w"})).kernel
    assert [forward.arrays[name].type for name in ("x_dot", "w_dot", "y_dot")] == ["f32", "f64", "f32"]
    assert [forward.locals[name] for name in ("a_dot", "b_dot")] == ["f64", "f32"]
    arrays = {"x": rand(5).float(), "w": rand(5), "y": rand(5).float()}
    assert_tangents_agree(made, arrays, {})
    assert_compiled_agrees(made, arrays, {}, lang64, DOUBLE, rtol=1e-5)


def test_random_numbers_have_no_tangent():
    """The tangent's kernel draws the same ones."""
    body = [nodes.Draw("s", "f64"), store(Y, "i", S * X["i"]), assign("s", X["i"]), store(Y, "i", Y["i"] + S)]
    assert_tangents_agree(over(body, s="f64"), {"x": rand(5), "y": rand(5)}, {})


def test_kinks_and_singular_points():
    """Torch's, where the value is chosen; nothing of the side that is not, even where that is no number."""
    zero = const(0.0, "f64")
    body = [
        store(Y, "i", unary("abs", X["i"]) + binary("max", X["i"], zero)),
        store(Y, "i", Y["i"] + unary("norm", X["i"] * X["i"]) + binary("pow", X["i"], const(2.0, "f64"))),
        store(Y, "i", Y["i"] + select(X["i"] > 0.0, unary("sqrt", X["i"]), zero)),
        store(Y, "i", Y["i"] + binary("%", X["i"], const(0.7, "f64")) + unary("floor", X["i"])),
    ]
    points = torch.tensor([0.0, 0.5, -0.5, 2.0, -2.0], dtype=torch.float64)
    assert_tangents_agree(over(body), {"x": points, "y": rand(5)}, {})


def test_names_in_use_are_avoided():
    dot = array("x_dot", "f64")
    body = [
        assign("s", X["i"] * dot["i"]),
        assign("s_dot", S * 2.0),
        assign("s_1", S * S),
        store(Y, "i", local("s_dot", "f64") * unary("exp", local("s_1", "f64") * S)),
    ]
    made = over(body, (X, dot, Y), s="f64", s_dot="f64", s_1="f64")
    forward = generate_tangent(made, frozenset({"x", "x_dot"}))
    assert forward.companions == {"x": "x_dot_1", "x_dot": "x_dot_dot", "y": "y_dot"}
    assert_tangents_agree(made, {"x": rand(4), "x_dot": rand(4), "y": rand(4)}, {})


def test_tangents_of_fields_are_plain_arrays():
    field = array("f", "f64", 1, (2,), label="self.f")
    made = generate_tangent(over([store(Y, "i", field.at("i", (1,)) * X["i"])], (X, Y, field)), frozenset({"f"}))
    assert made.kernel.arrays["f_dot"] == nodes.Array("f_dot", "f64", 1, (2,))
    assert made.kernel.arrays["f"] == field.array


def test_statements_without_a_tangent_are_unchanged():
    body = [assign("s", X["i"]), store(Y, "i", S * 2.0)]
    made = over(body, s="f64")
    forward = generate_tangent(made, frozenset()).kernel
    assert forward.name == "by_hand_tangent"
    for field in fields(forward)[1:]:
        assert getattr(forward, field.name) == getattr(made, field.name), field.name
    whole = over([store(Y, "i", unary("round", X["i"]))])
    forward = generate_tangent(whole, frozenset({"x"}))
    assert forward.companions == {"x": "x_dot"}
    assert forward.kernel.body == whole.body


def test_a_kernel_changed_in_place(lang64):
    """State that is read and written: the tangent goes with it."""
    body = [store(Y, "i", 0.9 * Y[local("i", "i32") - 1] + unary("tanh", Y["i"] * X["i"]))]
    loop_ = nodes.For(("i",), ((nodes.Const(1, "i32"), X.size().expr),), tuple(body))
    made = kernel([X, Y], [loop_])
    assert_tangents_agree(made, {"x": rand(9), "y": rand(9)}, {})
    assert_tangents_agree(made, {"x": rand(9), "y": rand(9)}, {}, still=["y"])
    assert_compiled_agrees(made, {"x": rand(9), "y": rand(9)}, {}, lang64, DOUBLE)


def test_an_index_reads_the_array_it_stores_to(lang64):
    k = array("k", "i32")
    made = over([store(Y, (k["i"]), X["i"] * Y[k["i"]]), store(k, "i", 0)], (X, k, Y))
    arrays = {"x": rand(5), "k": torch.tensor([3, 1, 0, 2, 4]).int(), "y": rand(5)}
    assert_tangents_agree(made, arrays, {})
    assert_compiled_agrees(made, arrays, {}, lang64, DOUBLE)


def test_second_derivatives_in_two_directions():
    body = [
        assign("s", 1.0),
        loop("j", 3, [assign("s", unary("sin", S * X["i"]) + S * S * 0.3)]),
        store(Y, "i", binary("pow", S + 2.0, X["i"]) + unary("rsqrt", S * S + 1.0)),
    ]
    made = over(body, s="f64")
    arrays = {"x": rand(6), "y": rand(6)}
    along, then = ({"x": draw_directions(made, arrays, {}, seed)["x"]} for seed in (1, 2))
    mine = run_second_tangent(made, arrays, {}, along, then)
    torch.testing.assert_close(
        mine["y"], run_second_tangent_in_torch(made, arrays, {}, along, then)["y"], rtol=1e-11, atol=1e-12
    )
    assert mine["y"].abs().min() > 1e-3


# Bits -------------------------------------------------------------------------------------------


def bits(value):
    return cast(value, "i64", keeps_bits=True)


def test_conditions_on_bits_do_not_prevent_tangents():
    """As `isnan` asks."""
    body = [assign("b", bits(X["i"])), branch(local("b", "i64") > 0, [store(Y, "i", X["i"] * X["i"])])]
    assert_tangents_agree(over(body, b="i64"), {"x": rand(7), "y": rand(7)}, {})


def test_a_float_made_of_another_one_s_bits_is_refused():
    k = array("k", "i64")
    half = binary("-", const(6910469410427058089, "i64"), binary(">>", local("b", "i64"), 1))
    through = [
        [assign("b", bits(X["i"])), store(Y, "i", nodes_cast(half), line=4)],
        [assign("b", bits(X["i"])), store(k, "i", half), store(Y, "i", nodes_cast(k["i"]), line=4)],
        [store(Y, "i", nodes_cast(bits(X["i"])), line=4)],
    ]
    for body in through:
        made = over(body, (X, k, Y), b="i64")
        with pytest.raises(NotCovered, match="a derivative through the bits of a float, at by_hand.py:4"):
            generate_tangent(made, frozenset({"x"}))
        assert generate_tangent(made, frozenset({"y"})).companions == {"y": "y_dot"}


def nodes_cast(value):
    return cast(value, "f64", keeps_bits=True)


def test_operations_without_a_derivative_rule_are_refused():
    made = over([store(Y, "i", binary("raw_mod", X["i"], const(2.0, "f64")), line=6)])
    with pytest.raises(NotCovered, match="the derivative of `raw_mod`, at by_hand.py:6") as caught:
        generate_tangent(made, frozenset({"x"}))
    assert caught.value.line == 6
    assert generate_tangent(made, frozenset({"y"})).companions == {"y": "y_dot"}


def test_values_and_tangents_share_subexpressions():
    """A tangent shares with its value what both need."""
    deep = E(X["i"].expr)
    for _ in range(6):
        deep = unary("sin", unary("exp", deep) * deep)
    made = generate_tangent(over([store(Y, "i", deep)]), frozenset({"x"})).kernel
    for name in ("sin", "exp", "cos"):
        assert text(made).count(f"_lang.{name}(") == 6
