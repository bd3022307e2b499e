"""The page of a run of the wide grammar: by engine and mode, how many programs have each outcome."""

from __future__ import annotations

import platform
import sys
from collections import Counter
from importlib.metadata import version

from fuzz._campaign import Campaign
from fuzz._modes import COMPILED_EVERY, MODES
from fuzz._verdict import AGREE, CRASH, DISAGREE, ERROR, INVALID, MISCOMPILED, REFUSED, UNCOMPILED, UNSTEADY

PAGE = """# Random programs

`./scripts/fuzz` generates random programs and compares every way of using an op with a reference that shares no code
with tinsmith. This page shows the results of a run. `./scripts/fuzz --table docs/about/fuzz.md` writes it. The
command was

```sh
{command}
```

## How it works

Each program is one kernel. It contains parallel and serial loops, some with `break`; locals of the top level that
several loops share; functions with several results; vectors and matrices whose entries change one by one; gathers and
scatters with repeated and negative indices; atomics whose result is used; arrays that several loops update in place;
scratch; integer outputs; and outputs without a cotangent. By construction it has no races and no index outside an
array. A seed gives the same program every time (`./scripts/fuzz --seed 17 --show`).

The reference, called the *mirror*, is Python itself: it runs the text of the kernel on scalar float64 tensors of
torch, and torch's autograd differentiates it, once and twice. The modes are

- `backward`: values, and gradients with cotangents for some of the outputs;
- `*b`: the same, with batch dims in the spec for some of the inputs;
- `vmap`, `vmap(grad)`, `jacrev`, `jvp`, `hessian`: the transforms of `torch.func`;
- `compile`: `torch.compile(op, backend="aot_eager", fullgraph=True)`, for one program in {every}, since tracing by
  torch takes longer than all other modes together.

`--engine python` runs programs on the Python engine, which compiles nothing, half of them written for Taichi and half
for Quadrants. The grammar `brief` generates them: one loop, with constructs that the grammar `wide` lacks: structs,
members of `data_oriented` classes, early returns, functions as template parameters, nested `while` loops, quaternions,
decompositions of matrices, arrays and casts in half precision, chains of two kernels, arguments that are changed in
place (`inout`), sums as dims of outputs, a field beside the arrays. Each run of the tests tries new ones, whose seeds
come from the commit. The outcomes of a commit count for later ones, as long as `src/tinsmith` and `tests/fuzz` stay
the same.

A quarter of the programs run on several threads, the others on one. Buffers whose contents must not be read are filled
with NaN.

| outcome | what it means |
|---|---|
| agree | equal to the mirror, up to rounding (1e-8, relative to the largest number) |
| refused | an error names the line that has no derivative of this kind, and the reason |
| at a jump | the mirror's result changes with the inputs' last digits, or overflows: nothing to compare |
| engine's mistake | the engine does not compile the kernel, or computes right values only without its optimizer |
| failed | another result, another error, or a crash |

## In float32

`./scripts/fuzz --dtype f32 --grammar vectors` generates programs that CPUs run in strips and lanes ([Vector
speed](decisions/vector-speed.md)), which float64 does not use: elementwise loops, inner loops with functions, and
loops that end early. Lengths and thresholds are reduced, so that a few elements fill strips and blocks. The mirror
still computes in float64, and the tolerance is 1e-3. A program that does not agree runs again without strips and
lanes. If that result is wrong too, float32 has too few digits for the program.

`--grammar stencils`, in either precision, generates loops that are split at their edges and gradients that gather:
reads of neighbors under conditions on the loop's index, time steps in place, rows computed from the rows before, and
additions to neighbors.

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
    """Return the page as Markdown."""
    packages = {"Taichi": "taichi", "Quadrants": "quadrants", "torch": "torch", "NumPy": "numpy"}
    engines = {one.engine for one in campaigns if one.outcomes}
    engines |= {"taichi", "quadrants"} if "python" in engines else set()
    known = [f"{name} {version(package)}" for name, package in packages.items() if package in engines | {"torch"}]
    words = f"Made with {', '.join(known)}, Python {platform.python_version()} on {sys.platform} ({platform.machine()})"
    tables = "\n\n".join(_table(one) for one in campaigns if one.outcomes)
    return PAGE.format(command=command, every=COMPILED_EVERY, versions=words, tables=tables)


def _table(campaign: Campaign) -> str:
    lines = [campaign.outcomes[seed] for seed in campaign.seeds if seed in campaign.outcomes]
    seeds, seconds = campaign.seeds, sum(sum(line.get("seconds", {}).values()) for line in lines)
    title = f"### {campaign.engine.capitalize()}: {len(lines):,} programs"
    average = seconds / max(1, len(lines))
    words = f"Seeds {seeds[0]} to {seeds[-1]} of the grammar `{campaign.grammar}`, {len(lines):,} of {len(seeds):,} "
    words += f"tried; {average:.2f} s each on a busy core."
    commits = sorted({line["commit"] for line in lines if line.get("commit")})
    words += f" Commit {', '.join(commits)}." if commits else ""
    head = ["| mode | " + " | ".join(_COLUMNS) + " |", "|---|" + "---:|" * len(_COLUMNS)]
    return "\n".join([title, "", words, "", *head, *(_row(mode, lines) for mode in MODES)])


def _row(mode: str, lines: list[dict]) -> str:
    counts = Counter(outcome for line in lines if (outcome := line.get("modes", {}).get(mode)))
    cells = [f"{sum(counts[one] for one in group):,}" for group in _COLUMNS.values()]
    return f"| `{mode}` | {' | '.join(cells)} |"
