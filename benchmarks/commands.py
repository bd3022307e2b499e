"""What the commands reach with their defaults, and how long they take: fits of pictures and scenes, and simulations.

    python benchmarks/commands.py [--quick] [--only fit-scene] [--out FOLDER]

Each command runs in a process of its own, one after the other, with the picture, scene or simulation that comes with
it. Results are those of its `summary.json`: PSNR and SSIM of held-out views or of the picture, and a simulation's
figure before and after training. *Steps* is the time of the training steps; *elapsed* and *processor* are times of the
whole command, with its start, compilation, evaluation and pictures.

Prints a table, and writes it to benchmarks/results/commands-cpu.md. `--quick` runs each for a moment; its numbers mean
nothing, so it writes only where `--out` says.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from _report import machine

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
SIMULATIONS = ("billiards", "elastic-walker", "jelly-video", "smoke", "spring-robot", "wave-source")
COMMANDS = (
    *[f"fit-image --engine {engine}" for engine in ("taichi", "quadrants")],
    *[f"fit-scene --engine quadrants --steps {steps}" for steps in (100, 200, 1000)],
    "fit-scene --engine taichi --steps 1000",
    *[f"fit-splats --engine {engine} --steps 1000" for engine in ("taichi", "quadrants")],
    *[f"learn-image default {name} --engine taichi --size 512" for name in ("hash-grid", "networks", "frequency")],
    *[f"simulate {name} --engine taichi" for name in SIMULATIONS],
)
QUICK = {
    "fit-image": ["--size", "32"],
    "fit-scene": ["--size", "32"],
    "fit-splats": ["--size", "32"],
    "learn-image": [],  # blocks need a picture of some size
    "simulate": ["--iterations", "2"],
}
HEAD = (
    "| command | result | trained | steps, s | elapsed, s | processor, s |",
    "|---|---|---|---:|---:|---:|",
)


def measure(command: str, options: Sequence[str]) -> tuple[dict[str, Any], float, float]:
    """Run a command. Return its summary, and the elapsed and processor seconds."""
    with TemporaryDirectory() as folder:
        before, start = used_seconds(), time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "tinsmith", *command.split(), *options, "--quiet", "--out", folder],
            env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
            check=True,
        )
        elapsed, processor = time.perf_counter() - start, used_seconds() - before
        return json.loads(Path(folder, "summary.json").read_text("utf-8")), elapsed, processor


def used_seconds() -> float:
    """Return the processor time of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def describe_result(summary: Mapping[str, Any]) -> str:
    """Return what a command reached, in the words of its summary."""
    if "figure" in summary:
        before, after = (summary["figure"].format(summary[when]) for when in ("before", "after"))
        return f"before: {before}; after: {after}"
    words = [f"{summary['psnr_db']:.1f} dB"]
    words += [f"SSIM {summary['ssim']:.3f}"] if "ssim" in summary else []
    return ", ".join([*words, *(f"{summary[key]:,} {key}" for key in ("gaussians", "parameters") if key in summary)])


def describe_training(summary: Mapping[str, Any]) -> str:
    """Return how long a command trained, in steps or iterations."""
    return f"{summary['iteration']:,} iterations" if "iteration" in summary else f"{summary['step']:,} steps"


def table(commands: Sequence[str], is_quick: bool) -> Iterator[str]:
    """Run the commands; yield a line of the table for each."""
    for command in commands:
        quick = ["--steps", "3", *QUICK[command.split()[0]]]
        summary, elapsed, processor = measure(command, quick if is_quick else [])
        cells = (
            f"`tinsmith {command}`",
            describe_result(summary),
            describe_training(summary),
            *(f"{one:.0f}" for one in (summary["seconds"], elapsed, processor)),
        )
        yield f"| {' | '.join(cells)} |"


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--quick", action="store_true", help="each for a moment, to see that it works")
    asked.add_argument("--only", help="commands that contain this")
    asked.add_argument("--out", type=Path, help="folder for the results; benchmarks/results unless --quick or --only")
    options = asked.parse_args()
    load = os.getloadavg()[0]  # before ours
    out = options.out or (None if options.quick or options.only else RESULTS)
    lines = [*HEAD]
    print(*HEAD, sep="\n")
    for line in table([one for one in COMMANDS if (options.only or "") in one], options.quick):
        print(line, flush=True)
        lines.append(line)
    if out is None:
        print("Nothing was written: --out says where to.")
        return
    out.mkdir(parents=True, exist_ok=True)
    how = "What is measured, and how: `benchmarks/commands.py`."
    text = "\n".join(["# What the commands reach", "", how, "", f"{machine()}. Load average before: {load:.1f}.", ""])
    (out / "commands-cpu.md").write_text("\n".join([text, *lines, ""]), "utf-8")


if __name__ == "__main__":
    main()
