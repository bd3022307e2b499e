"""The serial twin: the same kernel on one CPU thread.

Waking an engine's thread pool costs about 150 us; a small problem is done sooner alone.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping

from ._loops import called, is_over_array, is_setting


def serial(tree: ast.FunctionDef, ranks: Mapping[str, int]) -> ast.FunctionDef:
    """`_lang.loop_config(serialize=True)` before every top-level loop over a range.

    Engines do not serialise loops over an array: `ranged` comes before, and leaves only those
    over a single element.
    """
    twin = copy.deepcopy(tree)
    twin.body = _body(twin.body, ranks)
    return twin


def _body(statements: list[ast.stmt], ranks: Mapping[str, int]) -> list[ast.stmt]:
    body: list[ast.stmt] = []
    for statement in statements:
        if is_setting(statement):
            continue  # settings of the parallel loop, such as block_dim, mean nothing here
        if isinstance(statement, ast.For) and called(statement.iter) == "static":
            statement.body = _body(statement.body, ranks)
        elif isinstance(statement, ast.For) and not is_over_array(statement, ranks):
            body.append(ast.parse("_lang.loop_config(serialize=True)").body[0])
        body.append(statement)
    return body
