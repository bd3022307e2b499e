"""A kernel's parameters: their annotations and names, scalars as arrays, gradients and copies.

    lift_scalars         def f(x, k):  x[i] *= k               ->   def f(x, k):  x[i] *= k[None]
    split_gradients      def f(x, y):  y[i] = x.grad[i]        ->   def f(x, grad_x, y):  y[i] = grad_x[i]
    begin_with_copies    def f(x, y):  x[i] += y[i]            ->   def f(x_in, x, y):
                                                                        for _at in _lang.grouped(x):
                                                                            x[_at] = x_in[_at]
                                                                        x[i] += y[i]

`annotate` and `rename_parameters` change annotations and names only.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Mapping

from ...engines import copy_node, parse_expression, walk
from .._nodes import replace_nodes
from ._loops import NotRewritable, lang_call, load, store


def annotate(tree: ast.FunctionDef, annotations: Mapping[str, str]) -> ast.FunctionDef:
    """Return a kernel with new annotations, given as source for every parameter.

    So a kernel written for `ti.template()` fields can run on torch tensors, and the engine knows which arrays have a
    gradient without asking any tensor.
    """
    twin = copy_node(tree)
    twin.returns = None
    for argument in twin.args.args:
        argument.annotation = parse_expression(annotations[argument.arg])
    return twin


def rename_parameters(tree: ast.FunctionDef, names: Mapping[str, str]) -> ast.FunctionDef:
    """Rename a kernel's parameters, so that kernels of a chain can share arrays by name.

    Parameters that get the same name become one: they are given the same array.

    Args:
        tree: the kernel.
        names: the new name for each old one. The kernel must not use the new names for anything else.
    """
    if all(old == new for old, new in names.items()):
        return tree
    twin = copy_node(tree)
    for node in walk(twin):
        if isinstance(node, ast.Name):
            node.id = names.get(node.id, node.id)
        elif isinstance(node, ast.arg):
            node.arg = names.get(node.arg, node.arg)
    # The first of several parameters with one name stays where it is.
    unique = {argument.arg: argument for argument in reversed(twin.args.args)}
    twin.args.args = [argument for argument in twin.args.args if unique[argument.arg] is argument]
    return twin


def lift_scalars(tree: ast.FunctionDef, names: Iterable[str]) -> ast.FunctionDef:
    """Turn scalar parameters into 0-d arrays, read as `m[None]`, so that they can have a gradient.

    No engine differentiates with respect to a scalar argument. Annotations stay as they are.
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
    """Return a kernel that takes the gradients of arrays as parameters, and the arrays whose gradient it uses.

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
    """Return "x" for the expression `x.grad`, and "" for other expressions."""
    if isinstance(node, ast.Attribute) and node.attr == "grad" and isinstance(node.value, ast.Name):
        return node.value.id
    return ""


def begin_with_copies(
    tree: ast.FunctionDef, sources: Mapping[str, str], ranks: Mapping[str, int | None]
) -> ast.FunctionDef:
    """Return a kernel that begins by filling arrays with copies of others, which become parameters before them.

    Args:
        tree: the kernel.
        sources: names of the arrays to copy from, by the arrays to fill.
        ranks: number of indices of the arrays to fill; None if it is not known.
    """
    if not sources:
        return tree
    twin = copy_node(tree)
    arguments: list[ast.arg] = []
    for argument in twin.args.args:
        arguments += [ast.arg(sources[argument.arg])] if argument.arg in sources else []
        arguments.append(argument)
    twin.args.args = arguments
    # A docstring is one only as the first statement.
    place = 1 if ast.get_docstring(twin, clean=False) is not None else 0
    copies = [_copy(source, own, ranks[own]) for own, source in sources.items()]
    for one in copies:
        ast.fix_missing_locations(ast.copy_location(one, tree.body[0]))
    twin.body[place:place] = copies
    return twin


def _copy(source: str, own: str, rank: int | None) -> ast.stmt:
    """Return a loop that copies all elements. It runs over the array that it fills, which has the same sizes."""
    index = ast.Constant(None) if rank == 0 else load("_at")
    fill = ast.Assign([ast.Subscript(load(own), index, ast.Store())], ast.Subscript(load(source), index, ast.Load()))
    # `grouped` does for any number of dims but 0. One element too is copied in a loop: no engine differentiates a
    # statement beside loops.
    over = ast.Call(load("range"), [ast.Constant(1)], []) if rank == 0 else lang_call("grouped", load(own))
    return ast.For(store("_at"), over, [fill], [])
