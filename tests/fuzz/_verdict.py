"""What becomes of one random kernel: does the engine compute what the interpreter says, and so for derivatives?"""

from __future__ import annotations

import contextlib
import linecache
import os
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any
from unittest import mock
from weakref import WeakKeyDictionary

import numpy as np
import torch

import tinsmith as ts
from fuzz._grammar import Program
from fuzz._parts import COUNT, FACTOR, RANKS, TABLE
from tinsmith._config import config
from tinsmith.operation.examination._oracle import bind_call, interpret_call
from tinsmith.passes.adjoint import _checkpoints

CHECKS: tuple[str, ...] = ("values", "gradients", "tangents")
"""What is compared."""

ROWS, COLUMNS = 5, 3
TOLERANCE, SINGLE = 1e-9, 2e-4
AGREE, DISAGREE, REFUSED, ERROR, CRASH = "agree", "disagree", "refused", "error", "crash"
TANGENTLESS = "agree without tangents"
"""Values and gradients agree; a tangent is refused, with its reason."""
INVALID = "invalid"
"""The mirror cannot run the program: a mistake of the grammar."""
TRUSTED = "trusted"
"""The adjoint that is the engine's own, with nothing refused."""
UNSTEADY = "at a jump"
"""No failure: the kernel asks whether v + (p - v) is greater than p, or the like. What the interpreter itself says
changes when the last digits of the inputs do, and an engine rounds in its own way.
"""
ROUNDED = "rounded"
"""No failure: in float32 the program is off without machine vectors too."""
UNCOMPILED, MISCOMPILED = "uncompiled", "miscompiled"
"""The engine's own mistakes, no failures of ours: it refuses a kernel (Taichi, now and then, `a and (b or c)`), or
gives values that are right once its optimizer is off.

Both engines (Taichi 1.7.4, Quadrants 1.3.3) take an element that was read before for unchanged though another index,
which may be the same, was written since: `b = y[i]; y[k[i]] = b + y[k[i]]; c = y[i]` gives `c` the old value.
"""


@dataclass
class Verdict:
    """The outcome for one kernel, in words where it is none of agreement; seconds by what was done."""

    seed: int
    outcome: str = AGREE
    check: str = ""
    words: str = ""
    seconds: dict[str, float] = field(default_factory=dict)

    @contextlib.contextmanager
    def timed(self, what: str) -> Iterator[None]:
        """Note how long a block takes."""
        begin = time.perf_counter()
        yield
        self.seconds[what] = round(self.seconds.get(what, 0.0) + time.perf_counter() - begin, 4)


def judge(program: Program, lang: ModuleType, checks: tuple[str, ...] = CHECKS, adjoint: str = "source") -> Verdict:
    """Try a kernel. `adjoint` is the one that gradients and tangents come from."""
    checks = tuple(check for check in checks if adjoint != TRUSTED or check != "tangents")  # engines have none
    verdict = _judged(program, lang, checks, adjoint)
    if verdict.outcome != DISAGREE:
        return verdict
    if _is_at_a_jump(program, lang):
        verdict.outcome = UNSTEADY
        return verdict
    with optimizer_off(lang):
        plain = _judged(program, lang, checks, adjoint)
    if plain.outcome == AGREE or plain.check != verdict.check:
        verdict.words += f"with the engine's optimizer off: {plain.outcome} {plain.check}\n"
        verdict.outcome = MISCOMPILED if verdict.check == "values" else DISAGREE
    return verdict


def _judged(program: Program, lang: ModuleType, checks: tuple[str, ...], adjoint: str) -> Verdict:
    verdict = Verdict(program.seed)
    with settings(program.seed):
        try:
            _try(program, lang, checks, adjoint, verdict)
        except ts.TinsmithError as reason:
            is_engine_s = verdict.check == "values" and "does not compile" in str(reason)
            is_tangent_s = verdict.check == "tangents" and isinstance(reason, ts.GradientError)
            verdict.outcome = UNCOMPILED if is_engine_s else TANGENTLESS if is_tangent_s else REFUSED
            verdict.words = f"{type(reason).__name__}: {reason}"
        except Exception as reason:  # noqa: BLE001  # whatever an engine raises is an outcome
            verdict.outcome, verdict.words = ERROR, f"{type(reason).__name__}: {reason}"[:2000]
    return verdict


