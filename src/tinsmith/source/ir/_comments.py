"""Printed kernels for people: above each group of statements the line of the source that it comes from."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence

_INDENT = "    "


def add_comments(tree: ast.FunctionDef, line: Callable[[int], str]) -> list[str]:
    r"""A printed kernel as lines of text, with comments.

    Args:
        tree: from `print_kernel`, whose statements know the line that they come from.
        line: the text of a line of the kernel's file by its number, "" where there is none.

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
    return list(_Commenting(line).function(tree))


class _Commenting:
    """Writes one kernel, and knows which line it said last."""

    def __init__(self, line: Callable[[int], str]) -> None:
        self.line = line
        self.said = 0

    def function(self, tree: ast.FunctionDef) -> Iterator[str]:
        parameters = [ast.unparse(argument) for argument in tree.args.args]
        yield f"def {tree.name}("
        yield from (f"{_INDENT}{parameter}," for parameter in parameters)
        yield "):"
        yield from self.body(tree.body, _INDENT)

    def body(self, statements: Sequence[ast.stmt], indent: str) -> Iterator[str]:
        for statement in statements:
            yield from (indent + comment for comment in self.comment(statement))
            yield from self.statement(statement, indent)

    def comment(self, statement: ast.stmt) -> Iterator[str]:
        """The line that a statement comes from, unless it was said of the one before."""
        if statement.lineno == self.said:
            return
        text = self.line(statement.lineno)
        if text:
            self.said = statement.lineno
            yield f"# {text}"

    def statement(self, one: ast.stmt, indent: str) -> Iterator[str]:
        if not isinstance(one, ast.For | ast.While | ast.If):
            yield indent + ast.unparse(one)
            return
        yield indent + _head(one)
        yield from self.body(one.body, indent + _INDENT)
        if one.orelse:
            yield f"{indent}else:"
            yield from self.body(one.orelse, indent + _INDENT)


def _head(one: ast.For | ast.While | ast.If) -> str:
    """The first line of a compound statement."""
    match one:
        case ast.For():
            return f"for {ast.unparse(one.target)} in {ast.unparse(one.iter)}:"
        case ast.While():
            return f"while {ast.unparse(one.test)}:"
        case ast.If():
            return f"if {ast.unparse(one.test)}:"
