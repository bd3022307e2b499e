"""Comparison of the three derivatives by one input, element by element or along random directions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch

from ._differences import Steps, measure_slope, refine_slope
from ._function import draw_normal, find_greatest
from ._verdict import Kind, Point, Tolerance, judge_point

LOOKS = 64
"""The maximum number of elements of one input that are examined with several step sizes because derivatives
disagree.
"""
Index = tuple[int, ...]


@dataclass(frozen=True)
class Disagreement:
    """Elements of one input with the same kind of disagreement: their number, and the worst of them."""

    kind: Kind
    count: int
    index: Index | None
    point: Point


@dataclass(frozen=True)
class InputDerivatives:
    """The derivatives by one input.

    Attributes:
        name: the input.
        op: the op's gradient, float64.
        oracle: the interpreter's gradient; None if it was left out.
        differences: central differences for each element, NaN if there is no derivative; None if random directions were
            used.
        directions: the number of random directions.
        along: the greatest difference between op and differences along these, relative to the direction's length.
        disagreements: the disagreements, the worst first; empty if all agree.
    """

    name: str
    op: torch.Tensor
    oracle: torch.Tensor | None
    differences: torch.Tensor | None
    directions: int
    along: float
    disagreements: tuple[Disagreement, ...]

    @property
    def is_zero(self) -> bool:
        """True if all derivatives are 0, and nothing disagrees."""
        return self.op.numel() > 0 and not self.op.any() and not self.disagreements

    @property
    def why_untested(self) -> str:
        """Why right and wrong gradients would look the same at these inputs; "" if they would not."""
        if not self.op.numel():
            return "the input is empty"
        if self.is_zero:
            return "all derivatives are 0"
        return "" if self.op.isfinite().any() else "no derivative is finite"

    @property
    def reference(self) -> torch.Tensor | None:
        """The gradient that the op's is compared with, element by element: the oracle's, or else differences."""
        return self.differences if self.oracle is None else self.oracle


@dataclass
class Comparison:
    """Compares the derivatives by each input.

    Attributes:
        steps: takes differences.
        exact: the tolerance between op and oracle.
        rough: the tolerance between either and differences.
        directions: the number of random directions that stand for all elements; 0 to compare each element.
        is_rough: whether steps must be so long that differences include a function's kinks and jumps. Then the gap of
            the one-sided slopes counts as noise.
    """

    steps: Steps
    exact: Tolerance
    rough: Tolerance
    directions: int
    is_rough: bool = False
    _looks: int = field(default=0)
    _largest_difference: float = field(default=0.0)

    def of(self, name: str, op: torch.Tensor, oracle: torch.Tensor | None) -> InputDerivatives:
        """Compare the derivatives by one input."""
        self._looks, self._largest_difference = 0, 0.0
        scale = _scale(op if oracle is None else oracle)
        points: dict[Index, tuple[Kind, Point]] = {}
        slopes = torch.full_like(op, math.nan)
        for index in self._indices(op, oracle, scale):
            kind, point = self._point(name, index, op, oracle, scale)
            if point.slope.kind == "smooth":
                slopes[index] = point.slope.central
            if kind is not Kind.RIGHT:
                points[index] = kind, point
        groups = _group_by_kind(points, scale)
        if self.directions and not any(one.kind in (Kind.WRONG, Kind.ALL_DIFFER) for one in groups):
            groups += tuple(self._along_directions(name, op, oracle))
        differences = None if self.directions else slopes
        return InputDerivatives(name, op, oracle, differences, self.directions, self._largest_difference, groups)

    def _indices(self, op: torch.Tensor, oracle: torch.Tensor | None, scale: float) -> Iterator[Index]:
        """Yield the elements to take differences of: all, or only those on which op and oracle disagree, the worst
        first.
        """
        if not self.directions:
            wanted = torch.arange(op.numel())
        elif oracle is None:
            wanted = (~op.isfinite()).flatten().nonzero().flatten()[:LOOKS]
        else:
            apart = (op - oracle).abs()
            far = apart > self.exact.atol * scale + self.exact.rtol * torch.maximum(op.abs(), oracle.abs())
            far |= op.isfinite() != oracle.isfinite()
            rank = torch.where(far, apart.nan_to_num(nan=math.inf), -torch.ones_like(apart)).flatten()
            wanted = rank.argsort(descending=True)[: min(LOOKS, int(far.sum()))]
        for flat in wanted.tolist():
            yield tuple(int(i) for i in torch.unravel_index(torch.tensor(flat), op.shape)) if op.ndim else ()

    def _point(
        self, name: str, index: Index, op: torch.Tensor, oracle: torch.Tensor | None, scale: float
    ) -> tuple[Kind, Point]:
        direction = torch.zeros_like(op)
        direction[index] = 1.0
        mine = op[index].item()
        true = None if oracle is None else oracle[index].item()
        return self._judge(name, direction, mine, true, scale, self.steps.values[name][index].abs().item())

    def _judge(
        self, name: str, direction: torch.Tensor, op: float, oracle: float | None, scale: float, size: float
    ) -> tuple[Kind, Point]:
        """Classify the derivatives along a direction. If they disagree, take more accurate differences first."""
        if self.is_rough:
            slope = self.steps.slope(name, direction, self.steps.eps * max(1.0, size))
            point = Point(op, oracle, slope._replace(noise=slope.noise + slope.gap))
            return judge_point(point, self.exact, self.rough, scale), point
        slope = measure_slope(self.steps, name, direction, size, 1e-3 * scale)
        point = Point(op, oracle, slope)
        kind = judge_point(point, self.exact, self.rough, scale)
        if kind is Kind.RIGHT or slope.kind != "smooth" or self._looks >= LOOKS:
            return kind, point
        self._looks += 1
        point = Point(op, oracle, refine_slope(self.steps, name, direction, self.steps.eps * max(1.0, size), slope))
        return judge_point(point, self.exact, self.rough, scale), point

    def _along_directions(self, name: str, op: torch.Tensor, oracle: torch.Tensor | None) -> Iterator[Disagreement]:
        """Yield the first disagreement along random directions. If the op is wrong, bisect to find the element."""
        generator = torch.Generator().manual_seed(0)
        point = self.steps.values[name]
        size = point.abs().max().item() if point.numel() else 0.0
        for _ in range(self.directions):
            direction = draw_normal(op, generator)
            kind, numbers = self._along(name, direction, op, oracle, size)
            difference = abs(numbers.op - numbers.slope.central) / direction.norm().item()
            self._largest_difference = max(self._largest_difference, difference)
            if kind is Kind.RIGHT:
                continue
            if kind in (Kind.WRONG, Kind.ALL_DIFFER) and oracle is None:
                index = self._bisect(name, direction, op, size)
                its_kind, its_numbers = self._point(name, index, op, None, _scale(op))
                if its_kind is kind:
                    yield Disagreement(kind, 1, index, its_numbers)
                    return
            yield Disagreement(kind, 1, None, numbers)
            return

    def _along(
        self, name: str, direction: torch.Tensor, op: torch.Tensor, oracle: torch.Tensor | None, size: float
    ) -> tuple[Kind, Point]:
        mine = (op * direction).sum().item()
        true = None if oracle is None else (oracle * direction).sum().item()
        scale = max(_scale(op if oracle is None else oracle), (op * direction).norm().item() if mine == mine else 0.0)
        return self._judge(name, direction, mine, true, scale, size)

    def _bisect(self, name: str, direction: torch.Tensor, op: torch.Tensor, size: float) -> Index:
        """Find the element that makes a direction wrong: halve the direction repeatedly, and keep the half with the
        larger error.
        """
        flat = direction.flatten()
        left, right = 0, flat.numel()
        while right - left > 1:
            middle = (left + right) // 2
            errors = [
                self._error(name, _part(direction, *half), op, size) for half in ((left, middle), (middle, right))
            ]
            left, right = (left, middle) if errors[0] >= errors[1] else (middle, right)
        return tuple(int(i) for i in torch.unravel_index(torch.tensor(left), op.shape)) if op.ndim else ()

    def _error(self, name: str, direction: torch.Tensor, op: torch.Tensor, size: float) -> float:
        slope = self.steps.slope(name, direction, self.steps.eps * max(1.0, size))
        return abs((op * direction).sum().item() - slope.central)


def _part(direction: torch.Tensor, left: int, right: int) -> torch.Tensor:
    kept = torch.zeros_like(direction).flatten()
    kept[left:right] = direction.flatten()[left:right]
    return kept.reshape(direction.shape)


def _scale(gradient: torch.Tensor) -> float:
    """Return the largest finite absolute derivative by an input, or 1 if all are 0."""
    return find_greatest(gradient) or 1.0


_ORDER = list(Kind)


def _group_by_kind(points: Mapping[Index, tuple[Kind, Point]], scale: float) -> tuple[Disagreement, ...]:
    """Group elements by the kind of their disagreement, the most severe kind first."""
    kinds: dict[Kind, list[tuple[Index, Point]]] = {}
    for index, (kind, point) in points.items():
        kinds.setdefault(kind, []).append((index, point))
    worst = {kind: max(of, key=lambda one: _measure_disagreement(one[1], scale)) for kind, of in kinds.items()}
    groups = [Disagreement(kind, len(of), *worst[kind]) for kind, of in kinds.items()]
    return tuple(sorted(groups, key=lambda one: _ORDER.index(one.kind)))


def _measure_disagreement(point: Point, scale: float) -> float:
    """Return the largest difference between the derivatives at a point, relative to `scale`; infinity if one is not
    finite.
    """
    numbers = [one for one in (point.op, point.oracle, point.slope.central) if one is not None]
    if not all(map(math.isfinite, numbers)):
        return math.inf
    return (max(numbers) - min(numbers)) / scale
