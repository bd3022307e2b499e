"""One launch for a batch: the kernel rewritten to run over one more, outermost, index.

The batched arrays get a leading dimension, `x[i]` becomes `x[_batch, i]`, shapes shift by
one, and top-level loops run over the batch too. A kernel in which statements outside any
loop do real work becomes the body of one loop over the batch. What cannot be rewritten
safely is named, with its line, and is launched once a sample instead.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from typing import Any

from ...source import called, copied, is_serialized, is_setting, is_static, parse_expression
from ._loops import NotRewritable, header, load, over, store
from ._simplified import changed_in_place


def batched(
    tree: ast.FunctionDef,
    batch: Mapping[str, int],
    ranks: Mapping[str, int],
    lent: Collection[str] = (),
    *,
    is_reverse: bool = False,
) -> ast.FunctionDef:
    """A kernel that runs a whole batch in one launch.

    Args:
        tree: the kernel; its annotations are left alone.
        batch: arrays that have the leading batch dimension, with their rank without it.
        ranks: rank without batch of every array of the kernel.
        lent: names that the functions which it calls may change.
        is_reverse: whether an engine will differentiate it.

    Raises:
        NotRewritable: the kernel uses an array in a way that cannot be rewritten.
    """
    twin = copied(tree)
    index = _free_name(twin)
    loops = _Loops(batch, ranks, index)
    body = _working(twin.body)
    shared = _shared_locals(body, lent)
    if is_reverse:
        _check_lengths(body, ranks)
        _check_order(body)
    if shared or any(_does_work(statement, ranks, batch) for statement in body):
        _check_whole(body, shared, is_reverse=is_reverse)
        whole = [loops.inner(statement) for statement in body if not is_setting(statement)]
        twin.body = [loops.over_batch(whole)]
    else:
        twin.body = loops.outer(body)
    shifter = _Shift(batch, index)
    shifted: list[Any] = [shifter.visit(statement) for statement in twin.body]
    twin.body = shifted
    return twin


class _Loops:
    """Rewrites loop headers; what is inside them is left to `_Shift`."""

    def __init__(self, batch: Mapping[str, int], ranks: Mapping[str, int], index: str) -> None:
        self.batch = batch
        self.ranks = ranks
        self.index = index

    def size(self) -> ast.expr:
        """The batch size, read off the first batched array. Marked so that `_Shift` leaves it alone."""
        return _Raw(f"{next(iter(self.batch))}.shape[0]").node

    def over_batch(self, body: list[ast.stmt]) -> ast.For:
        """A loop over the samples, each of which runs `body`."""
        return ast.For(store(self.index), ast.Call(load("range"), [self.size()], []), body, [])

    def outer(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """Top-level statements: loops run over the batch too."""
        found: list[ast.stmt] = []
        settings: list[ast.stmt] = []  # of the loop that comes next
        for statement in body:
            if is_setting(statement):
                settings.append(statement)
            elif not isinstance(statement, ast.For):
                found.append(statement)
            else:
                found += self._loop(statement, settings)
                settings = []
        return found

    def _loop(self, loop: ast.For, settings: list[ast.stmt]) -> list[ast.stmt]:
        """A top-level loop with its settings."""
        if any(map(is_serialized, settings)):
            # With the batch as one more dimension of it, a `break` would end the loop for all samples. The settings
            # are left out: the loop is not the outermost one any more, and so runs in order.
            return [self.over_batch([self.inner(loop)])]
        if is_static(loop):
            loop.body = self.outer(loop.body)
        else:
            targets, sizes, first = header(loop, self.ranks)
            loop.target, loop.iter = over([store(self.index), *targets], [self.size(), *sizes])
            loop.body = first + loop.body
        return [*settings, loop]

    def inner(self, statement: ast.stmt) -> ast.stmt:
        """A statement that has become the body of the loop over the batch: no loop over an array is left in it."""
        if is_static(statement):
            statement.body = [self.inner(part) for part in statement.body if not is_setting(part)]
        elif isinstance(statement, ast.For) and called(statement.iter) != "range":
            targets, sizes, first = header(statement, self.ranks)
            statement.target, statement.iter = over(targets, sizes)
            statement.body = first + statement.body
        return statement


class _Raw:
    """An expression that is final: `_Shift` recognises it and leaves it alone."""

    def __init__(self, text: str) -> None:
        self.node = parse_expression(text)
        self.node.final = True  # type: ignore[attr-defined]  # a mark of ours on a node of ours


class _Shift(ast.NodeTransformer):
    """Puts the batch index in front of subscripts and shifts shapes."""

    def __init__(self, batch: Mapping[str, int], index: str) -> None:
        self.batch = batch
        self.index = index

    def visit(self, node: ast.AST) -> ast.AST:
        return node if getattr(node, "final", False) else super().visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        if self._is_shape(node.value):
            return self._shape_entry(node)
        if not (isinstance(node.value, ast.Name) and node.value.id in self.batch):
            return self.generic_visit(node)
        index: Any = self.visit(node.slice)
        if isinstance(index, ast.Constant) and index.value is None:
            node.slice = load(self.index)
        elif isinstance(index, ast.Tuple):
            node.slice = ast.Tuple([load(self.index), *index.elts], ast.Load())
        else:
            node.slice = ast.Tuple([load(self.index), index], ast.Load())
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if self._is_shape(node):
            return ast.Tuple(self._entries(node), ast.Load())
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        spread: list[ast.expr] = []
        for argument in node.args:
            if isinstance(argument, ast.Starred) and self._is_shape(argument.value):
                spread.extend(self._entries(argument.value))
            else:
                spread.append(argument)
        node.args = spread
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in self.batch:
            raise NotRewritable(f"array `{node.id}` is used whole, not element by element", node)
        return node

    def _is_shape(self, node: ast.AST) -> bool:
        if not (isinstance(node, ast.Attribute) and node.attr == "shape"):
            return False
        return isinstance(node.value, ast.Name) and node.value.id in self.batch

    def _entries(self, shape: ast.AST) -> list[ast.expr]:
        assert isinstance(shape, ast.Attribute) and isinstance(shape.value, ast.Name)
        name = shape.value.id
        return [_Raw(f"{name}.shape[{axis + 1}]").node for axis in range(self.batch[name])]

    def _shape_entry(self, node: ast.Subscript) -> ast.expr:
        assert isinstance(node.value, ast.Attribute) and isinstance(node.value.value, ast.Name)
        entries = self._entries(node.value)
        if isinstance(node.slice, ast.Slice):
            try:
                bounds = ast.literal_eval(ast.Tuple([p or ast.Constant(None) for p in _slice_parts(node.slice)], _LOAD))
            except ValueError:
                raise NotRewritable(f"sizes `{ast.unparse(node)}`", node) from None
            return ast.Tuple(entries[slice(*bounds)], _LOAD)
        try:
            return entries[ast.literal_eval(node.slice)]
        except (IndexError, TypeError, ValueError):  # not a plain number, so one that the engine works out
            axis = ast.unparse(self.visit(node.slice))
            return _Raw(f"{node.value.value.id}.shape[({axis}) % {max(len(entries), 1)} + 1]").node


_LOAD = ast.Load()


def _slice_parts(node: ast.Slice) -> list[ast.expr | None]:
    return [node.lower, node.upper, node.step]


def _does_work(statement: ast.stmt, arrays: Mapping[str, int], batch: Mapping[str, int]) -> bool:
    """Whether a top-level statement outside any loop touches array elements or branches."""
    if isinstance(statement, ast.For):
        if is_static(statement):
            return any(_does_work(inner, arrays, batch) for inner in statement.body)
        return _has_vector(statement) or _has_elements(statement.iter, batch)  # each sample may have bounds of its own
    if is_setting(statement) or isinstance(statement, ast.Pass):
        return False
    return not isinstance(statement, ast.Assign) or _has_elements(statement, arrays)


def _has_vector(loop: ast.For) -> bool:
    """`for place in ti.ndrange(h, w)`: one variable for several sizes."""
    if not isinstance(loop.iter, ast.Call) or called(loop.iter) != "ndrange" or not isinstance(loop.target, ast.Name):
        return False
    return len(loop.iter.args) > 1 or isinstance(loop.iter.args[0], ast.Starred)


def _has_elements(tree: ast.AST, arrays: Mapping[str, int]) -> bool:
    subscripts = [node for node in ast.walk(tree) if isinstance(node, ast.Subscript)]
    return any(isinstance(node.value, ast.Name) and node.value.id in arrays for node in subscripts)


def _shared_locals(body: list[ast.stmt], lent: Collection[str]) -> set[str]:
    """Variables made outside all loops that loops change: a batch must not share one."""
    outside: set[str] = set()
    changed: set[str] = set()
    for statement in (part for one in body for part in _tops(one)):
        if isinstance(statement, ast.For):
            changed |= _stored(statement) | changed_in_place(statement) | _names(statement).intersection(lent)
        else:
            outside |= _stored(statement)
    return outside & changed


def _check_whole(body: list[ast.stmt], shared: set[str], *, is_reverse: bool) -> None:
    """Refuse what would mean something else as the body of one loop.

    Engines run top-level loops one after the other, and differentiate each by itself. Inside one
    loop they lose gradients that flow from one statement to the next (seen in both, in silence).
    """
    for statement in body:
        for node in ast.walk(statement):
            if isinstance(node, ast.Return):
                raise NotRewritable("`return` before the end", node)
    parts = [statement for statement in body if not is_setting(statement)]
    if shared:
        raise NotRewritable(f"loops share the variable `{min(shared)}`", parts[0])
    loops = [node for part in parts for node in ast.walk(part) if isinstance(node, ast.For | ast.While)]
    if is_reverse and loops and (len(parts) > 1 or isinstance(parts[0], ast.For)):
        raise NotRewritable("a loop that would lie inside that over the batch", loops[0])


def _check_lengths(body: list[ast.stmt], arrays: Mapping[str, int]) -> None:
    """Refuse inner loops whose length is data.

    To size a gradient stack Quadrants asks for the longest of all iterations, and in a loop over more
    than one dimension it looks at other elements than the loop does, past the end of the array.
    """
    data: set[str] = set()
    nodes = [node for statement in body for node in ast.walk(statement)]
    assigned = [node for node in nodes if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign)]
    for _ in assigned:  # a name may stand for a name that stands for an element
        for node in assigned:
            if node.value and (_has_elements(node.value, arrays) or _names(node.value) & data):
                data |= _stored(node)
    tops = [inner for statement in body for inner in _tops(statement)]
    for node in (inner for top in tops for inner in ast.walk(top) if inner is not top):
        if isinstance(node, ast.For) and (_has_elements(node.iter, arrays) or _names(node.iter) & data):
            raise NotRewritable(
                "a loop whose length is data, which Quadrants differentiates in one dimension alone", node
            )


def _check_order(body: list[ast.stmt]) -> None:
    """Refuse loops that run in order: each sample has one of its own, inside a loop over the batch."""
    settings = [node for statement in body for node in ast.walk(statement) if isinstance(node, ast.Expr)]
    serial = [node for node in settings if is_serialized(node)]
    if serial:
        raise NotRewritable("a serial loop, which would lie inside that over the batch", serial[0])


def _tops(statement: ast.stmt) -> list[ast.stmt]:
    """Top-level statements, those of a static loop among them."""
    if is_static(statement):
        return [inner for part in statement.body for inner in _tops(part)]
    return [statement]


def _names(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _stored(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}


def _free_name(tree: ast.FunctionDef) -> str:
    """A name for the batch index that the kernel does not use."""
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    name = "_batch"
    while name in used:
        name += "_"
    return name


def _working(body: list[ast.stmt]) -> list[ast.stmt]:
    """A kernel's statements without docstring, `pass`, and a `return` at the end."""
    if isinstance(body[-1], ast.Return) and body[-1].value is None:
        body = body[:-1]
    return [statement for statement in body if not _is_idle(statement)]


def _is_idle(statement: ast.stmt) -> bool:
    is_text = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return is_text or isinstance(statement, ast.Pass)
