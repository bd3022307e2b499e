"""Relaunch: a further launch of a stage of an op, with other scalar arguments.

A simulation launches one kernel for each step of time. All of its launches share one `Stage`: what was parsed, looked
up, lowered and compiled. Only the op's names for their scalar arguments are their own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from .._config import config
from ..compiling import NO_NAMES, NO_PROMISES, Links, Stage, Variant
from ..engines import of_kernel
from ..frontend.lowering import LoweredKernel
from ..ir import nodes, walk
from ..passes import adjoint
from ..spec import DimSizes, Spec
from ._options import OpOptions


class Relaunch(Stage):
    """A stage that is `first` with other names for its scalar arguments.

    Args:
        first: the stage.
        names: the op's names for the kernel's parameters in this launch; of arrays they are those of `first`.
    """

    def __init__(self, first: Stage, names: Mapping[str, str]) -> None:
        # A view of `first`, not a new stage: what that one compiles and learns later is in dictionaries which both
        # share.
        vars(self).update(vars(first))
        self._first = first
        pairs = ((first.links.names.get(own, own), name) for own, name in names.items())
        self._renamed = {name: new for name, new in pairs if new != name}
        renamed = ((self._renamed.get(name, name), one) for name, one in first.parameters.items())
        self.parameters = {name: replace(parameter, name=name) for name, parameter in renamed}

    @property
    def first(self) -> Stage:
        return self._first

    @property
    def scalar_names(self) -> Mapping[str, str]:
        return self._renamed

    def batch_refusal(self, variant: Variant, values: Mapping[str, Any]) -> str:
        return self._first.batch_refusal(variant, values)

    def lower_variant(self, variant: Variant, values: Mapping[str, Any], *, in_blocks: bool = False) -> LoweredKernel:
        """The kernel as IR, its arguments named as they are in the op. Raises NotCovered."""
        kernel, fields = self._first.lower_variant(variant, values, in_blocks=in_blocks)
        # Statements of its own in any case: an op's kernels are distinguished by their stores.
        arguments = {self._renamed.get(name, name): kind for name, kind in kernel.arguments.items()}
        body = tuple(walk.transform(one, self._rename) for one in kernel.body)
        memory = {name: tuple(map(self._rename, sizes)) for name, sizes in kernel.block_memory.items()}
        return LoweredKernel(replace(kernel, arguments=arguments, body=body, block_memory=memory), fields)

    def _rename(self, expr: nodes.Expr) -> nodes.Expr:
        if isinstance(expr, nodes.Argument):
            return replace(expr, name=self._renamed.get(expr.name, expr.name))
        return walk.rebuild(expr, self._rename)


def stages_of(
    kernels: Sequence[Any], spec: Spec, options: OpOptions, updated: Mapping[str, str] = NO_NAMES
) -> list[Stage]:
    """The op's kernels, each analysed once however often it is launched.

    `updated` are the names of arrays that kernels update in place, and those of copies that are updated instead.
    """
    arrays = {item.name: item.sizes for item in spec.items}
    promises = promises_of(spec)
    links: Sequence[Links | None] = options.links or [None] * len(kernels)
    new = frozenset(updated.values())
    outputs = [one.name for one in spec.outputs if one.name not in new]
    results = [()] * len(kernels) if options.links else _names_of_results(kernels, outputs)
    stages: list[Stage] = []
    left = dict(updated)
    for kernel, link, names in zip(kernels, links, results, strict=True):
        if link is None or link.again is None:
            stages.append(stage_of(kernel, arrays, options, link, names, updated, left, promises=promises))
            for name in stages[-1].begins.values():
                del left[name]
        else:
            stages.append(Relaunch(stages[link.again], link.names))
    return stages


def promises_of(spec: Spec) -> dict[str, adjoint.Promise]:
    """Return what a spec promises of the numbers in inputs, of one sample."""
    return {item.name: adjoint.Promise(item.promise) for item in spec.inputs if item.promise}


def _names_of_results(kernels: Sequence[Any], outputs: Sequence[str]) -> list[tuple[str, ...]]:
    """What the kernels return, by name: outputs that no kernel has as a parameter, in their order."""
    engines = [of_kernel(kernel) for kernel in kernels]
    pairs = list(zip(engines, kernels, strict=True))
    given = {parameter.name for engine, kernel in pairs for parameter in engine.parameters(kernel)}
    left = [name for name in outputs if name not in given]
    names = []
    for engine, kernel in pairs:
        count = len(engine.results(kernel))
        names.append(tuple(left[:count]) if len(left) >= count else ())
        left = left[count:]
    return names


def stage_of(
    kernel: Any,
    arrays: Mapping[str, DimSizes],
    options: OpOptions,
    links: Links | None = None,
    results: Sequence[str] = (),
    updated: Mapping[str, str] = NO_NAMES,
    begins: Collection[str] = (),
    *,
    splits_gradients: bool = False,
    promises: Mapping[str, adjoint.Promise] = NO_PROMISES,
) -> Stage:
    """A kernel of an op, or its gradient kernel, which uses `arrays`; `results` are names of what it returns.

    Of arrays the `nodes.Array.dims` are given. Those that are `updated` are copies of that name, which the first
    kernel `begins`. A gradient kernel that `splits_gradients` calls `grad_x` `x.grad`.
    """
    own = {parameter.name for parameter in of_kernel(kernel).parameters(kernel)}
    return Stage(
        kernel,
        arrays,
        options.engine,
        links=links,
        results=results,
        updated=updated,
        begins=[name for name in begins if name in own],
        may_write_fields=options.unrun,
        splits_gradients=splits_gradients,
        is_simd=options.simd,
        is_steady=options.steady,
        is_checked=options.check_bounds or config().check_bounds,
        # The library's own kernels are compared with references; segments and places of theirs are apart.
        allows_races=options.races == "allow" or options.steady,
        promises=promises,
        dims=arrays,
    )
