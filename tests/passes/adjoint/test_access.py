"""Which elements belong to one iteration: told by indices, also by copies of loop variables."""

import pytest

from support.backwards import build_backward
from support.by_hand import array, assign, branch, kernel, local, loop, store
from tinsmith.ir import nodes, walk
from tinsmith.passes.adjoint import Run

X, Y, K = array("x", "f64"), array("y", "f64"), array("k", "i32")
M = local("m", "i32")
ONE_WAY = branch(X["i"] > 0.0, [assign("m", local("i", "i32") + 1)], [assign("m", local("i", "i32"))])
OTHER_WAY = branch(X["i"] > 0.0, [assign("m", local("i", "i32"))], [assign("m", local("i", "i32") + 1)])
COPIES = {
    "copy": ([assign("m", local("i", "i32"))], True),
    "calculated": ([assign("m", local("i", "i32") + 1)], True),
    "calculated from what was loaded": ([assign("m", local("i", "i32") + K["i"])], False),
    "a multiple": ([assign("m", local("i", "i32") * 3)], True),
    "a multiple that wraps around": ([assign("m", local("i", "i32") * 65536 * 65536)], False),
    "the same for all": ([assign("m", local("i", "i32") * 0)], False),
    "copy on one way": ([assign("m", 0), ONE_WAY], False),
    "copy on the other way": ([assign("m", 0), OTHER_WAY], False),
}


@pytest.mark.parametrize("name", COPIES)
def test_copies_of_loop_variables_are_recognized(name):
    """Plain additions to the adjoint where no other iteration can come to the element, else atomic ones."""
    first, is_own = COPIES[name]
    made = kernel([X, Y, K], [loop("i", Y.size(), [*first, store(Y, "i", X[M] * 2.0)], is_parallel=True)], m="i32")
    (run,) = [action for action in build_backward([made], ["x"], ["y"], ["y"]).actions if isinstance(action, Run)]
    changes = [type(one) for one in walk.stores(run.kernel.body) if one.array == "grad_x"]
    assert changes == [nodes.Store if is_own else nodes.Atomic]