def _try(program: Program, lang: ModuleType, checks: tuple[str, ...], adjoint: str, verdict: Verdict) -> None:
    verdict.check = "values"
    inputs = inputs_of(program.seed)
    with verdict.timed("make"):
        kernel = kernel_of(program, lang)
        op = ts.op(program.spec, scratch=program.scratch)(kernel)
    given = cotangents_of(op, program.seed)
    with verdict.timed("oracle"):  # before the engine: it refuses an index outside an array, which kills an engine
        answer = ts.oracle(op, *inputs, cotangents=given)
    with verdict.timed("compile"), torch.no_grad():
        values = _named(op, op(*inputs))
    _compare(verdict, program, values, answer.outputs)
    if len(checks) == 1 or verdict.outcome != AGREE:
        return
    chosen = {"adjoint": "engine", "trust_engine": True} if adjoint == TRUSTED else {"adjoint": adjoint}
    source = ts.op(program.spec, scratch=program.scratch, **chosen)(kernel)
    if "gradients" in checks:
        verdict.check = "gradients"
        with verdict.timed("gradient"):
            gradients = gradients_of(source, inputs, given)
        _compare(verdict, program, gradients, {name: answer.gradients[name] for name in gradients})
    if "tangents" in checks and verdict.outcome == AGREE:
        verdict.check = "tangents"
        tangents = directions_of(inputs, program.seed)
        with verdict.timed("tangent"):
            pushed = tangents_of(source, inputs, tangents)
        # The oracle has gradients alone: <cotangent, J direction> = <J^T cotangent, direction>.
        ours = sum((given[name] * one).sum() for name, one in pushed.items())
        theirs = sum((answer.gradients[name] * one).sum() for name, one in tangents.items())
        _compare(verdict, program, {"all": torch.as_tensor(ours)}, {"all": torch.as_tensor(theirs)})


def kernel_of(program: Program, lang: ModuleType) -> Any:
    """Compile the kernel of a program for an engine."""
    return kernels_of(program, lang)[0]


def kernels_of(program: Program, lang: ModuleType) -> list[Any]:
    """Compile the kernels of a program, in the order of their launches."""
    path = f"<fuzz {program.seed} {zlib.crc32(program.source.encode()):08x}>"
    linecache.cache[path] = (len(program.source), None, program.source.splitlines(keepends=True), path)
    scope = {"lang": lang, "__name__": "fuzzed", "FACTOR": FACTOR, "COUNT": COUNT}
    if "table[" in program.source:
        scope["table"] = _find_table(lang)
    exec(compile(program.source, path, "exec", dont_inherit=True), scope)
    return [lang.kernel(scope[name]) for name in program.kernels]


_TABLES: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
"""The field `table` of each start of an engine: to fill one takes as long as some programs."""


def _find_table(lang: Any) -> Any:
    runtime = lang.lang.impl.get_runtime()
    if runtime not in _TABLES:
        _TABLES[runtime] = lang.field(lang.f64, shape=len(TABLE))
        _TABLES[runtime].from_numpy(np.array(TABLE))
    return _TABLES[runtime]


def inputs_of(seed: int) -> tuple[Any, ...]:
    """Draw the arguments of a kernel: x, w, p, k, and the number `a` between p and k."""
    generator = torch.Generator().manual_seed(seed)
    x, w, p = (
        torch.rand(shape, generator=generator, dtype=torch.float64) * 1.6 - 0.7
        for shape in [(ROWS,), (ROWS, COLUMNS), (ROWS, 2)]
    )
    a = float(torch.rand((), generator=generator, dtype=torch.float64))
    drawn = torch.randint if seed % 3 else lambda high, shape, generator: torch.randperm(high, generator=generator)
    k = drawn(ROWS, (ROWS,), generator=generator).int()
    return x, w, p, k, a


def cotangents_of(op: Any, seed: int) -> dict[str, torch.Tensor]:
    """Draw a cotangent for each output."""
    generator = torch.Generator().manual_seed(seed + 1_000_003)
    sizes = {"n": ROWS, "m": COLUMNS, "v": 2}
    shapes = {item.name: [sizes[dim] for dim in RANKS[item.name]] for item in op.spec.outputs}
    return {n: torch.rand(shape, generator=generator, dtype=torch.float64) + 0.2 for n, shape in shapes.items()}


def directions_of(inputs: tuple[Any, ...], seed: int) -> dict[str, torch.Tensor]:
    """Draw a tangent for each floating input."""
    generator = torch.Generator().manual_seed(seed + 2_000_003)
    pairs = zip("xwp", inputs, strict=False)
    return {n: torch.rand(t.shape, generator=generator, dtype=torch.float64) - 0.4 for n, t in pairs}


