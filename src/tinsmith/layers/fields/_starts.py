"""Starts: the content of a field when the first kernel of a call runs.

A field starts each call at zero (it is cleared) or with what it holds. Layers on fields clear the former. Layers on
tensors copy the latter into the arrays that take the fields' places, unless the first kernel replaces every element.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ...bridge import Links
from ...source import build, is_static, parse_statement, resolve_callee, walk
from ._layer_field import LayerField
from ._roles import Habits, Launch, Roles, Use, by_key, uses_of_each


class Starts:
    """Which fields of a layer are cleared before each call, and which are added to though nobody clears them."""

    def __init__(self, roles: Roles, launches: Sequence[Launch], habits: Habits) -> None:
        uses_by_launch = uses_of_each(launches)
        self._uses = [use for uses in uses_by_launch for use in uses.values()]
        self._labels = {use.one.facts.key: label for uses in reversed(uses_by_launch) for label, use in uses.items()}
        self._added = {use.one.facts.key for use in self._uses if use.is_written}
        self._added -= {use.one.facts.key for use in self._uses if use.is_replaced}
        self._read = {use.one.facts.key for use in self._uses if use.is_read}
        self._filled = by_key(roles.filled)
        self._outputs = by_key(roles.outputs)
        self._declared = {
            one.facts.key: one.clears for one in (*roles.internal, *roles.outputs) if one.clears is not None
        }
        self._habits = habits
        self._registered = by_key((*roles.internal, *roles.outputs))

    @property
    def fields_at_zero(self) -> tuple[LayerField, ...]:
        """Fields that start each call at zero."""
        return tuple(one for key, one in self._registered.items() if key not in self._filled and self._is_cleared(key))

    @property
    def cleared_by_default(self) -> tuple[LayerField, ...]:
        """Those that are not declared so: outputs that kernels only add to."""
        is_open = self._habits.clears_outputs is None
        return tuple(one for one in self.fields_at_zero if is_open and one.facts.key not in self._declared)

    @property
    def unwritten_outputs(self) -> tuple[LayerField, ...]:
        """Outputs that are no inputs and that no kernel writes."""
        written = {use.one.facts.key for use in self._uses if use.is_written}
        return tuple(one for key, one in self._outputs.items() if key not in written | self._filled.keys())

    def describe_field(self, one: LayerField) -> list[tuple[str, str]]:
        """A field in the rows of a message: as it was registered, and what the kernels call it."""
        label = self._labels.get(one.facts.key, one.name)
        return [("field", str(one)), *([("in kernels", label)] if label != one.name else [])]

    def _is_cleared(self, key: int) -> bool:
        if key in self._declared:
            return bool(self._declared[key])
        if key not in self._outputs:
            return self._habits.clears_internal
        if self._habits.clears_outputs is None:
            return key in self._added - self._read
        return self._habits.clears_outputs

    @property
    def accumulators(self) -> tuple[LayerField, ...]:
        """Fields of numbers with a slope that kernels add to, and that nobody clears or declared."""
        fields = by_key([use.one for use in self._uses]) | self._registered
        known = self._filled.keys() | self._declared.keys() | by_key(self.fields_at_zero).keys()
        known |= self._outputs.keys() if self._habits.clears_outputs is not None else set()
        candidates = [one for key, one in fields.items() if key in self._added - known]
        return tuple(one for one in candidates if one.facts.dtype.is_floating_point and not one.is_silent)


# Arrays in place of fields --------------------------------------------------------------------
def start_kernel(one: LayerField, array: str) -> tuple[Any, Links]:
    """The kernel that gives the array in a field's place what the field holds. `array` is its name in the op."""
    shape = one.facts.shape
    names = [f"i{axis}" for axis in range(len(shape))]
    sizes = ", ".join(map(str, shape))
    header = {0: "for _ in range(1):", 1: f"for i0 in range({sizes}):"}
    place = ", ".join(names) or "None"
    lines = [
        "def start(target: _lang.template()):",
        f"    {header.get(len(shape)) or f'for {place} in _lang.ndrange({sizes}):'}",
        f"        target[{place}] = source[{place}]",
    ]
    tree = parse_statement("\n".join(lines))
    assert isinstance(tree, ast.FunctionDef)
    lang: Any = one.engine.lang
    function, _ = build(tree, {"_lang": lang, "source": one.field}, "start")
    return lang.kernel(function), Links({"target": array}, {array: one.facts.element})


def is_replaced_first(one: LayerField, launches: Sequence[Launch], uses: Sequence[Mapping[str, Use]]) -> bool:
    """Whether the first kernel that uses a field surely gives each of its elements another value before it reads any.

    True for `for i in x: y[i] = ...` and `for i, j in ti.ndrange(4, 5): y[i, j] = ...`, where `x` is as large as `y`.
    """
    for launch, launch_uses in zip(launches, uses, strict=True):
        labels = [label for label, use in launch_uses.items() if use.one.facts.key == one.facts.key]
        if labels:
            return len(labels) == 1 and _Replacement(launch, launch_uses, labels[0], one).is_sure()
    return False


