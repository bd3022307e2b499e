"""Which loops run in lanes, and what they become."""

import ast
from dataclasses import replace

import pytest

from support.by_hand import DEFAULTS, E, array, assign, atomic, binary, branch, cast, kernel, local, loop, store, unary
from tinsmith.codegen import print_kernel
from tinsmith.ir import nodes
from tinsmith.passes import has_vector_loops, run_on_one_thread, strip_functions
from tinsmith.passes.strips._engine_vectors import WIDTH, with_vectors

X, Y, D = array("x"), array("y"), array("d", "f64")
KINDS = {"a": "f32", "e": "f32", "t": "f32", "d_1": "f64"}
T = local("t")


def of(*body, is_parallel=True, before=()):
    """Build a kernel of one loop whose iterations each run a `while`."""
    while_ = nodes.While(tuple(body))
    inner = [assign("t", 0.5), *before, while_, store(Y, "r", T)]
    return kernel([X, Y, D], [loop("r", Y.size(), inner, is_parallel=is_parallel)], **KINDS)


def leave_at(expr):
    return branch(expr > 4.0, [nodes.Break()])


def text(one):
    printed = print_kernel(one, dict.fromkeys(one.arrays, "_lang.types.ndarray()"), DEFAULTS)
    return ast.unparse(printed)


def test_a_loop_in_lanes():
    """An index that is the iteration's own is read by all lanes, where the array is long enough."""
    printed = text(strip_functions(of(leave_at(T), assign("t", T + X["r"]))))
    assert printed == ast.unparse(
        ast.parse("""
def by_hand(x: _lang.types.ndarray(), y: _lang.types.ndarray(), d: _lang.types.ndarray()):
    for block_first in range(y.shape[0]):
        if block_first & 31 == 0:
            block_size = _lang.min(32, y.shape[0] - block_first)
            if (x.shape[0] > 0) & (x.shape[0] >= y.shape[0]):
                active_lanes = _lang.Vector([0] * 32, dt=_lang.i32)
                stored_lanes = _lang.Vector([0.0] * 32, dt=_lang.f32)
                t_lanes = _lang.Vector([0.0] * 32, dt=_lang.f32)
                of_lanes = 0
                for lane in range(block_size):
                    r = block_first + lane
                    t = 0.5
                    active = True
                    of_lanes = of_lanes + _lang.cast(active, _lang.i32)
                    active_lanes[lane] = _lang.cast(active, _lang.i32)
                    t_lanes[lane] = t
                while True:
                    for turn in range(1073741824):
                        if of_lanes == 0:
                            break
                        of_lanes = 0
                        for lane in range(block_size):
                            active = active_lanes[lane] != 0
                            r = block_first + lane
                            t = t_lanes[lane]
                            holds = t > 4.0
                            lanes = active & holds
                            lanes_1 = active & (not holds)
                            lanes_2 = lanes_1
                            t = t + _lang.select(lanes_2, x[r], 0.0)
                            active = lanes_2
                            of_lanes = of_lanes + _lang.cast(active, _lang.i32)
                            active_lanes[lane] = _lang.cast(active, _lang.i32)
                            t_lanes[lane] = t
                    if of_lanes == 0:
                        break
                for lane in range(block_size):
                    t = t_lanes[lane]
                    stored = t
                    stored_lanes[lane] = stored
                for lane in range(block_size):
                    r = block_first + lane
                    stored = stored_lanes[lane]
                    y[r] = stored
            else:
                for iteration in range(block_first, block_first + block_size):
                    r = iteration
                    t = 0.5
                    while True:
                        if t > 4.0:
                            break
                        t = t + x[r]
                    y[r] = t
""")
    )


def test_lanes_on_one_thread():
    """A loop that was parallel runs over blocks, and what lanes add to one element is added after all were computed."""
    summed = of(leave_at(T), assign("t", T + X["r"]), before=[atomic_add(0, X["r"])])
    one = run_on_one_thread(summed)
    printed = text(strip_functions(one))
    assert "for block in range(y.shape[0] + 31 >> 5):" in printed
    assert "y[0] = y[0] + of_lanes" in printed
    # The loop beside it is the kernel's own, for arrays that are too short.
    assert printed.count("y[0] = y[0] + x[r]") == 1 and "atomic" not in printed


def test_an_inactive_lane_reads_element_0():
    """Of an index that the loop changes nothing is known."""
    steps = [T * T + T * 0.5 + 1.0] * 3
    body = [assign("n", local("n", "i32") + 1), assign("t", T + X[local("n", "i32")] + steps[0] * steps[1] * steps[2])]
    while_ = nodes.While((leave_at(T), *body))
    inner = [assign("t", 0.5), assign("n", 0), while_, store(Y, "r", T)]
    one = kernel([X, Y], [loop("r", Y.size(), inner, is_parallel=True)], t="f32", n="i32")
    assert "x[_lang.select(lanes_2, n, 0)]" in text(strip_functions(one))


def test_a_known_element_in_a_branch():
    """It is read without a test whether a lane takes the branch, which takes a loop of its own."""
    body = [leave_at(T), branch(T > 1.0, [assign("t", T * X[2])]), assign("t", T * T + T * 0.5 + 1.0)]
    printed = text(strip_functions(of(*body)))
    assert "x.shape[0] > 2" in printed and "of_lanes_1" not in printed


