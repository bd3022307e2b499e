"""Rule about indices that leave their array whatever its size: `x[i - 1]` in `for i in x`, `x[x.shape[0]]`.

An index is computed as a sum of loop variables, sizes and numbers. A loop variable reaches both ends of its range in
some iteration, so the index reaches both of its own ends, provided that nothing keeps the access from running there:
an access under a branch, in a loop that may not run or may be left early, or on a side of a conditional expression is
not looked at. What is not such a sum (`x[k[i]]`, `x[max(i - 1, 0)]`, `x[i % n]`) is left to the sanitizer.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ...engines import Engine, parse_expression
from ...frontend import (
    affine_of,
    changes_of,
    definitions,
    find_called_function,
    get_iterable,
    index_parts,
    range_bounds,
    resolve_callee,
    sub_expressions,
    walk,
)
from ...ir import AffineIndex, combine
from ...spec import Arithmetic, Batch, Fixed, Item, Named, Rest, Tree
from .._finding import Finding
from .._subject import Subject

_ZERO = AffineIndex()
_ONE = AffineIndex(constant=1)


class Range(NamedTuple):
    """Least and greatest value of a loop variable, None where unknown; `runs` says that the loop is not empty."""

    least: AffineIndex | None
    greatest: AffineIndex | None
    runs: bool


_UNKNOWN = Range(None, None, False)


class _Ends(NamedTuple):
    """Least and greatest value of an expression."""

    least: AffineIndex
    greatest: AffineIndex


def outside(subject: Subject) -> Iterator[Finding]:
    """TS109."""
    if subject.is_kernel and not _returns_early(subject.tree):
        yield from _Certain(subject).findings()


def _returns_early(tree: ast.FunctionDef) -> bool:
    returns = (node for node in walk(tree) if isinstance(node, ast.Return))
    return any(node is not tree.body[-1] for node in returns)


class _Certain:
    """Accesses of one kernel that certainly leave their array."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.shapes = _shapes(subject)
        self.single = definitions(subject.tree).single
        targets = (one.target for node in subject.source.nodes for one in changes_of(node))
        self.assigned = {target.id for target in targets if isinstance(target, ast.Name)}
        self.sizes = {atom for shape in self.shapes.values() for size in shape if size for atom in size.terms}

    def findings(self) -> Iterator[Finding]:
        yield from self._block(self.subject.tree.body, {}, is_inside=False)

    # Statements -------------------------------------------------------------------------------

    def _block(self, body: Sequence[ast.stmt], scope: Mapping[str, Range], *, is_inside: bool) -> Iterator[Finding]:
        for one in body:
            if isinstance(one, ast.For):
                yield from self._expressions([one.iter], scope)
                yield from self._loop(one, scope, is_inside=is_inside)
            elif isinstance(one, ast.If):
                yield from self._expressions([] if resolve_callee(one.test) == "static" else [one.test], scope)
            elif not isinstance(one, ast.While | ast.Assert | ast.FunctionDef):
                yield from self._expressions(sub_expressions(one), scope)

    def _loop(self, loop: ast.For, scope: Mapping[str, Range], *, is_inside: bool) -> Iterator[Finding]:
        exits = ast.Break | ast.Continue | ast.Return
        if any(isinstance(node, exits) for part in loop.body for node in walk(part)):
            return
        ranges = self._ranges(loop, scope)
        names = [node.id for node in walk(loop.target) if isinstance(node, ast.Name)]
        known = ranges if len(ranges) == len(names) else [_UNKNOWN] * len(names)
        inside = {_variable(name): one for name, one in zip(names, known, strict=True)}
        # An outermost loop that does not run leaves no access at all: what is said holds where it runs.
        if not is_inside or (ranges and all(one.runs for one in ranges)):
            yield from self._block(loop.body, {**scope, **inside}, is_inside=True)

    def _ranges(self, loop: ast.For, scope: Mapping[str, Range]) -> list[Range]:
        """One range for each variable of a loop; none where the loop is of another kind."""
        counted = get_iterable(loop)
        match counted:
            case ast.Name(id=name) if name in self.shapes:
                return [Range(_ZERO, size.plus(_ONE, -1), True) if size else _UNKNOWN for size in self.shapes[name]]
            case ast.List(elts=parts) | ast.Tuple(elts=parts):
                return [self._bound_list(parts)]
        return [self._range(ends, scope) for ends in range_bounds(counted)]

    def _bound_list(self, parts: Sequence[ast.expr]) -> Range:
        sums = [self._affine(part, {}) for part in parts]
        numbers = [one.constant for one in sums if one is not None and not one.terms]
        if not numbers or len(numbers) < len(parts):
            return _UNKNOWN
        return Range(AffineIndex(constant=min(numbers)), AffineIndex(constant=max(numbers)), True)

    def _range(self, parts: Sequence[ast.expr], scope: Mapping[str, Range]) -> Range:
        if len(parts) > 2:
            return _UNKNOWN
        first = _ZERO if len(parts) == 1 else self._affine(parts[0], scope)
        end = self._affine(parts[-1], scope)
        trips = None if first is None or end is None else end.plus(first, -1)
        return Range(first, None if end is None else end.plus(_ONE, -1), trips is not None and self._runs(trips))

    def _runs(self, trips: AffineIndex) -> bool:
        """Whether a loop is not empty, but for small arrays."""
        if any(size == trips for shape in self.shapes.values() for size in shape):
            return True
        if not trips.terms:
            return trips.constant > 0
        return all(factor > 0 and atom in self.sizes for atom, factor in trips.terms.items())

    # Expressions ------------------------------------------------------------------------------

    def _expressions(self, parts: Sequence[ast.expr], scope: Mapping[str, Range]) -> Iterator[Finding]:
        for part in parts:
            for node in _walk_evaluated(part):
                if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
                    declared = self.subject.declared.get(node.value.id)
                    if declared is None or not declared.is_clamped:
                        shape = self.shapes.get(node.value.id, ())
                        yield from self._subscript(node, node.value.id, shape, scope)

    def _subscript(
        self, node: ast.Subscript, name: str, shape: Sequence[AffineIndex | None], scope: Mapping[str, Range]
    ) -> Iterator[Finding]:
        for axis, (part, size) in enumerate(zip(index_parts(node.slice), shape, strict=False)):
            ends = self._ends(part, scope)
            if ends is None or size is None:
                continue
            below, above = ends.least.plus(_ONE).times(-1), ends.greatest.plus(size, -1)
            if self._is_certain(below):
                yield self._finding(node, name, axis, ends, ends.least, size)
                return
            if self._is_certain(above):
                yield self._finding(node, name, axis, ends, ends.greatest, size)
                return

    def _is_certain(self, excess: AffineIndex) -> bool:
        """Whether a number is not negative, whatever the sizes in it are from 1 on."""
        if any(factor < 0 or atom not in self.sizes for atom, factor in excess.terms.items()):
            return False
        return sum(excess.terms.values()) + excess.constant >= 0

    def _ends(self, node: ast.expr, scope: Mapping[str, Range]) -> _Ends | None:
        """What an index reaches at both ends; None where that is not known."""
        index = self._affine(node, scope)
        if index is None:
            return None
        least = greatest = AffineIndex(constant=index.constant)
        for atom, factor in index.terms.items():
            values = scope.get(atom)
            if values is None:
                least, greatest = (end.plus(AffineIndex({atom: factor})) for end in (least, greatest))
                continue
            low, high = (values.least, values.greatest) if factor > 0 else (values.greatest, values.least)
            if low is None or high is None or any(name in scope for end in (low, high) for name in end.terms):
                return None  # a range that moves with another loop: not all of its ends meet
            least, greatest = least.plus(low.times(factor)), greatest.plus(high.times(factor))
        return _Ends(least, greatest)

    def _affine(self, node: ast.expr, scope: Mapping[str, Range], depth: int = 0) -> AffineIndex | None:
        """An expression as a sum of loop variables, sizes and scalar arguments; None for what is none."""
        return affine_of(node, lambda leaf: self._leaf(leaf, scope, depth))

    def _leaf(self, node: ast.expr, scope: Mapping[str, Range], depth: int) -> AffineIndex | None:
        match node:
            case ast.Name(id=name):
                return self._name(name, scope, depth)
            case ast.Subscript(value=ast.Attribute(value=ast.Name(id=name), attr="shape"), slice=ast.Constant(int(at))):
                shape = self.shapes.get(name, ())
                return shape[at] if 0 <= at < len(shape) else None
        return None

    def _name(self, name: str, scope: Mapping[str, Range], depth: int) -> AffineIndex | None:
        if _variable(name) in scope:
            return None if name in self.assigned else AffineIndex({_variable(name): 1})
        if name in self.single and depth < 8:
            return self._affine(self.single[name], scope, depth + 1)
        declared = self.subject.declared.get(name)
        if declared is not None:
            return AffineIndex({name: 1}) if declared.kind == "scalar" and not declared.element else None
        source = self.subject.source
        value = None if name in source.assigned_names else find_called_function(source, ast.Name(name, ast.Load()))
        return AffineIndex(constant=value) if isinstance(value, int) and not isinstance(value, bool) else None

    # Words ------------------------------------------------------------------------------------

    def _finding(
        self, node: ast.Subscript, name: str, axis: int, ends: _Ends, index: AffineIndex, size: AffineIndex
    ) -> Finding:
        label, text = self.subject.label(name), self.subject.text(node)
        parts = index_parts(node.slice)
        is_constant = ends.least == ends.greatest
        is_negative = not index.terms and index.constant < 0
        words = f"`{text}` is outside `{label}` whatever its size: "
        words += f"the index {'is' if is_constant else 'reaches'} {index.text()} along axis {axis}, "
        words += "and negative indices do not count from the end" if is_negative else f"whose size is {size.text()}"
        guard = f"if 0 <= {self.subject.text(parts[axis])} < {label}.shape[{axis}]:  # or a loop over fewer elements"
        last = f"{label}[{label}.shape[0] - {-index.constant}]" if is_negative and len(parts) == 1 else ""
        return self.subject.finding("TS109", "error", node, words, last if is_constant else guard)


