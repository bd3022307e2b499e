"""Route: what happens to one kind of call between the caller's tensors and a plan.

Half precision is computed in single precision, memory is put in order, several batch dims
become one. All of it is done by torch's own differentiable operations, so that gradients
find their way back; most calls need none of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch

from .._lazy import lazy
from ..engines import HALVES
from ..spec import QuickSolver, solve
from ._binding import Bound, check_tensors
from ._buffers import Buffer
from ._cache import Cache
from ._core import Call, Core
from ._plan import Plan
from ._tracing import is_tracing

_NATIVE = (torch.Tensor, torch.nn.Parameter)


def compute_dtypes(dtypes: Sequence[torch.dtype]) -> tuple[torch.dtype, ...]:
    """The dtypes that inputs are computed in: of half precision, single."""
    return tuple([torch.float32 if dtype in HALVES else dtype for dtype in dtypes])


@dataclass(frozen=True)
class Form:
    """How a call as a caller writes it becomes one that a plan runs, and its results the caller's.

    Attributes:
        call: the call as it is run.
        casts: per input, whether half precision becomes single.
        lead: sizes of the spec's `*b`; () without.
        halves: per output, the half dtype that it is cast back to, or None.
    """

    call: Call
    casts: tuple[bool, ...]
    lead: tuple[int, ...]
    halves: tuple[torch.dtype | None, ...]

    @property
    def is_prepared(self) -> bool:
        """Whether no cast or reshape is needed before."""
        return not (any(self.casts) or len(self.lead) > 1)

    @property
    def is_finished(self) -> bool:
        """Whether none is needed after."""
        return not (any(self.halves) or len(self.lead) > 1)

    def prepare(self, tensors: Sequence[torch.Tensor], outer: Sequence[tuple[int, ...]] = ()) -> list[torch.Tensor]:
        """The caller's tensors as the plan wants them. `outer` are dims in front that the op does not see."""
        ready = []
        names = self.call.core.signature.arrays
        for place, tensor in enumerate(tensors):
            first = outer[place] if outer else ()
            tensor = tensor.float() if self.casts[place] else tensor
            if len(self.lead) > 1 and names[place] in self.call.batched:
                shape = tensor.shape[len(first) + len(self.lead) :]
                tensor = tensor.reshape(*first, self.call.batch or 0, *shape)
            ready.append(tensor)
        return ready

    def finish(self, results: Sequence[torch.Tensor], outer: tuple[int, ...] = ()) -> list[torch.Tensor]:
        """The plan's results, outputs first, as the caller wants them."""
        done = []
        for place, result in enumerate(results):
            shape = (*outer, *self.lead, *result.shape[len(outer) + 1 :])
            shaped = result.reshape(shape) if len(self.lead) > 1 else result
            half = self.halves[place] if place < len(self.halves) else None
            done.append(shaped if half is None else shaped.to(half))
        return done


