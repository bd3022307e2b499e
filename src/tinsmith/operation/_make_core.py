"""Makes the core of an op: reads its kernels, checks its spec, chooses its gradient, names its operators."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from .._config import config
from .._errors import ArgumentError, SpecError, refusal
from ..calls import Core, Signature, compute_lazy_values
from ..calls.backward import AutoReverse, EngineReverse, HandWritten, Reverse, SourceReverse
from ..calls.derived import BlockedCore, SeededCore, has_draws
from ..engines import is_kernel, of_kernel, one_at_a_time
from ..frontend import read
from ..spec import functional, parse
from ..torch_side import LibraryOperator, define_operators
from ._content import content_of
from ._early_checks import check_early
from ._match import match
from ._options import OpOptions
from ._orders import call_order, warn_of_orders
from ._relaunch import promises_of, stage_of, stages_of

_REVERSES: Mapping[str, Callable[[Signature], Reverse]] = {
    "auto": AutoReverse,
    "source": SourceReverse,
    "engine": EngineReverse,
}


@one_at_a_time
def make_core(name: str, kernels: Sequence[Any], text: str, options: OpOptions) -> Core:
    """The core of an op with this name, of these kernels, with the spec that `text` is."""
    spec, names = functional(parse(text, options.scratch), functools.partial(_names_in, kernels))
    stages = stages_of(kernels, spec, options, names)
    is_run = not options.unrun
    order = call_order(spec, stages, options.order)
    after = {new: old for old, new in names.items()}
    # Every element of a new value is a copy before anything else happens.
    init = {**dict.fromkeys(after, "empty"), **(options.init or {})}
    signature = match(name, spec, stages, init, options.detached, order=order, is_run=is_run, updates=after)
    signature = replace(
        signature,
        trusts_engine=options.trust_engine,
        is_deterministic=options.deterministic,
        refuses_half=options.half == "refuse",
    )
    signature = compute_lazy_values(signature)
    for engine in {stage.engine for stage in stages}:
        engine.settle()
    if options.order is None:
        warn_of_orders(signature)
    reverse = _reverse_for(signature, options)
    backward = reverse.stage if isinstance(reverse, HandWritten) else None
    core = _core(signature, reverse)
    content = functools.partial(content_of, signature, options, backward)
    if isinstance(reverse, AutoReverse | SourceReverse) and has_draws(signature):
        core = SeededCore(core)
    if is_run:
        make = None if options.recipe is None else functools.partial(LibraryOperator, options.recipe)
        define_operators(core, content, make=make)
    if not options.steady:  # the library's own are checked when they first run, as all are
        # A layer's fields may begin elsewhere than at 0; its checks see the fields themselves.
        checks_bounds = options.check_bounds or config().check_bounds or options.links is not None
        check_early(signature, kernels, checks_bounds=checks_bounds)
    return core


@one_at_a_time
def make_overwriting_core(core: Core, kernels: Sequence[Any], text: str, options: OpOptions) -> Core:
    """The core whose kernels change the memory of updated arguments, for calls without a gradient.

    Args:
        core: that in which new values are outputs.
        kernels: the op's own.
        text: its spec.
        options: its options.
    """
    spec = parse(text, options.scratch)
    signature = core.signature
    updated = frozenset(signature.updates.values())
    init = {name: how for name, how in signature.init.items() if name not in signature.updates}
    matched = match(
        signature.op,
        spec,
        stages_of(kernels, spec, options),
        init,
        options.detached,
        order=signature.order,
        overwrites=updated,
    )
    matched = replace(matched, is_deterministic=signature.is_deterministic, refuses_half=signature.refuses_half)
    return _core(compute_lazy_values(matched), EngineReverse(matched))


def _core(signature: Signature, reverse: Reverse) -> Core:
    return BlockedCore(signature, reverse) if signature.uses_blocks else Core(signature, reverse)


def _names_in(kernels: Sequence[Any]) -> frozenset[str]:
    """Return all names that kernels use."""
    return frozenset().union(*(read(of_kernel(kernel).function_of(kernel)).all_names() for kernel in kernels))


def _reverse_for(signature: Signature, options: OpOptions) -> Reverse:
    backward = options.backward
    if backward is None:
        _refuse_unfilled(signature)
    if backward is None or options.adjoint != "auto":
        return _REVERSES[options.adjoint](signature)
    if not is_kernel(backward):
        words = f"`backward` of op `{signature.op}` is not a kernel of Taichi or Quadrants"
        actual = f"{type(backward).__name__} {getattr(backward, '__name__', '')}".strip()
        raise ArgumentError(refusal(words, [("got", actual)], "Decorate it with @ti.kernel (or @qd.kernel)."))
    known = {item.name: item.sizes for item in signature.spec.items}
    arrays = known | {f"grad_{name}": sizes for name, sizes in known.items()}
    promises = promises_of(signature.spec)
    stage = stage_of(backward, arrays, options, splits_gradients=options.replaces_gradient, promises=promises)
    stage.baked_values.survey(stage.templates({}))
    return HandWritten(signature, stage, options.otherwise)


def _refuse_unfilled(signature: Signature) -> None:
    """A gradient that no kernel of the user's fills."""
    for name in signature.init:
        if name not in signature.items:
            words = f"`init` of op `{signature.op}` names `{name}`, which no hand-written gradient kernel fills"
            raise SpecError(refusal(words, remedy=f"Leave `{name}` out, or pass `backward=`."))
