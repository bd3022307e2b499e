"""Fields as parameters: a kernel that names its fields itself becomes one that is given arrays.

    def run(self, y):                              def run(self, y, x):
        for i in self.x:                               for i in x:
            self.put(i, self.x[i] * y[i])     ->           put(x, i, x[i] * y[i])

A function that uses such a field, as `self.put` does, is built again with a parameter for it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...engines import Engine, FieldKey, Language
from .._field_arguments import LiveFieldPasser, pass_fields_as_arrays, rebuild_function
from .._read import Source, Written


def pass_fields(source: Source, engine: Engine, objects: Mapping[str, Any], arrays: Mapping[FieldKey, str]) -> Source:
    """Return a kernel in which fields are parameters. Functions that use these fields are given them.

    Args:
        source: the kernel.
        engine: the engine of the fields and functions.
        objects: the Python objects that parameters stand for, such as `self`.
        arrays: the parameters that replace the fields, by the fields' `FieldFacts.key`.
    """
    rewritten = pass_fields_as_arrays(source.with_objects(objects), _Fields(engine, arrays))
    tree = rewritten.tree
    known = {argument.arg for argument in tree.args.args}
    # A field that the kernel is also given, as a template, has a parameter already.
    tree.args.args += [ast.arg(name) for name in dict.fromkeys(arrays.values()) if name not in known]
    function = rebuild_function(source, tree, rewritten.names) if rewritten.names else source.function
    return replace(source, function=function, tree=tree)


def restore_fields(source: Source, written: Written, rename: Callable[[str], str]) -> Source:
    """Return the kernel on fields as its author wrote it, with the parameters that a kernel on arrays has besides them.

    Objects come first. Other parameters that have another name in the kernel on arrays are locals, assigned first.

    Args:
        source: the kernel on arrays.
        written: what it was made from.
        rename: gives the name in `source` of what `written` calls so.
    """
    own = written.source.tree
    arrays = {rename(name) for name in written.fields}
    arguments = [ast.arg(name) for name in written.objects]
    arguments += [one for one in source.tree.args.args if one.arg not in arrays | written.objects.keys()]
    pairs = [(name, rename(name)) for name in written.source.parameters if name not in written.objects]
    body: list[ast.stmt] = [
        ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], ast.Name(given, ast.Load())), own)
        for name, given in pairs
        if name != given
    ]
    body += own.body
    made = ast.FunctionDef(own.name, ast.arguments([], arguments, None, [], [], None, []), body, [])
    return replace(written.source, tree=ast.fix_missing_locations(ast.copy_location(made, own)))


class _Fields(LiveFieldPasser):
    """Fields that become array parameters."""

    def __init__(self, engine: Engine, arrays: Mapping[FieldKey, str]) -> None:
        super().__init__(engine)
        self._arrays = arrays

    def array(self, source: Source, node: ast.expr) -> str:
        value = source.value(node)
        # A field of structs is not an array itself: its members are (`members`).
        if not self.engine.is_field(value) or not any(leaf is value for _, leaf in self.engine.leaf_fields(value, "")):
            return ""
        return self._arrays.get(self.engine.field_facts(value, ast.unparse(node)).key, "")

    def members(self, source: Source, node: ast.expr) -> Sequence[str]:
        value = source.value(node)
        if not self.engine.is_field(value):
            return ()
        leaves = [leaf for _, leaf in self.engine.leaf_fields(value, "")]
        if any(leaf is value for leaf in leaves):
            return ()
        names = (self._arrays.get(self.engine.field_facts(leaf, "member").key, "") for leaf in leaves)
        return [name for name in names if name]

    def source_of(self, callee: Any) -> Source | None:
        """Return None for a real function: it is compiled by itself and cannot take a template."""
        return None if Language(self.engine).is_real(callee) else super().source_of(callee)
