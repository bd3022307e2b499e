"""Slots: the parameters of an optimizer in order, or pieces of them, each marked as a matrix of a network or not.

tiny-cuda-nn treats the matrices of a network and other parameters (the tables of an encoding) differently:
`non_matrix_l2_reg`, `skip_zero_grad_non_matrix_params` and similar options.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from ..._errors import ArgumentError, refusal
from ._gradients import clear, gradient, lend_gradients
from ._wrappers import Wrapper


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


@dataclasses.dataclass(frozen=True)
class Piece:
    """A contiguous piece of a flat parameter, as a tensor for the optimizer.

    Attributes:
        slot: the piece's slot, whose tensor is a leaf in the parameter's memory.
        whole: the flat parameter.
        begin: the index of the piece's first element in the parameter.
    """

    slot: Slot
    whole: torch.Tensor
    begin: int

    def view(self, flat: torch.Tensor) -> torch.Tensor:
        """Return the view of this piece in the flat parameter, or in a tensor of its size such as the gradient."""
        return _view_piece(flat, self.begin, tuple(self.slot.parameter.shape))


def split_slot(slot: Slot) -> list[Piece]:
    """Return the pieces of a flat parameter: one for each of its matrices, and one for the remainder, if any."""
    whole, begin = slot.parameter, 0
    shapes: list[tuple[int, ...]] = [*slot.matrix_shapes]
    left = whole.numel() - sum(map(math.prod, shapes))
    pieces: list[Piece] = []
    for shape in [*shapes, (left,)] if left else shapes:
        tensor = _view_piece(whole, begin, shape).requires_grad_()
        pieces.append(Piece(Slot(tensor, matrix=len(pieces) < len(shapes)), whole, begin))
        begin += math.prod(shape)
    return pieces


def _view_piece(flat: torch.Tensor, begin: int, shape: tuple[int, ...]) -> torch.Tensor:
    return flat.detach()[begin : begin + math.prod(shape)].view(shape)


class Divided(Wrapper):
    """A wrapper that gives each piece its part of the parameter's gradient while the nested optimizer steps.

    tiny-cuda-nn's optimizers treat matrices and tables differently, and Shampoo and Novograd treat each matrix
    separately; torch's optimizers see whole parameters only. The pieces are leaf tensors that are views of the
    parameter's memory, so nothing is copied. The groups hold the pieces rather than the parameters.
    """

    def __init__(self, nested: torch.optim.Optimizer, pieces: Sequence[Piece]) -> None:
        super().__init__(nested)
        self.pieces = tuple(pieces)

    def _step(self) -> None:
        self._match_parameters()
        whole_gradients = [gradient(piece.whole) for piece in self.pieces]
        gradients = [
            None if g is None else piece.view(g) for piece, g in zip(self.pieces, whole_gradients, strict=True)
        ]
        with lend_gradients([piece.slot.parameter for piece in self.pieces], gradients):
            self.nested.step()

    def weights(self) -> list[torch.Tensor]:
        """Return the weights for inference, one tensor for each piece."""
        self._match_parameters()
        return super().weights()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of the pieces and of the whole parameters: set them to None or to 0."""
        super().zero_grad(set_to_none)
        clear([piece.whole for piece in self.pieces], set_to_none)

    def _match_parameters(self) -> None:
        """Point the pieces to the parameters' current memory, which `module.to(...)` replaces."""
        for piece in self.pieces:
            now, tensor = piece.view(piece.whole), piece.slot.parameter
            if now.data_ptr() != tensor.data_ptr() or now.dtype != tensor.dtype:
                tensor.data = now
