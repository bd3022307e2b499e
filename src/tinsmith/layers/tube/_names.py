"""Names that the kernels of a Tube can share: those of its tensors, as far as they are identifiers.

A Tube links kernels by position, under names of any kind; an op links them by parameter names. So
each kernel's parameters get new names, which must mean nothing else in any of the kernels.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...frontend import read
from .._identifiers import OURS, make_identifier
from ._blueprint import Blueprint, list_match_ids
from ._dims import DimID


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
        """Return the name of a dim of a tensor whose shape is calculated."""
        name_of_size = f"{self.tensors[name]}_{axis}"
        while name_of_size in self.taken:
            name_of_size += "_"
        return name_of_size


def names_of(blueprint: Blueprint) -> Names:
    """Choose identifiers for all tensors, arguments and dims of an op."""
    used = (read(part.function).all_names() - part.tensor_names.keys() for part in blueprint.kernels)
    taken = set(OURS).union(*used)
    tensors = {name: make_identifier(name, taken) for name in blueprint.tensors}
    counts = [parameter.name for part in blueprint.kernels for parameter in part.others]
    kernels = []
    for part in blueprint.kernels:
        names = {parameter: tensors[name] for parameter, name in part.tensor_names.items()}
        for parameter in part.others:
            is_shared = counts.count(parameter.name) > 1
            names[parameter.name] = (
                make_identifier(f"{part.name}_{parameter.name}", taken) if is_shared else parameter.name
            )
        kernels.append(names)
    matches = {dim_id: make_identifier(str(dim_id), taken) for dim_id in list_match_ids(blueprint.inputs)}
    batch = make_identifier("batch", taken)
    return Names(tensors, tuple(kernels), matches, batch, frozenset(taken))