def _variable(name: str) -> str:
    """The atom of a loop variable; a dim of the spec may have the same name."""
    return f"{name}@"


def _walk_evaluated(node: ast.expr) -> Iterator[ast.expr]:
    """An expression and what is computed whenever it is: no side of a condition, nothing that `static` decides."""
    yield node
    match node:
        case ast.IfExp(test=test):
            parts = [test]
        case ast.BoolOp(values=[first, *_]):
            parts = [first]
        case ast.Compare(left=left, comparators=[first, *_]):
            parts = [left, first]
        case ast.Call(args=[first, *_]) if resolve_callee(node) == "select":
            parts = [first]
        case ast.Call() if resolve_callee(node) in ("static", "static_assert", "static_print"):
            parts = []
        case ast.Lambda() | ast.ListComp() | ast.GeneratorExp() | ast.SetComp() | ast.DictComp():
            parts = []
        case _:
            parts = sub_expressions(node)
    for part in parts:
        yield from _walk_evaluated(part)


# Shapes -------------------------------------------------------------------------------------------


def _shapes(subject: Subject) -> dict[str, tuple[AffineIndex | None, ...]]:
    """Sizes of arrays that are indexed from 0 on, by axis: by the spec, of a field as it is, or symbols."""
    items = {item.name: item for item in (subject.spec.items if subject.spec else ())}
    shapes: dict[str, tuple[AffineIndex | None, ...]] = {}
    for name in sorted(subject.arrays):
        declared = subject.declared.get(name)
        if name in items:
            shapes[name] = _of_item(items[name])
        elif declared is not None and declared.kind == "array":
            shapes[name] = tuple(AffineIndex({f"{name}.shape[{axis}]": 1}) for axis in range(_rank(subject, name)))
        elif declared is None or name in subject.labels:
            shapes[name] = _of_field(subject, name)
    return shapes


