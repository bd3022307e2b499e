"""Truth: whose gradients are right. Speed is worth little without that."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import _ways
from _sections import FEW, Bench
from _ways import Missing, Way


def truth(bench: Bench) -> list[str]:
    """Ask all ways four questions; return a table in Markdown with wrong answers in bold and errors quoted."""
    lines = [
        "y = 3 x, with x a leaf and g all ones. A sibling is another term of the sum that y goes into.",
        "",
        "| way | x.grad, y.backward(g): 3 | x.grad, y.sum().backward(): 3 | sibling's gradient: 1 | g afterwards: 1 |",
        "|---|---|---|---|---|",
    ]
    ways = bench.ways() | bench.fixed_ways(FEW)
    if not isinstance(bench.stannum, Missing) and "taichi" in bench.langs:
        ways["Stannum Tube"] = _ways.tube(bench.stannum, bench.langs["taichi"], FEW, batched=False)
    for name, way in ways.items():
        cells = [_tried(way, question, bench.device) for question in (_leaf, _leaf_of_sum, _sibling, _given)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _tried(way: Way, question: Any, device: str) -> str:
    x = torch.ones(FEW, device=device, requires_grad=True)
    try:
        answer, right = question(way, x)
    except Exception as refusal:  # noqa: BLE001  # how it fails is what is asked
        return f"{type(refusal).__name__}: {str(refusal).splitlines()[0][:80]}"
    return f"{answer:g}" if answer == right else f"**{answer:g}**"


def _leaf(way: Way, x: Tensor) -> tuple[float, float]:
    way(x).backward(torch.ones_like(x))
    return _first(x.grad), 3


def _leaf_of_sum(way: Way, x: Tensor) -> tuple[float, float]:
    way(x).sum().backward()
    return _first(x.grad), 3


def _sibling(way: Way, x: Tensor) -> tuple[float, float]:
    sibling = torch.ones_like(x, requires_grad=True)
    (way(x) + sibling).backward(torch.ones_like(x))
    return _first(sibling.grad), 1


def _given(way: Way, x: Tensor) -> tuple[float, float]:
    cotangent = torch.ones_like(x)
    way(x).backward(cotangent)
    return _first(cotangent), 1


def _first(tensor: Tensor | None) -> float:
    return float("nan") if tensor is None else tensor[0].item()
