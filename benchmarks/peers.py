"""The same kernels in tinsmith on both engines, torch, torch.compile, Numba, Warp and Dr.Jit, side by side on a CPU.

    python benchmarks/peers.py [--rounds 15] [--threads N] [--only saxpy blend] [--sizes small] [--quick]
                               [--out benchmarks/results]

A saxpy; compositing of rays, dense and ragged; an additive splat; a blend of sorted Gaussians over tile lists; a ray
march with a `while` that depends on data; a step of masses and springs. Each at three sizes, forward, and forward and
backward where a peer differentiates. Each is written as well as we know in every way (`_peer_kernels`, `_peer_cases`
for torch, `_peer_numba`, `_peer_warp`, `_peer_drjit`).

Values and gradients are compared with plain torch in float64 first: who computes something else is named and not
timed. Peers that are not installed are named, too: `./scripts/peers` runs this where all are. Ways take turns in one
process; what is compared are times that a fifth of the rounds stay below, since other programs on the machine make
calls longer, never shorter. `--quick` tries everything on a few small calls; its numbers mean nothing, so it writes
only where `--out` says.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path

os.environ |= {"ENABLE_TAICHI_HEADER_PRINT": "False", "ENABLE_QUADRANTS_HEADER_PRINT": "False"}
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import setuptools  # noqa: F401 - before Quadrants, after which torch.compile fails otherwise (docs/about/limits.md)
import torch

import _peer_kernels as kernels
import tinsmith as ts
from _harness import Call, Effort, keep_memory, timed
from _peer_cases import ABOUT, COMPILED, COUNTS, NAMES, SIZES, TORCH, Given, Way, given, reference, torch_way
from _peer_drjit import drjit_ways
from _peer_numba import numba_ways
from _peer_warp import warp_ways
from _report import in_words, machine

RESULTS = Path(__file__).parent / "results"
ENGINES = ("taichi", "quadrants")
CLOSE = 2e-4
"""How far all numbers may be from float64, as a share of them, by their 2-norms. A threshold may fall differently for a
pixel, and Warp takes a power where others add up steps."""
Makes = Callable[[Given], Way]


@dataclass
class Page:
    """The results: a table for each kernel, the times relative to tinsmith's by size, way and kernel, and what was not
    timed, with the reason.
    """

    tables: list[str] = field(default_factory=list)
    shares: dict[str, dict[str, dict[str, list[str]]]] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)


def makes_of_ways(threads: int, page: Page) -> dict[str, Mapping[str, Makes]]:
    """Return the functions that build each kernel's way, by the library's name and the kernel's."""
    makes: dict[str, Mapping[str, Makes]] = {}
    for engine in ENGINES:
        lang = import_module(engine)
        makes[f"tinsmith, {engine}"] = {
            name: lambda at, lang=lang: torch_way(at, getattr(kernels, at.name)(lang)) for name in NAMES
        }
    makes["torch"] = {name: lambda at: torch_way(at, TORCH[at.name]) for name in NAMES}
    makes["torch.compile"] = {name: lambda at: torch_way(at, torch.compile(COMPILED[at.name])) for name in COMPILED}
    peers = {"Numba": lambda: numba_ways(threads), "Warp": warp_ways, "Dr.Jit": lambda: drjit_ways(threads)}
    for peer, make in peers.items():
        try:
            makes[peer] = make()
        except ImportError as reason:
            page.left_out.append(f"{peer} ({reason}; `./scripts/peers` runs this in an environment that has it)")
    return makes


def checked(at: Given, makes: Mapping[str, Mapping[str, Makes]], page: Page) -> tuple[dict[str, Way], dict[str, float]]:
    """Return the ways whose results match the reference, and the largest error of each."""
    ways: dict[str, Way] = {}
    errors: dict[str, float] = {}
    outputs, gradients = reference(at)
    for who, by_name in makes.items():
        if at.name not in by_name:
            continue
        way = by_name[at.name](at)
        pairs = [*zip(way.tensors(way.forward()), outputs, strict=True)]
        # Run twice, to notice results that are added to those of the first run.
        for _ in range(2 if way.both else 0):
            assert way.both is not None
            pairs += zip(way.tensors(way.both()), gradients, strict=True)
        # Compare norms: if a comparison falls differently, a single number differs and all others are right.
        far = max(((one.double().reshape(other.shape) - other).norm() / other.norm()).item() for one, other in pairs)
        if far > CLOSE:
            page.left_out.append(f"{at.name} in {who} (computes something else: {far:.1e} of all numbers)")
            continue
        ways[who], errors[who] = way, far
    return ways, errors


