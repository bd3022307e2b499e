"""Route: converts the caller's tensors for a plan, and its results back, for one kind of call.

Half precision is computed in single precision, memory is put in order, several batch dims
become one. torch's own differentiable operations do all of it, so gradients
are converted back; most calls need none of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from .._lazy import lazy
from ..engines import HALVES
from ..spec import Numbers, solve
from ..tracing import PLAIN_TYPES, is_tracing, reshape_result
from ._binding import BoundArguments, check_tensors
from ._buffers import are_in_order, check_before_copy
from ._cache import Cache
from ._call import Call
from ._core import Core
from ._plan import Plan
from ._signature import Signature
from .derived import find_recorded


def compute_dtypes(dtypes: Sequence[torch.dtype]) -> tuple[torch.dtype, ...]:
    """The dtypes that inputs are computed in: of half precision, single."""
    return tuple([torch.float32 if dtype in HALVES else dtype for dtype in dtypes])


class Conversion(NamedTuple):
    """What becomes of calls of one kind before and after they are run.

    Attributes:
        casts: per input, whether half precision becomes single.
        dtypes: of the inputs, as they are computed.
        lead: how many dims the spec's `*b` stands for.
        batched: inputs that have these dims.
        halves: per output, the half dtype that it is cast back to, or None.
    """

    casts: tuple[bool, ...]
    dtypes: tuple[torch.dtype, ...]
    lead: int
    batched: frozenset[str]
    halves: tuple[torch.dtype | None, ...]

    @property
    def is_prepared(self) -> bool:
        """Whether no cast or reshape is needed before."""
        return not (any(self.casts) or self.lead > 1)

    @property
    def is_finished(self) -> bool:
        """Whether none is needed after."""
        return not (any(self.halves) or self.lead > 1)

    @property
    def is_identity(self) -> bool:
        """Whether tensors go to the plan, and results to the caller, as they are."""
        return self.is_prepared and self.is_finished

    def form(self, core: Core, bound: BoundArguments, shapes: Sequence[tuple[int, ...]]) -> Form | None:
        """The form of a call of this kind; None where sizes do not fit."""
        count, names = self.lead, core.signature.arrays
        pairs = list(zip(names, shapes, strict=True))
        leads = [shape[:count] for name, shape in pairs if name in self.batched]
        if any(lead != leads[0] for lead in leads):
            return None
        cores = tuple([shape[count:] if name in self.batched else shape for name, shape in pairs])
        lead = tuple(leads[0]) if count else ()
        batch = _product(lead) if count else None
        call = Call(core, cores, self.dtypes, bound.scalars, bound.templates, bound.sizes, batch, self.batched)
        return None if call.solution is None else Form(call, self, lead)

    def prepare(
        self,
        signature: Signature,
        batch: int | None,
        tensors: Sequence[torch.Tensor],
        outer: Sequence[tuple[int, ...]] = (),
    ) -> list[torch.Tensor]:
        """Convert the caller's tensors to what the plan takes. `outer` are leading dims that the op does not see."""
        ready = []
        names = signature.arrays
        for place, tensor in enumerate(tensors):
            check_before_copy(f"array `{names[place]}` of op `{signature.op}`", tensor)
            first = outer[place] if outer else ()
            tensor = tensor.float() if self.casts[place] else tensor
            if self.lead > 1 and names[place] in self.batched:
                shape = tensor.shape[len(first) + self.lead :]
                assert batch is not None, "several batch dims become one"
                tensor = tensor.reshape(*first, batch, *shape)
            ready.append(tensor)
        return ready

    def finish(
        self, results: Sequence[torch.Tensor], lead: tuple[int, ...], outer: tuple[int, ...] = ()
    ) -> list[torch.Tensor]:
        """Convert the plan's results to the caller's dtypes and batch dims; `lead` are the sizes of the spec's `*b`."""
        done = []
        for place, result in enumerate(results):
            shape = (*outer, *lead, *result.shape[len(outer) + 1 :])
            shaped = reshape_result(result, shape) if len(lead) > 1 else result
            half = self.halves[place] if place < len(self.halves) else None
            done.append(shaped if half is None else shaped.to(half))
        return done


