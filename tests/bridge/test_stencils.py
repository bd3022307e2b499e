"""Stencils: loops whose branches tell their ends from their middle, and gradients that gather from neighbors.

On CPUs the middle runs in strips and the ends as they were written; a gradient's loop goes over elements and fetches
what iterations around an element would have added to it. Values and gradients are those of float64 at any length.
"""

# pyright: reportInvalidTypeForm=false

import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch

import tinsmith as ts
from support.written import compile_text
from tinsmith.operation.reports import adjoint_source

HEAD = "def kernel(x: lang.types.ndarray(), k: lang.types.ndarray(), y: lang.types.ndarray()):\n"
LINES = "x[n], k[n] -> y[n]"
PLANES = "x[n, m], k[n, m] -> y[n, m]"
COLUMNS = "x[n, 3], k[n, 3] -> y[n, 3]"
N, M = "x.shape[0]", "x.shape[1]"


def at(one, by, axis=0):
    """Return the element that is `by` ahead along an axis; 0 outside."""
    return torch.where(has(one, by, axis), one.roll(-by, axis), torch.zeros((), dtype=one.dtype))


def has(one, by, axis=0):
    """Return True for each element that has another one so far ahead."""
    place = torch.arange(one.shape[axis]) + by
    return ((place >= 0) & (place < one.shape[axis])).reshape([-1 if a == axis else 1 for a in range(one.ndim)])


def held(one, by):
    """Return the element that is `by` ahead, or the last one."""
    return one[(torch.arange(len(one)) + by).clamp(0, max(len(one) - 1, 0))]


def repeat(step, one, times):
    for _ in range(times):
        one = step(one)
    return one


def rows_by_time(x, k):
    rows = [x[0]] if len(x) else []
    for now, rate in zip(x[1:], k[:-1], strict=True):
        y = rows[-1]
        rows.append(rate * y + 0.25 * at(y, -1) - 0.5 * at(y, 1) * y + now)
    return torch.stack(rows) if rows else x * k


@dataclass(frozen=True)
class Stencil:
    """A kernel's body, the same in plain torch, its spec, and whether its gradient needs no atomics.

    `is_in_order` says that it never needs any.
    """

    body: str
    twin: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    spec: str = LINES
    gathers: bool = True
    is_in_order: bool = False


