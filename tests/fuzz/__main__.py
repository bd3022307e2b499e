"""The command behind scripts/fuzz: try random kernels, print what became of them; 1 where one does not agree."""

from __future__ import annotations

import argparse
import dataclasses
import gc
import importlib
import json
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from fuzz._brief import write_brief
from fuzz._campaign import SILENCE, Campaign
from fuzz._grammar import Program, write
from fuzz._judge import ModesVerdict, choose_language, judge_modes, shrink_modes
from fuzz._modes import MODES, modes_of
from fuzz._record import write_record
from fuzz._shrink import shrunk
from fuzz._stencils import write_stencils
from fuzz._table import describe_campaigns
from fuzz._vectors import write_vectors
from fuzz._verdict import AGREE, CHECKS, DISAGREE, judge
from fuzz._wide import write_wide
from support.engine_keeper import ENGINES, load_quietly

GRAMMARS = {
    "wide": write_wide,
    "brief": write_brief,
    "vectors": write_vectors,
    "nests": write,
    "stencils": write_stencils,
}
CHOICES = {"both": ENGINES, "all": (*ENGINES, "python"), **{name: (name,) for name in (*ENGINES, "python")}}
"""Engines by what the command line says."""

DTYPES = {"f64": torch.float64, "f32": torch.float32}


def main() -> int:
    """Run what the command line asks for."""
    options = _options()
    # Programs are random: what is generated for one is never needed again.
    os.environ.setdefault("TINSMITH_CACHE", "0")
    if options.child:
        return _child(options)
    if options.show or options.shrink:
        return _one(options)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: children end, and the log is whole
    try:
        campaigns = _campaigns(options)
    except KeyboardInterrupt:
        kept = "the log keeps what was tried" if options.log else "without --log, nothing is kept"
        print(f"interrupted: {kept}", file=sys.stderr)
        return 130
    for campaign in campaigns:
        _report(campaign, options)
    is_wrong = any(campaign.failures for campaign in campaigns)
    if options.record is not None:
        write_record(options.record, {one.engine: one.passed for one in campaigns})
    if options.table is not None:
        command = f"./scripts/fuzz --count {options.count} --seed {options.seed} --step {options.step}"
        command += f" --engine {options.engine} --log out/fuzz"
        command += f" --record {options.record}" if options.record else ""
        others = [name for name in CHOICES["all"] if name not in CHOICES[options.engine]]
        campaigns += [_campaign(name, options).load() for name in others]
        options.table.write_text(describe_campaigns(campaigns, command))
    return 1 if is_wrong else 0


def _campaign(engine: str, options: argparse.Namespace, jobs: int = 1) -> Campaign:
    """Make the campaign of an engine, with nothing tried yet."""
    seeds = range(options.seed, options.seed + options.count * options.step, options.step)
    return Campaign(
        engine,
        seeds,
        jobs,
        log=None if options.log is None else options.log.with_suffix(f".{engine}.jsonl"),
        adjoint=options.adjoint,
        grammar=options.grammar or _default_grammar(engine),
        is_again=options.again,
        modes=options.modes,
        record=options.record,
        silence=options.silence,
        dtype=options.dtype,
        shows_progress=True,
    )


def _default_grammar(engine: str) -> str:
    return "brief" if engine == "python" else "wide"


def _campaigns(options: argparse.Namespace) -> list[Campaign]:
    """Return a campaign for each engine, run or read from its log. They run side by side, and share the jobs."""
    engines = CHOICES[options.engine]
    campaigns = [_campaign(engine, options, max(1, options.jobs // len(engines))) for engine in engines]
    if options.only_report:
        return [campaign.load() for campaign in campaigns]
    with ThreadPoolExecutor(len(campaigns)) as pool:
        running = [pool.submit(campaign.run) for campaign in campaigns]
        try:
            return [one.result() for one in running]
        except KeyboardInterrupt:
            for campaign in campaigns:
                campaign.stop()
            raise


def _report(campaign: Campaign, options: argparse.Namespace) -> None:
    """Print how many kernels had each outcome, and what failed."""
    counted = ", ".join(f"{count} {outcome}" for outcome, count in campaign.counts.most_common())
    compared = CHECKS if campaign.grammar == "nests" else options.modes.split(",") if options.modes else MODES
    tried = f"{sum(campaign.counts.values())} of {len(campaign.seeds)} kernels from seed {options.seed}"
    print(f"{campaign.engine}: {tried} ({', '.join(compared)}): {counted}")
    if options.dtype == "f32":
        in_vectors = sum(bool(line.get("vectors")) for line in campaign.outcomes.values())
        print(f"  in strips or lanes: {in_vectors} kernels")
    for line in campaign.failures:
        print(f"  seed {line['seed']}: {line['outcome']} {line.get('check', '')}\n    {_words(line)[:400]}")


def _words(line: dict[str, Any]) -> str:
    """Describe the outcome of a seed, by mode if it has modes."""
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
    parser.add_argument("--engine", choices=[*CHOICES], default="both", help="python compiles nothing")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="child processes")
    parser.add_argument("--adjoint", default="source", help="where gradients come from")
    parser.add_argument("--grammar", choices=[*GRAMMARS], help="default: wide; brief on the Python engine")
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
    # Ctrl-C reaches children too: the campaign ends them, and knows then that they did not crash.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    langs = _started(options.engine, options.dtype)
    gc.freeze()  # an eighth of the time went into full collections, which looked through torch's modules
    gc.set_threshold(700, 10, 100)
    for seed in map(int, options.seeds.split(",")):
        print(json.dumps({"begin": seed}), flush=True)
        if options.grammar == "nests":
            said = dataclasses.asdict(judge(write(seed), langs[0], adjoint=options.adjoint))
        else:
            program, lang = GRAMMARS[options.grammar](seed), choose_language(langs, seed)
            dtype, engine = DTYPES[options.dtype], "python" if options.engine == "python" else None
            verdict = judge_modes(program, lang, _modes(options, seed), _announce, dtype, engine)
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
        lang = _started(CHOICES[options.engine][0], "f64")[0]
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
    name = CHOICES[options.engine][0]
    program = GRAMMARS[options.grammar or _default_grammar(name)](options.seed)
    if options.shrink:
        lang = choose_language(_started(name, options.dtype), options.seed)
        engine = "python" if name == "python" else None

        def judge_program(one: Program, modes: list[str]) -> ModesVerdict:
            return judge_modes(one, lang, modes, dtype=DTYPES[options.dtype], engine=engine)

        modes = _modes(options, options.seed)
        first = judge_program(program, modes)
        program, mode = shrink_modes(program, first, judge_program)
        last = judge_program(program, modes)
        print(f"{first.modes}\nsmall: {last.modes}\n{mode}: {last.words.get(mode, '')}")
    print(f"# {program.spec}; scratch {program.scratch}\n{program.source}")
    return 0


def _started(engine: str, dtype: str) -> list[ModuleType]:
    """Start the languages that an engine runs; for the Python engine, those of both compiled engines."""
    torch.set_num_threads(1)
    return [_start(name, dtype) for name in (ENGINES if engine == "python" else (engine,))]


def _start(engine: str, dtype: str) -> ModuleType:
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