class _Replacement:
    """Looks for the loop of a kernel that replaces a whole field."""

    def __init__(self, launch: Launch, uses: Mapping[str, Use], label: str, one: LayerField) -> None:
        self._stage = launch.launcher.stage
        self._uses = uses
        self._label = label
        self._shape = one.facts.shape
        nodes = self._stage.source.nodes
        self._own = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        self._own |= set(self._stage.source.parameters)

    def is_sure(self) -> bool:
        """Whether the first statement that uses the field replaces it."""
        for statement in self._stage.source.tree.body:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                continue  # the docstring
            if self._calls_functions(statement):
                return False
            if any(self._is_field(node) for node in walk(statement)):
                return isinstance(statement, ast.For) and not is_static(statement) and self._is_replacing(statement)
        return False

    def _is_field(self, node: ast.AST) -> bool:
        return isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node) == self._label

    def _calls_functions(self, statement: ast.stmt) -> bool:
        """Whether it calls a function that might use the field."""
        calls = (node.func for node in walk(statement) if isinstance(node, ast.Call))
        return any(not self._is_engines(function) for function in calls)

    def _is_engines(self, function: ast.expr) -> bool:
        if isinstance(function, ast.Name) and function.id in ("range", "min", "max", "abs", "int", "float"):
            return True
        owner = function.value if isinstance(function, ast.Attribute) else None
        if isinstance(owner, ast.Subscript):  # `x[i].dot(...)` of an element
            return ast.unparse(owner.value) in self._uses
        if isinstance(owner, ast.Name) and owner.id not in self._own:
            return self._stage.home.owns(_lookup(self._stage.source, owner.id))
        return isinstance(owner, ast.Name) and owner.id not in self._stage.source.parameters  # `v.norm()` of a local

    def _is_replacing(self, loop: ast.For) -> bool:
        places = self._places(loop)
        if not places or any(isinstance(node, ast.Continue | ast.Break | ast.Return) for node in walk(loop)):
            return False
        stores = [self._is_store(statement, places) for statement in loop.body]
        uses = [node for statement in loop.body for node in walk(statement) if self._is_field(node)]
        return stores.count(True) == 1 and len(uses) == 1  # nothing else of the field is read or written there

    def _is_store(self, statement: ast.stmt, places: str) -> bool:
        """Whether a statement is `y[i] = ...`, for the element that the loop is at."""
        target = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
        if not (isinstance(target, ast.Subscript) and self._is_field(target.value)):
            return False
        return ast.unparse(target.slice).strip("()") == places

    def _places(self, loop: ast.For) -> str:
        """The loop's variables, as an index is written, where it goes over all elements; "" otherwise."""
        iterator = loop.iter
        if isinstance(iterator, ast.Call) and resolve_callee(iterator) == "grouped" and len(iterator.args) == 1:
            iterator, is_grouped = iterator.args[0], True
        else:
            is_grouped = False
        if self._extent(iterator) != self._shape:
            return ""
        names = [loop.target] if isinstance(loop.target, ast.Name) else getattr(loop.target, "elts", [])
        if len(names) != (1 if is_grouped else len(self._shape)):
            return ""
        return ", ".join(map(ast.unparse, names))

    def _extent(self, iterator: ast.expr) -> tuple[int, ...] | None:
        """The sizes of what a loop goes over."""
        use = self._uses.get(ast.unparse(iterator))
        if use is not None:
            facts = use.one.facts
            return facts.shape if facts.is_dense and not any(facts.offset) else None
        if isinstance(iterator, ast.Call) and resolve_callee(iterator) in ("range", "ndrange"):
            is_whole = resolve_callee(iterator) == "ndrange" or len(iterator.args) == 1
            sizes = tuple(self._sizes(iterator.args))
            return sizes if is_whole and len(sizes) == len(iterator.args) else None
        return None

    def _sizes(self, bounds: Sequence[ast.expr]) -> Iterator[int]:
        """Those of the bounds that are known."""
        for bound in bounds:
            value: Any = bound.value if isinstance(bound, ast.Constant) else None
            if isinstance(bound, ast.Name) and bound.id not in self._own:
                value = _lookup(self._stage.source, bound.id)
            match bound:
                case ast.Subscript(value=ast.Attribute(value=field, attr="shape"), slice=ast.Constant(value=int(axis))):
                    use = self._uses.get(ast.unparse(field))
                    value = use.one.facts.shape[axis] if use is not None else None
            if type(value) is int:
                yield value


def _lookup(source: Any, name: str) -> Any:
    try:
        return source.lookup(name)
    except KeyError:
        return None