STENCILS = {
    "springs": Stencil(
        f"for i in range({N}):\n f = 0.0\n if i > 0:\n  f -= k[i] * (x[i] - x[i - 1])\n"
        f" if i < {N} - 1:\n  f += k[i + 1] * (x[i + 1] - x[i])\n y[i] = x[i] * x[i] + f",
        lambda x, k: x * x - has(x, -1) * k * (x - at(x, -1)) + has(x, 1) * at(k, 1) * (at(x, 1) - x),
    ),
    "both ends in one test": Stencil(
        f"for i in x:\n if i >= 2 and not (i + 2 >= {N}):\n  y[i] = k[i] * x[i - 2] * x[i + 2]\n else:\n  y[i] = x[i]",
        lambda x, k: torch.where(has(x, -2) & has(x, 2), k * at(x, -2) * at(x, 2), x),
    ),
    "equal to the last": Stencil(
        f"for i in x:\n f = x[i]\n if i != 0:\n  f += k[i] * x[i - 1]\n if i == {N} - 1:\n  f *= 3.0\n y[i] = f",
        lambda x, k: torch.where(has(x, 1), 1.0, 3.0) * (x + k * at(x, -1)),
    ),
    "the middle alone": Stencil(
        f"for i in range(1, {N} - 1):\n y[i] = k[i] * (x[i - 1] - 2.0 * x[i] + x[i + 1])",
        lambda x, k: (has(x, -1) & has(x, 1)) * k * (at(x, -1) - 2.0 * x + at(x, 1)),
    ),
    "looks ahead": Stencil(
        f"for i in range({N} - 2):\n y[i] = k[i] * x[i + 2] + x[i] * x[i + 1]",
        lambda x, k: has(x, 2) * (k * at(x, 2) + x * at(x, 1)),
    ),
    "held inside": Stencil(
        f"for i in x:\n y[i] = k[i] * x[lang.max(i - 1, 0)] + x[lang.min(i + 1, {N} - 1)] * x[i]",
        lambda x, k: k * held(x, -1) + held(x, 1) * x,
        gathers=False,
    ),
    "round": Stencil(
        f"for i in x:\n y[i] = k[i] * x[(i + 1) % {N}] - x[i]", lambda x, k: k * x.roll(-1) - x, gathers=False
    ),
    "a branch on data": Stencil(
        f"for i in range({N}):\n y[i] = x[i]\n if k[i] > 0.5 and i + 1 < {N}:\n  y[i] += k[i] * x[i + 1] * x[i]",
        lambda x, k: x + (k > 0.5) * k * at(x, 1) * x,
    ),
    "far": Stencil(
        f"for i in x:\n if i + 100 < {N}:\n  y[i] = k[i] * x[i + 100] + x[i]",
        lambda x, k: has(x, 100) * (k * at(x, 100) + x),
    ),
    "a plane": Stencil(
        f"for i, j in x:\n f = -4.0 * x[i, j]\n if i > 0:\n  f += x[i - 1, j]\n if i < {N} - 1:\n  f += x[i + 1, j]\n"
        f" if j > 0:\n  f += x[i, j - 1]\n if j < {M} - 1:\n  f += x[i, j + 1]\n y[i, j] = k[i, j] * f",
        lambda x, k: k * (at(x, -1) + at(x, 1) + at(x, -1, 1) + at(x, 1, 1) - 4.0 * x),
        PLANES,
    ),
    "inside of a plane": Stencil(
        f"for i, j in lang.ndrange((1, {N} - 1), (1, {M})):\n"
        " y[i, j] = k[i, j] * (x[i - 1, j] + x[i + 1, j - 1] * x[i, j])",
        lambda x, k: (has(x, -1) & has(x, 1) & has(x, -1, 1)) * k * (at(x, -1) + at(at(x, 1), -1, 1) * x),
        PLANES,
    ),
    "a plane by columns": Stencil(
        f"for j, i in lang.ndrange({M}, {N}):\n if i > 0:\n  y[i, j] = k[i, j] * x[i - 1, j] + x[i, j]",
        lambda x, k: has(x, -1) * (k * at(x, -1) + x),
        PLANES,
    ),
    "across a plane": Stencil(
        f"for i, j in x:\n if i > 0 and i < {M}:\n  y[i, j] = x[i - 1, j] * k[i, j]",
        lambda x, k: (torch.arange(len(x)) < x.shape[1])[:, None] * at(x, -1) * k,
        PLANES,
    ),
    "columns": Stencil(
        f"for i in range({N}):\n y[i, 0] = x[i, 0]\n if i > 0:\n  y[i, 1] = k[i, 0] * x[i - 1, 2] * x[i, 0]\n"
        f" if i < {N} - 1:\n  y[i, 2] = x[i + 1, 0] * k[i, 2] + x[i, 2]",
        lambda x, k: torch.stack(
            [
                x[:, 0],
                has(x[:, 0], -1) * k[:, 0] * at(x[:, 2], -1) * x[:, 0],
                has(x[:, 0], 1) * (at(x[:, 0], 1) * k[:, 2] + x[:, 2]),
            ],
            1,
        ),
        COLUMNS,
    ),
    "steps": Stencil(
        f"for i in x:\n y[i] = x[i]\nlang.loop_config(serialize=True)\nfor _ in range(3):\n for i in range({N}):\n"
        f"  f = 0.0\n  if i > 0:\n   f -= k[i] * (x[i] - x[i - 1])\n  if i < {N} - 1:\n"
        "   f += k[i + 1] * (x[i + 1] - x[i])\n  y[i] += 0.5 * y[i] * f",
        lambda x, k: x * (1 + 0.5 * (has(x, 1) * at(k, 1) * (at(x, 1) - x) - has(x, -1) * k * (x - at(x, -1)))) ** 3,
        is_in_order=True,
    ),
    "steps in place": Stencil(
        f"for i in x:\n y[i] = x[i]\nlang.loop_config(serialize=True)\nfor _ in range(3):\n"
        f" for i in range({N} - 1):\n  y[i] += k[i] * y[i + 1] * y[i + 1]\n"
        f" for i in range({N}):\n  y[i] = y[i] * y[i] * 0.5",
        lambda x, k: repeat(lambda y: 0.5 * (y + has(y, 1) * k * at(y, 1) ** 2) ** 2, x, 3),
        is_in_order=True,
    ),
    "sums that an iteration hands on": Stencil(
        f"for _ in range(1):\n for i in range(1, {N}):\n  y[i] = y[i - 1] + k[i] * x[i] * x[i - 1]",
        lambda x, k: (has(x, -1) * k * x * at(x, -1)).cumsum(0),
        is_in_order=True,
    ),
    "rows by time": Stencil(
        f"for j in range({M}):\n if {N} > 0:\n  y[0, j] = x[0, j]\nlang.loop_config(serialize=True)\n"
        f"for t in range({N} - 1):\n for j in range({M}):\n  f = k[t, j] * y[t, j]\n"
        f"  if j > 0:\n   f += 0.25 * y[t, j - 1]\n  if j < {M} - 1:\n   f -= 0.5 * y[t, j + 1] * y[t, j]\n"
        "  y[t + 1, j] = f + x[t + 1, j]",
        rows_by_time,
        PLANES,
        is_in_order=True,
    ),
    "another length": Stencil(
        "for i in y:\n y[i] = x[i] * k[i] + x[i + 1]",
        lambda x, k: x[:-1] * k + x[1:],
        "x[n], k[m] -> y[m]",
        gathers=False,
    ),
}
LENGTHS = (0, 1, 2, 3, 4, 7, 65, 131, 300, 40_001)


