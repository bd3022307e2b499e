"""Agreement: checks whether gradients are right, in a child process, since an engine's reverse mode may crash it.

    python benchmarks/_agreement.py ENGINE CASE

In float64, on few elements, against `ts.oracle`. Prints a line of JSON for each way, the riskiest last.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

import tinsmith as ts
from _adjoint_cases import CASES, Case
from _ways import Way, library

TOLERANCE = 1e-9
"""Largest difference from the oracle, relative to its largest number, that is still called right."""
GENERATED, ENGINES_OWN, TORCH = "generated", "engine's own", "plain torch"


def agreement(engine: str, case: Case) -> dict[str, str]:
    """Check the gradients of each way in a child process; return "" for right ones, or else what is wrong."""
    done = subprocess.run([sys.executable, __file__, engine, case.name], capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    said = {line["way"]: _in_words(line) for line in lines}
    if done.returncode < 0:
        said[ENGINES_OWN] = f"the process dies: {signal.Signals(-done.returncode).name}"
    elif done.returncode > 0:
        raise SystemExit(f"{case.name} on {engine} could not be compared:\n{done.stderr}")
    if said[GENERATED]:
        raise SystemExit(f"the generated gradient of {case.name} on {engine} is {said[GENERATED]}")
    return said


def _in_words(line: dict[str, Any]) -> str:
    if "refusal" in line:
        return f"refused: {line['refusal']}"
    return "" if line["difference"] <= TOLERANCE else f"wrong, by {line['difference']:.1g} of the largest"


def ways(case: Case, lang: Any) -> Iterator[tuple[str, Way]]:
    """Yield every way to get the case's gradients by name; the engine's own comes last."""
    yield GENERATED, case.generated(lang)
    for name, build in case.by_hand.items():
        yield name, build(lang)
    yield TORCH, case.twin
    yield ENGINES_OWN, case.generated(lang, "engine")


def outputs_of(way: Way, inputs: Sequence[Tensor], named: Any) -> tuple[Tensor, ...]:
    outputs = way(*inputs, **named)
    return tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)


def leaves_of(inputs: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Return copies of the inputs, and those of them that get a gradient: all but integers."""
    arguments = [tensor.clone().requires_grad_(tensor.is_floating_point()) for tensor in inputs]
    return arguments, [tensor for tensor in arguments if tensor.requires_grad]


def _compare(engine: str, case: Case) -> None:
    lang = library(engine, engine, engine)
    ts.init("cpu", engine=engine, default_fp=lang.f64)
    torch.manual_seed(0)
    inputs = [tensor.double() if tensor.is_floating_point() else tensor for tensor in case.inputs(True)]
    named = case.named(True)
    shapes = [made.shape for made in outputs_of(case.twin, inputs, named)]
    cotangents = [torch.randn(shape, dtype=torch.float64) for shape in shapes]
    op: Any = case.generated(lang)
    right = list(ts.oracle(op, *inputs, cotangents=cotangents, **named).gradients.values())
    for name, way in ways(case, lang):
        arguments, leaves = leaves_of(inputs)
        try:
            gradients = torch.autograd.grad(outputs_of(way, arguments, named), leaves, cotangents)
        except ts.TinsmithError as refusal:
            said: dict[str, Any] = {"refusal": f"{refusal}".splitlines()[0]}
        else:
            said = {"difference": max(map(_difference, gradients, right))}
        print(json.dumps({"way": name, **said}), flush=True)


def _difference(ours: Tensor, right: Tensor) -> float:
    return ((ours - right).abs().max() / right.abs().max()).item()


if __name__ == "__main__":
    _compare(sys.argv[1], next(case for case in CASES if case.name == sys.argv[2]))
