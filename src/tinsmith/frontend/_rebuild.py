"""A user's kernel with a changed tree, which looks names up where the old one did."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from types import CellType, CodeType, FunctionType
from typing import Any

from ..codegen import keep_file, write_file
from ..engines import parse_statement
from ._read import Source


def rebuild_function(source: Source, tree: ast.FunctionDef, names: Mapping[str, Any]) -> Callable[..., Any]:
    """A function from a changed tree that looks names up where the old one does, as they are then.

    Args:
        source: the old one.
        tree: what becomes of it. Its lines stay those of the user's file: `read` gives this tree.
        names: those that it sees besides; they have no parameter of the old one's that the tree has left out. A value
            that is a cell is used as it is.
    """
    old = source.function
    cells = dict(zip(old.__code__.co_freevars, old.__closure__ or (), strict=True))
    cells |= {name: value if isinstance(value, CellType) else CellType(value) for name, value in names.items()}
    around = parse_statement(f"def around({', '.join(sorted(cells))}): pass")
    assert isinstance(around, ast.FunctionDef)
    around.body = [tree]
    text, path = write_file(around, source.name)
    module = compile(text, path, "exec", dont_inherit=True)
    code = _code(_code(module, "around"), source.name)
    made = FunctionType(code, old.__globals__, source.name, old.__defaults__, tuple(cells[n] for n in code.co_freevars))
    made.__kwdefaults__ = old.__kwdefaults__
    made.__annotations__ = dict(old.__annotations__)
    keep_file(made, path, text)
    vars(made)["tinsmith_source"] = Source(made, tree, source.path, source_names=source.source_names)
    return made


def _code(outer: CodeType, name: str) -> CodeType:
    return next(one for one in outer.co_consts if isinstance(one, CodeType) and one.co_name == name)
