"""Find the definitions of a Python file in its text, without running it."""

from __future__ import annotations

import ast
import symtable
from collections.abc import Iterator
from typing import Literal, TypeAlias

from ..engines import parse_module

_DYNAMIC = frozenset({"exec", "globals", "__getattr__"})
"""Names whose use may bind others; of attributes, `sys.modules` does."""
DefinitionKind: TypeAlias = Literal["class", "function", "constant"]


def find_function_spans(text: str) -> list[tuple[int, int]]:
    """Return the first and last line of every function in a text, decorators included; none if it is not Python."""
    try:
        tree = parse_module(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        # Python's parser raises the last two for deep expressions.
        return []
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [
        (min([one.lineno, *(decorator.lineno for decorator in one.decorator_list)]), one.end_lineno or one.lineno)
        for one in functions
    ]


class ModuleNames:
    """The names that a Python file binds at its top level, and in its classes.

    Raises SyntaxError or ValueError if the text is not Python, MemoryError or RecursionError if it is nested too
    deeply.

    Attributes:
        names: what the module binds, functions that bind a name as `global` included.
        is_dynamic: whether it may bind others, in ways that its text does not show: `from x import *`, `exec`.
    """

    def __init__(self, text: str, file: str) -> None:
        self._tree, self._table = parse_module(text, file), symtable.symtable(text, file, "exec")
        self.names = _find_bound(self._table)
        self.is_dynamic = _is_dynamic(self._tree)

    def find_enclosing_function(self, name: str) -> str:
        """Return the function of the module in which another one of that name is defined; "" if there is none."""
        for inner in self._table.get_children():
            if any(one.get_name() == name for one in inner.get_children()):
                return inner.get_name()
        return ""

    def find_plain_kind(self, name: str) -> DefinitionKind | None:
        """Return what a name is if the module binds it once, with no decorator; None if that is not known."""
        match self._find_only_definition(name):
            case ast.ClassDef(decorator_list=[]):
                return "class"
            case ast.FunctionDef(decorator_list=[]):
                return "function"
            case ast.Assign():
                return "constant"
        return None

    def find_members(self, name: str) -> set[str] | None:
        """Return the names that a class binds; None if it may have others: of bases, a metaclass, or a decorator."""
        definition = self._find_only_definition(name)
        if not isinstance(definition, ast.ClassDef) or not _has_own_members_only(definition):
            return None
        # Exactly one, as `_find_only_definition` has made sure.
        [own] = [one for one in self._table.get_children() if one.get_type() == "class" and one.get_name() == name]
        return _find_bound(own)

    def _find_only_definition(self, name: str) -> ast.stmt | None:
        """Return the one statement that binds a name; None if there are several, or one of another kind."""
        # Those inside functions and branches too: one may run later, or be declared `global`, so the kind is not known.
        binding = [node for node in ast.walk(self._tree) if _binds(node, name)]
        own = [node for node in self._tree.body if _binds(node, name) or _assigns_constant(node, name)]
        return own[0] if len(binding) == len(own) == 1 else None


def _is_dynamic(tree: ast.Module) -> bool:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            return True
        if isinstance(node, ast.Name) and node.id in _DYNAMIC:
            return True
        if isinstance(node, ast.Attribute) and node.attr == "modules":
            return True
        if isinstance(node, ast.FunctionDef) and node.name in _DYNAMIC:
            return True
    return False


def _find_bound(table: symtable.SymbolTable) -> set[str]:
    """Return the names that a module or a class binds."""
    own = {one.get_name() for one in table.get_symbols() if one.is_assigned() or one.is_imported()}
    return own | set(_find_bound_as_global(table)) if table.get_type() == "module" else own


def _find_bound_as_global(table: symtable.SymbolTable) -> Iterator[str]:
    for inner in table.get_children():
        symbols = inner.get_symbols()
        yield from (one.get_name() for one in symbols if one.is_declared_global() and one.is_assigned())
        yield from _find_bound_as_global(inner)


def _binds(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return node.name == name
    if isinstance(node, ast.alias):
        return (node.asname or node.name.partition(".")[0]) == name
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del) and node.id == name


def _assigns_constant(node: ast.stmt, name: str) -> bool:
    is_plain = isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.value, ast.Constant)
    return is_plain and _binds(node.targets[0], name)  # type: ignore[attr-defined]  # of ast.Assign


def _has_own_members_only(definition: ast.ClassDef) -> bool:
    decorators = [ast.unparse(one).rpartition(".")[2] for one in definition.decorator_list]
    return not definition.bases and not definition.keywords and set(decorators) <= {"data_oriented"}