def _of_item(item: Item) -> tuple[AffineIndex | None, ...]:
    dims = [dim for dim in item.dims if not isinstance(dim, Batch)]
    if any(isinstance(dim, Rest) for dim in dims):
        return ()
    return tuple(_of_dim(dim) for dim in dims)


def _of_dim(dim: object) -> AffineIndex | None:
    match dim:
        case Named(name):
            return AffineIndex({name: 1})
        case Fixed(size):
            return AffineIndex(constant=size)
        case Arithmetic(tree=tree):
            return _of_tree(tree)
    return None


def _of_tree(tree: Tree) -> AffineIndex | None:
    if isinstance(tree, tuple):
        left, right = _of_tree(tree[1]), _of_tree(tree[2])
        return left and right and combine(tree[0], left, right)
    return AffineIndex({tree: 1}) if isinstance(tree, str) else AffineIndex(constant=tree)


def _of_field(subject: Subject, name: str) -> tuple[AffineIndex | None, ...]:
    """Of a field that lives, has all its elements, and counts them from 0; of others nothing is known."""
    engine = subject.engine
    if not isinstance(engine, Engine):
        return ()
    value = subject.source.value(parse_expression(subject.label(name)))
    if not engine.is_field(value) or not any(leaf is value for _, leaf in engine.leaf_fields(value, name)):
        return ()
    facts = engine.field_facts(value, name)
    if not facts.is_dense or any(facts.offset):
        return ()
    return tuple(AffineIndex(constant=size) for size in facts.shape)


def _rank(subject: Subject, name: str) -> int:
    """Dims that the kernel indexes an array by."""
    declared = subject.declared[name]
    nodes = (node for node in subject.source.nodes if isinstance(node, ast.Subscript))
    mine = (node.slice for node in nodes if isinstance(node.value, ast.Name) and node.value.id == name)
    return max([declared.rank or 0, *(len(index_parts(index)) for index in mine)])
