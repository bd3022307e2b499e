"""A trial: one launch of a kernel, as a differentiable function of the arrays that it reads and writes.

Which arrays these are is found by running the engine's own kernel on changed arrays, so that tinsmith is not asked. The
gradient is compared with central differences of the engine's kernel, element by element of the outputs: an element
counts where two sizes of the step and both sides agree, as elsewhere there is no derivative to compare with.
"""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ._arrays import Array, find_arrays, hold_arguments

STEPS = 1e-5, 2.5e-6, 6.25e-7
"""Sizes of a difference, relative to the largest element of an input."""
AGREEMENT = 1e-5
"""How well a gradient must agree with differences, relative to the sum of absolute contributions."""

ROUGH = 1e-4
"""How uncertain differences may be, relative to the same sum: a direction in which they are worse is not compared."""

UNWRITTEN = 1e100
"""Larger numbers are what memory held that nobody wrote to. Differences cannot see how they are passed on."""

REPEATS = 3
"""How often a launch is repeated to see that it is not random: random numbers that are clamped are often equal."""


@dataclass
class Outcome:
    """What became of a trial.

    Attributes:
        verdict: "right", "refused", "failed", "wrong", "nothing" (nothing to differentiate) or "kinks".
        detail: the reason, an error's first line, or numbers.
        numbers: what was measured.
    """

    verdict: str
    detail: str = ""
    numbers: dict[str, Any] = field(default_factory=dict)


class Launch:
    """A launch of a kernel that can be repeated from one state.

    Args:
        run: launches the engine's kernel.
        names: of its parameters.
        arguments: what it was given.
    """

    def __init__(self, run: Callable[[], Any], names: tuple[str, ...], arguments: tuple[Any, ...]) -> None:
        self._run = run
        self.arrays = find_arrays(names, arguments)
        self.before = [_clear_unwritten(one) for one in self.arrays]
        self.written = [False] * len(self.arrays)

    def restore(self) -> None:
        """Write the state of the beginning into all arrays."""
        for array, content in zip(self.arrays, self.before, strict=True):
            array.write(content)

    def run(self, changes: dict[int, np.ndarray], outputs: Sequence[int] | None = None) -> dict[int, np.ndarray]:
        """Run the kernel with changed arrays, and restore them. Return the content of outputs; None for all arrays."""
        for number, content in changes.items():
            self.arrays[number].write(content)
        self._run()
        after = {number: self.arrays[number].read() for number in outputs or range(len(self.arrays))}
        for number, is_written in enumerate(self.written):
            # An engine compiles a kernel for each field that is written to.
            is_other = outputs is None and not _is_equal(after[number], self.before[number])
            if is_written or number in changes or is_other:
                self.arrays[number].write(self.before[number])
        return after

    def find_roles(self) -> tuple[list[int], list[int]]:
        """Return which float arrays decide what is written, and which float arrays are written.

        Raises:
            Random: equal launches write different numbers.
        """
        first = self.run({})
        self._note(first, {})
        for _ in range(REPEATS):
            again = self.run({})
            if any(not _is_equal(first[number], again[number]) for number in first):
                raise Random
        floats = [n for n, one in enumerate(self.before) if _is_float64(one) and np.isfinite(one).any()]
        rng = np.random.default_rng(0)
        changed = {number: _disturb(self.before[number], rng) for number in floats}
        self._note(self.run(changed), changed)
        written = [number for number, is_written in enumerate(self.written) if is_written]
        reads = []
        for number in floats:
            after = self.run({number: changed[number]}, written or [number])
            base = {n: first[n] if n != number else None for n in after}
            is_other = any(one is not None and not _is_equal(one, after[n]) for n, one in base.items())
            # An array that is changed in place, or in part, depends on what it held.
            is_own = self.written[number] and not _is_equal(after[number], first[number])
            if is_other or is_own:
                reads.append(number)
        return reads, [number for number in written if _is_float64(self.before[number])]

    def _note(self, after: dict[int, np.ndarray], changes: dict[int, np.ndarray]) -> None:
        for number, content in after.items():
            start = changes.get(number, self.before[number])
            self.written[number] = self.written[number] or not _is_equal(start, content)


class Random(Exception):
    """A kernel draws random numbers, or its result depends on the order of its threads."""


