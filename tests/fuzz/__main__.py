"""The command behind scripts/fuzz: try random kernels, print what became of them; 1 where one does not agree."""

from __future__ import annotations

import argparse
import dataclasses
import gc
import importlib
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from fuzz._campaign import SILENCE, Campaign
from fuzz._grammar import write
from fuzz._judge import ModesVerdict, judge_modes
from fuzz._modes import MODES, modes_of
from fuzz._record import write_record
from fuzz._shrink import shrunk
from fuzz._stencils import write_stencils
from fuzz._table import describe_campaigns
from fuzz._vectors import write_vectors
from fuzz._verdict import AGREE, CHECKS, DISAGREE, judge
from fuzz._wide import write_wide
from support.engine_keeper import ENGINES, load_quietly

GRAMMARS = {"wide": write_wide, "vectors": write_vectors, "nests": write, "stencils": write_stencils}
DTYPES = {"f64": torch.float64, "f32": torch.float32}


def main() -> int:
    """Run what the command line asks for."""
    options = _options()
    if options.child:
        return _child(options)
    if options.show or options.shrink:
        return _one(options)
    campaigns = _campaigns(options)
    for campaign in campaigns:
        _report(campaign, options)
    if options.record is not None:
        write_record(options.record, {one.engine: one.passed for one in campaigns})
    if options.table is not None:
        command = f"./scripts/fuzz --count {options.count} --seed {options.seed} --step {options.step}"
        command += f" --engine {options.engine} --log out/fuzz"
        command += f" --record {options.record}" if options.record else ""
        options.table.write_text(describe_campaigns(campaigns, command))
    return 1 if any(campaign.failures for campaign in campaigns) else 0


def _campaigns(options: argparse.Namespace) -> list[Campaign]:
    """One for each engine, tried or read from its log. Both engines go on side by side, and share the jobs."""
    seeds = range(options.seed, options.seed + options.count * options.step, options.step)
    engines = ENGINES if options.engine == "both" else (options.engine,)
    jobs = max(1, options.jobs // len(engines))
    logs = [None if options.log is None else options.log.with_suffix(f".{engine}.jsonl") for engine in engines]
    shared: dict[str, Any] = {
        "adjoint": options.adjoint,
        "grammar": options.grammar,
        "is_again": options.again,
        "modes": options.modes,
        "record": options.record,
        "silence": options.silence,
        "dtype": options.dtype,
    }
    campaigns = [Campaign(engine, seeds, jobs, log=log, **shared) for engine, log in zip(engines, logs, strict=True)]
    if options.only_report:
        return [campaign.load() for campaign in campaigns]
    with ThreadPoolExecutor(len(campaigns)) as pool:
        return list(pool.map(Campaign.run, campaigns))


def _report(campaign: Campaign, options: argparse.Namespace) -> None:
    """Print how many kernels had each outcome, and what failed."""
    counted = ", ".join(f"{count} {outcome}" for outcome, count in campaign.counts.most_common())
    compared = CHECKS if options.grammar == "nests" else options.modes.split(",") if options.modes else MODES
    tried = f"{sum(campaign.counts.values())} of {len(campaign.seeds)} kernels from seed {options.seed}"
    print(f"{campaign.engine}: {tried} ({', '.join(compared)}): {counted}")
    if options.dtype == "f32":
        in_vectors = sum(bool(line.get("vectors")) for line in campaign.outcomes.values())
        print(f"  in strips or lanes: {in_vectors} kernels")
    for line in campaign.failures:
        print(f"  seed {line['seed']}: {line['outcome']} {line.get('check', '')}\n    {_words(line)[:400]}")


def _words(line: dict[str, Any]) -> str:
    """What is said of a seed: of each mode, where it has modes."""
    words = line["words"]
    return (
        words.strip()
        if isinstance(words, str)
        else "\n    ".join(f"{mode}: {text.strip()}" for mode, text in words.items())
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="kernels an engine")
    parser.add_argument("--seed", type=int, default=0, help="the first kernel's")
    parser.add_argument("--step", type=int, default=1, help="from one seed to the next")
    parser.add_argument("--engine", choices=[*ENGINES, "both"], default="both")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="child processes")
    parser.add_argument("--adjoint", default="source", help="where gradients come from")
    parser.add_argument("--grammar", choices=[*GRAMMARS], default="wide", help="which kernels are written")
    parser.add_argument(
        "--dtype", choices=[*DTYPES], default="f64", help="not of nests; f32 runs in short strips and lanes"
    )
    parser.add_argument("--modes", help="not of nests, comma between them; the default leaves out most of `compile`")
    parser.add_argument("--silence", type=float, default=SILENCE, help="seconds without a word that end a child")
    parser.add_argument("--table", type=Path, help="write a page with the table of the run (of the wide grammar)")
    parser.add_argument("--only-report", action="store_true", help="try nothing: report what the log has")
    parser.add_argument("--again", action="store_true", help="try the seeds again that fail in the log")
    parser.add_argument("--log", type=Path, help="outcomes go here, and those that are here are not tried again")
    parser.add_argument("--record", type=Path, help="the same for outcomes alone, in short; of the wide grammar")
    parser.add_argument("--show", action="store_true", help="print the kernel of --seed")
    parser.add_argument("--shrink", action="store_true", help="make the failing kernel of --seed small, and print it")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--seeds", default="", help=argparse.SUPPRESS)
    return parser.parse_args()


