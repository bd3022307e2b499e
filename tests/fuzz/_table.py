"""The page of a run of the wide grammar: by engine and mode, how many programs agree, and what became of the others."""

from __future__ import annotations

import platform
import sys
from collections import Counter
from importlib.metadata import version

from fuzz._campaign import Campaign
from fuzz._modes import COMPILED_EVERY, MODES
from fuzz._verdict import AGREE, CRASH, DISAGREE, ERROR, INVALID, MISCOMPILED, REFUSED, UNCOMPILED, UNSTEADY

PAGE = """# Random programs

`./scripts/fuzz` writes random programs and compares every way of using an op with a reference that shares no code with
tinsmith. This page is the table of a run. `./scripts/fuzz --table docs/about/fuzz.md` writes it, here with

```sh
{command}
```

## How it works

Each program is one kernel: parallel and serial loops, some of which break; locals of the top level that several loops
share; functions with several results; vectors and matrices whose numbers change one by one; gathers and scatters with
repeated and negative indices; atomics whose result is used; arrays that several loops update in place; scratch; integer
outputs; outputs without a cotangent. By construction it has no races, and no index outside an array. A seed gives the
same program every time (`./scripts/fuzz --seed 17 --show`).

The reference is the *mirror*: Python itself runs the text of the kernel on scalar float64 tensors of torch, and torch's
autograd differentiates it, once and twice. It uses no code of tinsmith. The modes are

- `backward`: values, and gradients where some of the outputs have a cotangent;
- `*b`: the same with batch dims in the spec, for some of the inputs;
- `vmap`, `vmap(grad)`, `jacrev`, `jvp`, `hessian`: the transforms of `torch.func`;
- `compile`: `torch.compile(op, backend="aot_eager", fullgraph=True)`, of one program in {every}, since torch's tracing
  takes longer than all other modes together.

Half of the programs run in parallel, the others as their serial twin. Buffers whose contents must not be read hold NaN.

| outcome | what it means |
|---|---|
| agree | equal to the mirror, up to rounding (1e-8, relative to the largest number) |
| refused | an error says which line has no derivative of this kind, and why |
| at a jump | the mirror's result changes with the last digits of the inputs, or overflows: nothing to compare |
| engine's mistake | the engine does not compile the kernel, or its values are right once its optimiser is off |
| failed | another result, another error, or the end of the process |

## In float32

`./scripts/fuzz --dtype f32 --grammar vectors` writes programs that CPUs run in strips and lanes
([Vector speed](decisions/vector-speed.md)), which float64 never sees: elementwise loops, inner loops with functions,
loops left early. Lengths and thresholds are made small, so that a few elements fill strips and blocks. The mirror stays
in float64, and the tolerance is 1e-3. What does not agree is tried once more without strips and lanes: if that is off
too, float32 has too few digits for the program.

`--grammar stencils` writes neighbours under conditions on the loop's index, steps of time in place, rows from the rows
before, and sums into neighbours, in either precision: loops that are split at their edges, and gradients that gather.

## The run

{versions}.

{tables}
"""
_COLUMNS = {
    "agree": (AGREE,),
    "refused": (REFUSED,),
    "at a jump": (UNSTEADY,),
    "engine's mistake": (MISCOMPILED, UNCOMPILED),
    "failed": (DISAGREE, ERROR, CRASH, INVALID),
}


def describe_campaigns(campaigns: list[Campaign], command: str) -> str:
    """The page, as Markdown."""
    packages = {"Taichi": "taichi", "Quadrants": "quadrants", "torch": "torch", "NumPy": "numpy"}
    engines = {one.engine for one in campaigns}
    known = [f"{name} {version(package)}" for name, package in packages.items() if package in engines | {"torch"}]
    words = f"Made with {', '.join(known)}, Python {platform.python_version()} on {sys.platform} ({platform.machine()})"
    tables = "\n\n".join(map(_table, campaigns))
    return PAGE.format(command=command, every=COMPILED_EVERY, versions=words, tables=tables)


def _table(campaign: Campaign) -> str:
    lines = [campaign.outcomes[seed] for seed in campaign.seeds if seed in campaign.outcomes]
    seeds, seconds = campaign.seeds, sum(sum(line.get("seconds", {}).values()) for line in lines)
    title = f"### {campaign.engine.capitalize()}: {len(lines):,} programs"
    average = seconds / max(1, len(lines))
    words = (
        f"Seeds {seeds[0]} to {seeds[-1]}, {len(lines):,} of {len(seeds):,} tried; {average:.1f} s each on a busy core."
    )
    head = ["| mode | " + " | ".join(_COLUMNS) + " |", "|---|" + "---:|" * len(_COLUMNS)]
    return "\n".join([title, "", words, "", *head, *(_row(mode, lines) for mode in MODES)])


def _row(mode: str, lines: list[dict]) -> str:
    counts = Counter(outcome for line in lines if (outcome := line.get("modes", {}).get(mode)))
    cells = [f"{sum(counts[one] for one in group):,}" for group in _COLUMNS.values()]
    return f"| `{mode}` | {' | '.join(cells)} |"
