"""What the first op of a process, and its first call without a gradient, take: `y = 3 x`.

    python benchmarks/first_call.py [--rounds 5]

For each engine that is installed, in processes of their own, after torch and the engine:

- modules: that were loaded, of any package;
- functions, comprehensions, classes: of the library, whose code ran: the functions that were called, the comprehensions
  and lambdas, and the classes that were defined;
- seconds of the processor: for `ts.op`, which loads most of the library, for the op, and for its call; the least of the
  rounds. Python writes the files that it compiles in the first round.

Prints a table.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

ENGINES = ("taichi", "quadrants")
WORKER = """
import importlib, inspect, json, os, sys, time
import torch

lang = importlib.import_module(sys.argv[1])
is_counting = sys.argv[2] == "count"
lang.init(arch=lang.cpu, log_level=lang.ERROR)
import tinsmith as ts

@lang.kernel
def triple(x: lang.types.ndarray(), y: lang.types.ndarray()):
    for i in x:
        y[i] = 3.0 * x[i]

folder, before, codes, x = os.path.dirname(ts.__file__), set(sys.modules), set(), torch.ones(5)

def note(frame, event, _):
    if event == "call" and frame.f_code.co_filename.startswith(folder):
        codes.add(frame.f_code)

if is_counting:
    sys.setprofile(note)
times = [time.process_time()]
make = ts.op
times.append(time.process_time())
op = make("x[n] -> y[n]")(triple)
times.append(time.process_time())
op(x)
times.append(time.process_time())
sys.setprofile(None)
functions = [one for one in codes if one.co_flags & inspect.CO_OPTIMIZED]
modules = [one for one in codes if one.co_name == "<module>"]
named = [one for one in functions if not one.co_name.startswith("<")]
print(json.dumps({
    "modules": sorted({*sys.modules} - before),
    "functions": len(named),
    "comprehensions": len(functions) - len(named),
    "classes": len(codes) - len(functions) - len(modules),
    "seconds": [after - start for start, after in zip(times, times[1:])],
}))
"""


def main() -> None:
    """Measure all cases, and print a table."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--rounds", type=int, default=5, help="processes whose least time counts")
    rounds = asked.parse_args().rounds
    table = Table("engine", "modules", "functions", "comprehensions", "classes", "ts.op", "op", "call")
    for engine in ENGINES:
        if importlib.util.find_spec(engine) is None:
            continue
        with tempfile.TemporaryDirectory() as folder:
            counted = measure(engine, "count", Path(folder))
            seconds = [measure(engine, "time", Path(folder))["seconds"] for _ in range(rounds)]
        counts = [len(counted["modules"]), *(counted[name] for name in ("functions", "comprehensions", "classes"))]
        least = [f"{min(column):.3f} s" for column in zip(*seconds, strict=True)]
        table.add_row(engine, *map(str, counts), *least)
    Console().print(table)


def measure(engine: str, what: str, folder: Path) -> dict:
    """Measure in a new process; return its results. Python keeps compiled files in `folder`."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    path = folder / "first_op.py"
    path.write_text(WORKER, "utf-8")  # engines read the source of kernels
    command = [sys.executable, str(path), engine, what]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()
