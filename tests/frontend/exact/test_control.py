"""Statements: loops, branches, `break` and `continue`, atomics, random numbers, and what a record tells."""

import time

import pytest
import torch

from support.by_hand import (
    argument,
    array,
    assign,
    atomic,
    binary,
    branch,
    const,
    kernel,
    local,
    loop,
    repeat,
    select,
    store,
    to_expression,
    unary,
)
from support.interpreted import Access, Record, run_with_gradients
from tinsmith import KernelError
from tinsmith.ir import nodes

X, Y = array("x"), array("y")
GENERATOR = torch.Generator().manual_seed(0)


def randn(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=GENERATOR)


def outcome(made, **arrays):
    return run_with_gradients(
        made, arrays, {}, {"y": torch.linspace(1, 2, arrays["y"].numel()).double().reshape(arrays["y"].shape)}
    )


def assert_agrees_with_torch(result, twin, x, y):
    """Assert that values and gradients are those of `y = twin(x)`."""
    x = x.clone().requires_grad_()
    wanted = twin(x)
    wanted.backward(torch.linspace(1, 2, y.numel()).double().reshape(y.shape))
    torch.testing.assert_close(result.arrays["y"], wanted.detach())
    torch.testing.assert_close(result.gradients["x"], x.grad)


def test_a_carried_local():
    """s = tanh(s * x[i, j] + s), in an inner loop."""
    x2 = array("x", rank=2)
    body = [
        assign("s", 1.0),
        loop("j", x2.size(1), [assign("s", unary("tanh", local("s") * x2["i", "j"] + local("s")))]),
        store(Y, "i", local("s")),
    ]
    x, y = randn(4, 5), torch.zeros(4)

    def twin(x):
        s = torch.ones(4, dtype=torch.float64)
        for j in range(5):
            s = torch.tanh(s * x[:, j] + s)
        return s

    assert_agrees_with_torch(
        outcome(kernel([x2, Y], [loop("i", Y.size(), body, is_parallel=True)], s="f32"), x=x, y=y), twin, x, y
    )


def test_break_and_continue():
    """The sum of positive numbers up to the first above 1, of each row."""
    x2 = array("x", rank=2)
    seen = x2["i", "j"]
    inner = [
        branch(seen > 1.0, [nodes.Break()]),
        branch(seen > 0.0, [], [nodes.Continue()]),
        assign("s", local("s") + seen * seen),
    ]
    body = [assign("s", 0.0), loop("j", x2.size(1), inner), store(Y, "i", local("s"))]
    x, y = randn(6, 9), torch.zeros(6)

    def twin(x):
        before = (x > 1).cumsum(1) == 0
        return (x * x * (before & (x > 0))).sum(1)

    assert_agrees_with_torch(
        outcome(kernel([x2, Y], [loop("i", Y.size(), body, is_parallel=True)], s="f32"), x=x, y=y), twin, x, y
    )


