"""Names that the kernels of a Tube can share: those of its tensors, as far as they are identifiers.

A Tube links kernels by position, under names of any kind; an op links them by parameter names. So
each kernel's parameters get new names, which must mean nothing else in any of the kernels.
"""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Iterable
from dataclasses import dataclass

from ..source import read
from ._dims import DimID
from ._tube_blueprint import Blueprint, match_ids
from ._tube_parts import KernelPart

_OURS = frozenset({"self", "_lang", "_batch"})  # what rewritten kernels call things of the bridge


@dataclass(frozen=True)
class Names:
    """The identifiers of one Tube.

    Attributes:
        tensors: of every tensor, by its registered name.
        kernels: of every kernel's parameters, by its own name for them.
        matches: of every MatchDim.
        batch: of BatchDim.
        taken: all of these, and all that kernels use otherwise.
    """

    tensors: dict[str, str]
    kernels: tuple[dict[str, str], ...]
    matches: dict[DimID, str]
    batch: str
    taken: frozenset[str]

    def size(self, name: str, axis: int) -> str:
        """What a dim of a tensor is called whose shape is calculated."""
        found = f"{self.tensors[name]}_{axis}"
        while found in self.taken:
            found += "_"
        return found


def names_of(blueprint: Blueprint) -> Names:
    """Identifiers for everything that an op calls by name."""
    taken = set(_OURS).union(*(_used(part) - part.linked.keys() for part in blueprint.kernels))
    tensors = {name: _new(name, taken) for name in blueprint.tensors}
    counts = [parameter.name for part in blueprint.kernels for parameter in part.others]
    kernels = []
    for part in blueprint.kernels:
        names = {parameter: tensors[name] for parameter, name in part.linked.items()}
        for parameter in part.others:
            is_shared = counts.count(parameter.name) > 1
            names[parameter.name] = _new(f"{part.name}_{parameter.name}", taken) if is_shared else parameter.name
        kernels.append(names)
    matches = {dim_id: _new(str(dim_id), taken) for dim_id in match_ids(blueprint.inputs)}
    batch = _new("batch", taken)
    return Names(tensors, tuple(kernels), matches, batch, frozenset(taken))


def _used(part: KernelPart) -> set[str]:
    """Every name in a kernel's source."""
    tree = read(part.function).tree
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return names | {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}


def _new(wish: str, taken: set[str]) -> str:
    """An identifier as near to `wish` as may be, which is then taken."""
    word = re.sub(r"\W", "_", wish, flags=re.ASCII).lstrip("_0123456789") or "t"
    name = word if not keyword.iskeyword(word) else f"{word}_"
    tries: Iterable[str] = (f"{name}_{count}" for count in range(2, 1 << 30))
    found = name if name not in taken else next(one for one in tries if one not in taken)
    taken.add(found)
    return found
