"""New random programs in every run: their seeds come from the commit, and Python runs them.

A failure prints the program after making it small. `./scripts/fuzz --engine python --seed N --show` shows the whole.
"""

import hashlib
import time
from itertools import count

import pytest

from fuzz._brief import write_brief
from fuzz._judge import choose_language, judge_modes, shrink_modes
from fuzz._modes import MODES
from fuzz._verdict import AGREE, DISAGREE, ERROR, INVALID
from support.commit import find_commit
from support.engine_keeper import ENGINES, Configuration

SECONDS = 75.0
"""Of the processor's time, for programs; making one small takes as much again."""
FEWEST = 10
"""Programs that are tried even on the slowest machine."""
OTHER_MODES = [mode for mode in MODES if mode not in ("backward", "compile")]
"""Each program is tried in the mode `backward` and in one of these: more programs find more than more modes."""


def judge_by_python(program, lang, modes):
    return judge_modes(program, lang, modes, engine="python")


def describe_failure(seed, first, lang):
    """Shrink the failing program; describe it and the result in the mode that fails."""

    def judge(one, modes):
        return judge_by_python(one, lang, modes)

    small, mode = shrink_modes(write_brief(seed), first, judge, tries=100)
    last = judge(small, [mode])
    head = f"seed {seed} ({lang.__name__}), {mode}: {first.modes[mode]}\n{last.words.get(mode, '')}"
    return f"{head}\n# {small.spec}; scratch {small.scratch}\n{small.source}"


@pytest.mark.timeout(900)
def test_new_programs_of_each_commit(engine_keeper):
    """Programs written for Taichi and for Quadrants, in two modes each."""
    configuration = Configuration(default_fp="f64")
    langs = [engine_keeper.ensure(name, configuration) for name in ENGINES]
    first = int(hashlib.sha256(find_commit().encode()).hexdigest()[:8], 16)
    begun = time.process_time()
    agreed = 0
    for number in count():
        if number >= FEWEST and time.process_time() - begun > SECONDS:
            break
        seed = first + number
        lang = choose_language(langs, seed)
        modes = ["backward", OTHER_MODES[number % len(OTHER_MODES)]]
        verdict = judge_by_python(write_brief(seed), lang, modes)
        if verdict.outcome in (DISAGREE, ERROR, INVALID):
            pytest.fail(f"program {number + 1} of this run fails\n{describe_failure(seed, verdict, lang)}")
        agreed += verdict.modes["backward"] == AGREE
    assert agreed >= 0.9 * number
