"""The command behind scripts/fuzz: try random kernels, print what became of them; 1 where one does not agree."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from pathlib import Path

import torch

from fuzz._campaign import Campaign
from fuzz._grammar import write
from fuzz._shrink import shrunk
from fuzz._verdict import AGREE, CHECKS, DISAGREE, judge
from support.engine_keeper import ENGINES, load_quietly


def main() -> int:
    """Run as told by the command line."""
    options = _options()
    if options.child:
        return _child(options)
    if options.show or options.shrink:
        return _one(options)
    failed = 0
    for engine in ENGINES if options.engine == "both" else (options.engine,):
        log = None if options.log is None else options.log.with_suffix(f".{engine}.jsonl")
        seeds = range(options.seed, options.seed + options.count)
        campaign = Campaign(engine, seeds, options.jobs, options.adjoint, log).run()
        counted = ", ".join(f"{count} {outcome}" for outcome, count in campaign.counts.most_common())
        print(f"{engine}: {len(seeds)} kernels from seed {options.seed} ({', '.join(CHECKS)}): {counted}")
        for line in campaign.failures:
            print(
                f"  seed {line['seed']}: {line['outcome']} {line.get('check', '')}\n    {line['words'].strip()[:400]}"
            )
        failed += len(campaign.failures)
    return 1 if failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="kernels an engine")
    parser.add_argument("--seed", type=int, default=0, help="the first kernel's")
    parser.add_argument("--engine", choices=[*ENGINES, "both"], default="both")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="child processes")
    parser.add_argument("--adjoint", default="source", help="where gradients come from")
    parser.add_argument("--log", type=Path, help="outcomes go here, and those that are here are not tried again")
    parser.add_argument("--show", action="store_true", help="print the kernel of --seed")
    parser.add_argument("--shrink", action="store_true", help="make the failing kernel of --seed small, and print it")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--seeds", default="", help=argparse.SUPPRESS)
    return parser.parse_args()


def _child(options: argparse.Namespace) -> int:
    lang = _started(options.engine)
    for seed in map(int, options.seeds.split(",")):
        print(json.dumps({"begin": seed}), flush=True)
        verdict = judge(write(seed), lang, adjoint=options.adjoint)
        print(json.dumps(dataclasses.asdict(verdict)), flush=True)
    return 0


def _one(options: argparse.Namespace) -> int:
    program = write(options.seed)
    if options.shrink:
        lang = _started(ENGINES[0] if options.engine == "both" else options.engine)
        first = judge(program, lang, adjoint=options.adjoint)

        def fails(smaller: object) -> bool:
            found = judge(smaller, lang, adjoint=options.adjoint)
            is_same = (found.outcome, found.check) == (first.outcome, first.check)
            return is_same and (first.outcome == DISAGREE or found.words[:50] == first.words[:50])

        program = shrunk(program, fails) if first.outcome != AGREE else program
        print(f"{first.outcome} {first.check}: {judge(program, lang, adjoint=options.adjoint).words}")
    print(f"# {program.spec}; scratch {program.scratch}\n{program.source}")
    return 0


def _started(engine: str) -> object:
    torch.set_num_threads(1)
    lang = load_quietly(engine)
    options = {"ad_stack_experimental_enabled": True} if engine == "quadrants" else {}
    sys.stdout, kept = sys.stderr, sys.stdout  # Quadrants says that it starts
    lang.init(
        arch=lang.cpu, default_fp=lang.f64, log_level=lang.WARN, offline_cache=False, cpu_max_num_threads=2, **options
    )
    sys.stdout = kept
    return lang


if __name__ == "__main__":
    sys.exit(main())