def try_launch(
    run: Callable[..., Any],
    names: tuple[str, ...],
    arguments: tuple[Any, ...],
    annotations: Sequence[Any],
    kernel: Any,
    begin: Callable[[], None],
) -> Outcome:
    """Try one launch. The state is afterwards as before it.

    Args:
        run: launches the engine's kernel with arguments.
        names: of all its parameters, `self` included.
        arguments: of the launch, `self` included.
        annotations: of the parameters.
        kernel: what a user calls, bound to its object.
        begin: called before tinsmith is, when it is known what the launch reads and writes.
    """
    held = hold_arguments(arguments, annotations)
    launch = Launch(lambda: run(*held), names, held)
    try:
        launch.run({})
    except TimeoutError:
        raise
    except Exception:  # noqa: BLE001  # what the engine says of arguments that it takes in no other form
        held = arguments
        launch = Launch(lambda: run(*held), names, held)
        try:
            launch.run({})
        except TimeoutError:
            raise
        except Exception as error:  # noqa: BLE001  # an engine raises what it likes
            return Outcome("broken", f"Genesis' own launch fails: {_last_line(error)}", {"error": str(error)[-4000:]})
    before = launch.before[:]
    try:
        return _try(launch, kernel, held[names[:1] == ("self",) :], begin)
    finally:
        launch.before = before
        launch.restore()


def _try(launch: Launch, kernel: Any, given: tuple[Any, ...], begin: Callable[[], None]) -> Outcome:
    began = time.process_time()
    try:
        reads, writes = launch.find_roles()
    except Random:
        return Outcome("nothing", "random numbers")
    numbers: dict[str, Any] = {
        "inputs": [launch.arrays[n].name for n in reads],
        "outputs": [launch.arrays[n].name for n in writes],
        "roles_s": round(time.process_time() - began, 2),
    }
    if not any(launch.written):
        return Outcome("nothing", "changed nothing", numbers)
    if not writes:
        return Outcome("nothing", "writes integers only", numbers)
    if not reads:
        return Outcome("nothing", "its floats do not depend on floats", numbers)
    if all(".grad" in launch.arrays[n].name for n in writes):
        return Outcome("nothing", "handles gradients itself", numbers)
    begin()
    try:
        function = make_function(launch, kernel, given, reads, writes)
        outcome = _compare(launch, function, reads, writes, numbers)
        return _compare_nearby(launch, function, reads, writes, outcome) if outcome.verdict == "wrong" else outcome
    except _refusals() as error:
        return Outcome("refused", _first_line(error), {**numbers, "error": str(error)[:4000]})
    except TimeoutError:
        raise
    except Exception as error:  # noqa: BLE001  # whatever it is, it is a bug of tinsmith: an error that is not its own
        return Outcome(
            "failed", f"{type(error).__name__}: {_first_line(error)}", {**numbers, "error": format_error(error)}
        )


