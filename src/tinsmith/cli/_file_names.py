"""File names: what a Python file defines at its top level, read from its text, without running it.

What may be bound in ways that the text does not show (`from x import *`, `exec`, `globals()`) is left to a run.
"""

from __future__ import annotations

import ast
import symtable
import tokenize
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from .._errors import InputError, nearest, refusal

if TYPE_CHECKING:
    from ..linter import Showable

_DYNAMIC = frozenset({"exec", "globals", "__getattr__"})
"""Names whose use may bind others; of attributes, `sys.modules` does."""
_KINDS = {ast.ClassDef: "a class", ast.FunctionDef: "a plain function", ast.Assign: "a constant"}
_DECORATE = "Name what @ti.kernel, @qd.kernel or @ts.op decorates."


def require_defined(file: str, name: str) -> None:
    """Raises InputError where the text of a file shows that `name` is not there, or is not a kernel or an op."""
    from ..engines import parse_module

    text = _read(file)
    with _refuse_invalid(file):
        tree, table = parse_module(text, file), symtable.symtable(text, file, "exec")
    if _is_dynamic(tree):
        return
    first, *members = name.split(".")
    names = _find_bound(table)
    if first not in names:
        _refuse(first, file, name, names, _function_that_defines(table, first))
    definition = _only_definition(tree, first)
    if not members:
        _require_decorated(definition, file, name)
    elif isinstance(definition, ast.ClassDef) and _holds_what_it_shows(definition):
        [own] = [one for one in table.get_children() if one.get_type() == "class" and one.get_name() == first]
        if members[0] not in _find_bound(own):
            _refuse(members[0], file, name, _find_bound(own))


def list_kernels(file: str) -> list[Showable]:
    """The kernels and ops of a file whose gradients can be printed, found in its text: it does not run.

    Raises:
        InputError: the file cannot be read, is not valid Python, or has no such kernel.
    """
    from ..linter import find_showable

    text = _read(file)
    with _refuse_invalid(file):
        kernels = find_showable(file, text)
    if not kernels:
        remedy = "Name a file that defines kernels at its top level, or in a class there."
        raise InputError(refusal("the file has no kernel with a gradient to print", [("file", file)], remedy))
    return kernels


def refuse_unknown(part: str, file: str, name: str, known: Iterable[str], remedy: str = "") -> NoReturn:
    """Raises InputError: `part` of `name` does not exist in a file that has the names `known`."""
    close = nearest(part, [one for one in known if not one.startswith("_")])
    remedy = f"Did you mean `{close}`?" if close else remedy or "Name a kernel or an op at the level of the module."
    raise InputError(refusal(f"there is no `{part}` in the file", [("file", file), ("name", name)], remedy))


def refuse_other(file: str, name: str, type_name: str) -> NoReturn:
    """Raises InputError: `name` is of type `type_name`, and neither a kernel nor an op."""
    raise InputError(refusal(f"`{name}` is not a kernel or an op", [("file", file), ("got", type_name)], _DECORATE))


def _refuse(part: str, file: str, name: str, known: Iterable[str], owner: str = "") -> NoReturn:
    remedy = f"`{owner}` defines one: move it to the top level of the file." if owner else ""
    refuse_unknown(part, file, name, known, remedy)


def _read(file: str) -> str:
    try:
        with tokenize.open(file) as opened:  # as Python reads it: UTF-8, or what its first lines say
            return opened.read()
    except (OSError, SyntaxError, UnicodeDecodeError) as cause:
        rows = [("file", file), ("because", str(cause))]
        raise InputError(refusal("the file cannot be read", rows, "Name a Python file.")) from cause


@contextmanager
def _refuse_invalid(file: str) -> Generator[None]:
    try:
        yield
    except (SyntaxError, ValueError) as error:
        rows = [("file", file), ("line", str(getattr(error, "lineno", None) or 1)), ("because", str(error))]
        raise InputError(refusal("the file is not valid Python", rows, "Correct it first.")) from error
    except (MemoryError, RecursionError) as error:
        rows = [("file", file), ("because", str(error))]
        remedy = "Split its longest expression into several statements."
        raise InputError(refusal("the file is nested too deeply to be read", rows, remedy)) from error


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
    """Names that a module or a class binds, those that functions bind as `global` too."""
    own = {one.get_name() for one in table.get_symbols() if one.is_assigned() or one.is_imported()}
    if table.get_type() == "module":
        own |= _bound_as_global(table)
    return own


def _bound_as_global(table: symtable.SymbolTable) -> set[str]:
    names = set[str]()
    for inner in table.get_children():
        symbols = inner.get_symbols()
        names |= {one.get_name() for one in symbols if one.is_declared_global() and one.is_assigned()}
        names |= _bound_as_global(inner)
    return names


def _function_that_defines(table: symtable.SymbolTable, name: str) -> str:
    """The function of a module in which another one of that name is defined; "" where there is none."""
    for inner in table.get_children():
        if any(one.get_name() == name for one in inner.get_children()):
            return inner.get_name()
    return ""


def _only_definition(tree: ast.Module, name: str) -> ast.stmt | None:
    """The one statement of a module that binds a name; None where there are several, or one of another kind."""
    binding = [node for node in ast.walk(tree) if _binds(node, name)]
    own = [node for node in tree.body if _binds(node, name) or _assigns_constant(node, name)]
    return own[0] if len(binding) == len(own) == 1 else None


def _binds(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return node.name == name
    if isinstance(node, ast.alias):
        return (node.asname or node.name.partition(".")[0]) == name
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del) and node.id == name


def _assigns_constant(node: ast.stmt, name: str) -> bool:
    is_plain = isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.value, ast.Constant)
    return is_plain and _binds(node.targets[0], name)  # type: ignore[attr-defined]  # of ast.Assign


def _require_decorated(definition: ast.stmt | None, file: str, name: str) -> None:
    if isinstance(definition, ast.FunctionDef | ast.ClassDef) and definition.decorator_list:
        return
    kind = _KINDS.get(type(definition))  # type: ignore[arg-type]  # None is in no table
    if kind:
        refuse_other(file, name, kind)


def _holds_what_it_shows(definition: ast.ClassDef) -> bool:
    """Whether a class has no members but those in its body: no bases, no metaclass, no decorator of somebody's own."""
    decorators = [ast.unparse(one).rpartition(".")[2] for one in definition.decorator_list]
    return not definition.bases and not definition.keywords and set(decorators) <= {"data_oriented"}
