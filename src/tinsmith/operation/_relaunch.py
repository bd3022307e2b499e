"""Further launches of a kernel of an op, with other scalar arguments.

A simulation launches one kernel for each time step. All of its launches share one `Stage`: what was parsed, looked
up, lowered and compiled. Only the op's names for their scalar arguments differ.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from .._config import config
from ..compiling import NO_NAMES, Links, Stage, Variant
from ..engines import of_kernel
from ..frontend.lowering import LoweredKernel
from ..ir import nodes, walk
from ..passes import adjoint
from ..spec import DimSizes, Spec
from ._options import OpOptions


class Relaunch(Stage):
    """A copy of the stage `first` with other names for its scalar arguments.

    Args:
        first: the stage.
        names: the op's names for the kernel's parameters in this launch. Arrays have the same names as in `first`.
    """

    def __init__(self, first: Stage, names: Mapping[str, str]) -> None:
        # A view of `first`, not a new stage: both share the dictionaries of what is compiled later.
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

    def explain_batch_refusal(self, variant: Variant, values: Mapping[str, Any]) -> str:
        return self._first.explain_batch_refusal(variant, values)

    def lower_variant(self, variant: Variant, values: Mapping[str, Any], *, in_blocks: bool = False) -> LoweredKernel:
        """Return the kernel's IR, with its arguments named as in the op. Raise NotCovered."""
        kernel, fields = self._first.lower_variant(variant, values, in_blocks=in_blocks)
        # Rebuilt even if no name changes: an op's kernels are distinguished by the identity of their stores.
        arguments = {self._renamed.get(name, name): kind for name, kind in kernel.arguments.items()}
        body = tuple(walk.transform(one, self._rename) for one in kernel.body)
        memory = {name: tuple(map(self._rename, sizes)) for name, sizes in kernel.block_memory.items()}
        return LoweredKernel(replace(kernel, arguments=arguments, body=body, block_memory=memory), fields)

    def _rename(self, expr: nodes.Expr) -> nodes.Expr:
        if isinstance(expr, nodes.Argument):
            return replace(expr, name=self._renamed.get(expr.name, expr.name))
        return walk.rebuild(expr, self._rename)


def make_stages(
    kernels: Sequence[Any], spec: Spec, options: OpOptions, updated: Mapping[str, str] = NO_NAMES
) -> list[Stage]:
    """Return a stage for each kernel of an op. A kernel that is launched several times is analyzed once.

    `updated` maps the names of arrays that kernels update in place to the names of the copies that are updated
    instead.
    """
    arrays = {item.name: item.sizes for item in spec.items}
    promises = list_promises(spec)
    links: Sequence[Links | None] = options.links or [None] * len(kernels)
    new = frozenset(updated.values())
    outputs = [one.name for one in spec.outputs if one.name not in new]
    results = [()] * len(kernels) if options.links else _names_of_results(kernels, outputs)
    stages: list[Stage] = []
    left = dict(updated)
    for kernel, link, names in zip(kernels, links, results, strict=True):
        if link is None or link.again is None:
            stages.append(make_stage(kernel, arrays, options, link, names, updated, left, promises=promises))
            for name in stages[-1].begins.values():
                del left[name]
        else:
            stages.append(Relaunch(stages[link.again], link.names))
    return stages


def list_promises(spec: Spec) -> dict[str, adjoint.Promise]:
    """Return the promises of a spec, by input. They are about the numbers of one sample."""
    return {item.name: adjoint.Promise(item.promise) for item in spec.inputs if item.promise}


def _names_of_results(kernels: Sequence[Any], outputs: Sequence[str]) -> list[tuple[str, ...]]:
    """Return names for what each kernel returns: the outputs that no kernel has as a parameter, in order."""
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


def make_stage(
    kernel: Any,
    arrays: Mapping[str, DimSizes],
    options: OpOptions,
    links: Links | None = None,
    results: Sequence[str] = (),
    updated: Mapping[str, str] = NO_NAMES,
    begins: Collection[str] = (),
    *,
    splits_gradients: bool = False,
    promises: Mapping[str, adjoint.Promise],
) -> Stage:
    """Make the stage of a kernel of an op, or of its gradient kernel.

    `arrays` are the dims of the op's arrays, `results` the names of what the kernel returns. `updated` arrays are
    replaced by copies, and the kernel is the first that writes those in `begins`. With `splits_gradients`, a gradient
    kernel writes `x.grad` for `grad_x`.
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
        # The library's own kernels are tested against references. They write to disjoint segments and elements.
        allows_races=options.races == "allow" or options.steady,
        promises=promises,
        dims=arrays,
    )
