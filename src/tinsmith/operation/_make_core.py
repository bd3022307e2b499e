"""Makes the core of an op: parses its kernels, checks its spec, chooses its gradient, and names its operators."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib import metadata
from typing import TYPE_CHECKING, Any

from .. import torch_side
from .._cache import digest_of
from .._config import config
from .._errors import ArgumentError, SpecError, refusal
from .._version import __version__
from ..calls import Core, GradientSource, Signature, backward, compute_lazy_values, derived
from ..compiling import Stage
from ..engines import is_kernel, of_kernel, one_at_a_time
from ..frontend import read
from ..spec import make_functional, parse
from ..torch_side import define_operators
from ._early_checks import check_early
from ._match import match
from ._options import OpOptions
from ._orders import call_order, warn_of_orders
from ._relaunch import list_promises, make_stage, make_stages

_CALLING_CONVENTION = "2"
"""Increased when operators change what they take besides an op's arguments: torch keeps compiled calls on disk."""


def compute_digest(signature: Signature, options: OpOptions, backward: Stage | None) -> str:
    """Compute the digest of an op, of everything that its compiled forms depend on.

    Args:
        signature: its inputs, outputs and kernels.
        options: the options that it is made with.
        backward: the stage of a hand-written gradient kernel.
    """
    spec = signature.spec
    parts = [
        __version__,
        _CALLING_CONVENTION,
        spec.text,
        spec.scratch_text,
        *signature.order,
        repr(sorted(signature.init.items())),
    ]
    parts += [
        repr((sorted(signature.detached), sorted(signature.auxiliary))),
        repr((options.adjoint, options.trust_engine, options.half, options.deterministic, options.races)),
    ]
    firsts: dict[Stage, int] = {}
    for stage in (*signature.stages, *([] if backward is None else [backward])):
        parts.append(f"{firsts.setdefault(stage.first, len(firsts))} {sorted(stage.scalar_names.items())}")
    for stage in firsts:
        parts += _list_dependencies(stage)
    return digest_of(*parts)


def _list_dependencies(stage: Stage) -> Iterator[str]:
    """Yield text for everything that a kernel's compiled forms depend on, except the names of launch arguments."""
    yield f"{stage.engine.name} {_version(stage.home.name)} {stage.home.name}"
    yield f"{stage.is_simd} {stage.is_checked} {stage.allows_races} {stage.baked_values.has_state}"
    yield repr([(one.name, one.kind, one.text, one.element) for one in stage.parameters.values()])
    for source in stage.baked_values.sources:
        yield source.content
    yield stage.baked_values.describe_captured()


@lru_cache
def _version(package: str) -> str:
    return metadata.version(package)


if TYPE_CHECKING:
    from ..calls.backward import Reverse


@one_at_a_time
def make_core(name: str, kernels: Sequence[Any], text: str, options: OpOptions) -> Core:
    """Make the core of an op from its name, its kernels, the text of its spec and its options."""
    spec, names = make_functional(parse(text, options.scratch), functools.partial(_names_in, kernels))
    stages = make_stages(kernels, spec, options, names)
    is_run = not options.unrun
    order = call_order(spec, stages, options.order)
    after = {new: old for old, new in names.items()}
    # A new value need not be zeroed: its first content is a copy of the old value.
    init = {**dict.fromkeys(after, "empty"), **(options.init or {})}
    signature = match(name, spec, stages, init, options.detached, order=order, is_run=is_run, updates=after)
    signature = replace(
        signature,
        auxiliary=frozenset(options.auxiliary),
        trusts_engine=options.trust_engine,
        is_deterministic=options.deterministic,
        refuses_half=options.half == "refuse",
    )
    signature = compute_lazy_values(signature)
    for engine in {stage.engine for stage in stages}:
        engine.materialize()
    if options.order is None:
        warn_of_orders(signature)
    gradient = _choose_gradient(signature, options)
    core = _build_core(signature, gradient)
    content = functools.partial(compute_digest, signature, options, gradient.stage)
    if gradient.stage is None and options.adjoint != "engine" and signature.draws:
        core = derived.SeededCore(core)
    if is_run:
        make = None if options.recipe is None else functools.partial(torch_side.LibraryOperator, options.recipe)
        define_operators(core, content, make=make)
    if not options.steady:  # the library's own are checked when they first run, as all are
        # A layer's fields may begin elsewhere than at 0; its checks see the fields themselves.
        checks_bounds = options.check_bounds or config().check_bounds or options.links is not None
        check_early(signature, kernels, checks_bounds=checks_bounds)
    return core


@one_at_a_time
def make_overwriting_core(core: Core, kernels: Sequence[Any], text: str, options: OpOptions) -> Core:
    """Make a core whose kernels overwrite the memory of updated arguments, for calls without a gradient.

    Args:
        core: the functional core, in which new values are outputs.
        kernels: the op's kernels.
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
        make_stages(kernels, spec, options),
        init,
        options.detached,
        order=signature.order,
        overwrites=updated,
    )
    matched = replace(matched, is_deterministic=signature.is_deterministic, refuses_half=signature.refuses_half)
    # It is called without a gradient.
    return _build_core(compute_lazy_values(matched), GradientSource(lambda: backward.EngineReverse(matched)))


def _build_core(signature: Signature, gradient: GradientSource) -> Core:
    return derived.BlockedCore(signature, gradient) if signature.uses_blocks else Core(signature, gradient)


def _names_in(kernels: Sequence[Any]) -> frozenset[str]:
    """Return all names that occur in kernels."""
    return frozenset().union(*(read(of_kernel(kernel).function_of(kernel)).all_names() for kernel in kernels))


def _make_reverse(adjoint: str, signature: Signature) -> Reverse:
    if adjoint == "engine":
        return backward.EngineReverse(signature)
    return backward.SourceReverse(signature) if adjoint == "source" else backward.AutoReverse(signature)


def _choose_gradient(signature: Signature, options: OpOptions) -> GradientSource:
    kernel = options.backward
    if kernel is None:
        _refuse_unfilled(signature)
    if kernel is None or options.adjoint != "auto":
        return GradientSource(functools.partial(_make_reverse, options.adjoint, signature))
    if not is_kernel(kernel):
        words = f"`backward` of op `{signature.op}` is not a kernel of Taichi or Quadrants"
        actual = f"{type(kernel).__name__} {getattr(kernel, '__name__', '')}".strip()
        raise ArgumentError(refusal(words, [("got", actual)], "Decorate it with @ti.kernel (or @qd.kernel)."))
    known = {item.name: item.sizes for item in signature.spec.items}
    arrays = known | {f"grad_{name}": sizes for name, sizes in known.items()}
    promises = list_promises(signature.spec)
    stage = make_stage(kernel, arrays, options, splits_gradients=options.replaces_gradient, promises=promises)
    stage.baked_values.survey(stage.templates({}))
    written = backward.HandWritten(signature, stage, options.otherwise)
    return GradientSource(lambda: written, stage)


def _refuse_unfilled(signature: Signature) -> None:
    """Raise SpecError if `init` names a gradient although there is no hand-written gradient kernel to fill it."""
    for name in signature.init:
        if name not in signature.items:
            words = f"`init` of op `{signature.op}` names `{name}`, which no hand-written gradient kernel fills"
            raise SpecError(refusal(words, remedy=f"Leave `{name}` out, or pass `backward=`."))
