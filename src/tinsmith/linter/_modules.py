"""Modules: what names in a file that is not run mean through its imports, also of other files of its package.

Of other files only what a kernel is compiled with is looked for: dtypes, types of vectors and matrices, and classes
that hold arrays.
"""

from __future__ import annotations

import ast
import os
import tokenize
from typing import Any

from .._cache import cache_results
from .._lazy import lazy
from ..engines import list_children, parse_module, walk
from ..frontend import root
from ._names import StructName, is_array_type, resolve_engine_value, statements_in_blocks
from ._source_form import find_stored_names
from ._subject import ENGINES
from ._unrun import EngineName, MatrixTypeName, element_of

# Files --------------------------------------------------------------------------------------------


@cache_results("trees of checked files", 512)
def parse_file(path: str, text: str) -> ast.Module:
    """Return the tree of a file, which all that reads the file shares. Raises SyntaxError."""
    return parse_module(text, path)


@cache_results("nodes of checked files", 4)
def walk_file(module: ast.AST) -> tuple[ast.AST, ...]:
    """Return all nodes of a file's tree."""
    return tuple(walk(module))


def find_imports(body: ast.AST, path: str) -> dict[str, Any]:
    """Return what imports give names: engines and what lies in them, and modules in files near `path`; None else."""
    meanings: dict[str, Any] = {}
    for node in walk_file(body) if isinstance(body, ast.Module) else statements_in_blocks(list_children(body)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                root, _, below = alias.name.partition(".")
                if root in ENGINES:
                    meant: Any = EngineName(root, below if alias.asname else "")
                else:
                    meant = find_module(path, alias.name if alias.asname else root)
                meanings[alias.asname or root] = meant
        elif isinstance(node, ast.ImportFrom):
            root, _, below = (node.module or "").partition(".")
            for alias in node.names:
                if root in ENGINES and not node.level:
                    meant = EngineName(root, f"{below}.{alias.name}" if below else alias.name)
                else:
                    module = find_module(path, node.module or "", node.level)
                    meant = None if module is None else module.find(alias.name)
                meanings[alias.asname or alias.name] = meant
    return meanings


# Other files -------------------------------------------------------------------------------------


def _uses_captured_memory(function: ast.FunctionDef) -> bool:
    """Return True if a function names a field of its file itself: one that it is not given."""
    nodes = [node for statement in function.body for node in walk(statement)]
    own = find_stored_names(nodes) | {
        one.arg for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    }
    elements = (node.value for node in nodes if isinstance(node, ast.Subscript))
    return any(root(element) not in {"", *own} for element in elements)


class ModuleName:
    """A module in a file beside the one that is read; of what it does not tell, its attributes are None."""

    def __init__(self, path: str, tree: ast.Module) -> None:
        self._path = path
        self._tree = tree
        self._meanings: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self.find(name)

    def find(self, name: str) -> Any:
        """Return the dtype, type, class, function or module that a name of the module means."""
        if name not in self._meanings:
            self._meanings[name] = None  # also what a file is told that asks for what it itself defines
            self._meanings[name] = self._look_up(name)
        return self._meanings[name]

    def get(self, name: str, default: Any = None) -> Any:
        """Return what a name means inside the module."""
        known = {"float": float, "int": int, "bool": bool}.get(name)
        return known or self.find(name) or default

    def __contains__(self, name: str) -> bool:
        return True

    def _look_up(self, name: str) -> Any:
        if name in self._classes:
            return StructName.read(self._classes[name], self)  # type: ignore[arg-type]  # has `get`
        if name in self._given_values:
            given = self._given_values[name]
            if len(given) == 1 and is_array_type(given[0], self):  # type: ignore[arg-type]  # has `get`
                return given[0]
            return _join_meanings([resolve_engine_value(one, self) for one in given])  # type: ignore[arg-type]
        if name in self._functions:
            function = self._functions[name]
            return None if _uses_captured_memory(function) else function
        if name in self._imports:
            return self._imports[name]
        folder, file = os.path.split(self._path)
        return _read_module(_find_file(folder, [name])) if file == "__init__.py" else None

    @lazy
    def _statements(self) -> list[ast.stmt]:
        """Return the statements that define names of the module, at its top level or by `global`."""
        statements = [*statements_in_blocks(self._tree.body)]
        functions = (one for one in statements if isinstance(one, ast.FunctionDef))
        for body in ([*statements_in_blocks(one.body)] for one in functions):
            names = {name for one in body if isinstance(one, ast.Global) for name in one.names}
            statements += (
                [one for one in body if isinstance(one, ast.Assign) and _targets(one) & names] if names else []
            )
        return statements

    @lazy
    def _given_values(self) -> dict[str, list[ast.expr]]:
        assigned: dict[str, list[ast.expr]] = {}
        for one in self._statements:
            for name in _targets(one) if isinstance(one, ast.Assign) else ():
                assigned.setdefault(name, []).append(one.value)  # type: ignore[attr-defined]  # an assignment
        return assigned

    @lazy
    def _classes(self) -> dict[str, ast.ClassDef]:
        return {one.name: one for one in self._statements if isinstance(one, ast.ClassDef)}

    @lazy
    def _functions(self) -> dict[str, ast.FunctionDef]:
        return {one.name: one for one in self._statements if isinstance(one, ast.FunctionDef)}

    @lazy
    def _imports(self) -> dict[str, Any]:
        return find_imports(ast.Interactive(self._tree.body), self._path)  # not those in functions


def _targets(one: ast.Assign) -> set[str]:
    return {target.id for target in one.targets if isinstance(target, ast.Name)}


def _join_meanings(values: list[EngineName | None]) -> EngineName | None:
    """Return what all values of a name have in common: of `f32` and `f64` it is that they are floats."""
    known = [one for one in values if one is not None]
    if len(known) < len(values) or len(set(known)) <= 1:
        return known[0] if len(known) == len(values) and known else None
    elements = {element_of(one.last) for one in known}
    is_plain = not any(isinstance(one, MatrixTypeName) for one in known)
    element = elements.pop() if len(elements) == 1 and is_plain else ""
    return EngineName(known[0].engine, element) if element else None


def find_module(path: str, name: str, level: int = 0) -> ModuleName | None:
    """Return the module that an import in the file `path` means, if it stands in a file of the same package."""
    folder = _find_folder(path)
    if level:
        for _ in range(level - 1):
            folder = os.path.dirname(folder)
        return _read_module(_find_file(folder, name.split(".") if name else []))
    root, package = _find_package(folder)
    parts = name.split(".")
    # Other packages beside it are not read: there may be thousands.
    return _read_module(_find_file(root, parts)) if package in ("", parts[0]) else None


@cache_results("folders of checked files", 4)
def _find_folder(path: str) -> str:
    return os.path.dirname(os.path.abspath(path))


@cache_results("folders of packages", 256)
def _find_package(folder: str) -> tuple[str, str]:
    """Return the folder from which a folder's package is imported, and its name; of no package the folder and ""."""
    root, package = folder, ""
    while os.path.isfile(os.path.join(root, "__init__.py")) and os.path.dirname(root) != root:
        root, package = os.path.split(root)
    return root, package


def _find_file(folder: str, parts: list[str]) -> str:
    """Return the file of a module below a folder; "" where there is none."""
    whole = os.path.join(folder, *parts)
    candidates = [f"{whole}.py"] if parts else []
    return next(filter(os.path.isfile, (*candidates, os.path.join(whole, "__init__.py"))), "")


def _read_module(path: str) -> ModuleName | None:
    if not path:
        return None
    try:
        state = os.stat(path)
        return _read_version_of_module(path, (state.st_mtime_ns, state.st_size))
    except OSError:
        return None


@cache_results("modules beside checked files", 512)
def _read_version_of_module(path: str, version: tuple[int, int]) -> ModuleName | None:  # noqa: ARG001  # a key
    try:
        with tokenize.open(path) as file:
            return ModuleName(path, parse_file(path, file.read()))
    except (OSError, SyntaxError, ValueError, LookupError, MemoryError, RecursionError):
        return None
