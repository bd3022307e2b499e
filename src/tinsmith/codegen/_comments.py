"""Printed kernels for people: each group of statements with the line of the source that it comes from."""

from __future__ import annotations

import ast
from collections.abc import Callable
from textwrap import indent

from ..engines import copy_node


def add_comments(tree: ast.FunctionDef, line: Callable[[int], str]) -> list[str]:
    r"""Return a generated kernel as lines of text, with each line of the user's kernel as a comment above its code.

    Args:
        tree: from `print_kernel`, whose statements know the line that they come from.
        line: returns the text of a line of the user's file by its number, or "" for no comment.

    Example:
        >>> tree = ast.parse("def k(x):\n    a = x[0]\n    x[1] = a * a").body[0]
        >>> print("\n".join(add_comments(tree, {2: "x[1] = x[0] ** 2"}.get)))
        def k(
            x,
        ):
            # x[1] = x[0] ** 2
            a = x[0]
            x[1] = a * a
    """
    # The line of the last comment: a line that many statements come from stands above the first.
    said = 0

    def comment(statements: list[ast.stmt]) -> list[ast.stmt]:
        nonlocal said
        written: list[ast.stmt] = []
        for one in statements:
            text = "" if one.lineno == said else line(one.lineno)
            if text:
                said = one.lineno
                # `ast.unparse` writes a name as it is.
                written.append(ast.Expr(ast.Name(f"# {text}")))
            if isinstance(one, ast.For | ast.While | ast.If):
                one.body, one.orelse = comment(one.body), comment(one.orelse)
            written.append(one)
        return written

    parameters = [f"    {ast.unparse(argument)}," for argument in tree.args.args]
    body = ast.unparse(ast.Module(comment(copy_node(tree).body), []))
    return [f"def {tree.name}(", *parameters, "):", *indent(body, "    ").splitlines()]
