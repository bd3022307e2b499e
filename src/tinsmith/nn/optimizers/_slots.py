"""Slots: parameters as configurations see them, in order, each a network's matrix or not.

tiny-cuda-nn treats the matrices of a network and all else (the tables of an encoding) differently:
`non_matrix_l2_reg`, `skip_zero_grad_non_matrix_params` and the like.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from ..._errors import ArgumentError, refusal


@dataclasses.dataclass(frozen=True)
class Slot:
    """A parameter, and whether it is (or stacks) matrices of a network.

    Where a parameter stacks networks, `networks` is how many: a configuration counts the numbers of one. Where a flat
    one begins with several matrices, `matrix_shapes` has their shapes; what is left of it is not a matrix.
    """

    parameter: torch.Tensor
    matrix: bool
    networks: int = 1
    matrix_shapes: tuple[tuple[int, int], ...] = ()

    @property
    def size(self) -> int:
        """Its numbers, in one network."""
        return self.parameter.numel() // self.networks


Params = torch.nn.Module | Iterable[torch.Tensor] | Iterable[Mapping[str, Any]]


def slots(params: Params) -> list[Slot]:
    """The slots of a module, of tensors, or of groups such as `{"params": [...], "matrix": False}`."""
    all_slots = list(_of_module(params) if isinstance(params, torch.nn.Module) else _of_items(params))
    if not all_slots:
        raise ArgumentError(refusal("There is nothing to optimize: the parameter list is empty.", [], "Pass a module."))
    return all_slots


def _of_module(module: torch.nn.Module) -> Iterator[Slot]:
    """A module may say by attributes what its own parameters are: `holds_matrices`, `matrix_shapes`."""
    seen: set[int] = set()
    for part in module.modules():
        for parameter in part.parameters(recurse=False):
            if id(parameter) not in seen and parameter.requires_grad:
                seen.add(id(parameter))
                matrix = getattr(part, "holds_matrices", parameter.ndim >= 2)
                shapes = getattr(part, "matrix_shapes", ())
                yield Slot(parameter, matrix, matrix_shapes=shapes)


def _of_items(items: Iterable[Any]) -> Iterator[Slot]:
    for item in items:
        group = item if isinstance(item, Mapping) else {"params": item}
        parameters = [group["params"]] if isinstance(group["params"], torch.Tensor) else group["params"]
        for parameter in parameters:
            yield Slot(parameter, group.get("matrix", parameter.ndim >= 2))
