"""What a layer costs: this library's Tube, EmptyTin and Tin beside Stannum's.

    python benchmarks/layers.py [--device cuda] [--quick] [--rounds 100] [--out FOLDER]

All in one process, in interleaved rounds (`_harness`), each layer registered by the same calls. Stannum's run on
Taichi alone. What is timed is a forward and a backward pass of 64 elements, `layer(x).backward(g)`; Stannum's Tube
takes part in few rounds, for it compiles again at every call. Memory is what the process has grown by after thousands
of such passes; Stannum's Tubes are asked for few, and what they grow by is reckoned up.

Prints one table beside the numbers to hold, and writes it to benchmarks/results/layers-<device>.md. `--quick` tries
everything on a few calls; its numbers mean nothing, so it writes only where `--out` says.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import os
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ |= {"ENABLE_TAICHI_HEADER_PRINT": "False", "ENABLE_QUADRANTS_HEADER_PRINT": "False"}
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from rich.console import Console
from rich.progress import track

import tinsmith as ts
from _harness import Call, Effort, Figure
from _kernels import layer_object, square_of_fields, square_of_templates
from _report import Absent, Row, markdown, show
from _sections import FEW, Bench, both, times_faster
from _ways import ENGINES, Missing, Way, empty_tin, library, tube

RESULTS = Path(__file__).parent / "results"
BATCH = 16
STEPS, FEW_STEPS = 10_000, 20
"""Passes that memory is watched over: ours, and a Stannum Tube's."""
MEBIBYTE = 2**20
GROWTH = 1.0
"""MiB that a process may grow by over 10,000 passes and still be called flat."""


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    asked.add_argument("--quick", action="store_true", help="everything once, few calls, to see that it works")
    asked.add_argument("--rounds", type=int, default=100)
    asked.add_argument("--out", type=Path, help="folder for the results; benchmarks/results unless --quick")
    options = asked.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        asked.exit(2, "layers: torch sees no CUDA device, so nothing was measured; leave out --device cuda\n")
    out = options.out or (None if options.quick else RESULTS)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
    warnings.filterwarnings("ignore", r"\s*Some internal fields require gradients")  # Stannum warns so
    run(prepared(options.device, options.rounds, is_quick=options.quick), out)


def run(bench: Bench, out: Path | None) -> None:
    console = Console(width=None if Console().is_terminal else 200)
    rows: list[Row | Absent] = []
    if isinstance(bench.stannum, Missing):
        rows.append(Absent(f"beside {bench.stannum.name}", bench.stannum.reason))
    questions = (of_tube, of_batched_tube, of_empty_tin, of_empty_tin_on_tensors, of_tin, of_memory)
    for question in track(questions, "Measuring", console=Console(stderr=True), transient=True):
        rows += question(bench)
    title = f"What a layer costs, on {bench.device}"
    show(rows, title, console)
    if out is None:
        console.print("--quick: the numbers mean nothing, and none were written.")
        return
    how = f"Medians of up to {bench.effort.rounds} interleaved rounds; in brackets the middle half of the rounds. "
    how += f"OMP_WAIT_POLICY={os.environ['OMP_WAIT_POLICY']}. What is measured, and how: `benchmarks/layers.py`."
    page = out / f"layers-{bench.device}.md"
    page.write_text(markdown(title, how, rows, truth(bench), []), "utf-8")
    console.print(f"Written: {page}")


def prepared(device: str, rounds: int, *, is_quick: bool) -> Bench:
    """Start the engines, and import Stannum if it is installed; return the benchmark's setup."""
    engines = {name: library(name, name, name) for name in ENGINES}
    langs = {name: lang for name, lang in engines.items() if not isinstance(lang, Missing)}
    with contextlib.redirect_stdout(io.StringIO()):  # Quadrants prints that it starts at any log level
        for name in langs:
            ts.init(device, engine=name)
    effort = Effort(3, 1e-4, 0.0) if is_quick else Effort(rounds)
    stannum = library("stannum", "Stannum", "peers")
    return Bench(device, effort, (FEW,), (), 2 if is_quick else BATCH, 0, is_quick, langs, None, stannum)


