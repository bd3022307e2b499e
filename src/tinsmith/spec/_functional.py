"""The functional form of a spec: arrays updated in place become an input and an output."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from ._dims import Spec


def make_functional(spec: Spec, taken: Callable[[], Collection[str]]) -> tuple[Spec, Mapping[str, str]]:
    """Return a spec without `inout`, and the names of the new values by those of the old ones.

    The input keeps its name and holds the old value; the first outputs are the new values, `state_after`.

    Args:
        spec: any spec.
        taken: returns the names that already have a meaning in the kernels.

    Example:
        >>> from tinsmith.spec import parse
        >>> found, names = make_functional(parse("x[n], inout state[n] -> y[n]"), list)
        >>> str(found), names
        ('x[n], state[n] -> state_after[n], y[n]', {'state': 'state_after'})
    """
    if not spec.updated_inputs:
        return spec, {}
    known = {*taken(), *(item.name for item in spec.items)}
    names: dict[str, str] = {}
    for item in spec.updated_inputs:
        name = f"{item.name}_after"
        while name in known:
            name += "_"
        known.add(name)
        names[item.name] = name
    inputs = tuple(replace(item, is_updated=False) for item in spec.inputs)
    after = tuple(replace(item, name=names[item.name], label="", is_updated=False) for item in spec.updated_inputs)
    return Spec(spec.text, spec.scratch_text, inputs, after + spec.outputs, spec.scratch), names
