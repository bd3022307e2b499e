"""Generated statements made short: starts sunk, branches joined, copies left out; and where that may not be."""

import ast
import random

import pytest
import torch

from support.by_hand import argument, array, assign, branch, const, kernel, local, loop, repeat, store
from support.interpreted import interpret
from tinsmith.codegen import print_kernel
from tinsmith.ir import nodes, types, walk
from tinsmith.passes.polish._branches import merge_branches, sink_constants
from tinsmith.passes.polish._coalesce import coalesce_locals
from tinsmith.passes.polish._copies import propagate_copies
from tinsmith.passes.polish._simplify import simplify

X, Y = array("x"), array("y")
A, B, S, C = (local(name) for name in "absc")
IF, OR = local("p", "u1"), local("q", "u1")
KINDS = {**dict.fromkeys("absc", "f32"), "p": "u1", "q": "u1", "n": "i32", "i": "i32"}
ZERO = assign("s", const(0.0, "f32"))
USE = store(Y, "i", S)
SET = assign("s", X["i"])


def text(body):
    made = kernel([X, Y], body, {"k": ("i32", ())}, **KINDS)
    lines = ast.unparse(print_kernel(made, dict.fromkeys(("x", "y", "k"), "a"), types.Defaults())).splitlines()[1:]
    return [line.removeprefix("    ").replace("_lang.f32(0.0)", "0") for line in lines]


SUNK = {
    "into a branch": ([ZERO, branch(IF, [SET, USE])], ["if p:", "    s = 0.0", "    s = x[i]", "    y[i] = s"]),
    "into the other": ([ZERO, branch(IF, [assign("a", A)], [SET, USE])], None),
    "past what does not ask for it": ([ZERO, assign("a", X["i"]), branch(IF, [SET, USE])], None),
    "through two": ([ZERO, branch(IF, [branch(OR, [SET, USE])])], None),
    "not into both": ([ZERO, branch(IF, [SET, USE], [USE])], ZERO),
    "not where it is read later": ([ZERO, branch(IF, [SET]), USE], ZERO),
    "not into a loop": ([ZERO, loop("i", 3, [assign("s", S + X["i"]), USE])], ZERO),
    "not where the condition asks for it": ([ZERO, branch(S > 0.0, [SET, USE])], ZERO),
    "not out of a loop that hands it on": (
        [loop("i", 3, [branch(S > 1.0, [USE]), ZERO, branch(IF, [SET])])],
        "the same",
    ),
}


@pytest.mark.parametrize("name", SUNK)
def test_constants_are_sunk(name):
    body, wanted = SUNK[name]
    sunk = sink_constants(body)
    if isinstance(wanted, list):
        assert text(sunk) == wanted
    elif wanted is None:
        assert ZERO not in sunk and text(sunk) != text(body)
    else:
        assert sunk == tuple(body)


JOINED = {
    "next to each other": ([branch(IF, [SET]), branch(IF, [USE])], 1),
    "numbers between": ([branch(IF, [SET]), assign("a", const(0.0, "f32")), branch(IF, [USE, assign("a", S)])], 2),
    "three": ([branch(IF, [SET]), branch(IF, [USE]), branch(IF, [USE], [SET])], 1),
    "inside": ([loop("i", 3, [branch(IF, [SET]), branch(IF, [USE])])], None),
    "sums between": ([branch(IF, [SET]), assign("a", B + 1.0), branch(IF, [USE, assign("a", S)])], 2),
    "sums of what the first changes, behind": ([branch(IF, [SET]), assign("a", S + 1.0), branch(IF, [USE])], 2),
    "a number that the first asks for, behind": ([branch(IF, [SET, USE]), ZERO, branch(IF, [assign("a", B)])], 2),
    "copies inside": ([branch(IF, [SET]), assign("a", S), branch(IF, [store(Y, "i", A)])], 1),
    "copies of copies inside": (
        [branch(IF, [SET]), assign("a", S), assign("b", A), branch(IF, [store(Y, "i", B)], [assign("c", B)])],
        1,
    ),
    "not sums of what the first changes, for the second": (
        [branch(IF, [SET]), assign("a", S + 1.0), branch(IF, [store(Y, "i", A)])],
        3,
    ),
    "not behind what the second changes": ([branch(IF, [SET]), assign("a", S + 1.0), branch(IF, [SET])], 3),
    "not where the question changes between": (
        [branch(IF, [SET]), assign("p", const(True, "u1")), branch(IF, [USE])],
        3,
    ),
    "not what is loaded": ([branch(IF, [store(X, 0, 1.0)]), assign("a", X[0]), branch(IF, [USE])], 3),
    "not of another question": ([branch(IF, [SET]), branch(OR, [USE])], 2),
    "not where the first changes it": ([branch(IF, [assign("p", const(False, "u1"))]), branch(IF, [USE])], 2),
    "not past what is worked out": ([branch(IF, [SET]), USE, branch(IF, [USE])], 3),
    "a number that both ask for": ([branch(IF, [SET, USE]), ZERO, branch(IF, [USE])], 1),
    "not where the first leaves": ([loop("i", 3, [branch(IF, [SET, nodes.Break()]), branch(IF, [USE])])], "the same"),
    "not of a value in memory": ([branch(X[0] > 0.0, [store(X, 0, 0.0)]), branch(X[0] > 0.0, [USE])], 2),
}


