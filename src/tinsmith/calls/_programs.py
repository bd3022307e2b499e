"""Finding programs: from the arguments of a call to its key, and to the program of calls with that key.

The properties of a call's tensors are looked up in `Programs`, the table of one op. The first call with these
properties is checked and converted (`make_checked_call`), and gets a `CallKey`. `find_program` keeps one program for
each key. `DirectCalls` computes the keys of the table, and looks up the program of most later calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from .._cache import Cache
from ..engines import COMPILING, HALVES
from ..spec import Numbers, solve
from ..tracing import PLAIN_TYPES, is_tracing
from . import derived
from ._binding import BoundArguments, check_tensors
from ._buffers import are_in_order
from ._conversion import AS_IT_IS, Conversion, compute_dtypes
from ._core import Call, Core
from ._direct_calls import DirectCalls
from ._program import Program
from ._signature import find_half_dtype


class Programs:
    """The programs of an op's calls so far, by the properties of the tensors and of what else a program depends on.

    Attributes:
        core: of the op.
        direct: finds the calls that are like earlier ones by code made for the op; None until there is such a call.
    """

    def __init__(self, core: Core) -> None:
        self.core = core
        self._known: Cache[Any, Program | None] = Cache("programs by tensors")
        self._calls: DirectCalls | None = None
        self.direct: DirectCalls | None = None

    def find(self, bound: BoundArguments) -> Program | None:
        """Return the program of a call; None for tensors that only the op's operators can run.

        The first call with such tensors is checked, and raises every error that depends on their properties.
        """
        key = None if self._calls is None else self._calls.compute_key(bound)
        known = _UNKNOWN if key is None else self._known.get(key, _UNKNOWN)
        if known is _UNKNOWN:
            known = self._make(bound)
            # A kernel is analyzed before its first program is made, and then the code of its calls is shorter.
            if self._calls is None:
                self._calls = DirectCalls(self.core, self._known)
            key = self._calls.compute_key(bound)
            if key is not None:
                self._known.keep(key, known)
            # The caller does not pass the seed of random numbers.
            if known is not None and known.is_direct and not self.core.is_seeded:
                self.direct = self._calls
        return known

    def _make(self, bound: BoundArguments) -> Program | None:
        """Check a call and return its program; None if tensors have no memory, or a dispatch of their own."""
        core, tensors = self.core, bound.tensors
        call = make_checked_call(core, bound)
        core.captures.refuse_rerun(core.captures.fingerprints(bound.templates))
        device = core.device(tensors)
        if device.type != "meta":
            core.check_device(device)
        if device.type == "meta" or not all(type(tensor) in PLAIN_TYPES for tensor in tensors):
            return None
        pairs = zip(core.signature.arrays, tensors, strict=True)
        active = frozenset(name for name, one in pairs if one.requires_grad)
        return find_program(call, device, active=active, is_ordered=are_in_order(tensors))


_UNKNOWN: Any = object()
"""The default of look-ups in tables where None is an entry."""


def find_program(
    call: Call,
    device: torch.device,
    *,
    active: frozenset[str] = frozenset(),
    is_ordered: bool = False,
) -> Program:
    """Return the program of calls like this one, made once for each key.

    Args:
        call: the call.
        device: where it runs.
        active: the inputs that require a gradient.
        is_ordered: whether all tensors are contiguous and none is negated lazily.
    """
    core = call.core
    key = replace(
        core.key(call),
        device=device,
        engines=core.get_engine_states(),
        sizes=call.sizing,
        active=active,
        conversion=AS_IT_IS if call.conversion.is_identity else call.conversion,
        is_ordered=is_ordered,
    )
    program = core.programs.get(key)
    if program is not None:
        return program
    with COMPILING:
        program = core.programs.get(key)
        if program is None:
            core.check_device(device)
            is_recorded = bool(active) and derived.find_recorded(core, call) is not None
            core.captures.note_program(key.fingerprints)
            routine = core.build_forward(key)
            program = Program(
                key, core.gradient, routine, core.paces, core.captures, core.runtimes, is_recorded=is_recorded
            )
            core.programs.keep(key, program)
        return program


def solve_numbers(core: Core, program: Program, bound: BoundArguments) -> Numbers:
    """Solve a call's sizes for the symbols in its size formulas. Raise ShapeError if sizes do not fit the spec."""
    values = core.signature.size_values(bound.scalars, bound.sizes)
    solution = program.solve([one.shape for one in bound.tensors], values)
    return make_checked_call(core, bound).numbers if solution is None else solution


