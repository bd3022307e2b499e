"""Promises of a spec, such as `unique idx[n]` and `segments rays[r, 2]`, checked on the values of a call.

The gradient of an op relies on them: if they say that no two iterations use the same element, it adds without atomics.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ...linter import Finding
from ...operation.examination import Examination
from ...spec import PROMISES


def find_broken_promises(call: Examination) -> list[Finding]:
    """Return a finding for each input that breaks its promise, with the first numbers that do."""
    path, line = call.starts[0]
    findings = []
    for name, (promise, lead) in call.promises.items():
        numbers = call.inputs[name].detach().cpu().to(torch.int32)  # int32, the type of indices
        samples = numbers.reshape(-1, *numbers.shape[lead:])
        broken = (
            words for number in range(len(samples)) for words in _find_mistakes(name, promise, samples[number], number)
        )
        what = next(broken, "")
        if what:
            where = what if lead else what.partition(" in sample ")[0]
            words = f"`{name}` of {call.title} is `{promise}` in the spec ({PROMISES[promise]}), but {where}"
            remedy = f"pass others; or leave out `{promise}`, and the gradient adds with atomics"
            findings.append(Finding("TS611", "error", path, line, 0, words, remedy))
    return findings


def _find_mistakes(name: str, promise: str, numbers: torch.Tensor, sample: int) -> Iterator[str]:
    find_mistakes = {"unique": _find_duplicates, "offsets": _find_falls}.get(promise)
    mistakes = find_mistakes(name, numbers) if find_mistakes else _find_overlaps(name, promise, numbers)
    for one in mistakes:
        yield f"{one} in sample {sample}"


def _find_duplicates(name: str, numbers: torch.Tensor) -> Iterator[str]:
    """Yield words about the first number that equals an earlier one, if any."""
    values, order = numbers.flatten().sort(stable=True)
    again = values[1:] == values[:-1]
    pairs = torch.stack([order[:-1][again], order[1:][again]], 1)
    if len(pairs):
        first, second = pairs[pairs[:, 1].argmin()].tolist()
        places = (_element(name, at, tuple(numbers.shape)) for at in (first, second))
        yield f"{' and '.join(places)} are both {int(numbers.flatten()[first])}"


def _find_falls(name: str, numbers: torch.Tensor) -> Iterator[str]:
    """Yield words about the first number that is less than the one before it, or less than 0, if any."""
    before = torch.cat([numbers.new_zeros(1), numbers])
    wrong = (before[1:] < before[:-1]).nonzero().flatten().tolist()
    if wrong:
        at = wrong[0]
        least = f"`{name}[{at - 1}]` = {int(before[at])}" if at else "0"
        yield f"`{name}[{at}]` = {int(numbers[at])} is below {least}"


def _find_overlaps(name: str, promise: str, numbers: torch.Tensor) -> Iterator[str]:
    """Yield words about the first row that is not a valid segment or range, or else about the first two rows that
    overlap, if any.
    """
    rows = tuple(numbers.shape[:-1])
    start, second = numbers.reshape(-1, 2).to(torch.int64).unbind(1)
    end = start + second if promise == "segments" else second
    wrong = ((start < 0) | (end < start)).nonzero().flatten().tolist()
    if wrong:
        yield f"{_row(name, wrong[0], rows, numbers)} is not a part of an array"
        return
    order = start.argsort(stable=True)
    order = order[end[order] > start[order]]
    if len(order) < 2:
        return
    reach, holder = end[order].cummax(0)
    shared = (reach[:-1] > start[order][1:]).nonzero().flatten().tolist()
    if shared:
        pair = sorted(int(one) for one in (order[holder[shared[0]]], order[shared[0] + 1]))
        both = " and ".join(_row(name, one, rows, numbers) for one in pair)
        yield f"{both} share place {int(start[order][shared[0] + 1])}"


def _element(name: str, at: int, shape: tuple[int, ...]) -> str:
    index = torch.unravel_index(torch.tensor(at), shape)
    return f"`{name}[{', '.join(str(int(one)) for one in index)}]`"


def _row(name: str, at: int, rows: tuple[int, ...], numbers: torch.Tensor) -> str:
    called = _element(name, at, rows) if rows else f"`{name}`"
    return f"{called} = {numbers.reshape(-1, 2)[at].tolist()}"
