"""Options of an op, besides its kernels and its spec."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from .. import torch_side
from .._errors import ArgumentError, nearest, refusal
from ..compiling import Links

Adjoint: TypeAlias = Literal["auto", "source", "engine"]
Half: TypeAlias = Literal["compute", "refuse"]
Order: TypeAlias = Literal["kernel", "spec"]
Races: TypeAlias = Literal["check", "allow"]


@dataclass(frozen=True)
class OpOptions:
    """The options of an op. The first thirteen are arguments of `tinsmith.op`, which describes them.

    The others are only set by this library:

    Attributes:
        links: names and repetitions for each kernel, if kernels do not share names.
        detached: outputs and scratch without a gradient.
        auxiliary: outputs that are not differentiated, and that gradients pass through.
        simd: whether the kernel's vectors become machine vectors on the CPU; engines split them otherwise (4 to 10
            times as slow). For whole vectors an engine then supports +, -, *, /, min, max, comparisons and select;
            any other operation ends the process, so it is done by components. Arrays of vectors have 2, 4, 8 or 16
            components.
        steady: whether the values that kernels bake in never change, since a factory passed them; they are read once.
        otherwise: the advice, for an op with `backward`, for users who need forward mode or second derivatives and
            cannot change `backward`.
        replaces_gradient: whether `backward` was decorated with an engine's `grad_for`, and names gradients `x.grad`.
        functional: whether updated arguments are left unchanged, and their new values returned.
        recipe: the recipe by which graphs find or make the op, instead of by a name of its own.
        unrun: whether the op is only made for its checks, and need not be able to run.
        examples: functions that return example inputs, by name.

    Raises:
        ArgumentError: `adjoint`, `half`, `order` or `races` is an unknown word, or `init` is not a dict.
    """

    scratch: str | None = None
    init: Mapping[str, str] | None = None
    adjoint: Adjoint = "auto"
    backward: Any = None
    engine: str | None = None
    trust_engine: bool = False
    check_bounds: bool = False
    half: Half = "compute"
    name: str | None = None
    order: Order | None = None
    returns: type[Any] | None = None
    deterministic: bool = False
    races: Races = "check"

    links: Sequence[Links] | None = None
    detached: Sequence[str] = ()
    auxiliary: Sequence[str] = ()
    simd: bool = False
    steady: bool = False
    otherwise: str = ""
    replaces_gradient: bool = False
    functional: bool = False
    unrun: bool = False
    recipe: torch_side.Recipe | None = None
    examples: Mapping[str, Callable[[], Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise ArgumentError for unknown words, and for an `init` that is not a dict."""
        if self.init is not None and not isinstance(self.init, Mapping):
            rows = [("expected", "a dict, a name and a word each"), ("got", repr(self.init))]
            word = self.init if isinstance(self.init, str) else "empty"
            raise ArgumentError(
                refusal("`init` is not a dict", rows, f'Write init={{"y": "{word}"}} for an output `y`.')
            )
        _check_word("adjoint", self.adjoint, Adjoint, "Leave it out: 'auto' takes the best there is.")
        _check_word("races", self.races, Races, "Leave it out: races are refused, and possible ones are warned of.")
        _check_word("half", self.half, Half, "Leave it out: half precision is computed in float32.")
        remedy = 'Leave it out for the order of the kernel\'s parameters, or say order="spec".'
        _check_word("order", "kernel" if self.order is None else self.order, Order, remedy)


def _check_word(name: str, word: str, words: Any, remedy: str) -> None:
    if word not in get_args(words):
        rows = [("expected", ", ".join(map(repr, get_args(words))))]
        guess = nearest(str(word), get_args(words))
        remedy = f"Did you mean {guess!r}? {remedy}" if guess else remedy
        raise ArgumentError(refusal(f"`{name}` cannot be {word!r}", rows, remedy))
