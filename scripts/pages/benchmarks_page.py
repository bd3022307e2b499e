"""The pages that show numbers of benchmarks, between marks: results, missed targets, networks, peers, the GPU."""

from __future__ import annotations

import re
from pathlib import Path

from .blocks import ROOT
from .results import bars_of, files, machine, missed, table_of, text_of, title_of

PAGE = ROOT / "docs" / "about" / "benchmarks.md"
README = ROOT / "README.md"
NETWORKS = ROOT / "docs" / "how-to" / "networks.md"
_OF_NETWORKS = "networks-cpu.md"
_OF_PEERS = "peers-cpu.md"
_OF_GPU = "gpu-h200.md"
_OF_GROWTH = "growth-cpu.md"
_OF_SIZES = "sizes-cpu.md"


def pages() -> dict[Path, str]:
    """Return the text of each page, by its path."""
    own = {
        "meaning": _meaning(),
        "machine": "\n\n".join(machine()),
        "counts": _counts(),
        "misses": _misses(),
        "peers": _peers(""),
        "peers-middle": _peers("Middle sizes"),
        "peers-small": _peers("Small sizes"),
        "lost": _lost(),
        "growth": _growth(),
        "sizes": _sizes(),
        "compiled-call": _first_table("compiled-call-cpu.md", ""),
        "pauses": _first_table("pauses-cpu.md", "saxpy"),
    }
    networks = {"steps": _steps(), "scattered": _scattered(), "memory": _memory()}
    filled = {PAGE: own, NETWORKS: networks, README: {"gpu": _gpu()}}
    return {page: _filled(page, parts) for page, parts in filled.items()}


def _filled(page: Path, parts: dict[str, str]) -> str:
    text = page.read_text(encoding="utf-8")
    for name, part in parts.items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        head, _, rest = text.partition(begin)
        text = f"{head}{begin}\n\n{part}\n\n{end}{rest.partition(end)[2]}"
    return text


def _steps() -> str:
    heads, *rows = table_of(text_of(_OF_NETWORKS), "Training steps, thousands of samples a second")
    return _table(heads, [row for row in rows if row[heads.index("hidden")] == "2"])


def _memory() -> str:
    return _first_table(_OF_NETWORKS, "Peak memory of forward and backward, MB")


def _growth() -> str:
    rows = table_of(text_of(_OF_GROWTH), "")[1:]
    return _table(["what grows", "tinsmith", "the fastest peer", "steeper by"], [row[:4] for row in rows])


def _sizes() -> str:
    head, *rows = table_of(text_of(_OF_SIZES), "")
    return _table([*head[:-1], "to hold"], rows)


def _first_table(name: str, heading: str) -> str:
    heads, *rows = table_of(text_of(name), heading)
    return _table(heads, rows)


def _scattered() -> str:
    rows = table_of(text_of(_OF_NETWORKS), "")[1:]
    return _table(
        ["what", "against", "ratio"], [[row[0], row[2], row[3]] for row in rows if "points scattered" in row[0]]
    )


def _peers(heading: str) -> str:
    """Return the table below a heading; a sentence if the last run did not measure that size."""
    if not _has_table(heading):
        return "Not measured yet: `./scripts/peers` on a quiet machine."
    return _first_table(_OF_PEERS, heading)


def _has_table(heading: str) -> bool:
    return not heading or f"\n## {heading}\n" in text_of(_OF_PEERS)


def _meaning() -> str:
    """Return what the first chart of the page says, in two sentences."""
    calls = [row for row in table_of(text_of("overhead-cpu.md"), "")[1:] if row[0] == "64 elements, y.backward(g)"]
    times = dict(cell.rpartition(": ")[::2] for row in reversed(calls) for cell in row[1:3])
    ours, hand = (f"{times[f'{way} on quadrants']} to {times[f'{way} on taichi']}" for way in ("ts.op", "by hand"))
    heads, *rows = table_of(text_of(_OF_PEERS), "")
    faster: dict[str, list[str]] = {}
    for who, *cells in rows:
        for kernel, cell in zip(heads[1:], cells, strict=True):
            if not who.startswith("tinsmith") and "/" in cell and float(cell.split(" / ")[1]) < 1:
                faster.setdefault(kernel, []).append(who)
    kernels, others = len(heads) - 1, "; ".join(f"{kernel} ({', '.join(peers)})" for kernel, peers in faster.items())
    return (
        f"A call of an op, forward and backward, takes {ours}, where the hand-written Function\n"
        f"around the same kernel takes {hand}. In {kernels - len(faster)} of {kernels} kernels, forward and backward,\n"
        "tinsmith is faster than torch, torch.compile, Warp and Dr.Jit; the exceptions, and who is faster there, are\n"
        f"{others}."
    )


