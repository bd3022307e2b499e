"""A failing kernel made small: statements go, blocks open, expressions become their parts, while it still fails."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace

from fuzz._grammar import Program
from fuzz._parts import KERNELS

Fails = Callable[[Program], bool]


def shrunk(program: Program, fails: Fails, tries: int = 600) -> Program:
    """Shrink `program` to the smallest kernel found for which `fails` still holds."""
    best, before = program, ""
    while best.source != before and tries > 0:
        before = best.source
        for step in (_without_statement, _opened, _simpler):
            place = 0
            while tries > 0 and place < _size(best.source):
                smaller = _changed(best.source, step, place)
                if smaller is None:
                    place += 1
                    continue
                tries -= 1
                candidate = replace(best, source=smaller)
                if fails(candidate):
                    best = candidate  # the same place holds something else now
                else:
                    place += 1
    return best


def _size(source: str) -> int:
    return sum(1 for _ in ast.walk(ast.parse(source)))


def _changed(source: str, step: Callable[[ast.AST, list[ast.AST]], bool], place: int) -> str | None:
    """Remove one thing from the source, at a place; None if nothing can be removed there."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    return _text(tree) if step(nodes[place], nodes) else None


def _text(tree: ast.Module) -> str:
    """Print the source without functions that are no longer called."""
    kept = tree.body
    while True:
        names = {node.id for part in kept for node in ast.walk(part) if isinstance(node, ast.Name)}
        fewer = [part for part in kept if getattr(part, "name", "") in names | {*KERNELS}]
        if fewer == kept:
            return ast.unparse(ast.Module(kept, [])) + "\n"
        kept = fewer


def _bodies(nodes: list[ast.AST]) -> Iterator[list[ast.stmt]]:
    for node in nodes:
        for name in ("body", "orelse"):
            if isinstance(block := getattr(node, name, None), list):
                yield block


def _without_statement(node: ast.AST, nodes: list[ast.AST]) -> bool:
    """Remove a statement, but not `loop_config`, without which iterations would race."""
    for block in _bodies(nodes):
        if isinstance(node, ast.stmt) and node in block and "loop_config" not in ast.unparse(node).partition("\n")[0]:
            block.remove(node)
            return bool(block) or not any(getattr(owner, "body", None) is block for owner in nodes)
    return False


def _opened(node: ast.AST, nodes: list[ast.AST]) -> bool:
    """Replace a loop or branch by its body."""
    if not isinstance(node, ast.If | ast.For | ast.While):
        return False
    for block in _bodies(nodes):
        if node in block:
            place = block.index(node)
            block[place : place + 1] = node.body
            return True
    return False


def _simpler(node: ast.AST, nodes: list[ast.AST]) -> bool:
    """Replace an expression by one of its parts, or by a number."""
    if not isinstance(node, ast.BinOp | ast.Call | ast.IfExp | ast.BoolOp | ast.UnaryOp | ast.Compare):
        return False
    parts = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
    parts = parts[1:] if isinstance(node, ast.Call) else parts
    return bool(parts) and _put(node, max(parts, key=lambda part: len(ast.unparse(part))), nodes)


def _put(node: ast.AST, part: ast.AST, nodes: list[ast.AST]) -> bool:
    for owner in nodes:
        for name, value in ast.iter_fields(owner):
            if value is node:
                setattr(owner, name, part)
                return True
            if isinstance(value, list) and any(one is node for one in value):
                value[:] = [part if one is node else one for one in value]
                return True
    return False
