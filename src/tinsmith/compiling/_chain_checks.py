"""Checks of a chain's kernels when the chain is made: kernels that it would ignore in part, and repeated launches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._errors import ArgumentError, KernelError, refusal
from ..frontend import draws
from ._stage import Stage


def check_links(op: str, kernels: Sequence[Any]) -> None:
    """Raise ArgumentError if a chain would ignore a part of an op that is given as one of its kernels.

    Args:
        op: the chain's name, for messages; "" where it is made of the kernels' names.
        kernels: each an op's `(kernel, backward)`.
    """
    for kernel, backward in kernels:
        words = f"chain `{op}`" if op else "ts.chain"
        if isinstance(kernel, tuple):
            words += " takes kernels, but got an op that is itself a chain"
            remedy = "Pass its kernels instead of the op: with `first` for that op, `[*first.kernel, second]`."
            raise ArgumentError(refusal(words, [("kernels", ", ".join(one.__name__ for one in kernel))], remedy))
        if backward is not None:
            words += " would leave out the hand-written gradient of an op among its kernels"
            remedy = "Pass the op's `.kernel` to have the gradient generated, or call the ops one after the other."
            raise ArgumentError(refusal(words, [("op", kernel.__name__)], remedy))


def check_repeats(op: str, stages: Sequence[Stage]) -> None:
    """Refuse a second launch of a kernel that could only repeat the first one's computation.

    Arrays are linked by name, so both launches of a kernel read the same arrays. The second one has an effect only if
    an array that it reads or writes changed in between, or if it changes arrays that it reads.

    Raises:
        KernelError: a launch repeats an earlier one.
    """
    for place, stage in enumerate(stages):
        before = [k for k, one in enumerate(stages[:place]) if _is_same(one, stage)]
        if not before or not _is_settled_by_reads(stage):
            continue
        between = stages[before[-1] + 1 : place]
        read, written = _read(stage), _find_written(stage)
        if written & read or any(_find_written(one) & (read | written) for one in between):
            continue
        words = (
            f"chain `{op}` launches kernel `{stage.name}` twice, and the second "
            "launch would repeat the same computation"
        )
        rows = [("reads", f"{_join_names(read)}: not changed since the first launch"), ("writes", _join_names(written))]
        remedy = (
            "Arrays are linked by parameter name. Call an op of one launch twice, `y = step(step(x))`; or use kernels "
            "whose parameters pass the array on, `first(x, t)` and `second(t, y)` with `t` in `scratch=`."
        )
        raise KernelError(refusal(words, rows, remedy))


def _read(stage: Stage) -> set[str]:
    return {name for name in stage.arrays if stage.roles[name].is_read}


def _find_written(stage: Stage) -> set[str]:
    return {name for name in stage.arrays if stage.roles[name].is_written}


def _join_names(names: set[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names)) or "nothing"


def _is_same(one: Stage, other: Stage) -> bool:
    return one.source.function is other.source.function and one.owner is other.owner


def _is_settled_by_reads(stage: Stage) -> bool:
    """Return True if the arrays that a kernel reads determine what it writes: it neither adds to arrays nor draws
    random numbers.
    """
    roles = stage.roles.values()
    return not (draws(stage.source, stage.home) or any(role.escapes or role.of("add") for role in roles))
