"""Read a kernel's Python source into a tree whose line numbers are those of the user's file."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import CodeType
from typing import Any, NamedTuple, cast

from .. import engines, frontend
from .._errors import KernelError, refusal
from .._lazy import lazy
from ..engines import copy_node, name_place, parse_indented, public_name, source_lines, unwrap, walk
from ._definitions import definitions
from ._fingerprints import MISSING
from ._nodes import note_name, resolve_callee, root, unwrap_call


class Written(NamedTuple):
    """A kernel on fields as its author wrote it, from which a kernel on arrays was made.

    Attributes:
        source: the kernel.
        objects: values of its template parameters, `self` among them.
        fields: the fields, by the names of the arrays that replace them.
        labels: what the kernel calls the fields, by the same names.
    """

    source: Source
    objects: Mapping[str, Any]
    fields: Mapping[str, Any]
    labels: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class Source:
    """The source of a kernel or an engine function: the tree of its `def`, with the file's line numbers.

    `given` are values of names that rewriting has added to the tree, `_lang` for the engine's module, and of parameters
    that stand for Python objects: `self` of a method.
    `source_names` are the author's names for the numbered names of a tree that was printed from the IR. `written` is
    then the kernel as its author wrote it, for the engine that runs Python source.
    """

    function: Callable[..., Any]
    tree: ast.FunctionDef
    path: str
    given: Mapping[str, Any] = field(default_factory=dict)
    source_names: Mapping[str, str] = field(default_factory=dict)
    written: Written | None = None

    @property
    def name(self) -> str:
        return self.tree.name

    @lazy
    def parameters(self) -> tuple[str, ...]:
        return tuple(argument.arg for argument in self.tree.args.args)

    @property
    def identity(self) -> Any:
        """A key of the function, however often it is read: the function itself, or the tree of one that was not run."""
        return self.function or self.tree

    def with_objects(self, objects: Mapping[str, Any]) -> Source:
        """Return this source with parameters that stand for these Python objects."""
        if not objects:
            return self
        made = replace(self, given={**self.given, **objects})
        # Each call of a function makes such a source of it, and a kernel calls some functions hundreds of times.
        vars(made).update({name: getattr(self, name) for name in _FOLLOW_FROM_TREE})
        return made

    def with_owner(self, owner: Any) -> Source:
        """Return the source of a method of `owner`; for a plain function (None), this source."""
        return self.with_objects({} if owner is None or not self.parameters else {self.parameters[0]: owner})

    def value(self, node: ast.AST) -> Any:
        """Return the Python value of `name`, `name.attribute` or `name[0]`; MISSING if it has none before the run.

        Of a `qd.Tensor` it is the field or ndarray inside. The value of a parameter is in `given`. A local that stands
        for a function, `f = ti.static(g)`, has that value.
        """
        return unwrap(self._find_value(node))

    def _find_value(self, node: ast.AST) -> Any:
        try:
            match node:
                # A parameter hides a global function of its name.
                case ast.Name(name) if name in self.parameters:
                    return self.given.get(name, MISSING)
                case ast.Name(name):
                    return _find_named_function(self, name) if name in self.assigned_names else self.lookup(name)
                case ast.Attribute(inner, name):
                    held = self.value(inner)
                    return MISSING if held is MISSING else getattr(held, name, MISSING)
                case ast.Subscript(inner, ast.Constant() as index):
                    held, key = self.value(inner), cast(Any, index.value)
                    # Items of other values, such as a field or an array, are memory.
                    return held[key] if isinstance(held, list | tuple | dict) else MISSING
        except LookupError:
            pass
        return MISSING

    def is_constant(self, name: str) -> bool:
        """Return True if a name is never assigned in the body."""
        return name not in self.assigned_names

    @lazy
    def assigned_names(self) -> frozenset[str]:
        """Return the names that the body assigns."""
        names = (node for node in self.nodes if isinstance(node, ast.Name))
        return frozenset(name.id for name in names if not isinstance(name.ctx, ast.Load))

    def is_template(self, parameter: str) -> bool:
        """Return True if a parameter of an engine function is annotated as a template: it is passed by reference."""
        value = engines.read_annotations(self.function).get(parameter)
        # One that has no value yet is a text, and so the tree decides.
        if value is not None and not isinstance(value, str):
            return not {"Template", "RefType"}.isdisjoint([public_name(value), public_name(type(value))])
        note = self.annotation(parameter)
        return note is not None and "template" in ast.unparse(note)

    def annotation(self, parameter: str) -> ast.expr | None:
        """Return the annotation of a parameter; None without one."""
        return next((one.annotation for one in self.tree.args.args if one.arg == parameter), None)

    @lazy
    def nodes(self) -> tuple[ast.AST, ...]:
        """Return all nodes in the body."""
        return tuple(node for statement in self.tree.body for node in walk(statement))

    @lazy
    def names_read(self) -> Mapping[str, Sequence[ast.Name]]:
        """Return the nodes of the body that read a name, by name."""
        reads: dict[str, list[ast.Name]] = {}
        for node in self.nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                reads.setdefault(node.id, []).append(node)
        return reads

    @lazy
    def attributes_taken(self) -> Mapping[ast.AST, str]:
        """Return the attribute names that the body accesses, by the node of the expression before the dot."""
        return {node.value: node.attr for node in self.nodes if isinstance(node, ast.Attribute)}

    @lazy
    def names_changed(self) -> frozenset[str]:
        """Return the names of objects and arrays whose attributes or elements the body stores to."""
        parts = (node for node in self.nodes if isinstance(node, ast.Attribute | ast.Subscript))
        return frozenset([root(node) for node in parts if isinstance(node.ctx, ast.Store)])

    @lazy
    def used_names(self) -> frozenset[str]:
        """Return all names in the body."""
        return frozenset([node.id for node in self.nodes if isinstance(node, ast.Name)])

    def all_names(self) -> set[str]:
        """Return the names that a new one must differ from: all in the `def`, and those in `given`."""
        nodes = walk(self.tree)
        names = {node.id for node in nodes if isinstance(node, ast.Name)}
        return names | {node.arg for node in nodes if isinstance(node, ast.arg)} | self.given.keys()

    @property
    def content(self) -> str:
        """The function as text, without comments, positions and its docstring."""
        # Not `ast.dump`, whose text of one tree changed in Python 3.13.
        return "\n".join([self.name, *map(ast.unparse, (self.tree.args, *statements_of(self.tree)))])

    @lazy
    def text_with_lines(self) -> str:
        """Return the function as text, with the line of each of its nodes, and what is noted at calls."""
        nodes = walk(self.tree)
        lines = [getattr(node, "lineno", 0) for node in nodes]
        calls = [node for node in nodes if isinstance(node, ast.Call)]
        own = {*ast.Call._fields, *ast.Call._attributes}
        notes = [[(name, one) for name, one in vars(call).items() if name not in own] for call in calls]
        return f"{ast.unparse(self.tree)} {lines} {notes}"

    @lazy
    def calls(self) -> tuple[ast.Call, ...]:
        """Return the calls in the body."""
        return tuple(node for node in self.nodes if isinstance(node, ast.Call))

    @lazy
    def idle_calls(self) -> frozenset[ast.Call]:
        """Return the calls whose results are not used."""
        return frontend.find_idle_calls(self.tree)

    def place(self, node: ast.AST | None = None) -> str:
        """Return `file:line` of a node, or of the `def`."""
        return name_place(self.path, getattr(node, "lineno", self.tree.lineno))

    @lazy
    def _cells(self) -> dict[str, Any]:
        """Return the cells of the closure, by the names of its variables."""
        return dict(zip(self.function.__code__.co_freevars, self.function.__closure__ or (), strict=False))

    def lookup(self, name: str) -> Any:
        """Return the current value of a free name. Raise KeyError if it has none."""
        cell = self._cells.get(name)
        if cell is not None:
            try:
                return cell.cell_contents
            except ValueError:
                # The enclosing function has not assigned it yet.
                raise KeyError(name) from None
        if name in self.given:
            return self.given[name]
        if name in self.function.__globals__:
            return self.function.__globals__[name]
        # CPython has the module here in `__main__`, and its dict in other modules.
        builtins = self.function.__globals__["__builtins__"]
        return (builtins if isinstance(builtins, dict) else vars(builtins))[name]

    def namespace(self) -> dict[str, Any]:
        """Return the function's current globals, overridden by its closure and `given`."""
        names = dict(self.function.__globals__)
        for name in self.function.__code__.co_freevars:
            try:
                names[name] = self.lookup(name)
            except KeyError:
                # Not assigned yet: the engine reports the name if the kernel uses it.
                continue
        return {**names, **self.given}


