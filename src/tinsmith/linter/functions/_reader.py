"""What a file says about hand-written Functions: the classes and their methods, and how kernels index their arrays."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from ...engines import walk
from ...frontend import get_iterable, index_parts, root
from .._subject import Subject

Class: TypeAlias = ast.ClassDef

_FUNCTIONS = frozenset(
    f"torch.autograd.{name}"
    for name in ("Function", "function.Function", "function.InplaceFunction", "function._SingleLevelFunction")
)


@dataclass(frozen=True, eq=False)
class Module:
    """A file's definitions, by name; of several of one name, the last.

    Attributes:
        imports: what imported names stand for: `ag` for "torch.autograd".
        functions: plain functions, also those inside functions.
        classes: classes, wherever they stand.
        gradients: names that stand for a kernel's gradient: `backward = kernel.grad`.
        attributes: what `self.name = other` gives attributes, if it is a name.
    """

    imports: dict[str, str]
    functions: dict[str, ast.FunctionDef]
    classes: dict[str, Class]
    gradients: dict[str, str]
    attributes: dict[str, str]

    @classmethod
    def read(cls, tree: ast.Module) -> Module:
        """Collect the definitions of a file."""
        classes = [node for node in walk(tree) if isinstance(node, Class)]
        methods = {one for node in classes for one in node.body}
        functions = [node for node in walk(tree) if isinstance(node, ast.FunctionDef) and node not in methods]
        assigned = [node for node in walk(tree) if isinstance(node, ast.Assign) and len(node.targets) == 1]
        gradients, attributes = {}, {}
        for target, value in ((node.targets[0], node.value) for node in assigned):
            if isinstance(target, ast.Name) and isinstance(value, ast.Attribute) and value.attr == "grad":
                gradients |= {target.id: ast.unparse(value.value)} if target.col_offset == 0 else {}
            elif isinstance(target, ast.Attribute) and isinstance(value, ast.Name):
                attributes[target.attr] = value.id
        by_name = {node.name: node for node in functions}
        return cls(_find_imports(tree), by_name, {node.name: node for node in classes}, gradients, attributes)

    def resolve(self, node: ast.expr) -> str:
        """Return the dotted name of an expression: "torch.autograd.Function"; "" if it is not a name."""
        return _resolve_dotted(node, self.imports)

    def autograd_functions(self) -> Iterator[Class]:
        """Yield the classes that derive from `torch.autograd.Function`, also through classes of the file."""
        yield from (node for node in self.classes.values() if self._is_function(node, frozenset()))

    def methods(self, node: Class) -> dict[str, ast.FunctionDef]:
        """Return the methods of a class by name, with those that it inherits from classes of the file."""
        inherited: dict[str, ast.FunctionDef] = {}
        for base in reversed(node.bases):
            parent = self.classes.get(self.resolve(base).rpartition(".")[2])
            if parent is not None and parent is not node:
                inherited |= self.methods(parent)
        return inherited | {one.name: one for one in node.body if isinstance(one, ast.FunctionDef)}

    def _is_function(self, node: Class, seen: frozenset[str]) -> bool:
        for base in map(self.resolve, node.bases):
            parent = self.classes.get(base)
            if base in _FUNCTIONS or (parent and base not in seen and self._is_function(parent, seen | {base})):
                return True
        return False


def _find_imports(tree: ast.Module) -> dict[str, str]:
    names: dict[str, str] = {}
    for node in walk(tree):
        if isinstance(node, ast.Import):
            names |= {one.asname: one.name for one in node.names if one.asname}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {one.asname or one.name: f"{node.module}.{one.name}" for one in node.names}
            if node.module in ("torch.autograd", "torch.autograd.function") and node.names[0].name == "*":
                names["Function"] = "torch.autograd.Function"
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            dotted = _resolve_dotted(node.value, names)
            if dotted.startswith("torch."):
                names[node.targets[0].id] = dotted
    return names


def _resolve_dotted(node: ast.expr, names: dict[str, str]) -> str:
    if isinstance(node, ast.Attribute):
        inner = _resolve_dotted(node.value, names)
        return f"{inner}.{node.attr}" if inner else ""
    return names.get(node.id, node.id) if isinstance(node, ast.Name) else ""


# Kernels ------------------------------------------------------------------------------------------


def find_ranks(kernel: Subject, array: str) -> set[int | None]:
    """Return how many axes indices and loops of a kernel give an array; None for an index that may be a vector."""
    vectors, ranks = _find_index_vectors(kernel), set[int | None]()
    for node in kernel.source.nodes:
        match node:
            case ast.Subscript(value=ast.Name(id=name), slice=index) if name == array:
                is_none = isinstance(index, ast.Constant) and index.value is None
                parts = [] if is_none else index_parts(index)
                is_vector = any(isinstance(one, ast.Name) and one.id in vectors for one in parts)
                ranks.add(None if is_vector else len(parts))
            case ast.For(iter=ast.Name(id=name), target=target) if name == array:
                ranks.add(len(index_parts(target)))
    return ranks


def _find_index_vectors(kernel: Subject) -> set[str]:
    """Return the variables of loops over `ti.grouped`, and the locals that may be vectors of indices."""
    vectors: set[str] = set()
    for node in kernel.source.nodes:
        match node:
            case ast.For(target=target) if kernel.resolve_builtin(get_iterable(node)) == "grouped":
                vectors.add(root(target))
            case ast.Assign(targets=[ast.Name(id=name), *_], value=value):
                vectors |= {name} if kernel.resolve_builtin(value) in ("Vector", "floor", "cast") else set()
    return vectors