def make(lang, name, **options):
    return op_of(lang, STENCILS[name].body, STENCILS[name].spec, **options)


def op_of(lang, body, spec=LINES, **options):
    source = HEAD + "".join(f"    {line}\n" for line in body.splitlines())
    return ts.op(spec, adjoint="source", **options)(compile_text(lang, source))


def shapes(name, length):
    if STENCILS[name].spec == PLANES:
        size = (length % 19, 200) if length > 1000 else (length, 5)
        return size, size
    if STENCILS[name].spec == COLUMNS:
        return (length, 3), (length, 3)
    return (length + (name == "another length"),), (length,)


@pytest.mark.compiled_engine
@pytest.mark.thinned(6)
@pytest.mark.parametrize("name", STENCILS)
def test_values_and_gradients(lang, name):
    op = make(lang, name)  # one for all lengths: it is compiled for the first
    for length in LENGTHS:
        torch.manual_seed(length)
        given = [torch.rand(shape) for shape in shapes(name, length)]
        exact = [one.double() for one in given]
        leaves = [one.clone().requires_grad_() for one in given]
        y = op(*leaves)
        c = torch.rand(y.shape)
        twin = STENCILS[name].twin(*(one.requires_grad_() for one in exact))
        close = {"rtol": 1e-5, "atol": 1e-6, "msg": lambda words, length=length: f"length {length}: {words}"}
        torch.testing.assert_close(y.double(), twin, **close)
        wanted = torch.autograd.grad(twin, exact, c.double(), allow_unused=True, materialize_grads=True)
        for _ in range(2):
            gradients = torch.autograd.grad(op(*leaves), leaves, c)
            for one, other in zip(gradients, wanted, strict=True):
                torch.testing.assert_close(one.double(), other, **close)


