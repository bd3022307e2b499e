"""Divided: an optimizer over the pieces of flat parameters, which hold matrices and tables one after the other.

A configuration's optimizer treats matrices and tables differently, and Shampoo and Novograd each matrix by itself;
torch's optimizers know whole parameters only. The pieces are leaves in the parameter's memory: nothing is copied.
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
    """Some numbers of a flat parameter, as a tensor of their own.

    Attributes:
        slot: the piece; its tensor is a leaf in the parameter's memory.
        whole: the parameter.
        begin: where in it the piece begins.
    """

    slot: Slot
    whole: torch.Tensor
    begin: int

    def of(self, flat: torch.Tensor) -> torch.Tensor:
        """The same numbers of the parameter or of its gradient, in their memory."""
        return _cut(flat, self.begin, tuple(self.slot.parameter.shape))


def pieces_of(slot: Slot) -> list[Piece]:
    """A piece for each matrix of a flat parameter, and one for what is left."""
    whole, begin = slot.parameter, 0
    shapes: list[tuple[int, ...]] = [*slot.matrix_shapes]
    left = whole.numel() - sum(map(math.prod, shapes))
    pieces: list[Piece] = []
    for shape in [*shapes, (left,)] if left else shapes:
        tensor = _cut(whole, begin, shape).requires_grad_()
        pieces.append(Piece(Slot(tensor, matrix=len(pieces) < len(shapes)), whole, begin))
        begin += math.prod(shape)
    return pieces


def _cut(flat: torch.Tensor, begin: int, shape: tuple[int, ...]) -> torch.Tensor:
    return flat.detach()[begin : begin + math.prod(shape)].view(shape)


class Divided(Wrapper):
    """Lends each piece its part of the parameter's gradient while the nested optimizer steps.

    Its groups hold the pieces, not the parameters they are of.
    """

    def __init__(self, nested: torch.optim.Optimizer, pieces: Sequence[Piece]) -> None:
        super().__init__(nested)
        self.pieces = tuple(pieces)

    def _step(self) -> None:
        self._follow()
        whole_gradients = [gradient(piece.whole) for piece in self.pieces]
        gradients = [None if g is None else piece.of(g) for piece, g in zip(self.pieces, whole_gradients, strict=True)]
        with lend_gradients([piece.slot.parameter for piece in self.pieces], gradients):
            self.nested.step()

    def weights(self) -> list[torch.Tensor]:
        """The weights meant for inference, piece by piece."""
        self._follow()
        return super().weights()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears the gradients."""
        super().zero_grad(set_to_none)
        clear([piece.whole for piece in self.pieces], set_to_none)

    def _follow(self) -> None:
        """The pieces go where the parameters went: `module.to(...)` gives these new memory."""
        for piece in self.pieces:
            now, tensor = piece.of(piece.whole), piece.slot.parameter
            if now.data_ptr() != tensor.data_ptr() or now.dtype != tensor.dtype:
                tensor.data = now
