"""A sketch: the loops, accesses and arithmetic of a kernel's tree as IR, without an engine, for rules to ask about.

The file is not run, so types are guesses and unknown values are opaque: what a sketch cannot express makes an index or
a condition unknown, and nothing certain follows from it. Where a kernel can be lowered, `ts.op` asks the analysis of
races about the kernel itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .._lazy import lazy
from ..analyses import definitions, single_definitions
from ..engines import Engine, parse_expression
from ..ir import Type, nodes
from ..spec import DimSizes
from ._sketch_writer import Element, Noted, Place, SketchWriter, guess_type
from ._source_form import Expression, Subscript
from ._subject import Subject, keep_with_subject


@dataclass(frozen=True)
class Sketch:
    """A kernel as far as its tree tells.

    Attributes:
        kernel: its loops and accesses.
        places: the nodes of its stores and atomics, by number.
        elements: the subscripts of the kernel's own text, by the line of the statement, array and index.
        noted: expressions of the kernel's own text, in its order; those inside another one come first.
        escaped: arrays that something uses in a way that is not followed.
        returns_early: whether a `return` may skip what stands behind it.
    """

    kernel: nodes.Kernel
    places: Mapping[int, Expression]
    elements: Mapping[Place, Subscript]
    noted: Sequence[Noted]
    escaped: frozenset[str]
    returns_early: bool

    def find_element(self, access: Element, line: int) -> Subscript | None:
        """Return the subscript that an access of a statement comes from.

        None if it stands in a function that the kernel calls.
        """
        return self.elements.get(Place(line, access.array, access.index))

    @lazy
    def expressions(self) -> Mapping[Expression, nodes.Expr]:
        """Return the IR of the expressions of the kernel's own text, by their syntax nodes."""
        return {one.node: one.expr for one in self.noted}

    @lazy
    def definitions(self) -> Mapping[str, nodes.Expr]:
        """Return the value of each local that has exactly one definition."""
        return single_definitions(definitions(self.kernel.body))

    def resolve(self, expr: nodes.Expr | None) -> nodes.Expr | None:
        """Return what a local stands for that has one definition; other expressions as they are."""
        while isinstance(expr, nodes.Local) and expr.name in self.definitions:
            expr = self.definitions[expr.name]
        return expr


@keep_with_subject
def sketch_of(subject: Subject) -> Sketch:
    """Return the sketch of a kernel; several rules ask for it."""
    writer = SketchWriter(subject)
    body = writer.write()
    arrays = {name: _declare(subject, name) for name in sorted(subject.arrays)}
    cells = {name: nodes.Array(name, Type.F32, 0) for name in writer.cells}
    kernel = nodes.Kernel(
        subject.tree.name,
        subject.source.path,
        {**arrays, **cells},
        {},
        {},
        body,
        cells=tuple(writer.cells),
        source_names=writer.source_names,
    )
    return Sketch(kernel, writer.places, writer.elements, writer.noted, frozenset(writer.escaped), writer.returns_early)


def _declare(subject: Subject, name: str) -> nodes.Array:
    dims = next((item.sizes for item in subject.spec_items if item.name == name), _shape_of_field(subject, name))
    declared = subject.declared.get(name)
    return nodes.Array(
        name,
        guess_type(subject, name),
        len(dims),
        label=subject.label(name) if name in subject.labels else "",
        dims=dims,
        is_clamped=declared is not None and declared.is_clamped,
    )


def _shape_of_field(subject: Subject, name: str) -> DimSizes:
    """Return the sizes of a live field that has all its elements and counts them from 0; () for all else."""
    engine = subject.engine
    if not isinstance(engine, Engine) or (name in subject.declared and name not in subject.labels):
        return ()
    value = subject.source.value(parse_expression(subject.label(name)))
    if not engine.is_field(value) or not any(leaf is value for _, leaf in engine.leaf_fields(value, name)):
        return ()
    facts = engine.field_facts(value, name)
    return () if not facts.is_dense or any(facts.offset) else tuple(facts.shape)
