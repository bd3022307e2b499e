"""Fields, as rules want to see them: each has one name in a kernel, and functions are given those that they use."""

from __future__ import annotations

import ast
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import NoneType, SimpleNamespace
from typing import Any

from .._errors import KernelError
from ..engines import Engine, copy_node, parse_expression, walk
from ..frontend import (
    FieldPasser,
    LiveFieldPasser,
    Same,
    Source,
    Unrun,
    free,
    pass_fields_as_arrays,
    rebuild_function,
    replace_nodes,
)
from ._members import chain_text
from ._modules import ModuleName
from ._source_form import find_list_names, find_stored_names, get_start
from ._subject import Subject
from ._unrun import UnrunSource


def with_one_name_a_field(subject: Subject) -> Subject:
    """Return a subject whose tree has one name, `self__x`, for each field of an object, `self.x`."""
    names = {text: text.replace(".", "__") for text in map(chain_text, _find_chains(subject.tree))}
    if not names:
        return subject

    def rename(node: ast.AST) -> ast.AST | None:
        name = names.get(chain_text(node)) if isinstance(node, ast.Attribute) else None
        return ast.Name(name, node.ctx) if isinstance(node, ast.Attribute) and name is not None else None

    tree = replace_nodes(copy_node(subject.tree), rename)
    labels = {name: text for text, name in names.items()}
    return replace(subject, source=replace(subject.source, tree=tree), labels=labels)


def _find_chains(tree: ast.FunctionDef) -> Iterator[ast.Attribute]:
    """Yield the expression `self.x` of each element `self.x[...]`, but not of sizes such as `x.shape[0]`."""
    nodes = walk(tree)
    own = find_stored_names(nodes)  # what a local holds is no memory of others
    for chain in (node.value for node in nodes if isinstance(node, ast.Subscript)):
        is_foreign = isinstance(chain, ast.Attribute) and get_start(chain) not in {"", *own}
        if is_foreign and isinstance(chain, ast.Attribute) and chain.attr not in ("shape", "dtype"):
            yield chain


def with_fields_handed(subject: Subject) -> Subject:
    """Return a subject whose kernel passes fields as arguments to the functions that use them."""
    if not subject.is_kernel:
        return subject
    live = subject.engine if isinstance(subject.engine, Engine) else None
    hands = _InAFile(subject) if live is None else _Live(subject, live)
    rewritten = pass_fields_as_arrays(subject.source, hands)
    if not rewritten.names:
        return subject
    calls: dict[str, str] = {}
    for name, (text, arrays) in rewritten.texts.items():
        start = f"{name}({', '.join(arrays)}"
        calls |= {f"{start}, ": f"{text}(", f"{start})": f"{text}()"}
    used = frozenset(array for _, arrays in rewritten.texts.values() for array in arrays)
    labels = {**calls, **subject.labels, **{name: hands.labels[name] for name in used & hands.labels.keys()}}
    source = hands.seeing(rewritten.tree, rewritten.names)
    return replace(subject, source=source, labels=labels, handed=used)


class _Names(FieldPasser):
    """Fields known by their names. Those that only functions use get one in the kernel."""

    def __init__(self, subject: Subject) -> None:
        self.engine = subject.engine
        self.kernel = subject
        self.labels: dict[str, str] = {}
        self._taken = {*subject.source.used_names, *subject.declared}
        self._subscripted: dict[Source, frozenset[str]] = {}

    def array(self, source: Source, node: ast.expr) -> str:
        if source is self.kernel.source:
            return ""
        if source not in self._subscripted:
            self._subscripted[source] = _find_subscripted(source.tree)
        text = chain_text(node)
        return self.field(source, node, text) if text and text in self._subscripted[source] else ""

    @abstractmethod
    def field(self, source: Source, node: ast.expr, text: str) -> str:
        """Return the kernel's name for the field that an expression means; "" if it is no field."""

    @abstractmethod
    def seeing(self, tree: ast.FunctionDef, names: Mapping[str, Any]) -> Source:
        """Return the kernel's source with another tree and additional names that the tree uses."""


class _Live(_Names, LiveFieldPasser):
    """What is a field, Python's values tell."""

    engine: Engine

    def __init__(self, subject: Subject, engine: Engine) -> None:
        _Names.__init__(self, subject)
        LiveFieldPasser.__init__(self, engine)
        texts = {name: subject.labels.get(name, name) for name in self._taken - subject.source.assigned_names}
        values = ((name, subject.source.value(parse_expression(text))) for name, text in texts.items())
        self._known: dict[Same, str] = {Same(value): name for name, value in values if engine.is_field(value)}

    def field(self, source: Source, node: ast.expr, text: str) -> str:
        value = source.value(node)
        if not self.engine.is_field(value):
            return ""
        key = Same(value)
        if key not in self._known:
            name = self._known[key] = free(text.replace(".", "__"), self._taken)
            self.labels[name] = text
        return self._known[key]

    def source_of(self, callee: Any) -> Source | None:
        try:
            return super().source_of(callee)
        except KernelError:
            return None

    def seeing(self, tree: ast.FunctionDef, names: Mapping[str, Any]) -> Source:
        source = self.kernel.source
        return replace(source, function=rebuild_function(source, tree, names), tree=tree)


class _InAFile(_Names):
    """Which names are fields is unknown: all that have elements and are not locals. Two of one text are one."""

    def field(self, source: Source, node: ast.expr, text: str) -> str:
        start = get_start(node)
        if not start or not source.is_constant(start):
            return ""
        if start in source.given:
            own = any(one is source.given[start] for one in self.kernel.objects.values())
            text = f"{self.kernel.source.parameters[0]}{text[len(start) :]}" if own else ""
        elif start in source.parameters or _is_known(source, start):
            return ""
        name = text.replace(".", "__")
        if not name or name in self.kernel.source.assigned_names or name in self.kernel.declared:
            return ""
        self.labels[name] = text
        return name

    def is_object(self, value: Any) -> bool:
        return isinstance(value, SimpleNamespace)

    def source_of(self, callee: Any) -> Source | None:
        return callee.source if isinstance(callee, Unrun) else None

    def rebuild(self, source: Source, tree: ast.FunctionDef, names: Mapping[str, Any]) -> Any:
        return Unrun(self._with(source, tree, names))

    def seeing(self, tree: ast.FunctionDef, names: Mapping[str, Any]) -> Source:
        return self._with(self.kernel.source, tree, names)

    def _with(self, source: Source, tree: ast.FunctionDef, names: Mapping[str, Any]) -> Source:
        assert isinstance(source, UnrunSource)
        return replace(source, tree=tree, names={**source.names, **names})


def _is_known(source: Source, name: str) -> bool:
    """Return True if the file tells what a name is: a number, a function, an engine's. A module may hold fields."""
    try:
        return not isinstance(source.lookup(name), ModuleName | NoneType)
    except KeyError:
        return False


def _find_subscripted(tree: ast.FunctionDef) -> frozenset[str]:
    """Return the names and attribute chains that stand before brackets: `x`, `self.x`."""
    nodes = walk(tree)
    texts = frozenset(chain_text(node.value) for node in nodes if isinstance(node, ast.Subscript)) - {""}
    return texts - find_list_names(nodes)