@pytest.mark.compiled_engine
@pytest.mark.thinned(6)
@pytest.mark.parametrize("name", STENCILS)
def test_gradients_of_stencils_gather_instead_of_scatter(lang, name):
    op = make(lang, name)
    given = [torch.rand(shape).requires_grad_() for shape in shapes(name, 7)]
    op(*given).sum().backward()
    text = adjoint_source(op)
    assert ("atomic_add" not in text) == STENCILS[name].gathers, text
    if (
        STENCILS[name].gathers and not STENCILS[name].is_in_order
    ):  # each element is stored once, into memory that nobody cleared
        assert "grad_x[i] = grad_x[i]" not in text, text
        assert "grad_x[i, j] = grad_x[i, j]" not in text, text


CHAIN = (
    f"for i in x:\n y[i] = x[i]\nlang.loop_config(serialize=True)\nfor _ in range(3):\n"
    f" for i in range({N} - 1):\n  y[i] = k[i]\n for i in range({N}):\n  f = 0.0\n"
    f"  if i + 1 < {N}:\n   f += k[i] * x[i] * x[i + 1]\n  y[i] += f"
)


def test_loops_in_order_gather_for_machine_vectors(lang):
    """One after the other, additions to neighbors keep a loop out of machine vectors; fetched, they do not."""
    op = op_of(lang, CHAIN)
    op(*(torch.rand(9).requires_grad_() for _ in range(2))).sum().backward()
    text = adjoint_source(op)
    assert not re.search(r"grad_x\[\w+ [+-] 1\] =", text), text


@pytest.mark.thinned(6)
@pytest.mark.parametrize("name", ["springs", "a plane", "columns", "steps", "steps in place", "rows by time"])
def test_a_batch_and_second_derivatives(lang64, name):
    op = make(lang64, name)
    torch.manual_seed(0)
    x, k = (torch.rand(3, *shape, dtype=torch.float64) for shape in shapes(name, 6))
    batched = torch.func.vmap(op)
    twin = torch.func.vmap(STENCILS[name].twin)
    torch.testing.assert_close(batched(x, k), twin(x, k))

    def gradient(call):
        return torch.func.grad(lambda x, k: call(x, k).square().sum(), (0, 1))

    torch.testing.assert_close(gradient(batched)(x, k), gradient(twin)(x, k))
    leaves = [one[0].clone().requires_grad_() for one in (x, k)]
    assert torch.autograd.gradgradcheck(op, leaves)


def test_work_that_costs_more_than_the_atomics_is_not_done_twice(lang):
    steps = "".join(" e = lang.exp(-e * k[i])\n" for _ in range(8))
    op = op_of(lang, f"for i in x:\n e = x[i]\n{steps} y[i] = e\n if i + 1 < {N}:\n  y[i] += e * x[i + 1]")
    op(torch.rand(5, requires_grad=True), torch.rand(5)).sum().backward()
    assert "atomic_add" in adjoint_source(op)


def test_adjoints_that_iterations_clear_are_not_gathered(lang64):
    """The reverse of `y[i] = y[i] * x[i + 1]` changes the adjoint of `y[i]`, which no other iteration may read then."""
    op = op_of(lang64, f"for i in range({N} - 1):\n y[i] = k[i]\n y[i] = y[i] * x[i + 1] + x[i]")
    leaves = [torch.rand(9, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    assert torch.autograd.gradcheck(op, leaves)


def test_a_loop_in_order_keeps_its_order(lang):
    """Ends of a loop over two names run before and after its middle: not where what is stored last is to stay."""
    op = op_of(
        lang,
        f"lang.loop_config(serialize=True)\nfor i, j in lang.ndrange({N}, {M}):\n y[j] = x[i, j]\n"
        f" if j == {M} - 1 and i < {N} - 1:\n  y[0] = x[i, j]",
        "x[n, m], k[n, m] -> y[m]",
    )
    x = torch.rand(7, 100)
    assert torch.equal(op(x, x), x[-1])
