"""Loops that change nothing but memory which nobody reads."""

from tinsmith.ir import nodes
from tinsmith.passes.polish import eliminate_dead_code

I = nodes.Local("i", "i32")  # noqa: E741
OLD = nodes.Local("old", "f32")
ZERO, ONE = nodes.Const(0, "i32"), nodes.Const(1.0, "f32")


def counting(*more):
    """Build a loop that counts in `g`, and ends where the count was small."""
    is_small = nodes.Binary("<", OLD, ONE, "u1")
    body = (nodes.Atomic("add", "g", (I,), (), ONE, "old"), nodes.If(is_small, (nodes.Break(),)), *more)
    return nodes.For(("i",), ((ZERO, nodes.Size("g", 0)),), body)


def test_a_counter_that_only_its_loop_uses_is_removed():
    assert eliminate_dead_code([counting()], private={"g"}) == ()


def test_a_counter_that_is_read_stays():
    assert eliminate_dead_code([counting()]) == (counting(),)
    read = nodes.Store("y", (), (), nodes.Load("g", (ZERO,), (), "f32"))
    assert eliminate_dead_code([counting(), read], private={"g"}) == (counting(), read)


def test_a_counter_that_decides_a_store_stays():
    loop = counting(nodes.Store("y", (I,), (), OLD))
    assert eliminate_dead_code([loop], private={"g"}) == (loop,)


def test_a_count_whose_last_value_is_read_stays():
    loop = counting()
    assert eliminate_dead_code([loop], ["old"], private={"g"}) == (loop,)