def _lost() -> str:
    """Return a list of the peers that are faster than tinsmith on its faster engine, with the kernel and their relative
    time, size by size.
    """
    lines = []
    for size, heading in (("Large", ""), ("Middle", "Middle sizes"), ("Small", "Small sizes")):
        heads, *rows = table_of(text_of(_OF_PEERS), heading) if _has_table(heading) else [[]]
        for who, *cells in rows:
            cases = []
            for kernel, cell in zip(heads[1:], cells, strict=True):
                for what, times in zip(("forward", "forward and backward"), cell.split(" / "), strict=False):
                    if not who.startswith("tinsmith") and times and float(times) < 1:
                        cases.append(f"{kernel} {what}, {times}")
            lines += [f"- {size}, **{who}**: {'; '.join(cases)}."] if cases else []
    return "\n".join(lines) or "Nobody, on this machine."


def _gpu() -> str:
    """Return the sentences of the README about GPUs: the tests that passed, and the best and worst ratio to torch."""
    text = text_of(_OF_GPU)
    (date, device), *_ = re.findall(r"on (\d+ \w+ \d{4}):.*?(NVIDIA \w+)", text)
    rows = table_of(text, "")[1:]
    tests = [outcome for part, _, _, outcome, *_ in rows if part.startswith("tests")]
    assert all(outcome.startswith("ok") for outcome in tests), "the README says that all tests pass"
    passed = sum(int(number) for outcome in tests for number in re.findall(r"(\d+) passed", outcome))
    ratios = [
        (float(ratio), what.partition(", ")[0], time.partition(", ")[0])
        for _, what, way, time, beside, *_ in rows
        if way == "tinsmith on quadrants"
        # Not torch.compile, nor the splatting by tiles, which nobody would use.
        for ratio in re.findall(r"([\d.]+) x as fast as (?:plain torch|torch(?:\.mul)?)(?:,(?! by tiles)|$)", beside)
    ]
    (worst, slow, slow_time), *_, (best, fast, fast_time) = sorted(ratios)
    return (
        f"**GPUs:** all {passed} tests for CUDA pass on an {device}, on both engines ({date}). Speed there, compared\n"
        f"with plain torch: from {best:.2g} x ({fast}, {fast_time}) to {worst:.2g} x ({slow}, {slow_time});\n"
        f"[all results](benchmarks/results/{_OF_GPU}). It ran there only for minutes, so expect bugs, and please\n"
        "report the output of `scripts/gpu_check`."
    )


def _table(heads: list[str], rows: list[list[str]]) -> str:
    marks = ["---:" if not re.search("[a-z]{3}", rows[0][place]) else "---" for place in range(len(heads))]
    return "\n".join(f"| {' | '.join(row)} |" for row in [heads, marks, *rows])


def _counts() -> str:
    lines = ["| results | targets | met | aim met too | missed |", "|---|---:|---:|---:|---:|"]
    for name in files():
        bars = bars_of(name)
        held, aims = (
            [bar for bar in bars if bar.verdict.startswith("held")],
            [bar for bar in bars if "aim" in bar.verdict],
        )
        link = f"[{title_of(name)}](../../benchmarks/results/{name})"
        lines.append(f"| {link} | {len(bars)} | {len(held)} | {len(aims)} | {len(missed(bars))} |")
    return "\n".join(lines)


def _misses() -> str:
    lines = ["| what | ours | against | measured | target |", "|---|---|---|---|---|"]
    misses = [bar for name in files() for bar in missed(bars_of(name))]
    return "\n".join([*lines, *[f"| {' | '.join(bar[:5])} |" for bar in misses]])
