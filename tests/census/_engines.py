"""Random kernels, differentiated by the engines' own reverse modes: right, wrong, refused, or the process dies.

What is right is what the oracle says. Nothing is refused by us (`trust_engine=True`) but what would end the process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fuzz._campaign import Campaign
from fuzz._grammar import write
from fuzz._verdict import AGREE, CRASH, DISAGREE, ERROR, REFUSED, TRUSTED
from tinsmith.linter import RULES, lint_file

RIGHT, WRONG, NOT, DEAD, ASIDE = "right", "wrong", "refused", "process dies", "not counted"
KINDS = (RIGHT, WRONG, NOT, DEAD)


class Tried(NamedTuple):
    """One kernel: the outcome for its gradient, and the rules by which lint reports it."""

    seed: int
    kind: str
    rules: tuple[str, ...]


def tried(engine: str, seeds: Sequence[int], log: Path | None, jobs: int) -> list[Tried]:
    """Differentiate random kernels by an engine."""
    campaign = Campaign(engine, seeds, jobs, TRUSTED, log).run()
    return [Tried(seed, kind(campaign.outcomes[seed]), doubts(seed, engine)) for seed in seeds]


def kind(line: Mapping[str, Any]) -> str:
    """Classify the outcome for a kernel's gradient; a kernel whose values are wrong is not counted."""
    if line["outcome"] == CRASH:
        return DEAD
    if line["outcome"] == AGREE:
        return RIGHT
    if line["check"] != "gradients":
        return ASIDE
    if line["outcome"] in (REFUSED, ERROR):
        return DEAD if "end the process" in line["words"] else NOT
    return WRONG if line["outcome"] == DISAGREE else ASIDE


def doubts(seed: int, engine: str) -> tuple[str, ...]:
    """Return rules by which lint says, of the source alone, that an engine gets the gradient wrong or refuses it."""
    source = write(seed).source.replace("def kernel(", "@lang.kernel\ndef kernel(")
    findings = lint_file(f"{seed}.py", f"import {engine} as lang\n{source}")
    return tuple(
        sorted({one.rule for one in findings if one.severity != "info" and engine.capitalize() in one.message})
    )


def unnamed(tried: Iterable[Tried]) -> list[int]:
    """Return seeds of kernels whose gradient is wrong and that lint does not report."""
    return [one.seed for one in tried if one.kind == WRONG and not one.rules]


def table(tried_by_engine: Mapping[str, Sequence[Tried]]) -> Iterator[str]:
    """Return Markdown: the outcomes of all kernels, and of those that each rule reports."""
    yield "| engine | kernels | right | wrong | wrong and reported | refused | process dies | right, but reported |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    for engine, ones in tried_by_engine.items():
        counts = Counter(one.kind for one in ones)
        reported = sum(one.kind == WRONG and bool(one.rules) for one in ones)
        idle = sum(one.kind == RIGHT and bool(one.rules) for one in ones)
        cells = [len(ones), counts[RIGHT], counts[WRONG], reported, counts[NOT], counts[DEAD], idle]
        yield f"| {engine.capitalize()} | {' | '.join(map(str, cells))} |"
    yield ""
    yield (
        "| rule | | "
        + " | ".join(f"{engine.capitalize()}: {one}" for engine in tried_by_engine for one in KINDS[:3])
        + " |"
    )
    yield "|---|---|" + "---:|" * 3 * len(tried_by_engine)
    for rule in sorted({rule for ones in tried_by_engine.values() for one in ones for rule in one.rules}):
        counts = [Counter(one.kind for one in ones if rule in one.rules) for ones in tried_by_engine.values()]
        cells = [str(count[one]) for count in counts for one in KINDS[:3]]
        yield f"| {rule} | {RULES[rule].name} | {' | '.join(cells)} |"
