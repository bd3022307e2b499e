"""Kernel families: kernels that differ in numbers alone share one compiled kernel from the fifth on.

Engines compile a Python number into the kernel, and free a compiled kernel only when they are restarted. A program that
makes an op with another number in every step would use ever more memory. So the shared kernel takes the numbers that
have differed so far as arguments. The first kernels of a family keep their numbers, since constants compile to faster
code.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

from .._cache import digest_of
from ..engines import Compiled, Engine, bind_scalars, one_at_a_time
from ..ir import Operator, Type, nodes, walk
from ._remember import remember

MOST_ALONE = 4
"""How many kernels of a family are compiled with their numbers as constants."""

_MOST_PRODUCTS = 32
"""The largest exponent that engines compile to multiplications (Taichi 1.7.4, Quadrants 1.3.3)."""

_SETTERS = {Type.F32: "float", Type.F64: "float", Type.I32: "int", Type.I64: "int"}
"""How launches set the numbers that become arguments, by type. Numbers of other types are rare and stay constants."""


class KernelFamily:
    """The kernels compiled so far that differ in numbers alone.

    Attributes:
        first: the numbers of the first kernel.
        alone: the numbers of the kernels that were compiled with them as constants.
        places: the positions at which a later kernel's numbers differed from the first one's.
    """

    def __init__(self, first: tuple[str, ...]) -> None:
        self.first = first
        self.alone = {first}
        self.places: set[int] = set()

    def admit(self, numbers: tuple[str, ...]) -> bool:
        """Return True if a kernel with these numbers is compiled with them as constants."""
        if numbers not in self.alone and len(self.alone) < MOST_ALONE:
            self.alone.add(numbers)
        return numbers in self.alone


_FAMILIES: weakref.WeakKeyDictionary[Any, dict[str, KernelFamily]] = weakref.WeakKeyDictionary()
"""The families of each run of an engine, by the digest of their form. A restarted engine has no compiled kernels."""


@one_at_a_time
def has_relatives(engine: Engine, kernel: nodes.Kernel) -> bool:
    """Return True if a kernel must share a compiled kernel, since many that differ from it in numbers alone were
    compiled.
    """
    numbers, family = _look_up(engine, kernel)
    return not family.admit(numbers)


@one_at_a_time
def compile_in_family(
    engine: Engine, kernel: nodes.Kernel, compile_kernel: Callable[[nodes.Kernel], Compiled]
) -> Compiled:
    """Compile a kernel, or reuse the compiled kernel of its family, which takes the differing numbers as arguments.

    Args:
        engine: where it runs.
        kernel: the kernel, as it is to be printed.
        compile_kernel: compiles a kernel, or finds that of one with the same text.
    """
    if engine.runs_source:
        return compile_kernel(kernel)
    numbers, family = _look_up(engine, kernel)
    if family.admit(numbers):
        return compile_kernel(kernel)
    form, taken = take_out_numbers(kernel)
    family.places |= {place for place, pair in enumerate(zip(numbers, family.first, strict=True)) if len({*pair}) > 1}
    names = {name: place for place, name in enumerate(taken)}
    kept = {name: number for name, number in taken.items() if names[name] not in family.places}
    given = {name: number for name, number in taken.items() if name not in kept}
    compiled = compile_kernel(_put_back(form, kept))
    scalars = tuple((_SETTERS[one.type], compiled.slots[name], one.value) for name, one in given.items())
    return replace(compiled, launch=bind_scalars(compiled.launch, scalars))


def take_out_numbers(kernel: nodes.Kernel) -> tuple[nodes.Kernel, dict[str, nodes.Const]]:
    """Replace each number in a kernel by an argument. Return the kernel, and the numbers by the arguments' names.

    Some numbers stay, because the engine must know them or compiles another operation for them: exponents of products
    and roots, indices of local arrays, and the trip counts of loops that are printed as vectors.
    """
    taken = walk.names_of(kernel) | kernel.arguments.keys() | kernel.arrays.keys()
    free = (name for name in (f"number_{place}" for place in count()) if name not in taken)
    local_arrays = {one.name for one in walk.statements(kernel.body) if isinstance(one, nodes.LocalArray)}
    numbers: dict[str, nodes.Const] = {}

    def expression(expr: nodes.Expr) -> nodes.Expr:
        match expr:
            case nodes.Const(_, kind) if kind in _SETTERS:
                name = next(free)
                numbers[name] = expr
                return nodes.Argument(name, kind)
            case nodes.Binary(Operator.POW, base, nodes.Const(exponent)) if _is_special(exponent):
                return replace(expr, left=expression(base))
            case nodes.Load(array) if array in local_arrays:
                return expr
        return walk.rebuild(expr, expression)

    def statement(one: nodes.Stmt) -> nodes.Stmt:
        match one:
            case nodes.For() if one.vector_width:
                changed = one
            case nodes.Store(array) | nodes.Atomic(array) if array in local_arrays:
                changed = replace(one, value=expression(one.value))
            case _:
                changed = walk.with_expressions(one, expression)
        return walk.with_bodies(changed, lambda body: tuple([statement(inner) for inner in body]))

    body = tuple([statement(one) for one in kernel.body])
    arguments = {name: (one.type, ()) for name, one in numbers.items()}
    return replace(kernel, body=body, arguments={**kernel.arguments, **arguments}), numbers


def annotate_numbers(kernel: nodes.Kernel, annotations: Mapping[str, str]) -> dict[str, str]:
    """Return annotations completed with those of the kernel's arguments that have none."""
    types = {name: f"_lang.{kind}" for name, (kind, _) in kernel.arguments.items()}
    return {**annotations, **{name: text for name, text in types.items() if name not in annotations}}


def _is_special(exponent: float) -> bool:
    """Return True if engines compile a power with this exponent to multiplications or a root."""
    return abs(exponent) == 0.5 or (abs(exponent) <= _MOST_PRODUCTS and float(exponent).is_integer())


def _put_back(form: nodes.Kernel, numbers: dict[str, nodes.Const]) -> nodes.Kernel:
    def change(expr: nodes.Expr) -> nodes.Expr:
        if isinstance(expr, nodes.Argument):
            return numbers.get(expr.name, expr)
        return walk.rebuild(expr, change)

    body = tuple([walk.transform(one, change) for one in form.body])
    return replace(form, body=body, arguments={n: one for n, one in form.arguments.items() if n not in numbers})


def _look_up(engine: Engine, kernel: nodes.Kernel) -> tuple[tuple[str, ...], KernelFamily]:
    """Return the numbers in a kernel, as texts, and the kernel's family."""

    def describe_form() -> tuple[str, tuple[str, ...]]:
        form, taken = take_out_numbers(kernel)
        # As texts, the two zeros differ and two NaNs are equal.
        return digest_of(repr(form)), tuple([repr(one.value) for one in taken.values()])

    form, numbers = remember(engine, "family", lambda: (kernel,), describe_form)
    return numbers, _FAMILIES.setdefault(engine.runtime(), {}).setdefault(form, KernelFamily(numbers))