_FOLLOW_FROM_TREE = ("nodes", "calls", "assigned_names", "names_read", "attributes_taken", "names_changed")
"""Properties that are those of the tree, whatever its parameters stand for."""


@dataclass(frozen=True, eq=False)
class Unrun:
    """An engine function of a file that was not run: it takes the place of the live function in lint."""

    source: Source
    is_method: bool = False


def statements_of(tree: ast.FunctionDef) -> list[ast.stmt]:
    """Return the statements of a function without its docstring."""
    return tree.body[ast.get_docstring(tree, clean=False) is not None :]


_WITHOUT_SOURCE = {
    "<stdin>": "Before Python 3.13, the plain prompt keeps no source of the code that is typed; IPython does. ",
    "<string>": "Code that runs by `exec` or `python -c` has no source that tinsmith can find. ",
    "<timed exec>": "A cell that begins with `%%time` keeps no source; other cells do. ",
    "<magic-timeit>": "A cell that begins with `%%timeit` keeps no source; other cells do. ",
}
"""Why the source cannot be found, by the name of the file."""


def read(function: Callable[..., Any] | Unrun) -> Source:
    """Read the source of a Python function.

    Raises:
        KernelError: Python cannot find the source (a function made by `exec`, or typed into
            the plain prompt).
    """
    if isinstance(function, Unrun):
        return function.source
    ours: Source | None = getattr(function, "tinsmith_source", None)
    if ours is not None:
        # Rebuilt from a user's function (`rebuild_function`), with the lines of the user's file.
        return ours
    known: _Reading | None = vars(function).get(_KNOWN)
    if known is not None and known.is_current(function):
        return known.source
    reading = _parse(function)
    # Kept at the function, so that it is freed with it.
    vars(function)[_KNOWN] = reading
    return reading.source


