"""Build a function from a user's kernel and a changed tree. It looks names up where the kernel does."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from types import CellType, CodeType, FunctionType
from typing import Any

from ..codegen import keep_file, write_file
from ..engines import parse_statement
from ._read import Source


def rebuild_function(source: Source, tree: ast.FunctionDef, names: Mapping[str, Any]) -> Callable[..., Any]:
    """Build a function from a changed tree that looks names up where the old one does, at the time of use.

    Args:
        source: the old one.
        tree: the changed tree, with the lines of the user's file. `read` of the new function returns it.
        names: the values of further names. A value that is a cell is used as it is.
    """
    old = source.function
    cells = dict(zip(old.__code__.co_freevars, old.__closure__ or (), strict=True))
    cells |= {name: value if isinstance(value, CellType) else CellType(value) for name, value in names.items()}
    # Its parameters make captured names free variables of the function inside, whose code is taken and given the
    # cells. `around` itself is never called.
    around = parse_statement(f"def around({', '.join(sorted(cells))}): pass")
    assert isinstance(around, ast.FunctionDef)
    around.body = [tree]
    text, path = write_file(around, source.name)
    # Without `dont_inherit` the `from __future__` of this file would apply to the user's function.
    module = compile(text, path, "exec", dont_inherit=True)
    code = _code(_code(module, "around"), source.name)
    made = FunctionType(code, old.__globals__, source.name, old.__defaults__, tuple(cells[n] for n in code.co_freevars))
    made.__kwdefaults__ = old.__kwdefaults__
    # A copy: `LiveFieldPasser.rebuild` adds to it.
    made.__annotations__ = dict(old.__annotations__)
    keep_file(made, path, text)
    vars(made)["tinsmith_source"] = Source(made, tree, source.path, source_names=source.source_names)
    return made


def _code(outer: CodeType, name: str) -> CodeType:
    return next(one for one in outer.co_consts if isinstance(one, CodeType) and one.co_name == name)
