"""The same kernels in tinsmith on both engines, torch, torch.compile, Numba, Warp and Dr.Jit, side by side on a CPU.

    python benchmarks/peers.py [--rounds 15] [--quick] [--out benchmarks/results]

saxpy of 10 million; compositing of 8,192 rays, dense and ragged; an additive splat; a ray march with a `while` that
depends on data; a step of masses and springs. Forward, and forward and backward where a peer differentiates by itself.
Values and gradients are compared with plain torch first: who computes something else is not timed. Peers that are not
installed are left out and named. Ways take turns in one process; what is compared are ratios of medians.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from torch import Tensor

import _peer_kernels as kernels
import _peer_ways as peers
import tinsmith as ts
from _harness import Call, Effort, Timing, keep_memory, ratio, timed
from _report import machine

RESULTS = Path(__file__).parent / "results"
ENGINES = ("taichi", "quadrants")
NAMES = ("saxpy", "compositing", "ragged", "splat", "march", "springs")
FIXED = {"splat": {"reach": 8, "h": 218, "w": 256}}
Way = Callable[..., Any]


def inputs_of(name: str, scale: float) -> list[Tensor]:
    """Inputs of one kernel; `scale` shrinks them."""
    n, k = max(1, int(8192 * scale)), 64
    match name:
        case "saxpy":
            return [torch.rand(int(1e7 * scale)) for _ in range(2)]
        case "compositing":
            return [torch.rand(n, k) * 2, torch.rand(n, k) * 0.05, torch.rand(n, k, 3)]
        case "ragged":
            counts = torch.randint(0, 2 * k + 1, (n,))
            s = int(counts.sum())
            rays = torch.stack([counts.cumsum(0) - counts, counts], 1).int()
            return [torch.rand(s) * 2, torch.rand(s) * 0.05, torch.rand(s, 3), rays]
        case "splat":
            count = max(1, int(2000 * scale))
            return [torch.rand(count, 2) * 200, 0.05 + 0.1 * torch.rand(count), torch.rand(count, 3)]
        case "march":
            return [torch.randn(8 * n), torch.randn(8 * n)]
        case _:
            return [torch.arange(64 * n) * 1.01, torch.randn(64 * n), torch.rand(64 * n)]


def others(given: dict[str, list[Tensor]], absent: list[str]) -> dict[str, dict[str, Way]]:
    """The ways of each peer that is installed, by kernel."""
    made: dict[str, Callable[[], dict[str, Way]]] = {
        "Numba": peers.numba_ways,
        "Warp": peers.warp_ways,
        "Dr.Jit": lambda: peers.drjit_ways(given),
    }
    found = {}
    for peer, make in made.items():
        try:
            found[peer] = make()
        except ImportError as reason:
            absent.append(f"{peer}: {reason}")
    return found


def ways_of(name: str, found: dict[str, dict[str, Way]]) -> dict[str, Way]:
    """Who computes a kernel, the reference first: plain torch, or where it has none, the first engine."""
    ways: dict[str, Way] = {}
    if name in peers.TORCH:
        ways["torch"] = peers.TORCH[name]
        if name not in ("march", "ragged"):  # sizes and lengths that depend on data break its graph
            ways["torch.compile"] = torch.compile(peers.TORCH[name])
    for engine in ENGINES:
        op = getattr(kernels, name)(import_module(engine))
        ways[f"tinsmith, {engine}"] = lambda *x, op=op: op(*x, **FIXED.get(name, {}))
    return ways | {peer: way[name] for peer, way in found.items() if name in way}


def tensors_of(found: Any) -> list[Tensor]:
    return [found] if isinstance(found, Tensor) else [*found]


def forward(way: Way, inputs: Sequence[Tensor]) -> Call:
    def run() -> list[Tensor]:
        with torch.no_grad():
            return tensors_of(way(*inputs))

    return run


def backward(way: Way, inputs: Sequence[Tensor]) -> Call:
    leaves = [one.clone().requires_grad_(one.is_floating_point()) for one in inputs]
    wanted = [one for one in leaves if one.requires_grad]
    torch.manual_seed(1)
    cotangents = [torch.randn_like(one) for one in tensors_of(way(*leaves))]

    def run() -> Sequence[Tensor]:
        return torch.autograd.grad(tensors_of(way(*leaves)), wanted, cotangents)

    return run


def require_agreement(name: str, calls: dict[str, Call]) -> None:
    """Raise where one computes something else than the first; float32 sums in another order may differ by a little."""
    results = {who: list(call()) for who, call in calls.items()}  # type: ignore[call-overload]
    first = next(iter(results.values()))
    for who, found in results.items():
        for one, other in zip(found, first, strict=True):
            difference = (one - other).abs().max().item()
            if difference > 5e-3 * max(other.abs().max().item(), 1e-3):
                raise SystemExit(f"{name}: {who} computes something else: differs by {difference:.1e}")


def measure(name: str, ways: dict[str, Way], inputs: Sequence[Tensor], effort: Effort) -> list[str]:
    differentiable = {who: way for who, way in ways.items() if who.startswith(("torch", "tinsmith"))}
    timings: dict[str, dict[str, Timing]] = {}
    for asked, make, chosen in (("forward", forward, ways), ("forward and backward", backward, differentiable)):
        calls = {who: make(way, inputs) for who, way in chosen.items()}
        require_agreement(f"{name}, {asked}", calls)
        timings[asked] = timed(calls, effort)
    lines = [f"| {name} | forward, ms | of tinsmith on Taichi | forward and backward, ms | of tinsmith on Taichi |"]
    lines.append("|---|---:|---:|---:|---:|")
    for who in ways:
        cells = []
        for of in timings.values():
            ours = of["tinsmith, taichi"]
            cells += [f"{of[who].median * 1e3:.2f}", f"{ratio(of[who], ours).middle:.2f}"] if who in of else ["", ""]
        lines.append(f"| {who} | {' | '.join(cells)} |")
    return [*lines, ""]


def limits() -> str:
    """What the machine can do now: memory through a large sum of two tensors, and products of matrices."""
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
    return f"Limits, by torch: {bandwidth:.0f} GB/s of memory, {flops:.0f} Gflop/s in float32."


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--rounds", type=int, default=15)
    asked.add_argument("--only", nargs="*", default=NAMES, choices=NAMES)
    asked.add_argument("--quick", action="store_true", help="little of everything: does it run?")
    asked.add_argument("--out", type=Path, default=RESULTS)
    options = asked.parse_args()
    load = os.getloadavg()[0]  # before ours
    torch.manual_seed(0)
    keep_memory()
    for engine in ENGINES:
        import_module(engine)
    ts.init("cpu")
    effort = Effort(2 if options.quick else options.rounds, moment=0.02, patience=30)
    lines, absent = [limits(), ""], list[str]()
    given = {name: inputs_of(name, 0.01 if options.quick else 1.0) for name in NAMES}
    found = others(given, absent)
    for name in options.only:
        table = measure(name, ways_of(name, found), given[name], effort)
        print("\n".join(table), flush=True)
        lines += table
    head = f"{machine()}. Load average before: {load:.1f}. Medians of {effort.rounds} interleaved rounds."
    left_out = [f"Left out: {reason}" for reason in dict.fromkeys(absent)]
    options.out.mkdir(exist_ok=True)
    text = "\n".join(["# Peers on a CPU", "", head, "", *lines, *left_out])
    (options.out / "peers-cpu.md").write_text(text.rstrip() + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