# From arguments to a call ----------------------------------------------------------------------------


def make_checked_call(core: Core, bound: BoundArguments, *, is_cast: bool = False) -> Call:
    """Check a call's arguments, except against the engine's state. Return the converted call.

    With `is_cast`, half precision may have been cast to float32 already.
    """
    check_tensors(core.signature, bound.tensors, is_cast=is_cast)
    for stage in core.signature.stages:
        stage.check_object(core.signature.op)
    return convert_call(core, bound, [tuple(one.shape) for one in bound.tensors], [one.dtype for one in bound.tensors])


def convert_call(
    core: Core, bound: BoundArguments, shapes: Sequence[tuple[int, ...]], dtypes: Sequence[torch.dtype]
) -> Call:
    """Build the converted call (`Conversion`) of arguments whose tensors have these shapes and dtypes.

    Raises:
        ShapeError: sizes do not fit the spec.
        DtypeError: a dtype does not follow from the inputs.
    """
    if is_tracing():
        return _convert_first(core, bound, shapes, dtypes)
    key = (tuple([len(shape) for shape in shapes]), *dtypes)
    known = core.conversions.get(key)
    call = None if known is None else _convert_with(known, core, bound, shapes, dtypes)
    if call is None:
        call = _convert_first(core, bound, shapes, dtypes)
        core.conversions.keep(key, call.conversion)
    return call


def _convert_with(
    conversion: Conversion,
    core: Core,
    bound: BoundArguments,
    shapes: Sequence[tuple[int, ...]],
    dtypes: Sequence[torch.dtype],
) -> Call | None:
    """Build the converted call, given its conversion; None if its sizes do not fit."""
    count, batched = conversion.lead, conversion.batched
    pairs = list(zip(core.signature.arrays, shapes, strict=True))
    leads = [shape[:count] for name, shape in pairs if name in batched]
    if any(lead != leads[0] for lead in leads):
        return None
    lead = tuple(leads[0]) if count else ()
    call = _make_call(core, bound, shapes, dtypes, conversion, lead)
    return None if call.solution is None else call


def _convert_first(
    core: Core, bound: BoundArguments, shapes: Sequence[tuple[int, ...]], dtypes: Sequence[torch.dtype]
) -> Call:
    signature = core.signature
    names = signature.arrays
    values = signature.size_values(bound.scalars, bound.sizes)
    solution = solve(signature.spec, dict(zip(names, shapes, strict=True)), values, signature.op)
    lead = tuple(solution.batch)
    batched = frozenset(n for n in names if lead and signature.items[n].batch_name)
    casts = tuple([dtype in HALVES for dtype in dtypes])
    halves = tuple([find_half_dtype(signature, name, dtypes) for name in signature.outputs])
    call = _make_call(core, bound, shapes, dtypes, Conversion(casts, len(lead), batched, halves), lead)
    # Checks sizes and dtypes of the results before anything runs.
    core.plan_buffers(call)
    return call


def _make_call(
    core: Core,
    bound: BoundArguments,
    shapes: Sequence[tuple[int, ...]],
    dtypes: Sequence[torch.dtype],
    conversion: Conversion,
    lead: tuple[int, ...],
) -> Call:
    count, batched = conversion.lead, conversion.batched
    pairs = zip(core.signature.arrays, shapes, strict=True)
    return Call(
        core,
        tuple([shape[count:] if name in batched else shape for name, shape in pairs]),
        compute_dtypes(dtypes),
        bound.scalars,
        bound.templates,
        bound.sizes,
        batch=_multiply(lead) if count else None,
        batched=batched,
        conversion=conversion,
        lead=lead,
    )


def convert_as_it_is(call: Call) -> Call:
    """Cast the half precision of a call to float32, in a call that is otherwise converted already (`Conversion`)."""
    casts = tuple([dtype in HALVES for dtype in call.dtypes])
    return replace(call, dtypes=compute_dtypes(call.dtypes), conversion=Conversion(casts, 0, call.batched, ()), lead=())


def _multiply(sizes: Sequence[int]) -> int:
    count = 1
    for size in sizes:
        count *= size
    return count
