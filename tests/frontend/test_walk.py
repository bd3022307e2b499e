"""Walking trees as `ast.walk` does, without what no analysis asks for; and copying them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tinsmith.engines import copy_node, walk

HERE = Path(__file__)
LEFT_OUT = (ast.expr_context, ast.operator, ast.boolop, ast.unaryop, ast.cmpop)


PATHS = [*sorted(HERE.parents[1].rglob("test_contract*.py")), HERE]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_nodes_and_their_order_are_those_of_ast(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert walk(tree) == [node for node in ast.walk(tree) if not isinstance(node, LEFT_OUT)]


EVERY_KIND = ast.parse(
    "@a\nclass C(b, metaclass=c):\n  async def f(self, x: d = e, *y: g, z: h = i, **k: j) -> l:\n"
    "    try:\n      [m async for m in n if o]\n    except p as q:\n      raise r from s\n    else:\n      del t\n"
    "    finally:\n      with u as v: (w := lambda w2: w3)\n    match x:\n      case [1, *a1] if b1: yield c1\n"
    "      case {'k': d1, **e1}: return f'{g1!r:{h1}}'\n      case C(i1=j1) | k1.l1: await m1[n1:o1:p1]\n"
)


def test_every_kind_of_statement_is_visited() -> None:
    assert walk(EVERY_KIND) == [node for node in ast.walk(EVERY_KIND) if not isinstance(node, LEFT_OUT)]


@pytest.mark.parametrize("path", [*PATHS, None], ids=lambda path: path.name if path else "every kind")
def test_a_copy_says_the_same_and_shares_nothing_that_can_be_changed(path: Path | None) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8")) if path else EVERY_KIND
    twin = copy_node(tree)
    assert ast.dump(twin, include_attributes=True) == ast.dump(tree, include_attributes=True)
    lists = [id(part) for node in walk(tree) for part in vars(node).values() if isinstance(part, list)]
    shared = {*map(id, walk(tree)), *lists}
    assert not shared & {*map(id, walk(twin))}
    assert not shared & {id(part) for node in walk(twin) for part in vars(node).values() if isinstance(part, list)}
