"""The record of a run: outcomes by mode of thousands of programs in a few lines, to be kept in the repository.

A log has a line a program, with its words. A record has a line for all programs with the same outcomes, and only those
that passed: the others are to be tried again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fuzz._judge import SEVERITY

Outcomes = dict[int, dict[str, Any]]
"""Lines of a log by seed."""


def read_record(path: Path, engine: str) -> Outcomes:
    """Read the outcomes of an engine's programs from a record; none if there is no record."""
    if not path.exists():
        return {}
    outcomes: Outcomes = {}
    for group in json.loads(path.read_text()).get(engine, []):
        outcome = min(group["modes"].values(), key=SEVERITY.index)
        for seed in _seeds(group["seeds"]):
            seconds = {"all": group["seconds"]}
            outcomes[seed] = {
                "seed": seed,
                "outcome": outcome,
                "modes": group["modes"],
                "words": {},
                "commit": group.get("commit", ""),
                "seconds": seconds,
            }
    return outcomes


def write_record(path: Path, passed: Mapping[str, Outcomes]) -> None:
    """Write the outcomes by engine. Engines that are not among them keep what the record has."""
    record = json.loads(path.read_text()) if path.exists() else {}
    record |= {engine: _groups(outcomes) for engine, outcomes in passed.items()}
    path.write_text(json.dumps(record, indent=1) + "\n")


def _groups(outcomes: Outcomes) -> list[dict[str, Any]]:
    """Return programs with the same outcomes, with the seconds that one took on average."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for line in sorted(outcomes.values(), key=lambda line: line["seed"]):
        groups.setdefault(json.dumps([line["modes"], line.get("commit", "")]), []).append(line)
    return [
        {
            "modes": lines[0]["modes"],
            **({"commit": commit} if (commit := lines[0].get("commit", "")) else {}),
            "seconds": round(sum(sum(line["seconds"].values()) for line in lines) / len(lines), 2),
            "seeds": _ranges([line["seed"] for line in lines]),
        }
        for lines in groups.values()
    ]


def _ranges(seeds: Iterable[int]) -> str:
    """Return seeds in order as text: "0-3,5"."""
    ranges: list[list[int]] = []
    for seed in seeds:
        if ranges and seed == ranges[-1][1] + 1:
            ranges[-1][1] = seed
        else:
            ranges.append([seed, seed])
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in ranges)


def _seeds(ranges: str) -> Iterable[int]:
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)
