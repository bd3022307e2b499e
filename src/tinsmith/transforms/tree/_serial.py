"""The serial twin: the same kernel on one CPU thread.

Waking an engine's thread pool costs about 150 us; a small problem is done sooner alone.
For values, and for gradients that are generated. An engine's own reverse mode is given the loops as the user
wrote them: it reverses a serial outermost loop in another way than a parallel one.
"""

from __future__ import annotations

import ast

from ...source import called, copied, is_setting, is_static, parse_statement


def serial(tree: ast.FunctionDef) -> ast.FunctionDef:
    """`_lang.loop_config(serialize=True)` before every top-level loop over a range.

    Engines do not serialise loops over an array or a field, and complain of each: `ranged` comes
    before, and leaves only those over a single element, and over fields that are sparse.
    """
    twin = copied(tree)
    twin.body = _body(twin.body)
    return twin


def _body(statements: list[ast.stmt]) -> list[ast.stmt]:
    body: list[ast.stmt] = []
    for statement in statements:
        if is_setting(statement):
            continue  # settings of the parallel loop, such as block_dim, mean nothing here
        if is_static(statement):
            statement.body = _body(statement.body)
        elif isinstance(statement, ast.For) and _is_counted(statement):
            body.append(parse_statement("_lang.loop_config(serialize=True)"))
        body.append(statement)
    return body


def _is_counted(loop: ast.For) -> bool:
    """Whether a loop runs over a range."""
    counted = loop.iter
    if isinstance(counted, ast.Call) and called(counted) == "grouped":
        counted = counted.args[0]
    return called(counted) in ("range", "ndrange")
