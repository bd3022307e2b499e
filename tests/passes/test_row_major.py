"""What becomes of indices into arrays of several axes, and which kernels that pays for."""

import ast
from dataclasses import replace

import pytest

from support.by_hand import DEFAULTS, array, assign, atomic, branch, kernel, local, loop, store
from tinsmith.codegen import print_kernel
from tinsmith.ir import nodes
from tinsmith.passes import has_rows_in_loops, index_by_rows

X, Y, Z = array("x"), array("y", rank=2), array("z", rank=3)


def of(*body, arrays=(X, Y, Z), **kinds):
    """Build a kernel of one loop with one inner loop."""
    inner = loop("s", X.size(), body)
    return kernel([*arrays], [loop("r", X.size(), [inner], is_parallel=True)], a="f32", **kinds)


def with_dims(one, **dims):
    arrays = {name: replace(array, dims=dims.get(name, ())) for name, array in one.arrays.items()}
    return replace(one, arrays=arrays)


def text(one):
    printed = print_kernel(one, dict.fromkeys(one.arrays, "_lang.types.ndarray()"), DEFAULTS)
    return ast.unparse(printed)


def body_of(one):
    return text(one).partition("range(x.shape[0]):\n")[2]


def test_sizes_are_locals_of_the_outermost_loop():
    one = of(store(Y, ("r", "s"), Z["r", "s", 2] * X["s"]))
    assert text(index_by_rows(one)) == ast.unparse(
        ast.parse("""
def by_hand(x: _lang.types.ndarray(), y: _lang.types.ndarray(), z: _lang.types.ndarray()):
    for r in range(x.shape[0]):
        x_size = x.shape[0]
        z_size = z.shape[1]
        z_size_1 = z.shape[2]
        y_size = y.shape[1]
        for s in range(x_size):
            at = r * z_size + s
            at_1 = at * z_size_1
            at_2 = r * y_size + s
            y[0, at_2] = z[0, 0, at_1 + 2] * x[s]
""")
    )


def test_sizes_that_a_spec_knows_are_numbers_and_equal_ones_are_one_local():
    one = with_dims(of(store(Y, ("r", "s"), Z["r", "s", 2])), x=("m",), y=("n", "m"), z=("n", "m", 3))
    assert text(index_by_rows(one)) == ast.unparse(
        ast.parse("""
def by_hand(x: _lang.types.ndarray(), y: _lang.types.ndarray(), z: _lang.types.ndarray()):
    for r in range(x.shape[0]):
        x_size = x.shape[0]
        for s in range(x_size):
            at = r * x_size + s
            at_1 = at * 3
            y[0, at] = z[0, 0, at_1 + 2]
""")
    )


def test_dims_of_another_rank_say_nothing():
    """A pass that gave the array another axis, and did not say how long it is."""
    one = with_dims(of(store(Y, ("r", "s"), Z["r", "s", 2])), z=("m", 3))
    assert "at_1 = at * z_size_1" in text(index_by_rows(one))


def test_a_lane_stays_the_last_term_of_vectors():
    """By it elements are known to lie side by side."""
    lanes = replace(loop("lane", 16, [store(Y, ("r", local("first", "i32") + "lane"), 1.0)]), vector_width=16)
    one = kernel([X, Y], [loop("r", X.size(), [assign("first", 0), lanes], is_parallel=True)], first="i32")
    assert "y[0, r * y_size + first + entry_1] = vector_1[entry_1]" in text(index_by_rows(one))


def test_an_index_is_computed_again_once_a_part_of_it_is_another_number():
    """In a block, in a loop inside it, and behind a branch that changes it."""
    changed = branch(Y["r", "k"] > 0.0, [assign("k", local("k", "i32") + 1), store(Y, ("r", "k"), 2.0)])
    body = [assign("k", 0), store(Y, ("r", "k"), 1.0), changed, store(Y, ("r", "k"), 3.0)]
    one = kernel([X, Y], [loop("r", X.size(), body, is_parallel=True)], k="i32")
    assert (
        body_of(index_by_rows(one))
        == """\
        y_size = y.shape[1]
        k = 0
        at = r * y_size + k
        y[0, at] = 1.0
        at_1 = r * y_size + k
        if y[0, at_1] > 0.0:
            k = k + 1
            at_2 = r * y_size + k
            y[0, at_2] = 2.0
        at_3 = r * y_size + k
        y[0, at_3] = 3.0"""
    )


def test_an_index_from_memory_is_read_each_time():
    """Between two statements another one may store there."""
    index = array("of", "i32")
    body = [store(Y, ("r", index["r"]), 1.0), store(index, "r", 0), store(Y, ("r", index["r"]), 2.0)]
    one = kernel([X, Y, index], [loop("r", X.size(), body, is_parallel=True)])
    assert text(index_by_rows(one)).count("y[0, r * y_size + of[r]]") == 2


def test_wide_indices_are_cut_as_engines_do():
    one = of(atomic("add", Y, ("r", local("k", "i64")), 1.0), k="i64")
    assert "at = r * y_size + _lang.cast(k, _lang.i32)" in text(index_by_rows(one))


def test_the_top_level_keeps_its_indices():
    """There nothing is computed again."""
    one = kernel([X, Y], [store(Y, (1, 2), X[0])])
    assert text(index_by_rows(one)) == text(one)


@pytest.mark.parametrize("change", [{"label": "self.y"}, {"is_of_blocks": True}])
def test_arrays_without_a_launch_argument_keep_their_indices(change):
    one = of(store(Y, ("r", "s"), 1.0), arrays=(X, Y))
    one = replace(one, arrays={**one.arrays, "y": replace(one.arrays["y"], **change)})
    assert "y[r, s]" in text(index_by_rows(one))
    assert not has_rows_in_loops(one)


def test_row_indexing_is_used_for_rows_in_nested_loops():
    assert has_rows_in_loops(of(store(Y, ("r", "s"), 1.0)))
    assert has_rows_in_loops(of(assign("a", Y["r", "s"])))
    assert not has_rows_in_loops(of(assign("a", X["s"])))
    outer = [loop("r", X.size(), [store(Y, ("r", 0), 1.0)], is_parallel=True)]
    assert not has_rows_in_loops(kernel([X, Y], outer))


def test_a_kernel_without_rows_is_the_same_one():
    one = of(assign("a", X["s"]), arrays=(X,))
    assert index_by_rows(one) is one
    assert isinstance(one, nodes.Kernel)
