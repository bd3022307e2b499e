"""What the kernels compute and how fast they are on one device: a section a process, for `./scripts/gpu_check`.

    python benchmarks/on_device.py SECTION [--device cuda] [--quick] [--out rows.jsonl] [--save DIR] [--compare DIR]

Each row is printed and appended to `--out` as soon as it is known, so that a section that hangs or dies loses only
what came after. `--quick` asks for little of everything: its times mean nothing. An engine that fails is a row that
says why, and the other one goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ |= {"ENABLE_TAICHI_HEADER_PRINT": "False", "ENABLE_QUADRANTS_HEADER_PRINT": "False"}
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Engines import the standard library's distutils, so setuptools, which inductor imports, must use it too.
os.environ.setdefault("SETUPTOOLS_USE_DISTUTILS", "stdlib")

import torch
from torch import Tensor

import _device_values as values
import _gaussian_ways as splatting
import _network_ways as networks
import _rendering_ways as compositing
import _ways
import input_encodings as encodings
import tinsmith as ts
from _harness import Call, Effort, Timing, ratio, timed
from _report import in_words
from _sections import both, forward

ENGINES = ("taichi", "quadrants")
ROOT = Path(__file__).resolve().parents[1]
CLOSE = 2e-3
"""The most that float32 on two devices may differ by, relative to the greatest number: sums have another order."""


@dataclass(frozen=True)
class Bench:
    """The device, the effort of measurements, and the file that rows are appended to."""

    device: str
    is_quick: bool
    out: Path | None
    save: Path | None = None
    compare: Path | None = None

    @property
    def effort(self) -> Effort:
        return Effort(3, 1e-4) if self.is_quick else Effort(20, 2e-3, 2.0)

    def finish(self) -> None:
        """Wait for the device."""
        if self.device == "cuda":
            torch.cuda.synchronize()

    def row(self, what: str, who: str, found: str, beside: str = "", *, ok: bool = True) -> None:
        """Print a row of results, and append it to the file."""
        line = json.dumps({"what": what, "who": who, "found": found, "beside": beside, "ok": ok})
        print(f"{what} | {who} | {found} | {beside}", flush=True)
        if self.out is not None:
            with self.out.open("a", encoding="utf-8") as file:
                file.write(line + "\n")

    def engines(self, **options: Any) -> list[str]:
        """Start the engines on the device with options of their own; return the names of those that start, and add
        a row for each that does not.
        """
        started = []
        for name in ENGINES:
            try:
                ts.init(self.device, engine=name, **options)
                started.append(name)
            except Exception as error:  # noqa: BLE001  # whatever it is, the other engine goes on
                self.row("start", name, f"does not start: {last_line(error)}", ok=False)
        return started

    def race(self, what: str, ways: Mapping[str, Call], unit: Callable[[float], str] = in_words) -> list[str]:
        """Time all ways that work, in turns; add a row for each, and for tinsmith's, its speed relative to
        the others. Return the names of those that work.
        """
        working = {name: call for name, call in ways.items() if self.works(what, name, call)}
        timings = timed(working, self.effort, self.finish) if working else {}
        others = {name: timing for name, timing in timings.items() if not name.startswith("tinsmith")}
        for name, timing in timings.items():
            beside = "" if name in others else beside_others(timing, others)
            self.row(what, name, unit(timing.median), beside)
        return [*working]

    def race_on_device(self, what: str, ways: Mapping[str, Call], unit: Callable[[float], str] = in_words) -> None:
        """Time each way on the CUDA device alone; add a row for each, and for tinsmith's, its speed relative to the
        fastest of the others. Do nothing on the CPU.
        """
        if self.device != "cuda":
            return
        seconds = {name: device_seconds(call) for name, call in ways.items()}
        others = [one for name, one in seconds.items() if not name.startswith("tinsmith")]
        for name, one in seconds.items():
            is_mine = name.startswith("tinsmith") and bool(others)
            beside = f"{min(others) / one:.3g} x as fast as the fastest other" if is_mine else ""
            self.row(f"{what}, on the device", name, unit(one), beside)

    def works(self, what: str, name: str, call: Call) -> bool:
        """Return True if a first call succeeds; add a row with the reason if not. A failure of another library is not
        counted as ours.
        """
        try:
            call()
            self.finish()
        except Exception as error:  # noqa: BLE001  # one way that fails must not lose the others
            self.row(what, name, f"fails: {last_line(error)}", ok=not name.startswith("tinsmith"))
            return False
        return True


def beside_others(mine: Timing, others: Mapping[str, Timing]) -> str:
    """Format how many times as fast `mine` is as each of the others."""
    return ", ".join(f"{ratio(other, mine).middle:.3g} x as fast as {name}" for name, other in others.items())


def last_line(error: BaseException) -> str:
    """Format the type of an error and its first words for a cell of a table."""
    words = " ".join(str(error).split()).replace("|", "/")
    return f"{type(error).__name__}: {words[:200]}"


def gradients(way: Callable[..., Sequence[Tensor]], given: Sequence[Tensor], leaves: int) -> Call:
    """Return a call of a way, forward and backward, with the gradients by the first `leaves` inputs."""
    mine = [one.detach().clone().requires_grad_(place < leaves) for place, one in enumerate(given)]

    def call() -> Sequence[Tensor]:
        outputs = way(*mine)
        return torch.autograd.grad([one.sum() for one in outputs], mine[:leaves])

    return call


def device_seconds(call: Call, calls: int = 20) -> float:
    """Return the seconds of a call on the CUDA device alone.

    Other work keeps the device busy for some 20 ms, until all calls are queued, so that it never waits for the host.
    """
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    other = torch.ones(100_000_000, device="cuda")
    torch.cuda.synchronize()
    for _ in range(100):
        torch.mul(other, 1.0, out=other)
    start.record()
    for _ in range(calls):
        call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) * 1e-3 / calls


# Sections ---------------------------------------------------------------------------------
def agreement(bench: Bench) -> None:
    """Compute values and gradients of every case; write them to `save`, and compare them with those in `compare`."""
    for engine in bench.engines():
        for name, case in values.CASES.items():
            try:
                results = {key: one.detach().cpu() for key, one in case(engine, bench.device).items()}
            except Exception as error:  # noqa: BLE001  # the next case is asked all the same
                bench.row(f"values: {name}", engine, f"fails: {last_line(error)}", ok=False)
                continue
            if bench.save is not None:
                bench.save.mkdir(parents=True, exist_ok=True)
                torch.save(results, bench.save / f"{engine}-{name}.pt")
            if bench.compare is not None:
                compare_values(bench, engine, name, results)


def compare_values(bench: Bench, engine: str, name: str, results: Mapping[str, Tensor]) -> None:
    """Add a row for a case: its difference from the results of the other device."""
    assert bench.compare is not None
    file = bench.compare / f"{engine}-{name}.pt"
    if not file.is_file():
        bench.row(f"values: {name}", engine, "there is nothing to compare with", ok=False)
        return
    wanted = torch.load(file)
    apart = {key: relative_difference(one, wanted[key]) for key, one in results.items()}
    worst = max(apart, key=lambda key: apart[key])
    # A comparison with NaN is false, so NaN counts as wrong.
    bench.row(
        f"values: {name}",
        engine,
        f"differs by {apart[worst]:.1e} at most ({worst})",
        f"to hold: {CLOSE:g}",
        ok=apart[worst] <= CLOSE,
    )


def relative_difference(one: Tensor, other: Tensor) -> float:
    """Return the largest difference, relative to the largest number."""
    size = other.double().abs().max().item() or 1.0
    return (one.double() - other.double()).abs().max().item() / size


def overhead(bench: Bench) -> None:
    """Time a call with 64 elements."""
    from _kernels import triple

    ways: dict[str, _ways.Way] = {}
    for engine in bench.engines():
        lang = __import__(engine)
        ways[f"tinsmith on {engine}"] = _ways.ours(lang)
        ways[f"the hand-written Function on {engine}"] = _ways.by_hand(triple(lang))
    ways["torch's Function x * 3"] = _ways.Triple.apply
    x, g = torch.rand(64, device=bench.device), torch.ones(64, device=bench.device)
    bench.race("64 elements, forward", {name: forward(way, [x]) for name, way in ways.items()})
    bench.race("64 elements, forward and backward", {name: both(way, [x], g) for name, way in ways.items()})


def graphs(bench: Bench) -> None:
    """Time a training step of a small model with an op, called and as a CUDA graph; on the CPU, called alone."""
    from _graph_ways import in_torch, make_step, ours

    ways: dict[str, Call] = {}
    for engine in bench.engines():
        op = ours(__import__(engine))
        ways[f"tinsmith on {engine}"] = deferred(lambda op=op: make_step(op, bench.device))
        how = ("reduce-overhead",) if engine == "taichi" else ("reduce-overhead", "a CUDA graph")
        for mode in how if bench.device == "cuda" else ():
            ways[f"tinsmith on {engine}, {mode}"] = deferred(lambda op=op, mode=mode: make_step(op, bench.device, mode))
    ways["torch"] = deferred(lambda: make_step(in_torch, bench.device))
    if bench.device == "cuda":
        for mode in ("reduce-overhead", "a CUDA graph"):
            ways[f"torch, {mode}"] = deferred(lambda mode=mode: make_step(in_torch, bench.device, mode))
    bench.race("a training step of a small model", ways)


def bandwidth(bench: Bench) -> None:
    """Time kernels that read and write many elements once, in gigabytes per second: by the clock, and on the device
    alone, where the host's time does not count.
    """
    engines = bench.engines()
    for size in (100_000, 200_000) if bench.is_quick else (10_000_000, 200_000_000):
        x = torch.rand(size, device=bench.device)
        ways = bandwidth_ways(engines, x)

        def describe(seconds: float, size: int = size) -> str:
            return f"{in_words(seconds)}, {8e-9 * size / seconds:,.0f} GB/s"

        working = bench.race(f"{size:,} elements", ways, describe)
        bench.race_on_device(f"{size:,} elements", {name: ways[name] for name in working}, describe)
    if bench.device == "cuda":
        sweep_options(bench)


def sweep_options(bench: Bench) -> None:
    """Time on the device what engines have to be started anew for: the generated form of a kernel in blocks of other
    sizes than their default, 128; and vectors that they keep whole, in a call of their own.
    """
    from _bandwidth_ways import BLOCKS, vector_kernel

    size = 200_000_000
    what = f"{size:,} elements, on the device"
    x, y = torch.rand(size, device=bench.device), torch.empty(size, device=bench.device)

    def add_row(who: str, call: Call) -> None:
        if bench.works(what, who, call):
            seconds = device_seconds(call)
            bench.row(what, who, f"{in_words(seconds)}, {8e-9 * size / seconds:,.0f} GB/s")

    for threads in BLOCKS:
        for engine in bench.engines(default_gpu_block_dim=threads):
            call = forward(_ways.ours_unfilled(__import__(engine)), [x])
            add_row(f"tinsmith on {engine}, blocks of {threads}", call)
    for engine in bench.engines(real_matrix_scalarize=False):
        kernel = vector_kernel(__import__(engine))
        add_row(f"{engine} alone, whole vectors of 4", lambda kernel=kernel: kernel(x.view(-1, 4), y.view(-1, 4)))


def bandwidth_ways(engines: Sequence[str], x: Tensor) -> dict[str, Call]:
    """Return the ways to compute y = 3 x for all elements."""
    from _bandwidth_ways import BLOCKS, triple_in_blocks, triple_of_vectors

    ways: dict[str, Call] = {}
    for engine in engines:
        lang = __import__(engine)
        ways[f"tinsmith on {engine}"] = forward(_ways.ours_unfilled(lang), [x])
        for threads in BLOCKS:
            ways[f"tinsmith on {engine}, as written, blocks of {threads}"] = forward(
                triple_in_blocks(lang, threads), [x]
            )
        ways[f"tinsmith on {engine}, vectors of 4"] = forward(triple_of_vectors(lang), [x])
    out = torch.empty_like(x)
    ways["torch.mul into a buffer"] = lambda: torch.mul(x, 3.0, out=out)
    ways["torch.mul"] = lambda: torch.mul(x, 3.0)
    ways["torch.compile"] = forward(torch.compile(lambda x: torch.mul(x, 3.0), dynamic=False), [x])
    return ways


def ptx(bench: Bench) -> None:
    """Count the instructions of the PTX of kernels, forward and backward."""
    if bench.device != "cuda":
        bench.row("PTX", "tinsmith", "there is none: it is compiled for GPUs only")
        return
    from tempfile import TemporaryDirectory

    for engine in ENGINES:
        with TemporaryDirectory() as folder:
            os.chdir(folder)  # where engines write it
            try:
                # A kernel that is read from a cache is not printed.
                ts.init(bench.device, engine=engine, print_kernel_asm=True, offline_cache=False)
                for what, call in ptx_cases(engine, bench.device).items():
                    count_ptx(bench, what, engine, Path(folder), call)
            except Exception as error:  # noqa: BLE001  # the other engine is asked all the same
                bench.row("PTX", engine, f"fails: {last_line(error)}", ok=False)
            finally:
                os.chdir(ROOT)


def ptx_cases(engine: str, device: str) -> dict[str, Callable[[], Sequence[Tensor]]]:
    """Return the calls whose PTX is counted. Each returns outputs that require a gradient."""
    from _bandwidth_ways import saxpy

    op, x = saxpy(__import__(engine)), torch.rand(1000, device=device, requires_grad=True)
    n, k = 64, 16
    densities, t, steps = (torch.rand(n, k, device=device) for _ in range(3))
    colors = torch.rand(n, k, 3, device=device)
    given = [densities.requires_grad_(), colors.requires_grad_(), 2 + t.cumsum(1), steps]
    way = compositing.ours(engine)
    return {"saxpy": lambda: [op(2.0, x, x)], "composite": lambda: way(*given)[:3]}


def count_ptx(bench: Bench, what: str, engine: str, folder: Path, call: Callable[[], Sequence[Tensor]]) -> None:
    """Add a row for each pass of an op, with the counts of instructions in the kernels that it compiles."""
    from _device_code import PtxFolder, count_instructions, describe_counts

    written = PtxFolder(folder)
    written.read_new()  # the engine's own, and kernels before
    outputs = call()
    bench.finish()
    counts = {"forward": written.read_new()}
    torch.autograd.backward([one.sum() for one in outputs])
    bench.finish()
    counts["backward"] = written.read_new()
    for direction, texts in counts.items():
        text = describe_counts(count_instructions("\n".join(texts)))
        bench.row(f"PTX of {what}, {direction}", f"tinsmith on {engine}", text, f"{len(texts)} files", ok=bool(texts))


def composite(bench: Bench) -> None:
    """Time volume rendering of dense samples, with the gradients by densities and colors."""
    n, k = (64, 16) if bench.is_quick else (8192, 64)
    given = [torch.rand(n, k), torch.rand(n, k, 3), 2 + torch.rand(n, k).cumsum(1), 0.01 + 0.02 * torch.rand(n, k)]
    given = [one.to(bench.device) for one in given]
    ways: dict[str, Callable[..., Sequence[Tensor]]] = {
        f"tinsmith on {engine}": compositing.ours(engine) for engine in bench.engines()
    }
    ways["torch"] = compositing.torch_dense
    ways["torch.compile"] = torch.compile(compositing.torch_dense, dynamic=False)
    calls = {name: gradients(lambda *x, way=way: way(*x)[:3], given, 2) for name, way in ways.items()}
    what = f"composite, {n} rays x {k}, forward and backward"
    working = bench.race(what, calls)
    bench.race_on_device(what, {name: calls[name] for name in working})


def hash_grid(bench: Bench) -> None:
    """Time the hash grid of instant-ngp, with the gradient by its table."""
    points, log2 = (500, 10) if bench.is_quick else (2**18, 19)
    bench.engines()
    case = encodings.grid_case(3, log2, points, bench.device)
    ways = dict(case.ways)
    ways["torch.compile"] = torch.compile(ways[encodings.TORCH], dynamic=False)
    calls = {name: case.backward(way, False, True) for name, way in ways.items() if name != encodings.TWIN}
    bench.race(f"hash grid, {points:,} points, 2^{log2} slots, forward and backward", calls)


def blend(bench: Bench) -> None:
    """Time splatting of 3-D Gaussians: projection, sorting and blending, with all gradients."""
    n, side = (200, 32) if bench.is_quick else (50_000, 512)
    torch.manual_seed(0)
    given = [one.to(bench.device) for one in splatting.scene(n, side)]
    ways = {f"tinsmith on {engine}": splatting.ours(engine) for engine in bench.engines()}
    # Only by tiles in plain torch: tiles differ in their number of Gaussians, so torch.compile would compile each.
    ways["torch, by tiles"] = splatting.by_tiles
    calls = {name: gradients(lambda *x, way=way: way(*x, side=side), given, 5) for name, way in ways.items()}
    bench.race(f"splatting, {n:,} Gaussians, {side} x {side}, forward and backward", calls)


def small_networks(bench: Bench) -> None:
    """Time a training step of arrays of small networks."""
    sizes = networks.Networks(8 if bench.is_quick else 1024, 16, 2, bench.device)
    x, target = sizes.batches()
    steps: dict[str, Call] = {
        f"tinsmith on {engine}": deferred(lambda engine=engine: networks.ours(sizes, engine, x, target))
        for engine in bench.engines()
    }
    steps["torch"] = deferred(lambda: networks.eager(sizes, x, target))
    steps["torch.compile"] = deferred(lambda: networks.compiled(sizes, x, target))
    what = f"networks, {sizes}, a training step"
    working = bench.race(what, steps)
    bench.race_on_device(what, {name: steps[name] for name in working})


def deferred(make: Callable[[], Call]) -> Call:
    """Return a call that is built when it is first called, so that an error then counts as that of the way."""
    made: list[Call] = []

    def call() -> object:
        if not made:
            made.append(make())
        return made[0]()

    return call


def of_app(name: str, steps: int) -> Callable[[Bench], None]:
    """Return the section that trains an app on each engine."""

    def section(bench: Bench) -> None:
        from tempfile import TemporaryDirectory

        for engine in ENGINES:
            try:
                with TemporaryDirectory() as folder:
                    reached = train(name, Path(folder), engine, bench, 3 if bench.is_quick else steps)
            except Exception as error:  # noqa: BLE001  # the other engine is asked all the same
                bench.row(name, engine, f"fails: {last_line(error)}", ok=False)
                continue
            speed = f"{reached.steps_per_second:.1f} steps/s, {reached.psnr:.2f} dB after {reached.step} steps"
            bench.row(name, f"tinsmith on {engine}", speed)

    return section


def train(name: str, out: Path, engine: str, bench: Bench, steps: int):
    """Train an app with the options of its command; return the outcome."""
    options = {"out": out, "engine": engine, "device": bench.device, "steps": steps}
    if name == "fit-scene":
        from tinsmith.apps.fit_scene import SceneOptions, fit_scene

        return fit_scene(SceneOptions(**options, size=16 if bench.is_quick else 64))
    if name == "fit-splats":
        from tinsmith.apps.fit_splats import SplatOptions, fit_splats

        return fit_splats(SplatOptions(**options, size=16 if bench.is_quick else 64))
    from tinsmith.apps.learn_image import LearnOptions, learn_image

    return learn_image(LearnOptions(**options, size=32 if bench.is_quick else 512))


SECTIONS: dict[str, Callable[[Bench], None]] = {
    "values": agreement,
    "overhead": overhead,
    "graphs": graphs,
    "bandwidth": bandwidth,
    "ptx": ptx,
    "composite": composite,
    "hash-grid": hash_grid,
    "blend": blend,
    "networks": small_networks,
    "fit-scene": of_app("fit-scene", 500),
    "fit-splats": of_app("fit-splats", 500),
    "learn-image": of_app("learn-image", 1000),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one section on one device. Return the exit code."""
    asked = argparse.ArgumentParser(description="one section of what ./scripts/gpu_check measures")
    asked.add_argument("section", choices=SECTIONS)
    asked.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    asked.add_argument("--quick", action="store_true", help="little of everything: does it run?")
    asked.add_argument("--out", type=Path, help="a file that each row is appended to, as JSON")
    asked.add_argument("--save", type=Path, help="of values: a folder to keep them in")
    asked.add_argument("--compare", type=Path, help="of values: a folder that another device's were kept in")
    options = asked.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        asked.exit(2, "on_device: torch sees no CUDA device, so nothing was measured; leave out --device cuda\n")
    files = (one and one.resolve() for one in (options.out, options.save, options.compare))
    bench = Bench(options.device, options.quick, *files)
    SECTIONS[options.section](bench)
    return 0


if __name__ == "__main__":
    sys.exit(main())
