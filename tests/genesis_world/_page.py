"""Collects outcomes into docs/about/genesis.json, and writes docs/about/genesis.md from it."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from ._catalog import count_uses, explain_absence, find_kernels
from ._scenes import OPTIONS, SCENES

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "about" / "genesis.md"
DATA = PAGE.with_suffix(".json")
BEGIN, END = "<!-- tables -->\n", "<!-- end of tables -->\n"

ORDER = (
    "wrong",
    "failed",
    "died",
    "timeout",
    "refused",
    "broken",
    "right",
    "kinks",
    "nothing",
    "not tried",
    "not launched",
)
"""Verdicts; that of a kernel is the first one of its trials."""
WORDS = {
    "right": "right",
    "wrong": "wrong",
    "refused": "refused",
    "failed": "error that is not tinsmith's",
    "died": "ended the process",
    "timeout": "too slow",
    "broken": "could not be tried",
    "kinks": "no derivative here",
    "nothing": "nothing to differentiate",
    "not tried": "launched, not tried",
    "not launched": "not launched",
}
CAUSES: list[tuple[str, str]] = [
    ("uses the gradient ", "it reads gradients as values: part of Genesis' own backward pass"),
    (r"the function `(\w+)`", r"it calls `\1`, for which no gradient is generated"),
    (r"took more than (\d+) s", r"stopped after \1 s of processor time"),
    ("handles gradients itself", "it writes gradients: part of Genesis' own backward pass"),
    ("changed nothing", "it changed nothing in the scene"),
    ("random numbers", "two equal launches write different numbers: random, or in the order of threads"),
]
"""Patterns of what outcomes say, and what they mean in plain words."""


def collect(log: Path) -> dict[str, Any]:
    """Return all outcomes of a log by kernel, as docs/about/genesis.json keeps them."""
    launches: dict[str, dict[str, int]] = defaultdict(dict)
    for path in sorted((log / "scenes").glob("*.json")):
        for key, counts in json.loads(path.read_text())["launches"].items():
            launches[key][path.stem] = sum(counts)
    trials: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for path in sorted((log / "kernels").glob("*.json")):
        one = json.loads(path.read_text())
        trials[one["kernel"]].append(_shorten(one))
    uses = count_uses()
    run = {scene for counts in launches.values() for scene in counts}
    rows = []
    for kernel in find_kernels():
        tried = sorted(_drop_unfinished(trials.get(kernel.key, [])), key=lambda one: ORDER.index(one["verdict"]))
        row = {
            "kernel": kernel.key,
            "line": kernel.line,
            "kinds": sorted(set(kernel.kinds)),
            "returns": kernel.returns,
            "launches": launches[kernel.key],
        }
        why = {} if launches[kernel.key] else {"unlaunched": explain_absence(kernel, uses, run)}
        rows.append(row | {"trials": tried} | why)
    return {"genesis": metadata.version("genesis-world"), "quadrants": metadata.version("quadrants"), "kernels": rows}


def _drop_unfinished(trials: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the trials that came to an end if one of them shows more than nothing to differentiate, else all.

    A limit of time says nothing of a kernel; that it does nothing in one scene says nothing of another scene.
    """
    ended = [one for one in trials if one["verdict"] not in ("timeout", "broken")]
    return ended if any(one["verdict"] != "nothing" for one in ended) else trials


def _shorten(one: dict[str, Any]) -> dict[str, Any]:
    numbers = one["numbers"]
    kept = ("bitwise", "forward_off", "gradient_off", "directions", "moving", "kinks", "forward_s", "backward_s")
    short = {name: numbers[name] for name in kept if name in numbers}
    counts = {name: len(numbers[name]) for name in ("inputs", "outputs") if name in numbers}
    return {"scene": one["scene"], "verdict": one["verdict"], "detail": one["detail"]} | counts | short