@dataclass(frozen=True)
class Form:
    """How a call as a caller writes it becomes one that a plan runs, and its results the caller's.

    Attributes:
        call: the call as it is run.
        conversion: what happens to its tensors and results.
        lead: sizes of the spec's `*b`; () without.
    """

    call: Call
    conversion: Conversion
    lead: tuple[int, ...]

    def prepare(self, tensors: Sequence[torch.Tensor], outer: Sequence[tuple[int, ...]] = ()) -> list[torch.Tensor]:
        """Convert the caller's tensors to what the plan takes. `outer` are leading dims that the op does not see."""
        return self.conversion.prepare(self.call.core.signature, self.call.batch, tensors, outer)

    def finish(self, results: Sequence[torch.Tensor], outer: tuple[int, ...] = ()) -> list[torch.Tensor]:
        """Convert the plan's results, outputs first, to the caller's dtypes and batch dims."""
        return self.conversion.finish(results, self.lead, outer)


def as_it_is(call: Call) -> Form:
    """The form of a call that is given as it is run. Its half precision becomes single all the same."""
    casts = tuple([dtype in HALVES for dtype in call.dtypes])
    dtypes = compute_dtypes(call.dtypes)
    ready = replace(call, dtypes=dtypes) if any(casts) else call
    return Form(ready, Conversion(casts, dtypes, 0, call.batched, ()), ())


def form_of(
    core: Core, bound: BoundArguments, shapes: Sequence[tuple[int, ...]], dtypes: Sequence[torch.dtype]
) -> Form:
    """The form of a call whose tensors have these shapes and dtypes. Raises for what does not fit the spec."""
    if is_tracing():
        return _first_form(core, bound, shapes, dtypes)
    key = (tuple([len(shape) for shape in shapes]), *dtypes)
    known = core.conversions.get(key)
    form = None if known is None else known.form(core, bound, shapes)
    if form is None:
        form = _first_form(core, bound, shapes, dtypes)
        core.conversions.keep(key, form.conversion)
    return form


def _first_form(
    core: Core, bound: BoundArguments, shapes: Sequence[tuple[int, ...]], dtypes: Sequence[torch.dtype]
) -> Form:
    signature = core.signature
    names = signature.arrays
    values = signature.size_values(bound.scalars, bound.sizes)
    solution = solve(signature.spec, dict(zip(names, shapes, strict=True)), values, signature.op)
    lead = tuple(solution.batch)
    batched = frozenset(n for n in names if lead and signature.items[n].batch_name)
    cores = tuple([shape[len(lead) :] if name in batched else shape for name, shape in zip(names, shapes, strict=True)])
    computed = compute_dtypes(dtypes)
    batch = _product(lead) if lead else None
    call = Call(core, cores, computed, bound.scalars, bound.templates, bound.sizes, batch, batched)
    # Checks sizes and dtypes of the results before anything runs.
    core.plan_buffers(call)
    casts = tuple([dtype in HALVES for dtype in dtypes])
    halves = tuple([core.result_dtype(name, dtypes) for name in signature.outputs])
    return Form(call, Conversion(casts, computed, len(lead), batched, halves), lead)


class Route:
    """How calls of one kind are run: with certain ranks, dtypes and wishes.

    Attributes:
        active: inputs that require a gradient.
        is_ordered: whether all memory is in order, element after element.
        is_native: whether all tensors are torch's own with memory, and no subclass with a dispatch of its own.
        is_recorded: whether the forward pass keeps what atomics return, for a gradient.
        is_direct: whether tensors go to the plan, and results to the caller, as they are.
        runtimes: how to ask each engine for its state, and the one that this route was made in.
    """

    def __init__(
        self,
        form: Form,
        active: frozenset[str],
        device: torch.device,
        runtimes: tuple[tuple[Callable[[], Any], Any], ...],
        *,
        is_ordered: bool,
        is_native: bool,
    ) -> None:
        self.core = form.call.core
        self.conversion = form.conversion
        self.active = active
        self.device = device
        self.runtimes = runtimes
        self.is_ordered, self.is_native = is_ordered, is_native
        self.is_converted = not form.conversion.is_identity
        # Where the gradient needs what the forward pass kept, the op's operators know what that is.
        self.is_recorded = bool(active) and is_native and find_recorded(self.core, form.call) is not None
        self.is_direct = is_ordered and is_native and not self.is_converted and not self.is_recorded
        self._first = form.call
        self._active_by_needs: dict[tuple[bool, ...], frozenset[str]] = {}

    def is_current(self) -> bool:
        """Whether the engines are still those that this route was made in."""
        for runtime, before in self.runtimes:  # noqa: SIM110  # asked at every call: a generator costs more
            if runtime() is not before:
                return False
        return True

    @lazy
    def plan(self) -> Plan:
        """What runs the calls."""
        return self._first.plan(self.device)

    @lazy
    def solve(self) -> Callable[..., Numbers | None]:
        """The numbers of a call's sizes, from its tensors' shapes and from values by name; None where these misfit."""
        return self.plan.kind.sizing.solve

    def numbers(self, bound: BoundArguments) -> Numbers:
        """The numbers of a call's sizes. Raises where these misfit."""
        solution = self.solve([one.shape for one in bound.tensors], self._values(bound))
        return make_checked_form(self.core, bound).call.numbers if solution is None else solution

    def _values(self, bound: BoundArguments) -> dict[str, Any]:
        return self.core.signature.size_values(bound.scalars, bound.sizes)

    def call(self, numbers: Numbers, others: BoundArguments) -> Call:
        """A call with these sizes; `others` are its arguments but tensors."""
        first, kind = self._first, self.plan.kind
        names, sizing = self.core.signature.arrays, kind.sizing
        cores = tuple([sizing.evaluate(name, numbers)[name in first.batched :] for name in names])
        batch = first.batch if not isinstance(sizing.batch, tuple) else numbers[sizing.batch.place]
        return replace(
            first,
            shapes=cores,
            scalars=others.scalars,
            templates=others.templates,
            sizes=others.sizes,
            batch=batch,
        )

    def select_active(self, needs: tuple[bool, ...]) -> frozenset[str]:
        """Names of the inputs that need a gradient, from one flag an input."""
        active = self._active_by_needs.get(needs)
        if active is None:
            active = self._active_by_needs[needs] = self._first.select_active(needs)
        return active


