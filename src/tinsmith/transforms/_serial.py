"""The serial twin: the same kernel on one CPU thread.

Waking an engine's thread pool costs about 150 us; a small problem is done sooner alone.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping

from ._loops import called, header, is_over_array, is_setting, over


def serial(tree: ast.FunctionDef, ranks: Mapping[str, int]) -> ast.FunctionDef:
    """`_lang.loop_config(serialize=True)` before every top-level loop.

    Loops over an array become loops over its sizes, because engines do not serialise the former.
    """
    twin = copy.deepcopy(tree)
    twin.body = _body(twin.body, ranks)
    return twin


def _is_over_number(loop: ast.For, ranks: Mapping[str, int]) -> bool:
    """Whether a loop runs over a 0-d array."""
    names = [node.id for node in ast.walk(loop.iter) if isinstance(node, ast.Name) and node.id in ranks]
    return bool(names) and ranks[names[0]] == 0


def _body(statements: list[ast.stmt], ranks: Mapping[str, int]) -> list[ast.stmt]:
    body: list[ast.stmt] = []
    for statement in statements:
        if is_setting(statement):
            continue  # settings of the parallel loop, such as block_dim, mean nothing here
        if isinstance(statement, ast.For) and called(statement.iter) == "static":
            statement.body = _body(statement.body, ranks)
        elif isinstance(statement, ast.For):
            if is_over_array(statement, ranks):
                if _is_over_number(statement, ranks):
                    body.append(statement)  # one element: there is nothing to put in order
                    continue
                targets, sizes, first = header(statement, ranks)
                statement.target, statement.iter = over(targets, sizes)
                statement.body = first + statement.body
            body.append(ast.parse("_lang.loop_config(serialize=True)").body[0])
        body.append(statement)
    return body
