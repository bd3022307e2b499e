"""Liveness in nests of loops: what is live is found in time linear in the depth of a nest."""

import pytest

from tinsmith.analyses import Liveness
from tinsmith.ir import nodes

ONE = nodes.Const(1.0, "f32")


def local(name):
    return nodes.Local(name, "f32")


def nest(depth):
    """Build sums in nested loops: each loop carries a local that is reset before it."""
    name = f"a_{depth}"
    step = nodes.Assign(name, nodes.Binary("*", local(name), local("x"), "f32"))
    inner = nest(depth - 1) if depth > 1 else ()
    bounds = ((nodes.Const(0, "i32"), nodes.Const(3, "i32")),)
    return nodes.Assign(name, ONE), nodes.For((f"i_{depth}",), bounds, (step, *inner))


class Counting(Liveness):
    """Counts how often it comes to a statement without others inside it."""

    count = 0

    def plain(self, one, live):
        self.count += 1
        return super().plain(one, live)


@pytest.mark.parametrize("depth", [2, 4, 8])
def test_a_loop_is_walked_once_more_for_each_loop_around_it(depth):
    counting = Counting()
    _, live = counting.block(nest(depth), frozenset())
    assert live == {"x"}
    assert counting.count <= depth * (depth + 3)  # about 3 * 2 ** depth where inner loops are started anew


def test_loops_that_follow_each_other_know_nothing_of_each_other():
    first, second = (nodes.Assign("b", local(name)) for name in ("c", "d"))
    bounds = ((nodes.Const(0, "i32"), nodes.Const(3, "i32")),)
    loops = [nodes.For((name,), bounds, (one,)) for name, one in (("i", first), ("j", second))]
    between = nodes.Assign("d", ONE)
    outer = nodes.For(("k",), bounds, (loops[0], between, loops[1]))
    assert Liveness().block((outer,), frozenset())[1] == {"c"}
