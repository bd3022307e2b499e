"""A kernel's parameters changed: their annotations and names, scalars as arrays, gradients and copies."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Mapping

from ...engines import parse_expression
from .._nodes import replace_nodes
from .._walk import copy_node, walk
from ._loops import NotRewritable, lang_call, load, store


def annotate(tree: ast.FunctionDef, annotations: Mapping[str, str]) -> ast.FunctionDef:
    """A kernel with new annotations: their source, for every parameter.

    This is what lets a kernel written with `ti.template()` fields run on torch tensors, and tells the engine which
    arrays have a gradient without asking any tensor.
    """
    twin = copy_node(tree)
    twin.returns = None
    for argument in twin.args.args:
        argument.annotation = parse_expression(annotations[argument.arg])
    return twin


def rename_parameters(tree: ast.FunctionDef, names: Mapping[str, str]) -> ast.FunctionDef:
    """A kernel whose parameters have other names, so that kernels written apart can share their arrays by name.

    Parameters that get the same name are one from then on: they were given the same array.

    Args:
        tree: the kernel.
        names: old name to new one. The new ones are taken to mean nothing else in the kernel.
    """
    if all(old == new for old, new in names.items()):
        return tree
    twin = copy_node(tree)
    for node in walk(twin):
        if isinstance(node, ast.Name):
            node.id = names.get(node.id, node.id)
        elif isinstance(node, ast.arg):
            node.arg = names.get(node.arg, node.arg)
    unique = {argument.arg: argument for argument in reversed(twin.args.args)}
    twin.args.args = [argument for argument in twin.args.args if unique[argument.arg] is argument]
    return twin


def lift_scalars(tree: ast.FunctionDef, names: Iterable[str]) -> ast.FunctionDef:
    """A kernel in which the scalars `names` are read as 0-d arrays, `m[None]`, so that they can have a gradient.

    No engine differentiates by a scalar argument. Annotations are left alone.
    """
    lifted = frozenset(names)
    if not lifted:
        return tree

    def lift(node: ast.AST) -> ast.AST | None:
        if isinstance(node, ast.Name) and node.id in lifted and isinstance(node.ctx, ast.Load):
            return ast.Subscript(node, ast.Constant(None), ast.Load())
        return None

    twin = copy_node(tree)
    twin.body = [replace_nodes(statement, lift) for statement in twin.body]
    return twin


def split_gradients(tree: ast.FunctionDef, arrays: Collection[str]) -> tuple[ast.FunctionDef, frozenset[str]]:
    """A kernel that is given the gradients of arrays as arrays; and the arrays whose gradient it uses.

    Raises:
        NotRewritable: a name of such a gradient means something else in the kernel.
    """
    used = frozenset(owner for node in walk(tree) if (owner := _owner(node)) in arrays)
    for node in walk(tree):
        name = node.arg if isinstance(node, ast.arg) else node.id if isinstance(node, ast.Name) else ""
        if name.removeprefix("grad_") in used and name.startswith("grad_"):
            raise NotRewritable(f"`{name}` is the name of the gradient of `{name.removeprefix('grad_')}`", node)

    def split(node: ast.AST) -> ast.AST | None:
        return load(f"grad_{owner}") if (owner := _owner(node)) in used else None

    twin = replace_nodes(copy_node(tree), split)
    arguments = [[one, ast.arg(f"grad_{one.arg}")] if one.arg in used else [one] for one in twin.args.args]
    twin.args.args = [one for group in arguments for one in group]
    return ast.fix_missing_locations(twin), used


def _owner(node: ast.AST) -> str:
    """The `x` of `x.grad`."""
    if isinstance(node, ast.Attribute) and node.attr == "grad" and isinstance(node.value, ast.Name):
        return node.value.id
    return ""


def begin_with_copies(
    tree: ast.FunctionDef, sources: Mapping[str, str], ranks: Mapping[str, int | None]
) -> ast.FunctionDef:
    """A kernel that first fills arrays with copies of others, which become parameters before them.

    Args:
        tree: the kernel.
        sources: names of the arrays that are copied, by those of the kernel's own.
        ranks: how many indices an element of the kernel's own has; None where that is not known.
    """
    if not sources:
        return tree
    twin = copy_node(tree)
    arguments: list[ast.arg] = []
    for argument in twin.args.args:
        arguments += [ast.arg(sources[argument.arg])] if argument.arg in sources else []
        arguments.append(argument)
    twin.args.args = arguments
    place = 1 if ast.get_docstring(twin, clean=False) is not None else 0
    copies = [_copy(source, own, ranks[own]) for own, source in sources.items()]
    for one in copies:
        ast.fix_missing_locations(ast.copy_location(one, tree.body[0]))
    twin.body[place:place] = copies
    return twin


def _copy(source: str, own: str, rank: int | None) -> ast.stmt:
    """A loop that copies all elements: over what it fills, which is as large."""
    index = ast.Constant(None) if rank == 0 else load("_at")
    fill = ast.Assign([ast.Subscript(load(own), index, ast.Store())], ast.Subscript(load(source), index, ast.Load()))
    over = ast.Call(load("range"), [ast.Constant(1)], []) if rank == 0 else lang_call("grouped", load(own))
    return ast.For(store("_at"), over, [fill], [])