def test_lanes_agree_on_lists():
    """The sum of all lanes goes to an element that they share by one atomic."""
    group = nodes.Binary(">>", nodes.Local("r", "i32"), nodes.Const(4, "i32"), "i32")
    starts = array("starts", "i32")
    ends = nodes.Load("starts", (group,), (), "i32")
    alpha = X["k"] * T + 0.1
    inner = nodes.For(
        ("k",), ((nodes.Const(0, "i32"), ends),), (leave_at(T), assign("t", T + alpha), atomic_add("k", T))
    )
    body = [assign("t", 0.5), inner]
    printed = text(strip_functions(kernel([X, Y, starts], [loop("r", Y.size(), body, is_parallel=True)], t="f32")))
    assert "lanes_agree = of_lanes == of_lanes_1" in printed
    assert "_lang.atomic_add(y[k], of_lanes_" in printed
    assert "for lane in range(block_size)" in printed


def test_lanes_in_vectors():
    """Of 16 numbers each, where a block is full; an element of its own is loaded once."""
    one = strip_functions(of(leave_at(T), assign("t", T + X["r"] * unary("exp", T))), has_vectors=True)
    printed = text(one)
    assert has_vector_loops(one)
    assert "(block_size == 32)" in printed
    assert printed.count("_exp_of_16(") == 2
    assert printed.count("[x[r_1[entry_1]] for entry_1 in _lang.static(range(16))]") == 2
    assert "t_lanes_1 = _lang.Vector([0.0] * 16, dt=_lang.f32)" in printed
    assert "y[r] = stored" in printed


def test_large_loops_use_a_single_vector():
    body = [assign("t", T * 0.5 + unary("exp", T)) for _ in range(6)]
    assert "if block_size == 16:" in text(strip_functions(of(leave_at(T), *body), has_vectors=True))


def test_a_kernel_with_vectors_of_its_own():
    """It would hold those in another way, too."""
    one = of(leave_at(T), assign("t", T + X["r"]))
    arrays = dict(one.arrays) | {"v": nodes.Array("v", "f32", 1, (3,))}
    assert not has_vector_loops(strip_functions(replace(one, arrays=arrays), has_vectors=True))


def test_functions_that_vectors_do_not_have():
    """Number by number they take longer than a loop."""
    one = of(leave_at(T), assign("t", T + X["r"] * unary("tanh", T)))
    assert text(strip_functions(one, has_vectors=True)) == text(strip_functions(one))


def test_loops_too_large_for_vectors_stay():
    one = of(leave_at(T), *[assign("t", T * T + unary("exp", T))] * 20)
    assert text(strip_functions(one, has_vectors=True)) == text(strip_functions(one))


def power(base, exponent):
    return E(nodes.Binary("pow", base.expr, exponent.expr, "f32"))


def test_powers_by_arithmetic():
    """Where they pay; else a power keeps its loop from lanes, as a function of the library does."""
    one = of(leave_at(T), assign("t", power(T, X["r"])))
    assert strip_functions(one) is one
    printed = text(strip_functions(one, has_fast_vectors=True))
    assert "t = _lang.select(lanes_2, _pow(t, x[r]), t)" in printed
    whole = of(leave_at(T), assign("t", power(T, cast(T, "i32"))))
    assert strip_functions(whole, has_fast_vectors=True) is whole
    outside = kernel([X, Y], [loop("r", Y.size(), [store(Y, "r", power(X["r"], X["r"]))], is_parallel=True)])
    assert "_pow" not in text(strip_functions(outside, has_fast_vectors=True))


def atomic_add(index, value):
    return atomic("add", Y, index, value)


STAYS = {
    "a loop on one thread": of(leave_at(T), assign("t", T + X["r"]), is_parallel=False),
    "a function of the library": of(leave_at(T), assign("t", T + unary("asin", T))),
    "float64": of(leave_at(T), assign("d_1", D["r"] * 2.0), assign("t", T + local("d_1", "f64"))),
    "more reads than work": of(leave_at(T), assign("t", X[cast(T, "i32")] + 1.0)),
    "so much that it compiles slowly": of(leave_at(T), *[assign("t", T * T + unary("exp", T))] * 35),
    "random numbers": of(leave_at(T), nodes.Draw("t", "f32")),
}


@pytest.mark.parametrize("name", STAYS)
def test_ineligible_loops_stay(name):
    assert strip_functions(STAYS[name]) is STAYS[name]


def test_a_difference_over_lanes_is_no_sum_of_vectors():
    """Two vectors of a difference would be put together by `-` first, which adds the second one again."""
    lane, total = local("lane", "i32"), local("total")
    for operator, width in (("+", WIDTH), ("max", WIDTH), ("-", 0)):
        body = loop("lane", 2 * WIDTH, [assign("total", binary(operator, total, X[lane]))])
        (printed,) = with_vectors([body], nodes.Local("lane", "i32"), 2 * WIDTH, {"total": "f32"})
        assert printed.vector_width == width, operator


def test_a_sum_that_an_iteration_reads_is_none_of_vectors():
    """Each iteration needs what the one before it left: a vector has only the last value."""
    lane, total = local("lane", "i32"), local("total")
    add = assign("total", binary("+", total, X[lane]))
    body = loop("lane", 2 * WIDTH, [add, store(Y, lane, total)])
    (printed,) = with_vectors([body], nodes.Local("lane", "i32"), 2 * WIDTH, {"total": "f32"})
    assert printed.vector_width == 0
