"""One launch for a batch: the kernel rewritten to run over one more, outermost, index.

The batched arrays get a leading dimension, `x[i]` becomes `x[_batch, i]`, shapes shift by
one, and top-level loops run over the batch too. A kernel in which statements outside any
loop do real work becomes the body of one loop over the batch. What cannot be rewritten
safely is named, with its line, and is launched once a sample instead.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping

INDEX = "_batch"


class NotBatchable(Exception):
    """The kernel cannot be rewritten for a batch; the words say where and why."""

    def __init__(self, reason: str, node: ast.AST) -> None:
        super().__init__(f"line {getattr(node, 'lineno', '?')}: {reason}")


def batched(tree: ast.FunctionDef, batch: Mapping[str, int], ranks: Mapping[str, int]) -> ast.FunctionDef:
    """A kernel that runs a whole batch in one launch.

    Args:
        tree: the kernel; its annotations are left alone.
        batch: arrays that have the leading batch dimension, with their rank without it.
        ranks: rank without batch of every array of the kernel.

    Raises:
        NotBatchable: the kernel uses an array in a way that cannot be rewritten.
    """
    twin = copy.deepcopy(tree)
    loops = _Loops(batch, ranks)
    body = [statement for statement in twin.body if not _is_docstring(statement)]
    if any(_does_work(statement, set(ranks)) for statement in body):
        whole = [loops.inner(statement) for statement in body if not _is_loop_config(statement)]
        twin.body = [ast.For(_store(INDEX), _call("range", loops.size()), whole, [])]
    else:
        twin.body = [part for statement in body for part in loops.outer(statement)]
    shifter = _Shift(batch)
    twin.body = [shifter.visit(statement) for statement in twin.body]
    return twin


class _Loops:
    """Rewrites loop headers; what is inside them is left to `_Shift`."""

    def __init__(self, batch: Mapping[str, int], ranks: Mapping[str, int]) -> None:
        self.batch = batch
        self.ranks = ranks

    def size(self) -> ast.expr:
        """The batch size, read off the first batched array. Marked so that `_Shift` leaves it alone."""
        return _Raw(f"{next(iter(self.batch))}.shape[0]").node

    def outer(self, statement: ast.stmt) -> list[ast.stmt]:
        """A top-level statement: loops run over the batch too."""
        if not isinstance(statement, ast.For):
            return [statement]
        if _called(statement.iter) == "static":
            statement.body = [part for inner in statement.body for part in self.outer(inner)]
            return [statement]
        targets, sizes, head = self._header(statement)
        statement.target = ast.Tuple([_store(INDEX), *targets], ast.Store())
        statement.iter = _lang_call("ndrange", self.size(), *sizes)
        statement.body = head + statement.body
        return [statement]

    def inner(self, statement: ast.stmt) -> ast.stmt:
        """A statement that has become the body of the loop over the batch: no struct-for is left in it."""
        if isinstance(statement, ast.For) and _called(statement.iter) == "static":
            statement.body = [self.inner(part) for part in statement.body]
        elif isinstance(statement, ast.For) and _called(statement.iter) != "range":
            targets, sizes, head = self._header(statement)
            statement.target = targets[0] if len(targets) == 1 else ast.Tuple(targets, ast.Store())
            statement.iter = _lang_call("ndrange", *sizes)
            statement.body = head + statement.body
        return statement

    def _header(self, loop: ast.For) -> tuple[list[ast.expr], list[ast.expr], list[ast.stmt]]:
        """Loop variables, sizes for `ndrange`, and statements that go first in the body."""
        kind, iterator = _called(loop.iter), loop.iter
        if isinstance(iterator, ast.Name) and iterator.id in self.ranks:
            return self._targets(loop), self._extent(iterator), []
        if not isinstance(iterator, ast.Call):
            raise NotBatchable(f"loop over `{ast.unparse(iterator)}`", loop)
        if kind == "range" and len(iterator.args) in (1, 2):
            return [loop.target], [_range_size(iterator)], []
        if kind == "ndrange":
            return self._targets(loop), list(iterator.args), []
        if kind == "grouped" and isinstance(loop.target, ast.Name):
            return self._grouped(loop.target, iterator.args[0], loop)
        raise NotBatchable(f"loop over `{ast.unparse(iterator)}`", loop)

    def _grouped(self, target: ast.Name, inner: ast.expr, loop: ast.For) -> tuple[list[ast.expr], list[ast.expr], list[ast.stmt]]:
        if isinstance(inner, ast.Name) and inner.id in self.ranks:
            sizes = self._extent(inner)
        elif _called(inner) == "ndrange" and isinstance(inner, ast.Call):
            sizes = list(inner.args)
        else:
            raise NotBatchable(f"loop over `{ast.unparse(loop.iter)}`", loop)
        if not sizes or any(isinstance(size, ast.Starred) for size in sizes):
            raise NotBatchable(f"loop over `{ast.unparse(loop.iter)}`, whose rank is not known", loop)
        names = [f"_{target.id}_{axis}" for axis in range(len(sizes))]
        vector = _lang_call("Vector", ast.List([_load(name) for name in names], ast.Load()))
        return [_store(name) for name in names], sizes, [ast.Assign([_store(target.id)], vector, lineno=loop.lineno)]

    def _targets(self, loop: ast.For) -> list[ast.expr]:
        return list(loop.target.elts) if isinstance(loop.target, ast.Tuple) else [loop.target]

    def _extent(self, array: ast.Name) -> list[ast.expr]:
        return [ast.parse(f"{array.id}.shape[{axis}]", mode="eval").body for axis in range(self.ranks[array.id])]


class _Raw:
    """An expression that is final: `_Shift` recognises it and leaves it alone."""

    def __init__(self, text: str) -> None:
        self.node = ast.parse(text, mode="eval").body
        self.node.final = True  # type: ignore[attr-defined]  # a mark of ours on a node of ours


class _Shift(ast.NodeTransformer):
    """Puts the batch index in front of subscripts and shifts shapes."""

    def __init__(self, batch: Mapping[str, int]) -> None:
        self.batch = batch

    def visit(self, node: ast.AST) -> ast.AST:
        return node if getattr(node, "final", False) else super().visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if self._is_shape(node.value):
            return self._shape_entry(node)
        if not (isinstance(node.value, ast.Name) and node.value.id in self.batch):
            return self.generic_visit(node)
        index = self.visit(node.slice)
        if isinstance(index, ast.Constant) and index.value is None:
            node.slice = _load(INDEX)
        elif isinstance(index, ast.Tuple):
            node.slice = ast.Tuple([_load(INDEX), *index.elts], ast.Load())
        else:
            node.slice = ast.Tuple([_load(INDEX), index], ast.Load())  # type: ignore[list-item]  # an expression
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if self._is_shape(node):
            return ast.Tuple(self._entries(node), ast.Load())
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        spread: list[ast.expr] = []
        for argument in node.args:
            starred = isinstance(argument, ast.Starred) and self._is_shape(argument.value)
            spread.extend(self._entries(argument.value) if starred else [argument])  # type: ignore[union-attr]
        node.args = spread
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in self.batch:
            raise NotBatchable(f"array `{node.id}` is used whole, not element by element", node)
        return node

    def _is_shape(self, node: ast.AST) -> bool:
        is_shape = isinstance(node, ast.Attribute) and node.attr == "shape"
        return is_shape and isinstance(node.value, ast.Name) and node.value.id in self.batch

    def _entries(self, shape: ast.AST) -> list[ast.expr]:
        assert isinstance(shape, ast.Attribute) and isinstance(shape.value, ast.Name)
        name = shape.value.id
        return [_Raw(f"{name}.shape[{axis + 1}]").node for axis in range(self.batch[name])]

    def _shape_entry(self, node: ast.Subscript) -> ast.expr:
        assert isinstance(node.value, ast.Attribute) and isinstance(node.value.value, ast.Name)
        name, axis = node.value.value.id, ast.unparse(self.visit(node.slice))
        try:
            place = int(axis)
        except ValueError:
            return _Raw(f"{name}.shape[({axis}) + 1]").node
        return _Raw(f"{name}.shape[{place + 1 if place >= 0 else place}]").node


def _does_work(statement: ast.stmt, arrays: set[str]) -> bool:
    """Whether a top-level statement outside any loop touches array elements or branches."""
    if isinstance(statement, ast.For):
        if _called(statement.iter) == "static":
            return any(_does_work(inner, arrays) for inner in statement.body)
        return isinstance(statement.target, ast.Name) and _called(statement.iter) == "ndrange"
    if _is_loop_config(statement) or isinstance(statement, ast.Pass):
        return False
    if not isinstance(statement, ast.Assign):
        return True
    subscripts = [node for node in ast.walk(statement) if isinstance(node, ast.Subscript)]
    return any(isinstance(node.value, ast.Name) and node.value.id in arrays for node in subscripts)


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_loop_config(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and _called(statement.value) in ("loop_config", "block_local")


def _called(node: ast.AST) -> str:
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _range_size(iterator: ast.Call) -> ast.expr:
    if len(iterator.args) == 1:
        return iterator.args[0]
    return ast.Tuple(list(iterator.args), ast.Load())


def _store(name: str) -> ast.Name:
    return ast.Name(name, ast.Store())


def _load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(_load(name), list(arguments), [])


def _lang_call(name: str, *arguments: ast.expr) -> ast.Call:
    return ast.Call(ast.Attribute(_load("_lang"), name, ast.Load()), list(arguments), [])
