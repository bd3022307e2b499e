"""The page of benchmarks: what every file of results holds and misses, between the marks."""

from __future__ import annotations

from pathlib import Path

from .blocks import ROOT
from .results import Bar, bars_of, files, machine, title_of

PAGE = ROOT / "docs" / "about" / "benchmarks.md"
_MARKS = ("<!-- {0}: begin -->", "<!-- {0}: end -->")


def pages() -> dict[Path, str]:
    """The page with its text."""
    text = PAGE.read_text(encoding="utf-8")
    for name, part in {"machine": "\n\n".join(machine()), "counts": _counts(), "misses": _misses()}.items():
        begin, end = (mark.format(name) for mark in _MARKS)
        head, _, rest = text.partition(begin)
        text = f"{head}{begin}\n\n{part}\n\n{end}{rest.partition(end)[2]}"
    return {PAGE: text}


def _counts() -> str:
    lines = ["| results | bars | held | of these the aim too | missed |", "|---|---:|---:|---:|---:|"]
    for name in files():
        bars = bars_of(name)
        held, aims = (
            [bar for bar in bars if bar.verdict.startswith("held")],
            [bar for bar in bars if "aim" in bar.verdict],
        )
        link = f"[{title_of(name)}](../../benchmarks/results/{name})"
        lines.append(f"| {link} | {len(bars)} | {len(held)} | {len(aims)} | {len(_missed(bars))} |")
    return "\n".join(lines)


def _misses() -> str:
    lines = ["| what | ours | against | measured | to hold |", "|---|---|---|---|---|"]
    missed = [bar for name in files() for bar in _missed(bars_of(name))]
    return "\n".join([*lines, *[f"| {' | '.join(bar[:5])} |" for bar in missed]])


def _missed(bars: list[Bar]) -> list[Bar]:
    return [bar for bar in bars if bar.verdict == "MISSED"]