class Sizes(NamedTuple):
    """What is known of calls with the same shapes and dtypes: a form without its call, which would keep its core."""

    casts: tuple[bool, ...]
    lead: tuple[int, ...]
    halves: tuple[torch.dtype | None, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[torch.dtype, ...]
    batched: frozenset[str]


def as_it_is(call: Call) -> Form:
    """The form of a call that is given as it is run. Its half precision becomes single all the same."""
    casts = tuple([dtype in HALVES for dtype in call.dtypes])
    return Form(replace(call, dtypes=compute_dtypes(call.dtypes)) if any(casts) else call, casts, (), ())


def form_of(core: Core, bound: Bound, shapes: Sequence[tuple[int, ...]], dtypes: Sequence[torch.dtype]) -> Form:
    """The form of a call whose tensors have these shapes and dtypes. Raises for what does not fit the spec."""
    if is_tracing():
        return _new_form(core, bound, shapes, dtypes)
    key = (*shapes, *dtypes, *core.fixed(bound.scalars), *bound.sizes.values())
    try:
        found = core.forms.get(key)
    except TypeError:  # symbolic sizes of a tracer, under which nothing can be kept
        return _new_form(core, bound, shapes, dtypes)
    if found is None:
        form = _new_form(core, bound, shapes, dtypes)
        call = form.call
        core.forms.keep(key, Sizes(form.casts, form.lead, form.halves, call.shapes, call.dtypes, call.batched))
        return form
    call = Call(core, found.shapes, found.dtypes, bound.scalars, bound.templates, bound.sizes)
    if found.lead:
        call = call.with_batch(_product(found.lead), found.batched)
    return Form(call, found.casts, found.lead, found.halves)


def _new_form(core: Core, bound: Bound, shapes: Sequence[tuple[int, ...]], dtypes: Sequence[torch.dtype]) -> Form:
    signature = core.signature
    names = signature.arrays
    values = signature.size_values(bound.scalars, bound.sizes)
    solution = solve(signature.spec, dict(zip(names, shapes, strict=True)), values, signature.op)
    lead = tuple(solution.batch)
    batched = frozenset(n for n in names if lead and signature.items[n].batch_name)
    cores = tuple([shape[len(lead) :] if name in batched else shape for name, shape in zip(names, shapes, strict=True)])
    call = Call(
        core,
        cores,
        compute_dtypes(dtypes),
        bound.scalars,
        bound.templates,
        bound.sizes,
        _product(lead) if lead else None,
        batched,
    )
    made = core.made_of(call, solution)  # sizes and dtypes of the results are checked before anything runs
    if not is_tracing():
        call.keep_made(made)
    casts = tuple([dtype in HALVES for dtype in dtypes])
    return Form(call, casts, lead, tuple([core.result_dtype(name, dtypes) for name in signature.outputs]))


class Route:
    """How calls with certain shapes, dtypes and wishes are run.

    Attributes:
        active: inputs that require a gradient.
        is_ordered: whether all memory is in order, element after element.
        is_native: whether all tensors are torch's own with memory, and no subclass that wants to be told.
        is_prepared, is_finished: whether tensors go to the plan, and results to the caller, as they are; `is_direct`
            whether there is nothing at all to do besides.
        runtimes: how to ask each engine for its state, and the one that this route was made in.
        scalars: of the call.
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
        vars(self).update(form=form, call=form.call)
        self.active = active
        self.device = device
        self.runtimes = runtimes
        self.is_ordered, self.is_native = is_ordered, is_native
        self.is_prepared, self.is_finished = form.is_prepared, form.is_finished
        self.is_direct = self.is_prepared and self.is_finished and is_ordered and is_native
        self.scalars = form.call.scalars
        # Of a route made from another: itself would keep everything until it is looked for cycles.
        self._first: Route | None = None
        self._lead = form.lead
        self._others = form.call.templates, form.call.sizes
        self._wanted: dict[tuple[bool, ...], frozenset[str]] = {}

    def is_current(self) -> bool:
        """Whether the engines are still those that this route was made in."""
        for runtime, before in self.runtimes:  # noqa: SIM110  # asked at every call: a generator costs more
            if runtime() is not before:
                return False
        return True

    @lazy
    def plan(self) -> Plan:
        """What runs the call."""
        return self.call.plan(self.device)

    @lazy
    def call(self) -> Call:
        """The call. One that differs from a first call in sizes or scalars is seldom asked for."""
        assert self._first is not None, "a first route has its call"
        first, situation = self._first.call, self.plan.situation
        cores = tuple([situation.core(name) for name in first.core.signature.arrays])
        templates, sizes = self._others
        found = Call(first.core, cores, first.dtypes, self.scalars, templates, sizes, situation.batch, first.batched)
        made = situation.signature.outputs + situation.signature.scratch
        found.keep_made([Buffer(name, situation.shapes[name], situation.dtypes[name]) for name in made])
        return found

    @lazy
    def form(self) -> Form:
        """How a call as it came becomes that one."""
        assert self._first is not None, "a first route has its form"
        first = self._first.form
        return Form(self.call, first.casts, self._lead, first.halves)

    @lazy
    def _solver(self) -> tuple[QuickSolver | None, tuple[str, ...]]:
        """What solves the spec for other sizes, given values of these names."""
        call = self.call
        signature = call.core.signature
        lead = len(self._lead)
        named = zip(signature.arrays, call.shapes, strict=True)
        ranks = [len(shape) + lead * (name in call.batched) for name, shape in named]
        names = tuple(signature.size_values(call.scalars, call.sizes))
        return call.core.quick_solver(ranks, names), names

    def resize(self, bound: Bound) -> Route | None:
        """The route of a call that differs in sizes alone; None where it has to be looked at from the start."""
        quick, names = self._solver
        core, plan = self.call.core, self.plan
        values = core.signature.size_values(bound.scalars, bound.sizes) if names or bound.sizes else {}
        if quick is None or tuple(values) != names:
            return None
        solved = quick([one.shape for one in bound.tensors], values)
        if solved is None:
            return None
        lead, made = solved
        situation = plan.situation
        shapes = dict(zip(plan.names, (*[one.shape for one in bound.tensors], *made), strict=True))
        batch = _product(lead) if lead else None
        if len(lead) > 1:
            shapes |= {name: (batch, *shapes[name][len(lead) :]) for name in situation.batched}
        situation = situation.resize(shapes, batch, core.fixed_by_name(bound.scalars))
        if core.signature.vectors:
            core.check_elements({name: situation.core(name) for name in plan.names})
        return self._copy(
            plan=plan.resize(situation),
            scalars=bound.scalars,
            _lead=lead,
            _others=(bound.templates, bound.sizes),
        )

    def with_scalars(self, bound: Bound) -> Route:
        """This route for a call with other scalars, which no plan depends on."""
        return self._copy(plan=self.plan, scalars=bound.scalars, _others=(bound.templates, bound.sizes))

    def _copy(self, **others: Any) -> Route:
        found = Route.__new__(Route)
        values = vars(found)
        values.update(vars(self))
        for name in ("call", "form", "_solver"):
            values.pop(name, None)
        values.update(others, _first=self._first or self)
        return found

    def wanted(self, needs: tuple[bool, ...]) -> frozenset[str]:
        """Names of the inputs that need a gradient, from autograd's flags; the first belongs to no tensor."""
        found = self._wanted.get(needs)
        if found is None:
            found = self._wanted[needs] = (self._first or self).call.wanted(needs[1:])
        return found


class Routes:
    """The routes of a core so far.

    Attributes:
        is_simple: whether routes depend on nothing but tensors.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._known: Cache[Any, Route] = Cache()
        self._first: Cache[Any, Route] = Cache()  # of calls that differ in sizes alone
        signature = core.signature
        self._takes_tensors_only = len(signature.arrays) == len(signature.order) and not signature.size_names
        self._has_others = True
        self.is_simple = False
        self.get = self._known.get

    def find(self, bound: Bound) -> Route:
        """The route of a call; a new one where it has none."""
        core = self._core
        tensors = key_of(bound.tensors)
        if tensors is None:
            return route(core, bound)
        key: Any = tensors
        pictures = core.fingerprints(bound.templates) if self._has_others else ()
        if self._has_others:
            key = (tensors, core.fixed(bound.scalars), tuple(bound.sizes.items()), pictures)
        try:
            found = self._known.get(key)
        except TypeError:  # symbolic sizes of a tracer, under which nothing can be kept
            return route(core, bound)
        if found is None or not found.is_current():
            kinds = tensors if core.signature.has_open_elements else _kinds_of(tensors)
            found = self._make((kinds, core.kind_scalars(bound.scalars), pictures), bound)
            self._known.keep(key, found)
        return found

    def resize(self, key: Any, tensors: tuple[Any, ...]) -> Route | None:
        """The route of a call with nothing but tensors, where one that differs in sizes alone came before."""
        if self._core.signature.has_open_elements:
            return None
        first = self._first.get((_kinds_of(key), (), ()))
        found = first.resize(Bound(tensors, {}, {}, {})) if first is not None and first.is_current() else None
        return None if found is None else self._known.keep(key, found)

    def _make(self, kind: Any, bound: Bound) -> Route:
        first = self._first.get(kind)
        if first is not None and first.is_current():
            resized = first.resize(bound)
            return route(self._core, bound) if resized is None else resized
        found = self._first.keep(kind, route(self._core, bound))
        self._has_others = self._core.varies or not self._takes_tensors_only  # known once the kernel was looked into
        self.is_simple = not self._has_others
        return found


def route(core: Core, bound: Bound) -> Route:
    """Check a call and find its route. Every refusal that depends on tensors comes from here."""
    form = checked_form(core, bound)
    tensors = bound.tensors
    device = tensors[0].device if tensors else torch.device(core.device_type())
    has_memory = device.type != "meta"
    if has_memory:
        core.check_device(device)
    return Route(
        form,
        frozenset(name for name, one in zip(core.signature.arrays, tensors, strict=True) if one.requires_grad),
        device,
        tuple((runtime, runtime()) for runtime in core.runtimes),
        is_ordered=all(tensor.is_contiguous() and not tensor.is_neg() for tensor in tensors),
        is_native=has_memory and all(type(tensor) in _NATIVE for tensor in tensors),
    )


def checked_form(core: Core, bound: Bound) -> Form:
    """The form of a call, with everything checked that can be said without the engine's state."""
    check_tensors(core.signature, bound.tensors)
    for stage in core.signature.stages:
        stage.check_object(core.signature.op)
    return form_of(core, bound, [tuple(one.shape) for one in bound.tensors], [one.dtype for one in bound.tensors])


def _product(sizes: Sequence[int]) -> int:
    count = 1
    for size in sizes:
        count *= size
    return count


def _kinds_of(key: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """What is left of the key of tensors without their sizes."""
    return tuple([(len(shape), *others) for shape, *others in key])


def key_of(tensors: Sequence[Any]) -> tuple[Any, ...] | None:
    """What a route depends on, of the tensors; None for what is no strided tensor, which is refused in words."""
    try:
        return tuple(
            [
                (t.shape, t.dtype, t.device, t.requires_grad, t.layout, t.is_contiguous(), t.is_neg(), type(t))
                for t in tensors
            ]
        )
    except (AttributeError, RuntimeError):
        return None