def write(data: dict[str, Any]) -> None:
    """Write the data, one kernel a line, and the tables of the page between their marks."""
    kernels = ",\n".join(json.dumps(one) for one in data["kernels"])
    head = {name: value for name, value in data.items() if name != "kernels"}
    DATA.write_text(f'{json.dumps(head)[:-1]}, "kernels": [\n{kernels}\n]}}\n', encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n{make_tables(data)}\n{END}{after}", encoding="utf-8")


def make_tables(data: dict[str, Any]) -> str:
    """Return the tables: by module, of causes, of all kernels, of scenes."""
    kernels = data["kernels"]
    parts = [
        _summary(kernels),
        _options(kernels),
        _causes(kernels, "refused", "## What is refused, and why", "cause"),
        _causes(kernels, "nothing", "## What has no derivative", "why"),
        _causes(kernels, "not launched", "## What no scene launches, and why", "why"),
        _all(kernels),
        _scenes(kernels),
    ]
    return "\n\n".join(parts) + "\n"


def verdict(row: dict[str, Any]) -> str:
    """Return the verdict of a kernel: the worst of its trials; "nothing" only where no scene gave more."""
    verdicts = [one["verdict"] for one in row["trials"]]
    return min(verdicts, key=ORDER.index) if verdicts else "not tried" if row["launches"] else "not launched"


def _summary(kernels: list[dict[str, Any]]) -> str:
    names = [one for one in ORDER if any(verdict(row) == one for row in kernels)]
    groups: dict[str, Counter[str]] = defaultdict(Counter)
    for row in kernels:
        groups[_group(row["kernel"])][verdict(row)] += 1
    lines = [_row(["module", "kernels", *(WORDS[one] for one in names)]), "|---|" + "---:|" * (len(names) + 1)]
    for module, counts in sorted(groups.items()):
        lines.append(_row([f"`{module}`", sum(counts.values()), *(counts[one] or "" for one in names)]))
    total = Counter(map(verdict, kernels))
    lines.append(_row(["all", len(kernels), *(total[one] for one in names)]))
    return "## By module\n\n" + "\n".join(lines)


def _options(kernels: list[dict[str, Any]]) -> str:
    """Return the table of options: by what scenes each was turned on, and what became of the trials in these."""
    lines = [_row(["option", "scenes", "kernels tried", "outcomes"]), "|---|---|---:|---|"]
    run = {name for row in kernels for name in [*row["launches"], *(one["scene"] for one in row["trials"])]}
    for option, words in OPTIONS.items():
        scenes = [name for name, one in SCENES.items() if option in one.options and name in run]
        counts = Counter(one["verdict"] for row in kernels for one in row["trials"] if one["scene"] in scenes)
        outcomes = ", ".join(f"{counts[one]} {WORDS[one]}" for one in ORDER if counts[one])
        lines.append(_row([words, ", ".join(scenes), counts.total(), outcomes]))
    text = "All other scenes leave these options off."
    return f"## Options\n\n{text}\n\n" + "\n".join(lines)


def _group(key: str) -> str:
    """Return the part of Genesis that a kernel belongs to: a folder, or a file of a solver."""
    parts = _split(key)[0].split(".")
    is_rigid = parts[1:3] == ["solvers", "rigid"]
    count = 4 if is_rigid else 3 if parts[1] in ("solvers", "couplers") else 2
    return ".".join(parts[:count])


def _causes(kernels: list[dict[str, Any]], kind: str, title: str, column: str) -> str:
    by_cause: dict[str, list[str]] = defaultdict(list)
    for row in kernels:
        if verdict(row) == kind:
            trials = [one for one in row["trials"] if one["verdict"] == kind]
            cause = explain(row, trials[0]) if trials else row["unlaunched"]
            by_cause[cause].append(row["kernel"].rpartition(".")[2])
    lines = [_row([column, "kernels", "such as"]), "|---|---:|---|"]
    for cause, names in sorted(by_cause.items(), key=lambda one: -len(one[1])):
        lines.append(_row([cause, len(names), ", ".join(f"`{one}`" for one in names[:3])]))
    return f"{title}\n\n" + "\n".join(lines)


def explain(row: dict[str, Any], trial: dict[str, Any]) -> str:
    """Return what the detail of a trial means, without the names and numbers of one kernel."""
    detail = trial["detail"]
    if detail == "changed nothing" and row["returns"]:
        return "it returns a value to Python, and writes no array"
    for pattern, words in CAUSES:
        if match := re.search(pattern, detail):
            return match.expand(words)
    return re.sub(r"\d+", "N", re.sub(r"`[^`]*`", "`...`", detail)).replace("|", "\\|")


def _all(kernels: list[dict[str, Any]]) -> str:
    lines = [_row(["kernel", "takes", "tried in", "result"]), "|---|---|---|---|"]
    module = ""
    for row in kernels:
        here, name = _split(row["kernel"])
        if here != module:
            module = here
            lines.append(_row([f"**{module}**", "", "", ""]))
        tried = [one["scene"] for one in row["trials"]] or list(row["launches"])[:1]
        takes = ", ".join(row["kinds"])
        lines.append(_row([f"`{name}`", takes, ", ".join(tried), _result(row)]))
    return "## All kernels\n\n" + "\n".join(lines)


def _split(key: str) -> tuple[str, str]:
    parts = key.split(".")
    count = 2 if parts[-2][:1].isupper() else 1
    return ".".join(parts[:-count]), ".".join(parts[-count:])


def _result(row: dict[str, Any]) -> str:
    kind = verdict(row)
    if kind == "not launched":
        return f"not launched: {row['unlaunched']}"
    if not row["trials"]:
        return WORDS[kind]
    one = next(one for one in row["trials"] if one["verdict"] == kind)
    if kind == "right":
        off, kinks = one.get("gradient_off", 0.0), one.get("kinks", 0)
        part = f"; {kinks} of {one['moving']} elements at kinks" if kinks else ""
        return f"right: {'bitwise' if one['bitwise'] else format(one['forward_off'], '.0e')}, gradient {off:.0e}{part}"
    return f"{WORDS[kind]}: {explain(row, one)}" if one["detail"] else WORDS[kind]


def _describe(build: Callable[..., Any]) -> str:
    """Return what a function builds: its docstring's first line without the verb."""
    words = (build.__doc__ or "").split("\n")[0].removeprefix("Build ")
    return words[:1].upper() + words[1:]


def _scenes(kernels: list[dict[str, Any]]) -> str:
    counts = Counter(name for row in kernels for name in row["launches"])
    lines = [_row(["scene", "what", "kernels launched"]), "|---|---|---:|"]
    run = {name: one for name, one in SCENES.items() if counts[name]}
    lines += [_row([name, _describe(one.run), counts[name]]) for name, one in run.items()]
    return "## Scenes\n\n" + "\n".join(lines)


def _row(cells: Iterable[object]) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"
