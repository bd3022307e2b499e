"""What a launch costs is counted in the IR: as a formula of sizes and arguments."""

import sys

import pytest
import torch

from support.roundtrip import lower_kernel
from support.written import compile_text
from tinsmith.engines import COMPILING
from tinsmith.ir import nodes, walk
from tinsmith.passes import evaluate, formula_text
from tinsmith.passes.adjoint import count_loss_by_atomics, count_operations, count_parallel_loops

HEAD = "def kernel(x: lang.types.ndarray(), y: lang.types.ndarray(), n: lang.i32):\n"
COUNTED = {  # the body, what it costs with six numbers in `x` and `n` of 5, and how many loops wake threads
    "a load, a product, a store": (["for i in x:", "    y[i] = 2.0 * x[i]"], 6 * 3, 1),
    "a function": (["for i in x:", "    y[i] = lang.exp(x[i])"], 6 * (10 + 2), 1),
    "a power": (["for i in x:", "    y[i] = x[i] ** 0.3"], 6 * (10 + 2), 1),
    "a loop in a loop": (["for i in x:", "    for j in range(n):", "        y[i] = x[j]"], 6 * 5 * 2, 1),
    "two loops": (["for i in x:", "    y[i] = x[i]", "for i in y:", "    y[i] = 1.0"], 6 * 2 + 4, 2),
    "an atomic": (["for i in x:", "    y[0] += x[i]"], 6 * (4 + 1), 1),
    "both branches": (["for i in x:", "    if x[i] > 0:", "        y[i] = x[i]"], 6 * (2 + 2), 1),
    "integers": (["for i in x:", "    y[i] = i * n"], 6 * 2, 1),
    "a loop that ends by data": (
        ["for i in x:", "    for _ in range(lang.cast(x[i], lang.i32)):", "        y[i] = 1.0"],
        6 * (2 + 1),
        1,
    ),
    "an empty range": (["for i in range(n, 3):", "    y[i] = x[i]"], 0, 1),
}


@pytest.mark.parametrize("name", COUNTED)
def test_operations(lang, name):
    lines, wanted, loops = COUNTED[name]
    source = HEAD + "".join(f"    {line}\n" for line in lines)
    kernel = lower_kernel(compile_text(lang, source), torch.zeros(6), torch.zeros(4), 5).kernel
    formula = count_operations(kernel, lambda _: True)
    assert evaluate(formula, {"x": (6,), "y": (4,)}, {"n": 5}) == wanted
    assert count_parallel_loops(kernel) == loops


def test_a_size_that_is_not_known_counts_once(lang):
    source = HEAD + "    for i in x:\n        for j in y:\n            y[j] = x[i]\n"
    kernel = lower_kernel(compile_text(lang, source), torch.zeros(6), torch.zeros(4), 5).kernel

    def is_known(formula):
        return all(one.array == "x" for one in walk.parts(formula) if isinstance(one, nodes.Size))

    assert evaluate(count_operations(kernel, is_known), {"x": (6,)}, {}) == 6 * 2


MANY = {  # statements of a loop's body, 300 times, and what they cost with six numbers in `x` and `n` of 5
    "branches": (["    if x[i] > 0:", "        y[i] = x[i]"], 6 * 300 * (2 + 2)),
    "loops of unequal lengths": (
        ["    for j in range(n + {0}):", "        y[j] = x[i]"],
        6 * (300 + 2 * (300 * 5 + 44850)),  # the end of each loop is a sum
    ),
}


@pytest.mark.parametrize("name", MANY)
def test_a_formula_of_many_parts_is_one_that_python_reads(lang, name):
    """Its parser takes at most 200 nested parentheses."""
    lines, wanted = MANY[name]
    lines = [line.format(number) for number in range(300) for line in lines]
    source = HEAD + "".join(f"    {line}\n" for line in ["for i in x:", *lines])
    with COMPILING:
        kernel = lower_kernel(compile_text(lang, source), torch.zeros(6), torch.zeros(400), 5).kernel
        formula = count_operations(kernel, lambda _: True)
        text = formula_text(formula, lambda array, axis: f"{array}_{axis}", str)
    assert eval(text, {"x_0": 6, "n": 5}) == wanted


ATOMICS = {  # the body, and of how many threads at most six numbers in `x` are quicker on one, 0 for of none
    "a sum": (["for i in x:", "    y[0] += x[i]"], 4),
    "elements of an iteration's own": (["for i in x:", "    y[i] += x[i]"], 0),
    "in order": (["lang.loop_config(serialize=True)", "for i in x:", "    y[0] += x[i]"], 0),
    "much work for one": (["for i in x:", "    y[0] += lang.exp(lang.sin(x[i]))"], 1),
    "an inner loop of unknown length": (
        ["for i in x:", "    for j in range(lang.cast(x[i], lang.i32)):", "        y[j] += x[i]"],
        4,
    ),
    "behind a loop of unknown length": (
        [
            "for i in x:",
            "    s = 0.0",
            "    for j in range(lang.cast(x[i], lang.i32)):",
            "        s += x[j]",
            "    y[0] += s",
        ],
        1,
    ),
    "a loop that ends by data, which may run in lanes": (
        ["for i in x:", "    t = 0.0", "    while t < x[i]:", "        t += 1.0", "        y[0] += t"],
        0,
    ),
}


@pytest.mark.parametrize("name", ATOMICS)
def test_atomics_that_cost_more_than_threads_save(lang, name):
    lines, most = ATOMICS[name]
    source = HEAD + "".join(f"    {line}\n" for line in lines)
    kernel = lower_kernel(compile_text(lang, source), torch.zeros(6), torch.zeros(4), 5).kernel

    def loss(threads):
        return evaluate(count_loss_by_atomics(kernel, lambda _: True, threads), {"x": (6,), "y": (4,)}, {"n": 5})

    quicker = [threads for threads in range(1, 65) if loss(threads) > 0]
    assert quicker == [*range(1, most + 1)]


@pytest.fixture
def _deep_recursion():
    """Raise the recursion limit: lowering nested branches takes several calls for each."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(4 * limit)
    yield
    sys.setrecursionlimit(limit)


@pytest.mark.usefixtures("_deep_recursion")
def test_the_formula_of_a_long_chain_of_branches_is_no_deeper(lang):
    branches = "".join(f"        elif x[i] > {-place}:\n            y[i] = x[i]\n" for place in range(1, 210))
    source = f"{HEAD}    for i in x:\n        if x[i] > 0:\n            y[i] = x[i]\n{branches}"
    kernel = lower_kernel(compile_text(lang, source), torch.zeros(6), torch.zeros(4), 5).kernel
    text = formula_text(count_operations(kernel, lambda _: True), lambda array, axis: "6", lambda name: "5")
    # Python's parser takes 200 nested parentheses.
    assert eval(text) == 6 * 210 * (2 + 2)