def libraries(bench: Bench) -> dict[str, tuple[Any, Any]]:
    """Return the libraries whose layers are timed, by label: the module and its engine."""
    pairs: dict[str, tuple[Any, Any]] = {f"ts.# on {name}": (ts, lang) for name, lang in bench.langs.items()}
    if not isinstance(bench.stannum, Missing) and "taichi" in bench.langs:
        pairs["Stannum #"] = (bench.stannum, bench.langs["taichi"])
    return pairs


# Layers -----------------------------------------------------------------------------------
Maker = Callable[[Any, Any, str], Way]


def a_tube(layers: Any, lang: Any, device: str) -> Way:
    return tube(layers, lang, FEW, batched=False)


def a_batched_tube(layers: Any, lang: Any, device: str) -> Way:
    return tube(layers, lang, FEW, batched=True)


def an_empty_tin(layers: Any, lang: Any, device: str) -> Way:
    return empty_tin(layers, lang, FEW, device)


def an_empty_tin_on_tensors(layers: Any, lang: Any, device: str) -> Way:
    return empty_tin(layers, lang, FEW, device, **({"on_tensors": True} if layers is ts else {}))


def a_tin(layers: Any, lang: Any, device: str) -> Way:
    """Build a Tin with two kernels and a weight. Stannum's weight is an internal field, whose gradient stays there."""
    made = layer_object(lang, FEW)
    tin = layers.Tin(made, torch.device(device), True).register_input_field(made.x).register_output_field(made.y)
    if layers is ts:
        tin.register_weight_field(made.w, name="w").register_internal_field(made.s, name="s", persistent=False)
    else:
        tin.register_internal_field(made.w, name="w").register_internal_field(made.s, name="s")
    return tin.register_kernel("weigh").register_kernel("square").finish()


# Time -------------------------------------------------------------------------------------
def of_tube(bench: Bench) -> Sequence[Row | Absent]:
    return _beside(bench, "Tube", a_tube, (FEW,), bar=1000)


def of_batched_tube(bench: Bench) -> Sequence[Row | Absent]:
    return _beside(bench, "Tube", a_batched_tube, (bench.batch, FEW), bar=1000, more=f", batch of {bench.batch}")


def of_empty_tin(bench: Bench) -> Sequence[Row | Absent]:
    return _beside(bench, "EmptyTin", an_empty_tin, (FEW,), bar=4, aim=10)


def of_empty_tin_on_tensors(bench: Bench) -> Sequence[Row | Absent]:
    """Time tinsmith's layer with `on_tensors=True`, which Stannum lacks."""
    return _beside(bench, "EmptyTin", an_empty_tin_on_tensors, (FEW,), bar=4, aim=10, more=", on tensors")


def of_tin(bench: Bench) -> Sequence[Row | Absent]:
    return _beside(bench, "Tin", a_tin, (FEW,), bar=4, aim=10, more=", two kernels and a weight")


def _beside(
    bench: Bench,
    kind: str,
    make: Maker,
    shape: tuple[int, ...],
    *,
    bar: float,
    aim: float | None = None,
    more: str = "",
) -> list[Row | Absent]:
    """Time forward and backward passes; compare tinsmith's layer on each engine with Stannum's."""
    made = {label.replace("#", kind): make(*where, bench.device) for label, where in libraries(bench).items()}
    timings = bench.timed({name: passes(way, shape, bench.device) for name, way in made.items()})
    other = f"Stannum {kind}"
    mine = [name for name in timings if name != other and other in timings]
    return [times_faster(f"{kind}, {FEW} elements{more}", name, other, timings, bar=bar, aim=aim) for name in mine]


def passes(way: Way, shape: tuple[int, ...], device: str) -> Call:
    """Return a call of one forward and one backward pass."""
    return both(way, [torch.rand(shape, device=device)], torch.ones(shape, device=device))


