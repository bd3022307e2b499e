"""Find what a function body does with fields: `roles_of`, with a name in place of each field.

A body means a field by a text, `x`, `self.x` or `xs[0]`. The caller knows the values and says which texts mean fields,
so that the element `x[0]` and a field in a list are not confused.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ...engines import Engine, copy_node, walk
from .._nodes import replace_nodes, root
from .._read import Source
from ._references import find_lent_names
from ._role_walk import roles_of
from ._roles import Access, Roles


class MemberUse(NamedTuple):
    """What a body does with a member of the elements of a field, "" for elements as a whole.

    Attributes:
        written_at: where it is first stored to; "" if no store is known.
        is_read: whether its values are read.
        is_replaced: whether it gets values that are not sums of the old value and something.
    """

    member: str
    written_at: str
    is_read: bool
    is_replaced: bool


class FieldUse(NamedTuple):
    """A field that a kernel or one of its functions uses, by the name that it has there.

    Attributes:
        name: what the function calls it.
        field: the engine's object.
        function: the function that uses it first, which is at `place`.
        place: where.
        written_at: where it is first stored to; "" if no store is known.
        is_read: whether values of elements are read.
        is_replaced: whether elements get values that are not sums of the old value and something.
        is_followed: whether all uses are known. A function without source that gets the field may do anything.
        members: of a field of structs, what happens to which.
    """

    name: str
    field: Any
    function: str
    place: str
    written_at: str
    is_read: bool
    is_replaced: bool
    is_followed: bool
    members: tuple[MemberUse, ...] = ()

    @property
    def is_written(self) -> bool:
        """True if the field may be stored to."""
        return bool(self.written_at) or not self.is_followed

    def of_member(self, member: str, members: Collection[str]) -> FieldUse:
        """Return the use of one of the members, "y.z", that a field of structs has."""
        own = [one for one in self.members if _may_touch(one.member, member, members)]
        if not self.is_followed:
            return self
        return self._replace(
            written_at=next((one.written_at for one in own if one.written_at), ""),
            is_read=any(one.is_read for one in own),
            is_replaced=any(one.is_replaced for one in own),
        )


def _may_touch(used: str, member: str, members: Collection[str]) -> bool:
    """Return True if a use of `x[i].used` may touch this member of a struct. Another name than a member's may do."""

    def overlaps(one: str) -> bool:
        return not used or f"{used}.".startswith(f"{one}.") or f"{one}.".startswith(f"{used}.")

    return overlaps(member) or not any(map(overlaps, members))


class BodyUse(NamedTuple):
    """What one body does with a field, or with the gradient of one; the attributes are those of `FieldUse`."""

    written_at: str
    is_read: bool
    is_replaced: bool
    is_followed: bool
    members: tuple[MemberUse, ...] = ()


def uses_in_body(
    source: Source, names: Mapping[str, str], objects: Mapping[str, Any], engine: Engine
) -> dict[str, BodyUse]:
    """Return what a body does with fields, by name, also through functions that get a field or an element of one.

    Args:
        source: the function.
        names: names of fields by the texts that the body has for them and for their members.
        objects: what parameters stand for, where that is a Python object.
        engine: whose functions are followed.
    """

    def rename(node: ast.AST) -> ast.AST | None:
        # Most nodes are no chains that begin like one of these, and the text of an expression takes long.
        is_chain = isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and root(node) in roots
        name = names.get(ast.unparse(node)) if is_chain else None
        return None if name is None else ast.Name(name, ast.Load())

    if not names:
        return {}
    roots = {re.split(r"[.\[]", text, maxsplit=1)[0] for text in names}
    plain = replace(source, tree=replace_nodes(copy_node(source.tree), rename), given={**source.given, **objects})
    # `roles_of` follows calls of functions with source; `lent` is what other calls get.
    lent = find_lent_names(plain, engine, to_known=False)
    updates = (node.target for node in plain.nodes if isinstance(node, ast.AugAssign))
    updated = frozenset(part for target in updates for part in walk(target))
    roles = roles_of(plain, names.values(), engine)
    return {name: _use_of(role, updated, is_lent=name in lent) for name, role in roles.items()}


def _use_of(role: Roles, updated: frozenset[ast.AST], *, is_lent: bool) -> BodyUse:
    """Summarize the roles of a field. `updated` are the nodes in targets of `x[i] *= v`, whose reads do not count."""
    is_followed = not (role.escapes or is_lent)
    accesses: dict[str, list[Access]] = {}
    for one in role.accesses:
        accesses.setdefault(one.member, []).append(one)
    members = tuple([_use_of_member(member, uses, updated) for member, uses in accesses.items()])
    return BodyUse(
        next((one.written_at for one in members if one.written_at), ""),
        any(one.is_read for one in members) or not is_followed,
        any(one.is_replaced for one in members) or not is_followed,
        is_followed,
        members,
    )


def _use_of_member(member: str, accesses: Sequence[Access], updated: frozenset[ast.AST]) -> MemberUse:
    changes = [one for one in accesses if one.kind != "read"]
    is_loaded = any(one.node not in updated for one in accesses if one.kind == "read")
    # `x[i] = x[i] + e` is an addition to roles, but the body loads the old value for it.
    is_used = is_loaded or any(one.is_used or (one.kind == "add" and one.is_plain) for one in changes)
    is_replaced = any(one.kind == "write" for one in changes)
    return MemberUse(member, changes[0].place if changes else "", is_used, is_replaced)