class Routes:
    """The routes of a core so far.

    Attributes:
        is_simple: whether routes depend on nothing but tensors.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._known: Cache[Any, Route] = Cache()
        signature = core.signature
        takes_tensors = len(signature.arrays) == len(signature.order) and not signature.size_names
        self._takes_tensors_only = takes_tensors and not signature.has_open_elements
        self.is_simple = False
        self.get = self._known.get

    def find(self, bound: BoundArguments) -> Route:
        """The route of a call; a new one where it has none."""
        tensors = key_of(bound.tensors)
        if tensors is None:
            return route(self._core, bound)
        known = self._known.get(self._key(tensors, bound))
        if known is None or not known.is_current():
            known = route(self._core, bound)
            # Known now that the kernel was looked into.
            self.is_simple = self._takes_tensors_only and not self._core.varies
            self._known.keep(self._key(tensors, bound), known)
        return known

    def _key(self, tensors: tuple[Any, ...], bound: BoundArguments) -> tuple[Any, ...]:
        """What a route depends on."""
        if self.is_simple:
            return tensors
        core, sizes = self._core, tuple(bound.sizes)
        if core.signature.has_open_elements:
            sizes += tuple(core.signature.size_values(bound.scalars, bound.sizes).values())
            sizes += tuple([tuple(one.shape) for one in bound.tensors])
        return tensors, sizes, core.launch_numbers(bound.scalars), core.fingerprints(bound.templates)


def route(core: Core, bound: BoundArguments) -> Route:
    """Check a call and find its route. Every refusal that depends on tensors comes from here."""
    form = make_checked_form(core, bound)
    core.captures.refuse_rerun(core.fingerprints(bound.templates))
    tensors = bound.tensors
    device = core.device(tensors)
    has_memory = device.type != "meta"
    if has_memory:
        core.check_device(device)
    return Route(
        form,
        frozenset(name for name, one in zip(core.signature.arrays, tensors, strict=True) if one.requires_grad),
        device,
        tuple((runtime, runtime()) for runtime in core.runtimes),
        is_ordered=are_in_order(tensors),
        is_native=has_memory and all(type(tensor) in PLAIN_TYPES for tensor in tensors),
    )


def make_checked_form(core: Core, bound: BoundArguments, *, is_cast: bool = False) -> Form:
    """The form of a call, with everything checked that can be said without the engine's state.

    With `is_cast`, half precision may have become single already.
    """
    check_tensors(core.signature, bound.tensors, is_cast=is_cast)
    for stage in core.signature.stages:
        stage.check_object(core.signature.op)
    return form_of(core, bound, [tuple(one.shape) for one in bound.tensors], [one.dtype for one in bound.tensors])


def _product(sizes: Sequence[int]) -> int:
    count = 1
    for size in sizes:
        count *= size
    return count


def key_of(tensors: Sequence[Any]) -> tuple[Any, ...] | None:
    """What a route depends on, of the tensors; None where one is not a strided tensor: the checked call raises."""
    try:
        return tuple(
            [
                (t.ndim, t.dtype, t.device, t.requires_grad, t.layout, t.is_contiguous(), t.is_neg(), type(t))
                for t in tensors
            ]
        )
    except (AttributeError, RuntimeError):
        return None