def test_while_runs_until_it_breaks():
    """Newton's square root of x, until it is near; `continue` begins the body again."""
    guess = local("s")
    near = unary("abs", guess * guess - X["i"]) - 1e-9
    body = [
        assign("s", X["i"] + 1.0),
        assign("n", 0),
        repeat(
            [
                branch(binary("<", near, 0.0), [nodes.Break()]),
                assign("n", local("n", "i32") + 1),
                branch(binary("==", binary("%", local("n", "i32"), 2), 0), [nodes.Continue()]),
                assign("s", (guess + X["i"] / guess) * 0.5),
            ]
        ),
        store(Y, "i", guess),
    ]
    x, y = randn(5).abs() + 0.5, torch.zeros(5)
    made = kernel([X, Y], [loop("i", X.size(), body, is_parallel=True)], s="f32", n="i32")
    result = outcome(made, x=x, y=y)
    torch.testing.assert_close(result.arrays["y"], x.sqrt(), rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(result.gradients["x"], torch.linspace(1, 2, 5) * 0.5 / x.sqrt(), rtol=1e-5, atol=1e-6)


def test_several_names_count_the_last_fastest():
    order = array("order", "i32", rank=3)
    step = [assign("n", local("n", "i32") + 1), store(order, ("i", "j", "k"), local("n", "i32"))]
    ends = tuple(order.size(axis) for axis in range(3))
    made = kernel([order], [assign("n", -1), loop(("i", "j", "k"), ends, step)], n="i32")
    counted = run_with_gradients(made, {"order": torch.zeros(2, 3, 4, dtype=torch.int32)}, {}).arrays["order"]
    assert counted.dtype == torch.int32
    assert torch.equal(counted, torch.arange(24, dtype=torch.int32).reshape(2, 3, 4))


def test_a_local_keeps_its_type():
    made = kernel([X, Y], [assign("n", X[0]), store(Y, 0, local("n", "i32") * X[0])], n="i32")
    result = outcome(made, x=torch.tensor([2.75]), y=torch.zeros(1))
    assert result.arrays["y"].tolist() == [5.5]
    assert result.gradients["x"].tolist() == [2.0]


def test_an_array_changed_in_place():
    """x[i] = x[i] * x[i - 1], one after the other: gradients are those of x as it was."""
    step = [store(X, "i", X["i"] * X[to_expression("i") - 1])]
    made = kernel([X], [nodes.For(("i",), ((to_expression(1).expr, X.size().expr),), tuple(step))])
    x = randn(6)
    result = run_with_gradients(made, {"x": x}, {}, {"x": torch.arange(6).double()})
    leaf = x.clone().requires_grad_()
    wanted = leaf.cumprod(0)
    wanted.backward(torch.arange(6).double())
    torch.testing.assert_close(result.arrays["x"], wanted.detach())
    torch.testing.assert_close(result.gradients["x"], leaf.grad)


def test_elements_of_vectors_and_arguments():
    p = array("p", element=(3,))
    body = [store(Y, "i", p.at("i", (2,)) * argument("m", "f32", (1, 0)) + argument("a"))]
    made = kernel([p, Y], [loop("i", Y.size(), body)], {"m": ("f32", (2, 2)), "a": ("f32", ())})
    values, m = randn(4, 3), randn(2, 2)
    result = run_with_gradients(made, {"p": values, "y": torch.zeros(4)}, {"m": m, "a": 0.1}, {"y": torch.ones(4)})
    torch.testing.assert_close(result.arrays["y"], values[:, 2] * m[1, 0] + 0.1)
    assert result.gradients["a"].item() == 4.0
    torch.testing.assert_close(result.gradients["m"], torch.tensor([[0, 0], [values[:, 2].sum(), 0]]).double())
    torch.testing.assert_close(result.gradients["p"], torch.tensor([0.0, 0.0, m[1, 0]]).double().repeat(4, 1))


ATOMICS = {
    "add": lambda x: x.sum() + 0.5,
    "sub": lambda x: 0.5 - x.sum(),
    "mul": lambda x: 0.5 * x.prod(),
    "max": lambda x: torch.cat([x.new_tensor([0.5]), x]).amax(),
    "min": lambda x: torch.cat([x.new_tensor([0.5]), x]).amin(),
}


@pytest.mark.parametrize(
    "values",
    [[1.0, 3.0, 3.0, 3.0, 2.0], [-1.0, -2.0, -2.0, 0.25, 4.0], [0.5, 0.5, 0.5, 0.1, 0.7], [1.0, 1.0, 3.0, 3.0, 2.0]],
)
@pytest.mark.parametrize("name", ATOMICS)
def test_atomics(name, values):
    """Ties of a maximum share as `torch.amax` has it: three thirds, not a quarter, a quarter and a half."""
    made = kernel([X, Y], [loop("i", X.size(), [atomic(name, Y, 0, X["i"])], is_parallel=True)])
    x, y = torch.tensor(values, dtype=torch.float64), torch.tensor([0.5])
    assert_agrees_with_torch(outcome(made, x=x, y=y), lambda x: ATOMICS[name](x).reshape(1), x, y)


def test_a_store_resets_the_candidates_of_a_maximum():
    one = const(1.0, "f32")
    body = [atomic("max", Y, 0, X[0]), atomic("max", Y, 0, X[1]), store(Y, 0, X[2] * one), atomic("max", Y, 0, X[3])]
    result = run_with_gradients(
        kernel([X, Y], body), {"x": torch.ones(4), "y": torch.zeros(1)}, {}, {"y": torch.ones(1)}
    )
    assert result.gradients["x"].tolist() == [0.0, 0.0, 0.5, 0.5]


def test_return_values_of_atomics():
    """y[i] is the sum before x[i]: differentiable, as the order is known here."""
    total = array("total")
    body = [atomic("add", total, 0, X["i"], result="before"), store(Y, "i", local("before") * local("before"))]
    made = kernel([X, total, Y], [loop("i", X.size(), body)], before="f32")
    x, y = randn(5), torch.zeros(5)
    assert_agrees_with_torch(outcome(made, x=x, y=y, total=torch.zeros(1)), lambda x: (x.cumsum(0) - x) ** 2, x, y)


def test_atomics_on_integers():
    n = array("n", "i32")
    made = kernel(
        [n],
        [
            loop(
                "i",
                6,
                [
                    atomic(name, n, at, to_expression("i") + 3)
                    for at, name in enumerate(("and", "or", "xor", "max", "add"))
                ],
            )
        ],
    )
    counts = run_with_gradients(made, {"n": torch.tensor([7, 0, 0, 5, 2**31 - 1], dtype=torch.int32)}, {}).arrays["n"]
    assert counts.tolist() == [0, 15, 3 ^ 4 ^ 5 ^ 6 ^ 7 ^ 8, 8, -(2**31) + 32]


def test_random_numbers_come_from_the_seed():
    u, k = array("u", "f64"), array("k", "i64")
    body = [
        nodes.Draw("a", "f64"),
        nodes.Draw("b", "i64"),
        store(u, "i", local("a", "f64")),
        store(k, "i", local("b", "i64")),
    ]
    made = kernel([u, k], [loop("i", u.size(), body)], a="f64", b="i64")

    def drawn(seed):
        return run_with_gradients(
            made, {"u": torch.zeros(200), "k": torch.zeros(200, dtype=torch.int64)}, {}, seed=seed
        ).arrays

    first, again, other = drawn(1), drawn(1), drawn(2)
    assert torch.equal(first["u"], again["u"])
    assert not torch.equal(first["u"], other["u"])
    assert first["u"].min() >= 0
    assert first["u"].max() < 1
    assert 0.4 < first["u"].mean() < 0.6
    assert (first["k"] < 0).any()
    assert (first["k"] > 2**32).any()


def test_a_record_lists_the_accesses_of_each_iteration():
    body = [store(Y, "i", X["i"] + select(to_expression("i") > 0, X[to_expression("i") - 1], 0.0), line=3)]
    made = kernel(
        [X, Y],
        [store(Y, 0, X[1], line=1), loop("i", 2, body, line=2), loop("i", 1, [atomic("add", Y, 1, 1.0, line=5)])],
    )
    record = Record()
    run_with_gradients(made, {"x": torch.ones(2), "y": torch.zeros(2)}, {}, record=record)
    assert record.accesses == [
        Access("read", "x", 1, 1, 0, ()),
        Access("write", "y", 0, 1, 0, ()),
        Access("read", "x", 0, 3, 1, (0,)),
        Access("write", "y", 0, 3, 1, (0,)),
        Access("read", "x", 1, 3, 1, (1,)),
        Access("read", "x", 0, 3, 1, (1,)),
        Access("write", "y", 1, 3, 1, (1,)),
        Access("atomic", "y", 1, 5, 2, (0,)),
    ]


@pytest.mark.parametrize("index", [-1, 3])
def test_an_index_outside_is_refused(index):
    field = array("x", label="self.x")
    made = kernel([field, Y], [loop("i", 1, [store(Y, "i", field[to_expression("i") + index], line=7)])])
    words = (
        rf"Line 7 uses an index of `self.x` that is out of range\n  index  "
        rf"\({index},\)\n  shape  \(3,\)\nGuard the index"
    )
    with pytest.raises(KernelError, match=words):
        run_with_gradients(made, {"x": torch.ones(3), "y": torch.zeros(1)}, {})


def test_arguments_are_not_changed_and_arrays_may_be_empty():
    x, y = torch.zeros(0), torch.zeros(0, dtype=torch.float64)
    made = kernel([X, Y], [loop("i", X.size(), [store(Y, "i", X["i"] * 2.0)])])
    result = outcome(made, x=x, y=y)
    assert result.arrays["y"].shape == result.gradients["x"].shape == (0,)
    x, y = torch.ones(3), torch.zeros(3, dtype=torch.float64)
    outcome(made, x=x, y=y)
    assert not y.any()
    assert not x.requires_grad


def test_a_hundred_thousand_operations_take_seconds():
    """Ten thousand times ten: x = x * a + sin(x) / (1 + x * x) - ..., with the gradient."""
    s, a = local("s"), X["i"]
    step = assign(
        "s", s * a + unary("sin", s) / (s * s + 1.0) - binary("max", s, a) * const(0.5, "f32") + unary("abs", s)
    )
    made = kernel([X, Y], [loop("i", 10, [assign("s", a), loop("j", 1000, [step]), store(Y, "i", s)])], s="f32")
    begin = time.process_time()
    result = outcome(made, x=torch.rand(10, dtype=torch.float64, generator=GENERATOR) * 0.1, y=torch.zeros(10))
    assert time.process_time() - begin < 10
    assert result.gradients["x"].isfinite().all()
