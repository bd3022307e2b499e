"""Route: what happens to one kind of call between the caller's tensors and a plan.

Half precision is computed in single precision, memory is put in order, several batch dims
become one. All of it is done by torch's own differentiable operations, so that gradients
find their way back; most calls need none of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ..spec import solve
from ._binding import Bound, check_tensors
from ._core import Call, Core
from ._plan import Plan

_NATIVE = (torch.Tensor, torch.nn.Parameter)


@dataclass
class Route:
    """How calls with certain shapes, dtypes and wishes are run.

    Attributes:
        call: the call after preparation; its scalars are those of the first such call.
        active: inputs that require a gradient.
        casts: per input, whether half precision becomes single.
        lead: sizes of the spec's `*b`; () without.
        halves: per output, the half dtype that it is cast back to, or None.
        is_prepared, is_finished: whether no cast or reshape is needed before, and after.
        is_ordered: whether all memory is in order, element after element.
        is_native: whether all tensors are torch's own, and no subclass that wants to be told.
        runtimes: how to ask each engine for its state, and the one that this route was made in.
    """

    call: Call
    active: frozenset[str]
    device: torch.device
    casts: tuple[bool, ...]
    lead: tuple[int, ...]
    halves: tuple[torch.dtype | None, ...]
    is_prepared: bool
    is_finished: bool
    is_ordered: bool
    is_native: bool
    runtimes: tuple[tuple[Callable[[], Any], Any], ...]
    is_direct: bool = field(init=False)
    _plan: Plan | None = None
    _wanted: dict[tuple[bool, ...], frozenset[str]] = field(default_factory=dict)

    def is_current(self) -> bool:
        """Whether the engines are still those that this route was made in."""
        for runtime, before in self.runtimes:  # noqa: SIM110  # asked at every call: a generator costs more
            if runtime() is not before:
                return False
        return True

    def __post_init__(self) -> None:
        """Note whether tensors go to the plan, and results to the caller, as they are."""
        self.is_direct = self.is_prepared and self.is_finished and self.is_ordered and self.is_native

    def with_scalars(self, bound: Bound) -> Call:
        """This route's call with other scalars."""
        call = self.call
        return Call(
            call.core, call.shapes, call.dtypes, bound.scalars, bound.templates, call.sizes, call.batch, call.batched
        )

    def with_call(self, call: Call) -> Route:
        """This route for another call that differs in nothing a plan depends on."""
        return replace(self, call=call, _plan=self.plan)

    @property
    def plan(self) -> Plan:
        """The plan of this route; made when it is first asked for."""
        if self._plan is None:
            self._plan = self.call.plan(self.device)
        return self._plan

    def wanted(self, needs: tuple[bool, ...]) -> frozenset[str]:
        """Names of the inputs that need a gradient, from autograd's flags; the first belongs to no tensor."""
        found = self._wanted.get(needs)
        if found is None:
            found = self._wanted[needs] = self.call.wanted(needs[1:])
        return found

    def prepare(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The caller's tensors as the plan wants them."""
        ready = []
        for tensor, cast, name in zip(tensors, self.casts, self.call.core.signature.arrays, strict=True):
            tensor = tensor.float() if cast else tensor
            if len(self.lead) > 1 and name in self.call.batched:
                tensor = tensor.reshape(self.call.batch or 0, *tensor.shape[len(self.lead) :])
            ready.append(tensor)
        return ready

    def finish(self, outputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The plan's results as the caller wants them."""
        done = []
        for output, half in zip(outputs, self.halves, strict=True):
            shaped = output.reshape(*self.lead, *output.shape[1:]) if len(self.lead) > 1 else output
            done.append(shaped if half is None else shaped.to(half))
        return done


def route(core: Core, bound: Bound, *, is_traced: bool = False) -> Route:
    """Check a call and find its route. Every refusal that depends on tensors comes from here.

    A tracer cannot look into an engine, so it leaves the engine's state to the traced operator.
    """
    signature, tensors = core.signature, bound.tensors
    check_tensors(signature, tensors)
    device = tensors[0].device if tensors else torch.device("cpu" if is_traced else core.device_type())
    for stage in signature.stages:
        stage.check_object(signature.op)
    if not is_traced:
        core.check_device(device)
    dtypes = [tensor.dtype for tensor in tensors]
    casts = tuple(dtype == torch.float16 for dtype in dtypes)
    lead, shapes, batched = _taken_apart(core, bound)
    call = Call(
        core,
        shapes,
        tuple(torch.float32 if cast else dtype for cast, dtype in zip(casts, dtypes, strict=True)),
        bound.scalars,
        bound.templates,
        bound.sizes,
    )
    if lead:
        call = call.with_batch(_product(lead), batched)
    core.made(call)  # sizes and dtypes of the results are checked before anything runs
    halves = tuple(core.result_dtype(name, dtypes) for name in signature.outputs)
    return Route(
        call,
        frozenset(name for name, tensor in zip(signature.arrays, tensors, strict=True) if tensor.requires_grad),
        device,
        casts,
        lead,
        halves,
        is_prepared=not (any(casts) or len(lead) > 1),
        is_finished=not (any(halves) or len(lead) > 1),
        is_ordered=is_traced or all(tensor.is_contiguous() and not tensor.is_neg() for tensor in tensors),
        is_native=all(type(tensor) in _NATIVE for tensor in tensors),
        runtimes=() if is_traced else tuple((runtime, runtime()) for runtime in core.runtimes),
    )


def _taken_apart(core: Core, bound: Bound) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...], frozenset[str]]:
    """Sizes of `*b`, shapes without them, and the inputs that have them."""
    signature = core.signature
    full = {name: tuple(t.shape) for name, t in zip(signature.arrays, bound.tensors, strict=True)}
    values = signature.size_values(bound.scalars, bound.sizes)
    lead = tuple(solve(signature.spec, full, values, signature.op).batch)
    batched = frozenset(name for name in signature.arrays if lead and signature.items[name].batch_name)
    return lead, tuple(shape[len(lead) :] if name in batched else shape for name, shape in full.items()), batched


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


def quick_key_of(tensors: Sequence[Any]) -> tuple[Any, ...] | None:
    """`key_of` for the shortest way: None for what has no key, which the long way then refuses in words."""
    try:
        return key_of(tensors)
    except (AttributeError, RuntimeError):
        return None