def make_function(
    launch: Launch, kernel: Any, given: tuple[Any, ...], reads: Sequence[int], writes: Sequence[int]
) -> Callable[..., tuple[torch.Tensor, ...]]:
    """Return the launch as a function of the arrays that it reads: a layer on what the engine holds."""
    import tinsmith as ts

    arrays = launch.arrays
    layer = ts.EmptyTin(adjoint="source")
    for n in reads:
        layer.register_input_field(arrays[n].owner, _as_name(arrays[n].name))
    for n in writes:
        layer.register_output_field(arrays[n].owner, _as_name(arrays[n].name), clear=False)
    layer.register_kernel(kernel, *given).finish()

    def call(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        results = layer(*tensors)
        return results if isinstance(results, tuple) else (results,)

    return call


def _as_name(text: str) -> str:
    return text.replace(".", "_").replace(" ", "_")


def _compare(
    launch: Launch, function: Callable[..., Any], reads: list[int], writes: list[int], numbers: dict[str, Any]
) -> Outcome:
    tensors = [torch.from_numpy(launch.before[n].copy()).requires_grad_() for n in reads]
    began = time.process_time()
    with _no_warnings():
        results = function(*tensors)
    numbers["forward_s"] = round(time.process_time() - began, 2)
    launch.restore()
    exact = launch.run({}, writes)
    ours = [one.detach().numpy() for one in results]
    off = max(_distance(mine, exact[n]) for mine, n in zip(ours, writes, strict=True))
    is_bitwise = all(_is_equal(mine, exact[n]) for mine, n in zip(ours, writes, strict=True))
    numbers |= {"forward_off": off, "bitwise": is_bitwise}
    if not off < 1e-9:
        return Outcome("wrong", f"values are off by {off:.1e}", numbers)
    worst, compared, elements, kinks = 0.0, 0, 0, 0
    rng = np.random.default_rng(1)
    for directions in _choose_directions(launch, reads, rng):
        slopes, errors, is_smooth = _differences(launch, directions, writes)
        count = sum(int(one.sum()) for one in is_smooth)
        moving = sum(int((one != 0).sum()) for one in slopes)
        elements, kinks = elements + moving, kinks + sum(one.size for one in slopes) - count
        if not count or not moving:
            continue
        weights = [rng.standard_normal(one.shape) * mask for one, mask in zip(slopes, is_smooth, strict=True)]
        began = time.process_time()
        with _no_warnings():
            gradients = torch.autograd.grad(
                results, tensors, [torch.from_numpy(one) for one in weights], retain_graph=True, allow_unused=True
            )
        numbers.setdefault("backward_s", round(time.process_time() - began, 2))
        terms = [(w * np.where(m, s, 0.0)) for w, s, m in zip(weights, slopes, is_smooth, strict=True)]
        expected, scale = sum(float(one.sum()) for one in terms), sum(float(np.abs(one).sum()) for one in terms)
        noise = sum(
            float(np.abs(w * np.where(m, e, 0.0)).sum()) for w, e, m in zip(weights, errors, is_smooth, strict=True)
        )
        got = sum(
            float((gradient.numpy() * directions[n]).sum())
            for gradient, n in zip(gradients, reads, strict=True)
            if gradient is not None and n in directions
        )
        off, rough = abs(got - expected) / max(scale, 1e-300), noise / max(scale, 1e-300)
        if rough > ROUGH:
            continue
        compared += 1
        if not off < AGREEMENT + 3 * rough:
            numbers |= {"got": got, "expected": expected, "scale": scale, "noise": noise}
            numbers["by_input"] = _compare_each(launch, directions, gradients, weights, reads, writes)
            return Outcome("wrong", f"a gradient times a direction is {got:.6g} instead of {expected:.6g}", numbers)
        worst = max(worst, off)
    numbers |= {"gradient_off": worst, "directions": compared, "moving": elements, "kinks": kinks}
    if not compared:
        return Outcome("kinks", "no element has a derivative here", numbers)
    return Outcome("right", "", numbers)


def _compare_nearby(
    launch: Launch, function: Callable[..., Any], reads: list[int], writes: list[int], here: Outcome
) -> Outcome:
    """Compare a gradient that differs again in a state close by. Return the first outcome if it differs there too.

    At a single point such as an angle of exactly 0, a kernel may take a branch that differences do not see.
    """
    rng = np.random.default_rng(2)
    for n in reads:
        launch.before[n] = np.asarray(launch.before[n] + 1e-3 * _direction(launch.before[n], rng))
    launch.restore()
    outcome = _compare(launch, function, reads, writes, {})
    if outcome.verdict != "right":
        return here
    numbers = {**here.numbers, **outcome.numbers, "at_the_state": here.detail}
    return Outcome("right", "in a state close by; in the scene's own state a branch holds at that point alone", numbers)


def _compare_each(
    launch: Launch, directions: dict[int, np.ndarray], gradients: Sequence[Any], weights: Any, reads: Any, writes: Any
) -> dict[str, tuple[float, float]]:
    """Return of each input by itself what its gradient is along a direction, and what differences say."""
    pairs = {}
    for n, direction in directions.items():
        slopes, _, is_smooth = _differences(launch, {n: direction}, writes)
        terms = [float((w * np.where(m, s, 0.0)).sum()) for w, s, m in zip(weights, slopes, is_smooth, strict=True)]
        gradient = gradients[reads.index(n)]
        pairs[launch.arrays[n].name] = (
            0.0 if gradient is None else float((gradient.numpy() * direction).sum()),
            sum(terms),
        )
    return pairs


def _choose_directions(launch: Launch, reads: list[int], rng: np.random.Generator) -> Iterator[dict[int, np.ndarray]]:
    """Yield directions in which inputs are moved: two in all of them, then one in each of up to eight."""
    for _ in range(2):
        yield {n: _direction(launch.before[n], rng) for n in reads}
    if len(reads) > 1:
        for n in reads[:8]:
            yield {n: _direction(launch.before[n], rng)}


def _direction(content: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    finite = np.abs(content[np.isfinite(content)])
    return rng.standard_normal(content.shape) * (float(finite.max(initial=0.0)) or 1.0)


def _differences(
    launch: Launch, directions: dict[int, np.ndarray], writes: list[int]
) -> tuple[list[np.ndarray], list[np.ndarray], list[np.ndarray]]:
    """Return slopes of all outputs, how uncertain they are, and at which elements they exist."""
    base = launch.run({}, writes)
    is_rough = all(_is_rounded(base[n]) for n in writes)
    steps = [1e3 * one for one in STEPS] if is_rough else STEPS
    central, sided = [], []
    for step in steps:
        ahead, behind = (
            launch.run({n: launch.before[n] + sign * step * one for n, one in directions.items()}, writes)
            for sign in (1, -1)
        )
        with np.errstate(all="ignore"):
            central.append([(ahead[n] - behind[n]) / (2 * step) for n in writes])
            sided.append([np.abs(ahead[n] - 2 * base[n] + behind[n]) / step for n in writes])
    slopes, errors, is_smooth = [], [], []
    for number in range(len(writes)):
        sizes = [one[number] for one in central]
        with np.errstate(all="ignore"):
            smallest = 1e-3 * np.nanmax(np.abs(sizes[1]), initial=0.0) + 1e-6 * np.abs(base[writes[number]])
            error = np.full(sizes[0].shape, np.inf)
            slope = np.zeros(sizes[0].shape)
            # Where a slope jumps, both sides differ by the same however small the step is. Where a value jumps
            # between two steps, the larger ones agree with each other.
            for larger, smaller, jump in (sizes[0], sizes[1], sided[1][number]), (sizes[1], sizes[2], sided[2][number]):
                between, scale = np.abs(larger - smaller), np.abs(smaller) + smallest
                better = np.isfinite(smaller) & (between < error) & (between <= 1e-4 * scale) & (jump <= 1e-2 * scale)
                still = np.isfinite(smaller) & (between == 0) & (jump == 0)
                slope = np.where(better | still, smaller, slope)
                error = np.where(better | still, between, error)
        if is_rough:
            error = error + 2**-24 * np.abs(base[writes[number]]) / steps[0]
        slopes.append(slope)
        errors.append(np.where(np.isfinite(error), error, 0.0))
        # What is passed on, and is not finite, has no slope. What a kernel makes so has one of 0.
        is_made = ~np.isfinite(base[writes[number]]) & np.isfinite(launch.before[writes[number]])
        is_smooth.append(np.isfinite(error) & np.isfinite(base[writes[number]]) | is_made)
        slopes[-1] = np.where(np.isfinite(base[writes[number]]), slope, 0.0)
    return slopes, errors, is_smooth


def _clear_unwritten(array: Array) -> np.ndarray:
    """Return the content of an array, where memory that nobody wrote to is set to 0."""
    content = array.read()
    if _is_float64(content):
        is_unwritten = np.isfinite(content) & (np.abs(content) > UNWRITTEN)
        if is_unwritten.any():
            content[is_unwritten] = 0.0
            array.write(content)
    return content


def _disturb(content: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return content + 1e-6 * (1 + np.abs(content)) * (0.5 + rng.random(content.shape))


def _is_rounded(content: np.ndarray) -> bool:
    """Return whether numbers are those of float32, as where a kernel casts to it: small differences are then rough."""
    with np.errstate(all="ignore"):
        is_whole = _is_equal(np.round(content), content)
        return not is_whole and _is_equal(content.astype(np.float32).astype(np.float64), content)


def _is_float64(content: np.ndarray) -> bool:
    return content.dtype == np.float64


def _is_equal(one: np.ndarray, other: np.ndarray) -> bool:
    return bool(np.array_equal(one, other, equal_nan=one.dtype.kind == "f"))


def _distance(one: np.ndarray, other: np.ndarray) -> float:
    """Return the largest difference, relative to the largest element."""
    if not np.array_equal(np.isfinite(one), np.isfinite(other)):
        return float("inf")
    mask = np.isfinite(other)
    scale = np.abs(other[mask]).max(initial=1e-300)
    return float(np.abs(one[mask] - other[mask]).max(initial=0.0) / scale)


def _refusals() -> tuple[type[Exception], ...]:
    import tinsmith as ts

    return (ts.TinsmithError,)


def _first_line(error: Exception) -> str:
    """Return what an error says first, and the reason that it gives."""
    lines = str(error).strip().splitlines() or [""]
    reasons = [re.split(r"  +", one.strip(), maxsplit=1)[-1] for one in lines[1:] if one.strip().startswith("because ")]
    return ": ".join([lines[0], *reasons[:1]])[:300]


def _last_line(error: Exception) -> str:
    """Return the last line of an error: the engine puts its reason there, after a trace."""
    lines = [one.strip() for one in str(error).splitlines() if one.strip()]
    return (lines or [type(error).__name__])[-1][:300]


def format_error(error: Exception) -> str:
    """Return the end of an error's traceback, for records."""
    import traceback

    return "".join(traceback.format_exception(error))[-4000:]


@contextmanager
def _no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
