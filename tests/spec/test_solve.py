"""Solving: sizes against a brute-force evaluator."""

import enum
import itertools
import pickle
from dataclasses import replace
from math import prod

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from support.specs import NAMES, specs
from tinsmith._errors import ShapeError
from tinsmith.spec import (
    Anything,
    Arithmetic,
    Batch,
    Fixed,
    Named,
    Rest,
    Spec,
    make_sizing,
    parse,
    solve,
)
from tinsmith.spec._solve import Solution

SOLVED = [
    # spec, scratch, shapes, values, dims, batch, rest, made
    ("x[n], k[m] -> y[n - m + 1]", "", {"x": (10,), "k": (3,)}, {}, {"n": 10, "m": 3}, (), (), {"y": (8,)}),
    ("x[], y[n] -> z[]", "t[n, 2]", {"x": (), "y": (4,)}, {}, {"n": 4}, (), (), {"z": (), "t": (4, 2)}),
    ("-> y[h, w, 3]", "", {}, {"h": 4, "w": 5, "seed": 1}, {"h": 4, "w": 5}, (), (), {"y": (4, 5, 3)}),
    ("x[_, n] -> y[n]", "", {"x": (9, 2)}, {"n": 2}, {"n": 2}, (), (), {"y": (2,)}),
    ("x[n] -> y[n // s * s]", "", {"x": (9,)}, {"s": 2}, {"n": 9, "s": 2}, (), (), {"y": (8,)}),
    ("x[n] -> y[(n + 1) * 2 - 1]", "", {"x": (0,)}, {}, {"n": 0}, (), (), {"y": (1,)}),
    ("x[*b, n] -> y[*b]", "t[*b, n]", {"x": (5, 6, 2)}, {}, {"n": 2}, (5, 6), (), {"y": (5, 6), "t": (5, 6, 2)}),
    ("x[*b, n], k[n] -> y[*b, n]", "", {"x": (2,), "k": (2,)}, {}, {"n": 2}, (), (), {"y": (2,)}),
    ("x[n, ..., m] -> y[m, ..., n]", "", {"x": (2, 3, 4, 5)}, {}, {"n": 2, "m": 5}, (), (3, 4), {"y": (5, 3, 4, 2)}),
    ("x[...], k[...] -> y[...]", "", {"x": (), "k": ()}, {}, {}, (), (), {"y": ()}),
    # `*b` and `...` in one item are told apart by another, wherever that stands
    ("x[*b, ..., 3], k[...] -> y[*b]", "", {"x": (7, 8, 2, 3), "k": (2,)}, {}, {}, (7, 8), (2,), {"y": (7, 8)}),
    ("x[*b, n, ...], k[*b] -> y[*b, ...]", "", {"x": (7, 1, 2), "k": (7,)}, {}, {"n": 1}, (7,), (2,), {"y": (7, 2)}),
]


@pytest.mark.parametrize(("spec", "scratch", "shapes", "values", "dims", "batch", "rest", "made"), SOLVED)
def test_sizes_are_solved(spec, scratch, shapes, values, dims, batch, rest, made):
    solution = solve(parse(spec, scratch), shapes, values, "f")
    assert solution == Solution(dims, batch, rest, made)
    assert pickle.loads(pickle.dumps(solution)) == solution


def test_torch_sizes_are_accepted_as_shapes():
    solution = solve(parse("x[*b, n] -> y[*b, n]"), {"x": torch.zeros(2, 3).shape}, {}, "f")
    assert type(solution.batch) is tuple and type(solution.shapes["y"]) is tuple
    assert solution.shapes == {"y": (2, 3)}


class Sizes(enum.IntEnum):
    SMALL = 4


@pytest.mark.parametrize("value", [4, Sizes.SMALL, np.int32(4), np.array(4), torch.tensor(4)])
def test_all_integer_types_are_accepted_as_sizes(value):
    (size,) = solve(parse("-> y[n]"), {}, {"n": value}, "f").shapes["y"]
    assert size == 4 and isinstance(size, int)


def test_symbolic_sizes_stay_symbolic():
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    environment = ShapeEnv()
    n, m = (environment.create_unbacked_symint() for _ in range(2))
    for size in (n, m):
        torch._check(size >= 2)
    solution = solve(parse("x[n] -> y[n + m + 1, 3]"), {"x": (n,)}, {"m": m}, "f")
    assert isinstance(solution.shapes["y"][0], torch.SymInt)
    assert solution.dims["m"] is m


# A brute-force evaluator: try every size for every name, and every slice of every shape for `*b` and `...`.


def every_solution(spec, shapes, values):
    sizes = sorted({size for shape in shapes.values() for size in shape})
    slices = {
        shape[i:j]
        for shape in shapes.values()
        for i, j in itertools.combinations_with_replacement(range(len(shape) + 1), 2)
    }
    batches = slices if spec.batch_name else [()]
    rests = slices if any(item.has_rest for item in spec.inputs) else [()]
    for chosen in itertools.product(sizes, repeat=len(spec.input_dims)):
        dims = dict(zip(spec.input_dims, chosen, strict=True))
        if all(values.get(name, size) == size for name, size in dims.items()):
            for batch, rest in itertools.product(batches, rests):
                if all(is_shape(item.dims, shapes[item.name], dims, batch, rest) for item in spec.inputs):
                    yield dims, batch, rest