# Memory -----------------------------------------------------------------------------------
def of_memory(bench: Bench) -> list[Row | Absent]:
    """Measure how much the process grows over many steps. A step also clears the layer's gradients."""
    if not Path("/proc/self/statm").exists():
        return [Absent("memory", "read from /proc, which this system has not")]
    rows: list[Row | Absent] = []
    few = 3 if bench.is_quick else FEW_STEPS
    for kind, make in (("Tube", a_tube), ("EmptyTin", an_empty_tin), ("Tin", a_tin)):
        grown = {}
        for label, where in libraries(bench).items():
            name = label.replace("#", kind)
            steps = few if bench.is_quick or name == "Stannum Tube" else STEPS
            layer = make(*where, bench.device)
            grown[name] = growth(layer, passes(layer, (FEW,), bench.device), steps)
        theirs = grown.pop(f"Stannum {kind}", None)
        against = "" if theirs is None else f"Stannum {kind}: {theirs:,.0f} MiB"
        against += f", reckoned from {few} steps" if against and kind == "Tube" else ""
        for name, size in grown.items():
            figure = Figure(size, size, size)
            row = Row(f"{kind}, growth over {STEPS:,} steps", name, against, figure, "<=", GROWTH, None, "MiB")
            rows.append(row)
    return rows


def growth(layer: Any, step: Call, steps: int) -> float:
    """Return how many MiB the process grows by over 10,000 steps, extrapolated from `steps`."""
    for _ in range(max(2, steps // 5)):  # warm up, so that one-time allocations do not count
        step()
    gc.collect()
    before = resident()
    for _ in range(steps):
        layer.zero_grad()
        step()
    gc.collect()
    return (resident() - before) / MEBIBYTE * (STEPS / steps)


def resident() -> int:
    """Return the resident memory of this process in bytes."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


# Truth ------------------------------------------------------------------------------------
def truth(bench: Bench) -> list[str]:
    """Check whose gradients are right if layers are used like torch's own; return a table with wrong answers
    in bold.
    """
    lines = [
        "y = x x at x = 3, whose gradient is 6. A gradient is asked for once; twice of one result, and the second is",
        "shown; and of two calls before one backward pass, of which the first call's is shown, its x being 3, the",
        "second's 5.",
        "",
        "| layer | once: 6 | again: 6 | of the first of two calls: 6 |",
        "|---|---|---|---|",
    ]
    for label, where in libraries(bench).items():
        for kind, make in (("Tube", _square_tube), ("EmptyTin", _square_tin)):
            layer = make(*where, bench.device)
            cells = [_cell(question(layer, bench.device)) for question in (_once, _again, _first_of_two)]
            lines.append(f"| {label.replace('#', kind)} | {' | '.join(cells)} |")
    return lines


def _square_tube(layers: Any, lang: Any, device: str) -> Way:
    made = layers.Tube().register_input_tensor((1,), torch.float32, "x")
    made = made.register_output_tensor((1,), torch.float32, "y", True)
    return made.register_kernel(square_of_templates(lang), ["x", "y"]).finish()


def _square_tin(layers: Any, lang: Any, device: str) -> Way:
    x, y = (lang.field(lang.f32, shape=1, needs_grad=True) for _ in range(2))
    tin = layers.EmptyTin(torch.device(device), True).register_input_field(x).register_output_field(y)
    return tin.register_kernel(square_of_fields(lang, x, y)).finish()


def _cell(gradient: float) -> str:
    return "6" if gradient == 6 else f"**{gradient:g}**"


def _at(value: float, device: str) -> torch.Tensor:
    return torch.tensor([value], device=device, requires_grad=True)


def _once(layer: Way, device: str) -> float:
    x = _at(3.0, device)
    return torch.autograd.grad(layer(x), x)[0].item()


def _again(layer: Way, device: str) -> float:
    x = _at(3.0, device)
    y = layer(x)
    torch.autograd.grad(y, x, retain_graph=True)
    return torch.autograd.grad(y, x)[0].item()


def _first_of_two(layer: Way, device: str) -> float:
    x, other = _at(3.0, device), _at(5.0, device)
    return torch.autograd.grad(layer(x) + layer(other), x)[0].item()


if __name__ == "__main__":
    main()
