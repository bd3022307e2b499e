"""Making the core of an op: its kernels read, its spec checked, its gradient chosen, its operators named."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from .._errors import ArgumentError, SpecError, refusal
from ..engines import is_kernel, one_at_a_time
from ..spec import parse
from ._content import content_of
from ._core import Core
from ._options import OpOptions
from ._orders import call_order, warn_of_orders
from ._relaunch import stage_of, stages_of
from ._signature import Signature, match, settled
from .backward import AutoReverse, EngineReverse, HandWritten, Reverse, SourceReverse
from .derived import SeededCore, has_draws
from .operators import define_operators

_REVERSES: Mapping[str, Callable[[Signature], Reverse]] = {
    "auto": AutoReverse,
    "source": SourceReverse,
    "engine": EngineReverse,
}


@one_at_a_time
def make_core(name: str, kernels: Sequence[Any], text: str, options: OpOptions) -> Core:
    """The core of an op with this name, of these kernels, with the spec that `text` is."""
    spec = parse(text, options.scratch)
    stages = stages_of(kernels, spec, options)
    is_run = not options.unrun
    order = call_order(spec, stages, options.order)
    signature = match(name, spec, stages, options.init, options.detached, order=order, is_run=is_run)
    refuses_half = options.half == "refuse"
    signature = settled(replace(signature, trusts_engine=options.trust_engine, refuses_half=refuses_half))
    for engine in {stage.engine for stage in stages}:
        engine.settle()
    if options.order is None:
        warn_of_orders(signature)
    reverse = _reverse_for(signature, options)
    backward = reverse.stage if isinstance(reverse, HandWritten) else None
    core = Core(signature, reverse)
    content = functools.partial(content_of, signature, options, backward)
    if isinstance(reverse, AutoReverse | SourceReverse) and has_draws(signature):
        core = SeededCore(core)
    if is_run:
        define_operators(core, content)
    return core


def _reverse_for(signature: Signature, options: OpOptions) -> Reverse:
    backward = options.backward
    if backward is None:
        _refuse_unfilled(signature)
    if backward is None or options.adjoint != "auto":
        return _REVERSES[options.adjoint](signature)
    if not is_kernel(backward):
        words = f"`backward` of op `{signature.op}` is no kernel of Taichi or Quadrants"
        came = f"{type(backward).__name__} {getattr(backward, '__name__', '')}".strip()
        raise ArgumentError(refusal(words, [("came", came)], "Decorate it with @ti.kernel (or @qd.kernel)."))
    known = [item.name for item in signature.spec.items]
    names = [*known, *(f"grad_{name}" for name in known)]
    return HandWritten(signature, stage_of(backward, names, options), options.otherwise)


def _refuse_unfilled(signature: Signature) -> None:
    """A gradient that no kernel of the user's fills."""
    for name in signature.init:
        if name not in signature.items:
            words = f"`init` of op `{signature.op}` names `{name}`, which no hand-written gradient kernel fills"
            raise SpecError(refusal(words, remedy=f"Leave `{name}` out, or pass `backward=`."))