def measure(name: str, sizes: list[str], makes: Mapping[str, Mapping[str, Makes]], effort: Effort, page: Page) -> None:
    """Time one kernel in all ways at all sizes, and add the results to the page."""
    cells: dict[str, dict[tuple[str, str], str]] = {}
    errors: dict[str, float] = {}
    for size in sizes:
        # A short moment is often undisturbed, so short calls are timed in more and shorter ones.
        given_effort = effort if size == "large" else replace(effort, rounds=3 * effort.rounds, moment=1e-3)
        ways, errors_here = checked(given(name, size), makes, page)
        errors = {who: max(errors.get(who, 0.0), error) for who, error in {**errors, **errors_here}.items()}
        passes = {
            "forward": timed({who: way.forward for who, way in ways.items()}, given_effort),
            "both": timed({who: way.both for who, way in ways.items() if way.both}, given_effort),
        }
        ours = {what: min(timings[f"tinsmith, {engine}"].low for engine in ENGINES) for what, timings in passes.items()}
        for what, timings in passes.items():
            for who in ways:
                share = f"{timings[who].low / ours[what]:.2f}" if who in timings else ""
                page.shares.setdefault(size, {}).setdefault(who, {}).setdefault(name, []).append(share)
                if share:
                    cells.setdefault(who, {})[what, size] = f"{in_words(timings[who].low)} ({share})"
    counts = [f"{COUNTS[name][SIZES.index(size)]:,}" for size in sizes]
    columns = [(what, size) for what in ("forward", "both") for size in sizes]
    heads = ("way", *(f"{what} {count}" for what in ("forward", "both") for count in counts), "furthest from float64")
    page.tables += [f"## {name}", "", f"{', '.join(counts)} {ABOUT[name]}.", "", f"| {' | '.join(heads)} |"]
    page.tables.append("|---|" + "---:|" * (len(heads) - 1))
    for who, row in cells.items():
        page.tables.append(f"| {who} | {' | '.join(row.get(one, '') for one in columns)} | {errors[who]:.0e} |")
    page.tables.append("")


def summary(page: Page, names: list[str], size: str) -> list[str]:
    """Return the table of times relative to the faster of tinsmith's at a size, forward / forward and backward;
    tinsmith is slower below 1.
    """
    lines = ["| times the faster of ours | " + " | ".join(names) + " |", "|---|" + "---:|" * len(names)]
    for who, by_name in page.shares[size].items():
        cells = [" / ".join(filter(None, by_name.get(name, []))) for name in names]
        lines.append(f"| {who} | {' | '.join(cells)} |")
    return lines


def limits() -> str:
    """Measure what the machine can do now: memory bandwidth by a large sum of two tensors, and products of matrices."""
    x, y, out = torch.rand(20_000_000), torch.rand(20_000_000), torch.empty(20_000_000)
    a, b = torch.rand(1024, 1024), torch.rand(1024, 1024)

    def best(call: Call) -> float:
        seconds = []
        for _ in range(7):
            start = time.perf_counter()
            call()
            seconds.append(time.perf_counter() - start)
        return min(seconds)

    bandwidth = 12 * len(x) / best(lambda: torch.add(x, y, out=out)) / 1e9
    flops = 2 * 1024**3 / best(lambda: a @ b) / 1e9
    saxpy = 120e6 / bandwidth / 1e6
    words = f"Limits of the machine, by torch: {bandwidth:.0f} GB/s of memory, {flops:.0f} Gflop/s in float32"
    return f"{words}. At that bandwidth a saxpy of 10 million takes {saxpy:.2g} ms."


HOW = """\
Times are those that a fifth of {rounds} interleaved rounds in one process stay below, of three times as many shorter
rounds for the small and middle sizes: the machine ran other programs too. In parentheses: how many times as long it
takes as the faster of tinsmith's two, so that below 1 tinsmith is the slower one. *Both* is forward and backward.
Values and gradients of every way were compared with plain torch in float64 first. torch, Numba and tinsmith make a
tensor for each result; Warp and Dr.Jit work on arrays of their own that are there before, and Warp fills the same
outputs again. Warp runs on one thread, Numba's splat too. Numba does not differentiate; torch.compile is left out where
sizes or the number of steps depend on data. It has a compositing of its own, channel by channel: of plain torch's it
makes a parallel region for each ray. What is measured, and how: `benchmarks/peers.py`."""


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--rounds", type=int, default=15)
    asked.add_argument("--threads", type=int, default=torch.get_num_threads())
    asked.add_argument("--only", nargs="*", default=NAMES, choices=NAMES)
    asked.add_argument("--sizes", nargs="*", default=SIZES, choices=SIZES)
    asked.add_argument("--quick", action="store_true", help="everything once, small, to see that it works")
    asked.add_argument("--out", type=Path, help="folder for the results; benchmarks/results unless a part is run")
    options = asked.parse_args()
    sizes = ["small"] if options.quick else [size for size in SIZES if size in options.sizes]
    is_part = options.quick or tuple(options.only) != NAMES or tuple(sizes) != SIZES
    out = options.out or (None if is_part else RESULTS)
    load = os.getloadavg()[0]  # before ours
    keep_memory()
    torch.set_num_threads(options.threads)
    for engine in ENGINES:
        import_module(engine)
    ts.init("cpu", cpu_max_num_threads=options.threads)
    effort = Effort(1 if options.quick else options.rounds, moment=0.01, patience=20)
    page = Page()
    can = limits()
    makes = makes_of_ways(options.threads, page)
    for name in options.only:
        start = len(page.tables)
        measure(name, sizes, makes, effort, page)
        print("\n".join(page.tables[start:]), flush=True)
    head = f"{machine()}. Load average before: {load:.1f}."
    left_out = ["## Left out", "", *[f"- {one}" for one in page.left_out], ""] if page.left_out else []
    lines = ["# Kernels in tinsmith and its peers, on cpu", "", HOW.format(rounds=effort.rounds), "", head, "", can, ""]
    lines += [f"{sizes[-1].capitalize()} sizes:", "", *summary(page, list(options.only), sizes[-1])]
    for size in sizes[:-1]:
        lines += ["", f"## {size.capitalize()} sizes", "", *summary(page, list(options.only), size)]
    lines += ["", *left_out, *page.tables]
    if out is None:
        print("\n".join(left_out), "Nothing was written: --out says where to.")
        return 0
    out.mkdir(parents=True, exist_ok=True)
    (out / "peers-cpu.md").write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