def gradients_of(op: Any, inputs: tuple[Any, ...], given: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Compute the op's gradients of its floating inputs."""
    leaves = [t.clone().requires_grad_() for t in inputs[:3]]
    outputs = _named(op, op(*leaves, *inputs[3:]))
    reached = [name for name, one in outputs.items() if one.requires_grad]
    ends, seeds = [outputs[name] for name in reached], [given[name] for name in reached]
    gradients = torch.autograd.grad(ends, leaves, seeds, allow_unused=True, materialize_grads=True) if ends else leaves
    return dict(zip("xwp", gradients, strict=True))


def tangents_of(op: Any, inputs: tuple[Any, ...], tangents: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Compute the op's tangents of its outputs."""
    function: Callable[..., Any] = lambda *floats: op(*floats, *inputs[3:])  # noqa: E731
    _, pushed = torch.func.jvp(function, inputs[:3], tuple(tangents[name] for name in "xwp"))
    return _named(op, pushed)


def _named(op: Any, outputs: Any) -> dict[str, torch.Tensor]:
    names = [item.name for item in op.spec.outputs]
    return dict(zip(names, outputs if isinstance(outputs, tuple) else (outputs,), strict=True))


def _compare(verdict: Verdict, program: Program, mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
    tolerance = SINGLE if program.is_single else TOLERANCE
    for name, one in mine.items():
        other = theirs[name]
        if not torch.isfinite(other).all() or other.abs().max() > 1e6:  # an unlucky kernel says nothing
            continue
        if not torch.allclose(one, other, rtol=tolerance, atol=tolerance):
            worst = (one - other).abs().max().item()
            verdict.outcome = DISAGREE
            verdict.words += (
                f"{verdict.check} of `{name}` differ by {worst:.3g}:\n  {one.tolist()}\n  {other.tolist()}\n"
            )


def _is_at_a_jump(program: Program, lang: ModuleType, draws: int = 8) -> bool:
    """Return True if the interpreter's result depends on the last digits of the inputs or on rounding.

    Of a number that grew to infinity, and that a clamp makes finite again, the slope is 0 or no number.
    """
    op = ts.op(program.spec, scratch=program.scratch)(kernel_of(program, lang))
    given, inputs = cotangents_of(op, program.seed), inputs_of(program.seed)
    generator = torch.Generator().manual_seed(program.seed)
    width, tolerance = (1e-6, SINGLE) if program.is_single else (1e-13, TOLERANCE)

    def said(*nudged: Any) -> list[torch.Tensor]:
        answer = ts.oracle(op, *nudged, cotangents=given)
        return [*answer.outputs.values(), *answer.gradients.values()]

    def nudged(one: Any) -> Any:
        if not isinstance(one, torch.Tensor) or not one.is_floating_point():
            return one
        return one * (1.0 + width * (torch.rand(one.shape, generator=generator, dtype=one.dtype) - 0.5))

    if any(one.rule == "TS606" for one in ts.sanitize(op, *inputs)):
        return True
    here = said(*inputs)
    rounded = interpret_call(*bind_call(op, inputs, {}), {}, faithful=True)
    if not all(
        torch.allclose(a.double(), b.double(), rtol=SINGLE, atol=SINGLE)
        for a, b in zip(here, rounded.values(), strict=False)
    ):
        return True
    others = (said(*map(nudged, inputs)) for _ in range(draws))
    near = (
        torch.allclose(a, b, rtol=tolerance, atol=tolerance)
        for nearby in others
        for a, b in zip(here, nearby, strict=True)
    )
    return not all(near)


@contextlib.contextmanager
def optimizer_off(lang: Any) -> Iterator[None]:
    """Compile kernels without the engine's passes that confuse elements."""
    config = lang.lang.impl.current_cfg()
    before = config.cfg_optimization, config.advanced_optimization
    config.cfg_optimization = config.advanced_optimization = False
    try:
        yield
    finally:
        config.cfg_optimization, config.advanced_optimization = before


@contextlib.contextmanager
def settings(seed: int) -> Iterator[None]:
    """Run every fourth kernel in parallel, the others as their serial twin; poison uninitialized memory.

    A parallel loop takes engines twice as long to compile. Gradients of every third kernel run from checkpoints, in
    blocks of two iterations.
    """
    before = dict(os.environ)
    os.environ |= {"TINSMITH_POISON": "1", "TINSMITH_SERIAL_BELOW": "0" if seed % 4 == 1 else "65536"}
    if seed % 3 == 0:
        os.environ["TINSMITH_TAPE_LIMIT"] = "0"
    config.cache_clear()
    try:
        with mock.patch.multiple(_checkpoints, SMALLEST=2, OF_WHILE=2):
            yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        config.cache_clear()
