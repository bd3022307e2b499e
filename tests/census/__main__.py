"""The command behind scripts/census: both tables of docs/about/census.md."""

from __future__ import annotations

import argparse
from pathlib import Path

from census import _engines, _examples
from support.engine_keeper import ENGINES


def main() -> int:
    """Run the command line; 1 if lint does not report a kernel whose gradient is wrong."""
    parser = argparse.ArgumentParser(prog="census", description=__doc__)
    parser.add_argument("what", choices=["engines", "examples"])
    parser.add_argument("--count", type=int, default=400, help="random kernels for each engine")
    parser.add_argument("--seed", type=int, default=20000, help="the first kernel's")
    parser.add_argument("--jobs", type=int, default=2, help="child processes")
    parser.add_argument("--log", type=Path, help="outcomes go here, and those that are here are not tried again")
    options = parser.parse_args()
    if options.what == "examples":
        linted = {engine: _examples.linted(engine) for engine in ENGINES}
        for engine, one in linted.items():
            print(f"{engine}: {one.files} files, {one.lines} lines, {one.seconds:.2f} s")
        print("\n".join(_examples.table(linted)))
        return 0
    seeds = range(options.seed, options.seed + options.count)
    logs = {engine: options.log and options.log.with_suffix(f".{engine}.jsonl") for engine in ENGINES}
    tried = {engine: _engines.tried(engine, seeds, logs[engine], options.jobs) for engine in ENGINES}
    print("\n".join(_engines.table(tried)))
    missed = {engine: _engines.unnamed(ones) for engine, ones in tried.items()}
    print("\n" + "\n".join(f"{engine}: wrong, and not reported: {seeds or 'none'}" for engine, seeds in missed.items()))
    return 1 if any(missed.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