@pytest.mark.parametrize("name", JOINED)
def test_branches_are_merged(name):
    body, count = JOINED[name]
    merged = merge_branches(body)
    assert _gives_the_same(body, merged)
    if count == "the same":
        assert merged == tuple(body)
    elif count is None:
        assert len(merged[0].body) == 1
    else:
        assert len(merged) == count


def _gives_the_same(body, merged):
    """Return True if statements and those made of them leave the same, where the branch is taken and where not."""
    start = [assign(name, const(number, "f32")) for number, name in enumerate("absc", 2)]
    results = []
    for statements in (body, merged):
        last = [store(Y, place, local(name)) for place, name in enumerate("absc", 4)]
        question = assign("p", X["i"] > 1.0), assign("q", X["i"] > 2.0)
        whole = (loop("i", X.size(), [*start, *question, *statements, *last]),)
        x, y = torch.arange(4.0), torch.arange(8.0)
        results.append(interpret(kernel([X, Y], whole, **KINDS), {"x": x, "y": y}, {}))
    return all(torch.equal(results[0][name], results[1][name]) for name in results[0])


@pytest.mark.parametrize("seed", range(60))
def test_random_branches_are_merged(seed):
    """Numbers, copies, sums and branches in any order."""
    draw = random.Random(seed)
    locals_ = [A, B, S, C]

    def statement():
        value = draw.choice([const(draw.random(), "f32"), draw.choice(locals_), draw.choice(locals_) + 1.0, X["i"]])
        return assign(draw.choice("absc"), value)

    def part():
        if draw.random() < 0.5:
            return statement()
        arms = [[statement() for _ in range(draw.randrange(3))] for _ in range(2)]
        return branch(draw.choice([IF, IF, OR]), *arms)

    body = [part() for _ in range(12)]
    merged = merge_branches(body)
    assert _gives_the_same(body, merged)
    assert len(merged) <= len(body)


COPY = assign("a", B)
TAKE = store(Y, "i", A)
GIVE = assign("b", X["i"])
COPIES = {
    "plain": ([GIVE, COPY, TAKE], ["b = x[i]", "y[i] = b"]),
    "of a copy": ([GIVE, COPY, assign("c", A), store(Y, "i", C)], ["b = x[i]", "y[i] = b"]),
    "of a loop's variable": ([loop("i", 3, [assign("n", local("i", "i32")), store(Y, "n", 1.0)])], None),
    "of a sum that is done": ([GIVE, assign("b", B + 1.0), COPY, TAKE], ["b = x[i]", "b = b + 1.0", "y[i] = b"]),
    "read in a loop": ([GIVE, COPY, loop("i", 3, [TAKE])], None),
    "in each iteration": ([loop("i", 3, [GIVE, COPY, TAKE])], None),
    "not where the source changes": ([GIVE, COPY, assign("b", B + 1.0), TAKE], "the same"),
    "not where the source changes in a loop after it": ([GIVE, COPY, loop("i", 3, [TAKE, GIVE])], "the same"),
    "not of two sources": ([GIVE, branch(IF, [COPY], [assign("a", C)]), TAKE], "the same"),
    "not what a loop leaves": ([repeat([GIVE, branch(IF, [nodes.Break()]), COPY]), TAKE], "the same"),
    "not of another type": ([assign("n", X["i"]), store(Y, "n", 0.0), assign("n", 1)], "the same"),
    "not what a loop hands on": ([GIVE, loop("i", 3, [COPY, TAKE, assign("b", A + 1.0)])], "the same"),
}