def _child(options: argparse.Namespace) -> int:
    lang = _started(options.engine, options.dtype)
    gc.freeze()  # an eighth of the time went into full collections, which looked through torch's modules
    gc.set_threshold(700, 10, 100)
    for seed in map(int, options.seeds.split(",")):
        print(json.dumps({"begin": seed}), flush=True)
        if options.grammar == "nests":
            said = dataclasses.asdict(judge(write(seed), lang, adjoint=options.adjoint))
        else:
            verdict = judge_modes(
                GRAMMARS[options.grammar](seed), lang, _modes(options, seed), _announce, DTYPES[options.dtype]
            )
            said = {**dataclasses.asdict(verdict), "outcome": verdict.outcome}
        print(json.dumps(said), flush=True)
    return 0


def _modes(options: argparse.Namespace, seed: int) -> list[str]:
    return modes_of(seed) if options.modes is None else options.modes.split(",")


def _announce(verdict: ModesVerdict, mode: str) -> None:
    """Say which mode comes next, and what became of those before: the engine may end this process."""
    print(json.dumps({"begin": verdict.seed, "mode": mode, "modes": verdict.modes}), flush=True)


def _one(options: argparse.Namespace) -> int:
    if options.grammar != "nests":
        return _one_wide(options)
    program = write(options.seed)
    if options.shrink:
        lang = _started(ENGINES[0] if options.engine == "both" else options.engine, "f64")
        first = judge(program, lang, adjoint=options.adjoint)

        def fails(smaller: object) -> bool:
            verdict = judge(smaller, lang, adjoint=options.adjoint)
            is_same = (verdict.outcome, verdict.check) == (first.outcome, first.check)
            return is_same and (first.outcome == DISAGREE or verdict.words[:50] == first.words[:50])

        program = shrunk(program, fails) if first.outcome != AGREE else program
        print(f"{first.outcome} {first.check}: {judge(program, lang, adjoint=options.adjoint).words}")
    print(f"# {program.spec}; scratch {program.scratch}\n{program.source}")
    return 0


def _one_wide(options: argparse.Namespace) -> int:
    """Show a program and its outcomes; `--shrink` first makes it small where the worst mode still fails so."""
    program, modes = GRAMMARS[options.grammar](options.seed), _modes(options, options.seed)
    if options.shrink:
        dtype = DTYPES[options.dtype]
        lang = _started(ENGINES[0] if options.engine == "both" else options.engine, options.dtype)
        first = judge_modes(program, lang, modes, dtype=dtype)
        mode = next((mode for mode, outcome in first.modes.items() if outcome == first.outcome), modes[0])

        def fails(smaller: Any) -> bool:
            verdict = judge_modes(smaller, lang, [mode], dtype=dtype)
            words, before = verdict.words.get(mode, ""), first.words.get(mode, "")
            return verdict.modes[mode] == first.modes[mode] and (
                verdict.modes[mode] == DISAGREE or words[:40] == before[:40]
            )

        program = shrunk(program, fails) if first.outcome != AGREE else program
        last = judge_modes(program, lang, modes, dtype=dtype)
        print(f"{first.modes}\nsmall: {last.modes}\n{mode}: {last.words.get(mode, '')}")
    print(f"# {program.spec}; scratch {program.scratch}\n{program.source}")
    return 0


def _started(engine: str, dtype: str) -> object:
    torch.set_num_threads(1)
    lang = load_quietly(engine)
    options = {"ad_stack_experimental_enabled": True} if engine == "quadrants" else {}
    sys.stdout, kept = sys.stderr, sys.stdout  # Quadrants says that it starts
    lang.init(
        arch=lang.cpu,
        default_fp=getattr(lang, dtype),
        log_level=lang.WARN,
        offline_cache=False,
        cpu_max_num_threads=2,
        **options,
    )
    sys.stdout = kept
    # Engines wrap the source line of every node for messages that nobody reads here: a tenth of all time.
    utilities: Any = importlib.import_module(f"{engine}.lang.ast.ast_transformer_utils")
    if engine == "taichi":
        utilities.ASTTransformerContext.get_pos_info = lambda *_: ""
    else:
        utilities.ASTTransformerFuncContext.memoized_get_pos_info = lambda *_: ""
    return lang


if __name__ == "__main__":
    sys.exit(main())
