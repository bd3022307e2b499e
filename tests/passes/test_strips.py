"""Which functions of a loop are worked out ahead, and what the loop becomes."""

import ast

import pytest

from support.by_hand import DEFAULTS, array, assign, branch, kernel, local, loop, select, store, unary
from tinsmith.codegen import print_kernel
from tinsmith.ir import nodes
from tinsmith.passes import strip_functions

X, Y = array("x"), array("y")
KINDS = {"a": "f32", "e": "f32", "t": "f32"}


def exp(value):
    return unary("exp", value)


def of(*body, end=None, is_parallel=True, **kinds):
    """Build a kernel of one loop with one inner loop."""
    inner = loop("s", X.size() if end is None else end, body)
    return kernel([X, Y], [loop("r", Y.size(), [inner], is_parallel=is_parallel)], **KINDS, **kinds)


def text(one):
    printed = print_kernel(one, dict.fromkeys(one.arrays, "_lang.types.ndarray()"), DEFAULTS)
    return ast.unparse(printed)


def test_a_loop_in_strips():
    body = [assign("a", X["s"] * 2.0), assign("e", exp(local("a"))), store(Y, "r", Y["r"] + local("e"))]
    assert text(strip_functions(of(*body))) == ast.unparse(
        ast.parse("""
def by_hand(x: _lang.types.ndarray(), y: _lang.types.ndarray()):
    for r in range(y.shape[0]):
        strip_begin = 0
        strip_end = x.shape[0]
        if strip_end - strip_begin < 8:
            for s in range(strip_begin, strip_end):
                a = x[s] * 2.0
                e = _lang.exp(a)
                y[r] = y[r] + e
        else:
            exp_ahead = _lang.Vector([0.0] * 64, dt=_lang.f32)
            for strip_of in range(strip_end - strip_begin + 63 >> 6):
                strip_first = strip_begin + (strip_of << 6)
                strip_size = _lang.min(64, strip_end - strip_first)
                strip_whole = strip_size & -8
                for lane in range(strip_whole):
                    s_1 = strip_first + lane
                    a_1 = x[s_1] * 2.0
                    exp_ahead[lane] = _exp(a_1)
                for lane_1 in range(strip_whole, strip_size):
                    s_2 = strip_first + lane_1
                    a_2 = x[s_2] * 2.0
                    exp_ahead[lane_1] = _lang.exp(a_2)
                for lane_2 in range(strip_size):
                    s = strip_first + lane_2
                    a = x[s] * 2.0
                    e = exp_ahead[lane_2]
                    y[r] = y[r] + e
""")
    )


def test_loads_that_find_the_same_element_come_first():
    """Not in the short loop, which may have no iteration; not before a test, nor from an array that it changes."""
    scale, limit = array("scale"), array("limit", rank=0)
    tested = branch(X["s"] > 0.0, [store(Y, "s", limit[()])])
    chosen = select(X["s"] > 1.0, scale[1], 0.0)
    body = [assign("e", exp(X["s"] * scale["r"])), store(Y, "s", local("e") * Y[0] + chosen + scale["s"]), tested]
    inner = loop("s", X.size(), body)
    arrays = [X, Y, scale, limit]
    printed = text(strip_functions(kernel(arrays, [loop("r", 9, [inner])], e="f32")))
    short, long = printed.split("        else:\n")
    assert "e = _lang.exp(x[s] * scale[r])" in short
    before, strips = long.split("for strip_of in")
    assert [line.strip() for line in before.splitlines()][1:-1] == ["scale_at = scale[r]"]
    assert "_exp(x[s_1] * scale_at)" in strips
    assert "e * y[0] + _lang.select(x[s] > 1.0, scale[1], 0.0) + scale[s]" in strips
    assert "y[s] = limit[None]" in strips


def test_exponentials_in_vectors():
    """Arguments first: what lies side by side in an array of one's own is a vector to every compiler."""
    printed = text(strip_functions(of(store(Y, "r", exp(X["s"])), end=128), has_vectors=True))
    assert [line.strip() for line in printed.splitlines()][8:17] == [
        "strip_in_vectors = _lang.select(strip_size >= 32, strip_size & -16, 0)",
        "for lane in range(strip_in_vectors):",
        "s_1 = strip_first + lane",
        "exp_ahead[lane] = x[s_1]",
        "for part in range(strip_in_vectors >> 4):",
        "base = part * 16 & 63",
        "vector_1 = _lang.Vector([exp_ahead[base + entry_1] for entry_1 in _lang.static(range(16))], dt=_lang.f32)",
        "vector_2 = _exp_of_16(vector_1)",
        "for entry_1 in _lang.static(range(16)):",
    ]


@pytest.mark.parametrize("name", ["tanh", "sin"])
def test_functions_that_vectors_do_not_have(name):
    one = of(store(Y, "r", exp(X["s"]) + unary(name, X["s"])))
    assert text(strip_functions(one, has_vectors=True)) == text(strip_functions(one))


def test_a_loop_of_known_length():
    assert "if" not in text(strip_functions(of(store(Y, "r", exp(X["s"])), end=8)))


STAYS = {
    "of what the loop carries": of(store(Y, "r", exp(local("t"))), assign("t", X["s"])),
    "of what the loop carries, and of its next value in the same words": of(
        store(Y, "r", exp(local("t"))), assign("t", X["s"]), store(Y, "r", exp(local("t")))
    ),
    "of a local with two values": of(
        assign("a", X["s"]), assign("a", local("a") * 2.0), store(Y, "r", exp(local("a")))
    ),
    "of a local from a branch": of(branch(X["s"] > 0.0, [assign("a", X["s"])]), store(Y, "r", exp(local("a")))),
    "of an array that the loop changes": of(store(Y, "s", exp(Y["r"]))),
    "in a branch": of(branch(X["s"] > 0.0, [store(Y, "r", exp(X["s"]))])),
    "in a loop that may end early": of(
        branch(X["s"] > 0.0, [nodes.Break()]), store(Y, "r", exp(X["s"])), is_parallel=False
    ),
    "behind a `continue`": of(branch(X["s"] > 0.0, [nodes.Continue()]), store(Y, "r", exp(X["s"]))),
    "of a short loop": of(store(Y, "r", exp(X["s"])), end=7),
    "of float64": of(assign("d", exp(local("b", "f64"))), d="f64", b="f64"),
    "another function": of(store(Y, "r", unary("asin", X["s"]))),
}


@pytest.mark.parametrize("name", STAYS)
def test_ineligible_loops_stay(name):
    assert strip_functions(STAYS[name]) is STAYS[name]
