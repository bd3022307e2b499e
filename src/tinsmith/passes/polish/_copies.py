"""Copies and sizes propagated, and common loads eliminated: one name for one value, and one load of an element.

    a = x[i]                        a = x[i]
    b = x[i]                ->      y[i] = a * a
    y[i] = a * b

The copy `b = a` that the second load becomes is propagated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...analyses import DefinitionsAndUses, definitions, single_definitions
from ...ir import Type, nodes, walk

Loaded = Mapping[nodes.Load, nodes.Local]


def propagate_copies(body: Sequence[nodes.Stmt], kinds: Mapping[str, Type]) -> nodes.Block:
    """Return statements without `a = b` where `b` keeps its value as long as `a` is read.

    That is so where `a` gets a value nowhere else, `b` nowhere after it in the text, and both live in one iteration.

    Args:
        body: the statements.
        kinds: types of locals.
    """
    table = DefinitionsAndUses(body)
    values: dict[str, nodes.Expr] = {}
    for one in walk.statements(body):
        if not isinstance(one, nodes.Assign) or not isinstance(one.value, nodes.Local):
            continue
        # A copy of a copy is one of the first local.
        source = values.get(one.value.name, one.value)
        assert isinstance(source, nodes.Local)
        # An assignment to a local of another type is a cast.
        if kinds[one.name] == source.type and table.is_copy(one.name, source.name):
            values[one.name] = source

    if not values:
        return tuple(body)

    def change(one: nodes.Stmt) -> Sequence[nodes.Stmt]:
        if isinstance(one, nodes.Assign) and one.name in values:
            return ()
        if values.keys().isdisjoint(walk.locals_read(one)):
            return (one,)
        return (walk.with_expressions(one, lambda expr: walk.substitute(expr, values)),)

    return walk.rewrite(body, change)


def eliminate_common_loads(body: Sequence[nodes.Stmt], kinds: Mapping[str, Type]) -> nodes.Block:
    """Return statements with `b = x[i]` as `b = a` if `a = x[i]` comes before it on every path and `x` never changes.

    Args:
        body: the statements.
        kinds: types of locals.
    """
    changed = frozenset(walk.find_changed(body))
    table = DefinitionsAndUses(body)

    def holds(name: str, load: nodes.Load) -> bool:
        """Return True if a local has the value of the load wherever both can be read."""
        definition = table.single(name)
        if definition is None or kinds[name] != load.type:
            return False
        # Changed anywhere in the statements: an index does not tell whether it is this element, nor a loop whether it
        # is later.
        if not changed.isdisjoint(walk.arrays_in([load])):
            return False
        return all(table.is_fixed_from(definition[0], local) for local in walk.locals_in([load]))

    def block(statements: nodes.Block, outer: Loaded) -> nodes.Block:
        # A copy: what an arm or a loop's body loads is not loaded on every path to what follows.
        known = dict(outer)
        rewritten: list[nodes.Stmt] = []
        for one in statements:
            if isinstance(one, nodes.Assign) and isinstance(one.value, nodes.Load):
                load = one.value
                if load in known:
                    one = replace(one, value=known[load])
                elif holds(one.name, load):
                    known[load] = nodes.Local(one.name, load.type)
            rewritten.append(walk.with_bodies(one, lambda inner: block(inner, known)))
        return walk.keep_block(statements, rewritten)

    return block(tuple(body), {})


def inline_sizes(body: nodes.Block) -> nodes.Block:
    """Return statements without the locals of the top level that are computed from sizes and arguments.

        n = x.shape[0] - 1
        for i in range(n):          ->      for i in range(x.shape[0] - 1):
            y[i] = x[i + 1] * n                 y[i] = x[i + 1] * (x.shape[0] - 1)

    So bounds and indices are expressions of sizes and arguments, which analyses compare.
    """
    single = single_definitions(definitions(body))
    known: dict[str, nodes.Expr] = {}
    kept: list[nodes.Stmt] = []
    for one in body:
        # First, since a local that is computed from another size follows from sizes only once that is in its place.
        if known:
            one = walk.transform(one, lambda expr: walk.substitute(expr, known))
        if isinstance(one, nodes.Assign) and one.name in single and walk.is_invariant(one.value):
            known[one.name] = one.value
        else:
            kept.append(one)
    return tuple(kept)
