"""The serial twin: the same kernel on one CPU thread.

Waking an engine's thread pool costs about 150 us; a small problem is done sooner alone.
"""

from __future__ import annotations

import ast
import copy


def serial(tree: ast.FunctionDef) -> ast.FunctionDef:
    """`_lang.loop_config(serialize=True)` before every top-level loop."""
    twin = copy.deepcopy(tree)
    body: list[ast.stmt] = []
    for statement in twin.body:
        if _is_loop_config(statement):
            continue  # settings of the parallel loop, such as block_dim, mean nothing here
        if isinstance(statement, ast.For) and not _is_static(statement.iter):
            body.append(ast.parse("_lang.loop_config(serialize=True)").body[0])
        body.append(statement)
    twin.body = body
    return twin


def _is_loop_config(statement: ast.stmt) -> bool:
    if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)):
        return False
    called = statement.value.func
    return isinstance(called, ast.Attribute) and called.attr in ("loop_config", "block_local")


def _is_static(iterator: ast.expr) -> bool:
    return isinstance(iterator, ast.Call) and isinstance(iterator.func, ast.Attribute) and iterator.func.attr == "static"
