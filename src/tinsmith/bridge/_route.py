"""Route: what happens to one kind of call between the caller's tensors and a plan.

Half precision is computed in single precision, memory is put in order, several batch dims
become one. All of it is done by torch's own differentiable operations, so that gradients
find their way back; most calls need none of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch

from .._config import config
from ..engines import HALVES
from ..spec import solve
from ._binding import Bound, check_tensors
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
        if len(core.forms) >= config().plan_cache:
            core.forms.clear()
        core.forms[key] = Sizes(
            form.casts, form.lead, form.halves, form.call.shapes, form.call.dtypes, form.call.batched
        )
        return form
    call = Call(core, found.shapes, found.dtypes, bound.scalars, bound.templates, bound.sizes)
    if found.lead:
        call = call.with_batch(_product(found.lead), found.batched)
    return Form(call, found.casts, found.lead, found.halves)


def _new_form(
    core: Core,
    bound: Bound,
    shapes: Sequence[tuple[int, ...]],
    dtypes: Sequence[torch.dtype],
    first: Form | None = None,
) -> Form:
    """The form of a call; that of a `first` one which differs in sizes alone tells what does not follow from them."""
    signature = core.signature
    names = signature.arrays
    values = signature.size_values(bound.scalars, bound.sizes)
    solution = solve(signature.spec, dict(zip(names, shapes, strict=True)), values, signature.op)
    lead = tuple(solution.batch)
    batched = first.call.batched if first else frozenset(n for n in names if lead and signature.items[n].batch_name)
    cores = tuple([shape[len(lead) :] if name in batched else shape for name, shape in zip(names, shapes, strict=True)])
    call = Call(
        core,
        cores,
        first.call.dtypes if first else compute_dtypes(dtypes),
        bound.scalars,
        bound.templates,
        bound.sizes,
        _product(lead) if lead else None,
        batched,
    )
    made = core.made_of(call, solution)  # sizes and dtypes of the results are checked before anything runs
    if not is_tracing():
        call.keep_made(made)
    if first:
        return Form(call, first.casts, lead, first.halves)
    casts = tuple([dtype in HALVES for dtype in dtypes])
    return Form(call, casts, lead, tuple([core.result_dtype(name, dtypes) for name in signature.outputs]))


@dataclass
class Route:
    """How calls with certain shapes, dtypes and wishes are run.

    Attributes:
        form: of the calls; the scalars of its call are those of the first one.
        active: inputs that require a gradient.
        is_ordered: whether all memory is in order, element after element.
        is_native: whether all tensors are torch's own with memory, and no subclass that wants to be told.
        runtimes: how to ask each engine for its state, and the one that this route was made in.
    """

    form: Form
    active: frozenset[str]
    device: torch.device
    is_ordered: bool
    is_native: bool
    runtimes: tuple[tuple[Callable[[], Any], Any], ...]
    call: Call = field(init=False)
    is_prepared: bool = field(init=False)
    is_finished: bool = field(init=False)
    is_direct: bool = field(init=False)
    _plan: Plan | None = None
    _first: Route | None = None
    _wanted: dict[tuple[bool, ...], frozenset[str]] = field(default_factory=dict)

    def is_current(self) -> bool:
        """Whether the engines are still those that this route was made in."""
        for runtime, before in self.runtimes:  # noqa: SIM110  # asked at every call: a generator costs more
            if runtime() is not before:
                return False
        return True

    def __post_init__(self) -> None:
        """Note whether tensors go to the plan, and results to the caller, as they are."""
        self.call = self.form.call
        self.is_prepared, self.is_finished = self.form.is_prepared, self.form.is_finished
        self.is_direct = self.is_prepared and self.is_finished and self.is_ordered and self.is_native

    def with_scalars(self, bound: Bound) -> Call:
        """This route's call with other scalars."""
        if not bound.scalars:
            return self.call
        call = self.call
        return Call(
            call.core, call.shapes, call.dtypes, bound.scalars, bound.templates, call.sizes, call.batch, call.batched
        )

    def resize(self, bound: Bound) -> Route:
        """The route of a call whose tensors differ in sizes alone."""
        shapes = [tuple(one.shape) for one in bound.tensors]
        form = _new_form(self.call.core, bound, shapes, (), self.form)
        return Route(
            form, self.active, self.device, self.is_ordered, self.is_native, self.runtimes, None, self, self._wanted
        )

    def with_call(self, call: Call) -> Route:
        """This route for another call that differs in nothing a plan depends on."""
        return replace(self, form=replace(self.form, call=call), _plan=self.plan)

    @property
    def plan(self) -> Plan:
        """The plan of this route; made when it is first asked for."""
        if self._plan is None:
            first, core = self._first, self.call.core
            self._plan = self.call.plan(self.device) if first is None else core.resize(first.plan, self.call)
        return self._plan

    def wanted(self, needs: tuple[bool, ...]) -> frozenset[str]:
        """Names of the inputs that need a gradient, from autograd's flags; the first belongs to no tensor."""
        found = self._wanted.get(needs)
        if found is None:
            found = self._wanted[needs] = self.call.wanted(needs[1:])
        return found


class Routes:
    """The routes of a core so far.

    Attributes:
        is_simple: whether routes depend on nothing but tensors.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._known: dict[Any, Route] = {}
        self._first: dict[Any, Route] = {}  # of calls that differ in sizes alone
        signature = core.signature
        self._takes_tensors_only = len(signature.arrays) == len(signature.order) and not signature.size_names
        self._has_others = True
        self.is_simple = False
        self.get = self._known.get

    def find(self, bound: Bound) -> Route:
        """The route of a call; a new one where it has none."""
        core = self._core
        try:
            tensors = key_of(bound.tensors)
        except (AttributeError, RuntimeError):
            check_tensors(core.signature, bound.tensors)
            raise
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
            found = self._known[key] = self._make((kinds, core.kind_scalars(bound.scalars), pictures), bound)
        return found

    def _make(self, kind: Any, bound: Bound) -> Route:
        if len(self._known) >= config().plan_cache:
            self._known.clear()
            self._first.clear()
        first = self._first.get(kind)
        if first is not None and first.is_current():
            return first.resize(bound)
        found = self._first[kind] = route(self._core, bound)
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
        is_ordered=all(tensor.is_contiguous() and not tensor.is_neg() for tensor in tensors),
        is_native=has_memory and all(type(tensor) in _NATIVE for tensor in tensors),
        runtimes=tuple((runtime, runtime()) for runtime in core.runtimes),
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


def key_of(tensors: Sequence[Any]) -> tuple[Any, ...]:
    """What a route depends on, of the tensors. Raises for what is no strided tensor."""
    return tuple(
        [
            (t.shape, t.dtype, t.device, t.requires_grad, t.layout, t.is_contiguous(), t.is_neg(), type(t))
            for t in tensors
        ]
    )


def _kinds_of(key: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """What is left of the key of tensors without their sizes."""
    return tuple([(len(shape), *others) for shape, *others in key])


def quick_key_of(tensors: Sequence[Any]) -> tuple[Any, ...] | None:
    """`key_of` for the shortest way: None for what has no key, which the long way then refuses in words."""
    try:
        return key_of(tensors)
    except (AttributeError, RuntimeError):
        return None
