"""Slots: the parameters of an optimizer in order, each marked as a matrix of a network or not.

tiny-cuda-nn treats the matrices of a network and other parameters (the tables of an encoding) differently:
`non_matrix_l2_reg`, `skip_zero_grad_non_matrix_params` and similar options.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from ..._errors import ArgumentError, refusal


@dataclasses.dataclass(frozen=True)
class Slot:
    """A parameter, and whether it is a matrix of a network, or a stack of such matrices.

    Attributes:
        parameter: the parameter.
        matrix: True if it is a matrix, or stacks matrices of several networks.
        networks: the number of networks that it stacks; a configuration counts the elements of one.
        matrix_shapes: the shapes of the matrices that a flat parameter begins with; its remainder is not a matrix.
    """

    parameter: torch.Tensor
    matrix: bool
    networks: int = 1
    matrix_shapes: tuple[tuple[int, int], ...] = ()

    @property
    def size(self) -> int:
        """The number of the parameter's elements for one network."""
        return self.parameter.numel() // self.networks


Params = torch.nn.Module | Iterable[torch.Tensor] | Iterable[Mapping[str, Any]]


def list_slots(params: Params) -> list[Slot]:
    """Return the slots of a module, of tensors, or of groups such as `{"params": [...], "matrix": False}`.

    Raises:
        ArgumentError: there are no parameters.
    """
    all_slots = list(_iterate_module(params) if isinstance(params, torch.nn.Module) else _iterate_items(params))
    if not all_slots:
        raise ArgumentError(refusal("There is nothing to optimize: the parameter list is empty", [], "Pass a module."))
    return all_slots


def _iterate_module(module: torch.nn.Module) -> Iterator[Slot]:
    """Yield a slot for each parameter of a module that requires a gradient.

    The attributes `holds_matrices` and `matrix_shapes` of a submodule, if it has them, describe its own parameters.
    """
    seen: set[int] = set()
    for part in module.modules():
        for parameter in part.parameters(recurse=False):
            if id(parameter) not in seen and parameter.requires_grad:
                seen.add(id(parameter))
                matrix = getattr(part, "holds_matrices", parameter.ndim >= 2)
                shapes = getattr(part, "matrix_shapes", ())
                yield Slot(parameter, matrix, matrix_shapes=shapes)


def _iterate_items(items: Iterable[Any]) -> Iterator[Slot]:
    for item in items:
        group = item if isinstance(item, Mapping) else {"params": item}
        parameters = [group["params"]] if isinstance(group["params"], torch.Tensor) else group["params"]
        for parameter in parameters:
            yield Slot(parameter, group.get("matrix", parameter.ndim >= 2))