def is_shape(item_dims, shape, dims, batch, rest):
    wanted = laid_out(item_dims, dims, batch, rest)
    return len(wanted) == len(shape) and all(size in (None, actual) for size, actual in zip(wanted, shape, strict=True))


def laid_out(item_dims, dims, batch, rest):
    wanted = []
    for dim in item_dims:
        match dim:
            case Batch():
                wanted += batch
            case Rest():
                wanted += rest
            case Anything():
                wanted.append(None)
            case Named(text) | Arithmetic(text) | Fixed(text):
                wanted.append(eval(str(text), {}, dict(dims)))
    return wanted


def compute_expected(spec, shapes, values):
    """Return the dims, batch, rest and shapes, or None where a refusal is right."""
    solutions = list(every_solution(spec, shapes, values))
    assert len(solutions) <= 1, "the language lets nothing be read in two ways"
    for dims, batch, rest in solutions:
        dims = dims | {name: values[name] for name in spec.free_dims}
        try:
            made = {item.name: tuple(laid_out(item.dims, dims, batch, rest)) for item in spec.allocations}
        except ZeroDivisionError:
            return None
        return None if any(size < 0 for shape in made.values() for size in shape) else (dims, batch, rest, made)
    return None


@st.composite
def calls(draw):
    """Draw a spec and shapes made to fit it, one of them perhaps changed afterwards."""
    spec = draw(specs())
    few = st.lists(st.integers(0, 3), max_size=2).map(tuple)
    dims, batch, rest = {name: draw(st.integers(0, 4)) for name in NAMES}, draw(few), draw(few)
    shapes = {
        item.name: tuple(draw(st.integers(0, 3)) if size is None else size for size in wanted)
        for item in spec.inputs
        for wanted in [laid_out(item.dims, dims, batch, rest)]
    }
    if spec.inputs and draw(st.integers(0, 2)) == 0:
        shapes[draw(st.sampled_from(spec.inputs)).name] = draw(st.lists(st.integers(0, 4), max_size=4).map(tuple))
    values = {name: dims[name] for name in NAMES if name in spec.free_dims or draw(st.booleans())}
    return spec, shapes, values


@settings(max_examples=250, deadline=None)
@given(calls())
def test_solve_agrees_with_brute_force(call):
    wanted = compute_expected(*call)
    if wanted is None:
        with pytest.raises(ShapeError):
            solve(*call, "f")
    else:
        assert solve(*call, "f") == Solution(*wanted)


def split_off(spec):
    """Return a spec without its batch dims, and the names of the inputs that have them."""
    sides = [
        tuple(replace(item, dims=item.dims[1:]) if item.batch_name else item for item in side)
        for side in (spec.inputs, spec.outputs, spec.scratch)
    ]
    return Spec("", "", *sides), frozenset(item.name for item in spec.inputs if item.batch_name)


def sized(spec, shapes, values, batch):
    """Return the output shapes that straight code finds, with all batch dims as one; None where it gives up."""
    single, batched = split_off(spec)
    given = {name: tuple(shape) for name, shape in shapes.items()}
    if spec.batch_name:
        given |= {name: (prod(batch), *given[name][len(batch) :]) for name in batched}
    names = [item.name for item in spec.inputs][::-1]
    ranks = {name: len(given[name]) - (name in batched) for name in names}
    solver = make_sizing(single, ranks, tuple(values), batched=batched if spec.batch_name else None)
    numbers = solver and solver.solve([given[name] for name in names], values)
    if not numbers:
        return None
    assert numbers[-1] == sum(prod(solver.evaluate(name, numbers)) for name in solver.shapes)
    assert all(solver.evaluate(name, numbers) == shape for name, shape in given.items())
    return {item.name: solver.evaluate(item.name, numbers) for item in spec.allocations}


@pytest.mark.costly
@settings(max_examples=500, deadline=None)
@given(calls())
def test_generated_code_agrees_with_the_solver_or_gives_up(call):
    spec, shapes, values = call
    wanted = compute_expected(*call)
    if wanted is None:
        if not spec.batch_name:  # whether batch dims agree is found before
            assert sized(spec, shapes, values, ()) is None
        return
    _, batch, _, made = wanted
    flat = {name: (prod(batch), *shape[len(batch) :]) if spec.batch_name else shape for name, shape in made.items()}
    assert sized(spec, shapes, values, batch) == flat


@pytest.mark.parametrize(("spec", "scratch", "shapes", "values", "dims", "batch", "rest", "made"), SOLVED)
def test_code_is_generated_for_every_kind_of_spec(spec, scratch, shapes, values, dims, batch, rest, made):
    parsed = parse(spec, scratch)
    flat = {name: (prod(batch), *shape[len(batch) :]) if parsed.batch_name else shape for name, shape in made.items()}
    assert sized(parsed, shapes, values, batch) == flat


@pytest.mark.parametrize("value", [np.int64(3), 3.0, True, torch.tensor(3)])
def test_generated_code_gives_up_for_non_integers(value):
    assert sized(parse("-> y[n]"), {}, {"n": value}, ()) is None