@pytest.mark.parametrize("name", COPIES)
def test_copies_are_propagated(name):
    body, wanted = COPIES[name]
    propagated = propagate_copies(body, KINDS)
    if isinstance(wanted, list):
        assert text(propagated) == wanted
    elif wanted is None:
        assert not any("a = b" in line or "n = i" in line for line in text(propagated))
    else:
        assert propagated == tuple(body)


CHAIN = [
    assign("s", const(0.0, "f32")),
    assign("a", S),
    loop("j", 3, [assign("b", A), assign("c", B + X["i"]), assign("a", C)]),
    store(Y, "i", A),
]
BRANCHED = [
    assign("s", X["i"]),
    branch(IF, [assign("c", S + 1.0), assign("a", C)], [assign("a", S)]),
    store(Y, "i", A),
]
SWAP = [
    assign("a", X["i"]),
    assign("b", Y["i"]),
    loop("j", 3, [assign("s", A), assign("c", B), assign("a", C), assign("b", S)]),
    store(Y, "i", A - B),
]
LEFT = [
    assign("a", X["i"]),
    repeat([assign("b", A), assign("a", B + 1.0), branch(A > 3.0, [store(Y, "i", B), nodes.Break()])]),
]
SKIPPED = [
    assign("s", X["i"]),
    assign("a", S),
    branch(IF, [store(Y, "i", A), nodes.Continue()]),
    assign("a", A + 1.0),
    store(Y, "i", A * 2.0),
]
COALESCED = {
    "a loop's sum": (CHAIN, ["s = 0.0", "for j in range(3):", "    s = s + x[i]", "y[i] = s"]),
    "branches": (BRANCHED, ["s = x[i]", "if p:", "    s = s + 1.0", "y[i] = s"]),
    "left early": (SKIPPED, 2),
    "a swap": (SWAP, 5),
    "what is still asked for": (LEFT, 3),
}


@pytest.mark.parametrize("name", COALESCED)
def test_locals_are_coalesced(name):
    body, wanted = COALESCED[name]
    coalesced = text(coalesce_locals([loop("i", X.size(), body, is_parallel=True)], KINDS))
    if isinstance(wanted, list):
        assert [line.removeprefix("    ") for line in coalesced[1:]] == wanted
    else:
        again = coalesce_locals([loop("i", X.size(), body, is_parallel=True)], KINDS)
        left = [one for one in walk.statements(again) if isinstance(one, nodes.Assign)]
        assert len(left) == wanted
    assert same_values(body)


def same_values(body):
    """Return True if coalescing leaves what the statements store."""
    x, y = torch.arange(4.0), torch.tensor([7.0, 5.0, 3.0, 2.0])
    whole = (loop("i", X.size(), [assign("p", X["i"] > 1.0), *body], is_parallel=True),)
    one, other = (
        interpret(kernel([X, Y], variant, **KINDS), {"x": x, "y": y}, {})["y"]
        for variant in (whole, coalesce_locals(whole, KINDS))
    )
    return torch.equal(one, other) and not torch.equal(one, y)


def test_constants_outside_a_parallel_loop_are_not_sunk():
    """One local of many iterations would be a race."""
    body = (assign("a", X[0]), loop("i", X.size(), [assign("b", A), assign("b", B + 1.0), store(Y, "i", B)], True))
    assert coalesce_locals(body, KINDS) == body


def test_a_copy_of_another_type_is_a_cast():
    body = (assign("b", X["i"]), assign("n", B), store(Y, "n", 1.0))
    assert propagate_copies(body, KINDS) == body


def test_all_simplifications_together():
    """What the reverse of a branch is made of."""
    body = [
        assign("p", X["i"] > 0.0),
        branch(IF, [assign("a", X["i"] * 2.0)]),
        ZERO,
        assign("b", const(0.0, "f32")),
        branch(IF, [assign("s", S + Y["i"]), assign("b", B + S), store(Y, "i", A * B)]),
        assign("c", argument("k", "i32")),
    ]
    wanted = ["p = x[i] > 0.0", "if p:", "    a = x[i] * 2.0", "    s = y[i]", "    y[i] = a * s"]
    simplified = text(simplify([loop("i", X.size(), body, is_parallel=True)], KINDS))
    assert [line.removeprefix("    ") for line in simplified[1:]] == wanted