_KNOWN = "_tinsmith_reading"
"""The attribute in which a function keeps its reading."""


class _Reading(NamedTuple):
    """A function as it was read: its source, and what its calls were found to call."""

    source: Source
    code: CodeType
    called: Sequence[tuple[ast.expr, Any]]

    def is_current(self, function: Callable[..., Any]) -> bool:
        """Return True if reading the function again would give the same result."""
        source = self.source
        # `functools.wraps` copies attributes to the wrapper, the reading of the wrapped function too. Tools that
        # reload edited files put new code into the same function.
        if source.function is not function or function.__code__ is not self.code:
            return False
        return all(find_called_function(source, node) is value for node, value in self.called)


def _parse(function: Callable[..., Any]) -> _Reading:
    try:
        lines, first = source_lines(function)
    except (OSError, TypeError):
        raise KernelError(
            refusal(
                f"the source of `{function.__name__}` cannot be found",
                [("file", function.__code__.co_filename)],
                f"{_WITHOUT_SOURCE.get(function.__code__.co_filename, '')}"
                "Put it into a file or a notebook cell: an engine compiles source, not bytecode.",
            )
        ) from None
    try:
        tree: ast.stmt | None = parse_indented(lines, first)
    except SyntaxError:
        # A lambda's lines may be a part of a statement, as an entry of a dict.
        tree = None
    if not isinstance(tree, ast.FunctionDef):
        raise KernelError(
            refusal(
                f"`{function.__name__}` is not defined by a `def`",
                [("at", name_place(function.__code__.co_filename, first))],
                "Write it as a `def`, not as a lambda or an `async def`.",
            )
        )
    tree.decorator_list = []
    source = Source(function, tree, function.__code__.co_filename)
    called = resolve_calls(source, public_name)
    # A new `Source`: the lazy properties of the first one hold the statements before they were simplified.
    return _Reading(Source(function, _Simplifier().visit(tree), source.path), function.__code__, called)


_CONCURRENT = ("stream_parallel", "graph_parallel_context", "graph_parallel")
"""Blocks of Quadrants that may run at the same time: `qd.stream_parallel`, `qd.graph.parallel`."""


class _Simplifier(ast.NodeTransformer):
    """Replaces statements that only one engine has by loops and branches that both have."""

    def visit_With(self, node: ast.With) -> ast.With | list[ast.stmt]:
        """Replace blocks that may run at the same time by their statements, in order: the results are the same."""
        self.generic_visit(node)
        is_concurrent = all(
            resolve_callee(item.context_expr) in _CONCURRENT and item.optional_vars is None for item in node.items
        )
        return node.body if is_concurrent else node

    def visit_For(self, node: ast.For) -> ast.stmt:
        """Make a loop over `a if ti.static(flag) else b` a branch with two loops."""
        self.generic_visit(node)
        return _split_loop(node)


def _split_loop(node: ast.For) -> ast.stmt:
    choice = node.iter
    if not (isinstance(choice, ast.IfExp) and resolve_callee(choice.test) == "static"):
        return node
    other = copy_node(node)
    node.iter, other.iter = choice.body, choice.orelse
    # Either may be a choice again.
    return ast.copy_location(ast.If(choice.test, [_split_loop(node)], [_split_loop(other)]), node)


def resolve_calls(source: Source, name_of: Callable[[Any], str | None]) -> list[tuple[ast.expr, Any]]:
    """Note at each call which function it calls, through modules, aliases, closures and classes. Return the values.

    Args:
        source: the kernel.
        name_of: the public name of an engine's function, "" for a user's, None for any other value.
    """
    inside = {*source.parameters, *source.assigned_names}
    called = []
    for node in source.calls:
        if isinstance(node.func, ast.Name | ast.Attribute) and root(node.func) not in inside:
            value = find_called_function(source, node.func)
            called.append((node.func, value))
            name = name_of(value)
            if name is not None:
                note_name(node, name)
    return called


def find_called_function(source: Source, node: ast.expr) -> Any:
    """Return the Python value of an expression, as `Source.value` does; None if it has none."""
    value = source.value(node)
    return None if value is MISSING else value


def _find_named_function(source: Source, name: str) -> Any:
    """Return the function that a local stands for if that is its only definition; MISSING otherwise."""
    value = definitions(source.tree).single.get(name)
    function = None if value is None else find_called_function(source, unwrap_call(value, "static"))
    return function if callable(function) or isinstance(function, Unrun) else MISSING
