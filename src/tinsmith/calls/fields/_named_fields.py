"""Named fields: rewrites a kernel so that each field has one name and is only accessed by element.

A kernel may reach a field in many ways: `self.layers[i]` with a static `i`, `fields["x"]`, `p[i].a` of a field of
structs, inside a function. The front end resolves them all; from its IR a kernel is printed here that names each field
by itself. It is made for arrays in place of the fields, so indices begin at 0 along each axis, even if a field has an
offset.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...codegen import build, print_kernel
from ...compiling import Links, Stage, check_races
from ...engines import Language
from ...frontend import Source, Written
from ...ir import Operator, nodes, types, walk
from .._binding import BoundArguments
from ._launcher import Launcher


def name_fields(launcher: Launcher, bound: BoundArguments, gradients: frozenset[str]) -> Launcher:
    """Rewrite the kernel of a launch so that each field that it uses has a name, by which an array can replace it.

    The current Python values and templates become constants of the kernel. The rewritten kernel is launched on
    arrays only, never on the fields themselves.

    Args:
        launcher: the kernel's launcher.
        bound: its arguments.
        gradients: gradients of fields (`x.grad`). Stores to them are left out.

    Raises:
        NotCovered: the kernel uses what the front end does not know.
    """
    stage = launcher.stage
    if gradients:
        links = Links({}, {}, gradients=gradients)
        stage = Stage(
            stage.kernel,
            stage.arrays,
            links=links,
            may_write_fields=True,
            objects=stage.objects,
            allows_races=stage.allows_races,
        )
    variant = launcher.variant(bound, stage)
    lowered = stage.lower_variant(variant, bound.templates, in_blocks=True)
    check_races(stage, variant, bound.templates, launcher.signature.op)
    kernel = _shift_to_zero(lowered.kernel)
    arrays = dict(variant.arrays)
    wanted = {*arrays, *kernel.arguments}
    texts = {name: text for name, text in stage.annotations(arrays).items() if name in wanted}
    defaults = types.Defaults(*Language(stage.engine).default_types)  # type: ignore[arg-type]
    tree = print_kernel(kernel, texts, defaults)
    lang: Any = stage.home.lang
    function, _ = build(tree, {"_lang": lang, **lowered.fields}, kernel.name)
    tree.lineno = stage.source.tree.lineno
    labels = {name: kernel.arrays[name].label for name in lowered.fields}
    written = Written(stage.source, stage.templates(bound.templates), lowered.fields, labels)
    source = Source(function, tree, stage.source.path, source_names=kernel.source_names, written=written)
    vars(function)["tinsmith_source"] = source
    return Launcher(lang.kernel(function), launcher.signature.op, allows_races=stage.allows_races)


def _shift_to_zero(kernel: nodes.Kernel) -> nodes.Kernel:
    """Shift the indices of fields with an offset, so that they begin at 0."""
    offsets = {name: array.offset for name, array in kernel.arrays.items() if array.offset}
    if not offsets:
        return kernel

    def shift(one: nodes.Expr | nodes.Stmt) -> nodes.Expr | nodes.Stmt:
        if not isinstance(one, nodes.Load | nodes.Store | nodes.Atomic) or one.array not in offsets:
            return one
        return replace(one, index=tuple(map(_subtract, one.index, offsets[one.array])))

    arrays = {name: replace(array, offset=()) for name, array in kernel.arrays.items()}
    return replace(kernel, arrays=arrays, body=walk.change_parts(kernel.body, shift))


def _subtract(index: nodes.Expr, start: int) -> nodes.Expr:
    if not start:
        return index
    if isinstance(index, nodes.Const):
        return replace(index, value=index.value - start)
    return nodes.Binary(Operator.SUB, index, nodes.Const(start, index.type), index.type)
