"""What becomes of one program of the wide grammar: an outcome for each mode."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch

import tinsmith as ts
from fuzz._grammar import Program
from fuzz._modes import MODES, Trial
from fuzz._reference import HALVES, Reference
from fuzz._shrink import shrunk
from fuzz._single import no_vectors, small_vectors
from fuzz._verdict import (
    AGREE,
    CRASH,
    DISAGREE,
    ERROR,
    INVALID,
    MISCOMPILED,
    REFUSED,
    ROUNDED,
    UNCOMPILED,
    UNSTEADY,
    optimizer_off,
    settings,
)

TOLERANCES = {torch.float64: 1e-8, torch.float32: 1e-3}
OF_HALF = 4e-3
LARGEST = 1e6
SEVERITY = (CRASH, INVALID, DISAGREE, ERROR, REFUSED, MISCOMPILED, UNCOMPILED, ROUNDED, UNSTEADY, AGREE)
"""Outcomes, the worst first."""


@dataclass
class ModesVerdict:
    """Outcomes of one program by mode, with words where a mode does not agree; seconds by mode.

    `vectors` counts the kernels that ran in strips or lanes.
    """

    seed: int
    modes: dict[str, str] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    vectors: int = 0

    @property
    def outcome(self) -> str:
        """The worst."""
        return min(self.modes.values(), key=SEVERITY.index)


def judge_modes(
    program: Program,
    lang: ModuleType,
    modes: Iterable[str] = tuple(MODES),
    begin: Callable[[ModesVerdict, str], None] = lambda verdict, mode: None,
    dtype: torch.dtype = torch.float64,
    engine: str | None = None,
) -> ModesVerdict:
    """Try a program in some modes. `begin` hears which mode comes next: an engine may end the process.

    In float32 kernels run in strips and lanes, as on any CPU, though they are small. With `engine="python"`, Python
    runs them.
    """
    if dtype == torch.float64:
        return _judged(program, Trial(program, lang, dtype, engine), tuple(modes), begin)
    with small_vectors(program.seed) as counted:
        verdict = _judged(program, Trial(program, lang, dtype, engine), tuple(modes), begin)
    verdict.vectors = counted.count
    return verdict


def choose_language(languages: Sequence[ModuleType], seed: int) -> ModuleType:
    """Return the language that a seed's program is written in. Settings depend on the seed's last bits alone."""
    return languages[seed // 4 % len(languages)]


def shrink_modes(
    program: Program, first: ModesVerdict, judge: Callable[[Program, list[str]], ModesVerdict], tries: int = 600
) -> tuple[Program, str]:
    """Return the smallest program found that still fails as `first` says, and the mode in which it does."""
    mode = next(mode for mode, outcome in first.modes.items() if outcome == first.outcome)
    before = first.words.get(mode, "")

    def fails(smaller: Program) -> bool:
        verdict = judge(smaller, [mode])
        outcome, words = verdict.modes[mode], verdict.words.get(mode, "")
        return outcome == first.modes[mode] and (outcome == DISAGREE or words[:40] == before[:40])

    return (program if first.outcome == AGREE else shrunk(program, fails, tries)), mode


def _judged(
    program: Program, trial: Trial, modes: tuple[str, ...], begin: Callable[[ModesVerdict, str], None]
) -> ModesVerdict:
    verdict = ModesVerdict(program.seed)
    try:
        started = time.perf_counter()
        is_large = _prepare(trial)
        verdict.seconds["mirror"] = round(time.perf_counter() - started, 4)
    except Exception as reason:  # noqa: BLE001  # whatever Python says of a program that is wrong
        verdict.modes, verdict.words = dict.fromkeys(modes, INVALID), {"mirror": f"{type(reason).__name__}: {reason}"}
        return verdict
    if is_large:
        verdict.modes = dict.fromkeys(modes, UNSTEADY)
        return verdict
    with settings(program.seed):
        for mode in modes:
            begin(verdict, mode)
            started = time.perf_counter()
            verdict.modes[mode], words = _try(trial, mode)
            verdict.seconds[mode] = round(time.perf_counter() - started, 4)
            if words:
                verdict.words[mode] = words
            if verdict.modes[mode] == UNCOMPILED:  # nor do the others
                verdict.modes = dict.fromkeys(modes, UNCOMPILED)
                break
        _excuse(verdict, trial)
    return verdict


def _prepare(trial: Trial) -> bool:
    """Evaluate the references; whether numbers are too large to be compared."""
    numbers = [one for reference in trial.references for one in _quantities(reference)]
    return any(not torch.isfinite(one).all() or bool((one.abs() > LARGEST).any()) for one in numbers)


def _quantities(reference: Reference) -> list[torch.Tensor]:
    groups = (reference.outputs, reference.of_chosen, reference.of_all, reference.of_loss, reference.curvature)
    return [one.double() for group in groups for one in group.values()]


def _try(trial: Trial, mode: str) -> tuple[str, str]:
    """Try a mode; return the outcome, and words if it does not agree."""
    try:
        wrong = [_differ(*pair, _tolerance(pair[0], trial.dtype)) for pair in MODES[mode](trial)]
    except ts.TinsmithError as reason:
        return _refused(reason, mode)
    except Exception as reason:  # noqa: BLE001  # whatever an engine raises is an outcome
        cause = _first_cause(reason)
        return _refused(cause, mode) if isinstance(cause, ts.TinsmithError) else (ERROR, _said(reason))
    words = "".join(wrong)
    return (DISAGREE, words[:2000]) if words else (AGREE, "")


def _refused(reason: ts.TinsmithError, mode: str) -> tuple[str, str]:
    """Classify a refusal: one with a reason is an outcome of its own; one that asks for a report is an error."""
    if mode == "backward" and isinstance(reason, ts.KernelError) and reason.__cause__ is not None:
        return UNCOMPILED, _said(reason)  # the engine refused the program itself
    return ERROR if reason.is_internal else REFUSED, _said(reason)


def _first_cause(reason: BaseException) -> BaseException:
    """Return the error that torch.compile wrapped."""
    while reason.__cause__ is not None:
        reason = reason.__cause__
    return reason


def _said(reason: BaseException) -> str:
    return f"{type(reason).__name__}: {reason}"[:2000]


def _tolerance(name: str, dtype: torch.dtype) -> float:
    """Return the tolerance for values under a name; derivatives by arrays of half precision are rounded to it."""
    is_rounded = name.rpartition(" ")[2] in HALVES
    return OF_HALF if is_rounded else TOLERANCES[dtype]


def _differ(name: str, mine: torch.Tensor, right: torch.Tensor, tolerance: float) -> str:
    """Return words where two tensors are not equal up to rounding; "" where they are."""
    mine, right = mine.detach().double(), right.double()
    if mine.shape != right.shape:
        return f"{name} has shape {tuple(mine.shape)} for {tuple(right.shape)}\n"
    scale = max(1.0, float(right.abs().max())) if right.numel() else 1.0
    if torch.allclose(mine, right, rtol=tolerance, atol=tolerance * scale):
        return ""
    worst = (mine - right).abs().max().item()
    return f"{name} differs by {worst:.3g}:\n  got      {mine.tolist()}\n  expected {right.tolist()}\n"


def _excuse(verdict: ModesVerdict, trial: Trial) -> None:
    """Tell programs at a jump, and engines' own mistakes, from what is wrong."""
    wrong = [mode for mode, outcome in verdict.modes.items() if outcome == DISAGREE]
    if not wrong:
        return
    if _is_at_a_jump(trial):
        verdict.modes |= dict.fromkeys(wrong, UNSTEADY)
        return
    if trial.dtype == torch.float32:
        _excuse_rounding(verdict, wrong, trial.make_again())
        return
    if trial.engine == "python":
        # It compiles nothing that could be compiled wrongly.
        return
    with optimizer_off(trial.lang):
        plain = trial.make_again()
        values_alone = "value of" in verdict.words.get("backward", "")
        for mode in wrong:
            outcome, _ = _try(plain, mode)
            verdict.words[mode] += f"with the engine's optimizer off: {outcome}\n"
            if outcome == AGREE and values_alone:
                verdict.modes[mode] = MISCOMPILED


def _excuse_rounding(verdict: ModesVerdict, wrong: list[str], plain: Trial) -> None:
    """Excuse a float32 error that is as large without strips and lanes, since float64 would reveal a bug."""
    with no_vectors():
        for mode in wrong:
            outcome, words = _try(plain, mode)
            verdict.words[mode] += f"without strips and lanes: {outcome} {words}\n"
            verdict.modes[mode] = ROUNDED if outcome == DISAGREE else DISAGREE


def _is_at_a_jump(trial: Trial, draws: int = 4) -> bool:
    """Return True if what the mirror says depends on the last digits of the inputs."""
    generator = torch.Generator().manual_seed(trial.program.seed)
    here = [one for reference in trial.references for one in _quantities(reference)]
    for _ in range(draws):
        near: list[Any] = [one for reference in trial.nudged(generator) for one in _quantities(reference)]
        if any(_differ_much(a, b) for a, b in zip(here, near, strict=True)):
            return True
    return False


def _differ_much(one: torch.Tensor, other: torch.Tensor) -> bool:
    scale = max(1.0, float(one.abs().max())) if one.numel() else 1.0
    return not torch.allclose(one, other, rtol=1e-5, atol=1e-5 * scale)
