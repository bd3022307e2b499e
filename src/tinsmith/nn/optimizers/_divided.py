"""Divided: an optimizer over pieces of flat parameters, which contain several matrices and tables.

tiny-cuda-nn's optimizers treat matrices and tables differently, and Shampoo and Novograd treat each matrix separately;
torch's optimizers see whole parameters only. The pieces are leaf tensors that are views of the parameter's memory, so
nothing is copied.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ._gradients import clear, gradient, lend_gradients
from ._slots import Slot
from ._wrapper import Wrapper


@dataclass(frozen=True)
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

    Its groups hold the pieces rather than the parameters.
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
