"""Random programs of the wide grammar: every mode of an op gives what plain Python gives, and nothing is refused.

`./scripts/fuzz` tries thousands; docs/about/fuzz.md has the table of a run.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import tinsmith as ts
from fuzz import _campaign, _mirror
from fuzz._brief import write_brief
from fuzz._campaign import Campaign
from fuzz._judge import judge_modes
from fuzz._mirror import Array, run_mirror
from fuzz._modes import COMPILED_EVERY, MODES, Trial, modes_of
from fuzz._record import write_record
from fuzz._shrink import shrunk
from fuzz._table import describe_campaigns
from fuzz._verdict import AGREE, CRASH, DISAGREE, INVALID, REFUSED, UNSTEADY
from fuzz._wide import wide_program, write_wide

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")


@pytest.mark.thinned(5)
@pytest.mark.parametrize("seed", range(3, 8))
def test_every_mode_of_a_program(lang64, seed):
    verdict = judge_modes(write_wide(seed), lang64)
    assert dict.fromkeys(MODES, AGREE) == verdict.modes, verdict.words


def test_a_seed_gives_one_program_in_every_process():
    """Names were drawn from a set, whose order differs from process to process: no failure could be looked into."""
    code = "from fuzz._wide import write_wide; print(*(write_wide(seed).source for seed in range(910_000, 910_012)))"
    folders = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    written = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": folders},
            capture_output=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "3")
    }
    assert len(written) == 1


@pytest.mark.costly
@pytest.mark.parametrize("seed", [1276, 1378])
def test_winners_of_parallel_maxima_get_their_gradient(lang64, seed):
    """A calculated candidate has other last bits in another loop: tangents were NaN, second derivatives wrong."""
    verdict = judge_modes(write_wide(seed), lang64, ["jvp", "hessian"])
    assert verdict.modes == {"jvp": AGREE, "hessian": AGREE}, verdict.words


# The grammar ------------------------------------------------------------------------------------


CONSTRUCTS = {
    "several results": r"v\d+, v\d+, v\d+ = three\(",
    "an early return": r"return \(u\.dot",
    "a swap": r"(\w+), (\w+) = \(?\2, \1\b",
    "a while with an exit by data": r"while lang\.abs\(u\d+\) > 0\.1:",
    "a top-level local that a loop adds to": r"        f\d+ [+-]= ",
    "a number of a vector": r"q\d+\[\d\] [*+-]?= ",
    "a number of a vector in an array": r"d\[.*\]\[1\] \+= ",
    "a negative modulo": r"\(i - 3\) % x\.shape",
    "a negative floor division": r"\(-i // 2\) % x\.shape",
    "a scatter": r"\[k\[i\]\] \+= ",
    "scratch": r" [gh]\[.*\] [+*]?= ",
    "an atomic's result": r"v\d+ = lang\.atomic_",
    "integers as an output": r" c\[.*\] [+-]?= ",
    "a 0-d array": r"t\[None\]",
    "a grouped loop": r"in lang\.grouped\(w\):",
    "a loop over two dims": r"for i, j in w:",
    "loops that are unrolled": r"    for turn in lang\.static\(range\(2\)\):\n        for i in x:",
    "an array by reference": r"put\([yzg], ",
    "a serial outermost loop that breaks": r"serialize=True\)\n    for .*\n(        .*\n)*?        if .*\n {12}break",
}


@pytest.fixture(scope="module")
def sources():
    """Return the sources of 200 programs."""
    return [write_wide(seed).source for seed in range(200)]


@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_the_grammar_has_every_construct(construct, sources):
    count = sum(re.search(CONSTRUCTS[construct], source) is not None for source in sources)
    assert count >= 5, f"{construct} in {count} of 200 programs"


BRIEF_CONSTRUCTS = {
    "an early return": r"\bsettled\(.*\n(.*\n)*?            return",
    "a function as a template": r"repeated\((bent|settled),",
    "a quaternion": r"rotated\((quaternion|multiplied)\(",
    "a singular value decomposition": r"lang\.svd\(",
    "a polar decomposition": r"lang\.polar_decompose\(",
    "a struct": r"b\d+ = Body\(",
    "a struct's member that changes": r"b\d+\.(mass|place\.x|place\[1\]) [+*-]?= ",
    "a method of a struct": r"\.(moved|pull)\(",
    "a member of a data_oriented class": r"model\.(gain|apply)",
    "nested whiles": r"while u\d+ > 0\.25:\n +u\d+ = .*\n +while u\d+ > 0\.2:",
    "half precision": r"lang\.f16\)",
    "matrices multiplied": r" @ ",
    "a chain": r"def second\(",
    "an argument that is changed in place": r"# .*inout \w",
    "a sum as a dim": r"# .* -> .*\[.*m [-+]",
    "a field": r"table\[",
    "an array in half precision": r"# .*: f16",
}


@pytest.fixture(scope="module")
def brief_sources():
    """Return the sources of 300 programs."""
    programs = map(write_brief, range(300))
    return [f"# {one.spec}\n{one.source}" for one in programs]


@pytest.mark.parametrize("construct", BRIEF_CONSTRUCTS)
def test_the_brief_grammar_has_every_construct(construct, brief_sources):
    assert any(re.search(BRIEF_CONSTRUCTS[construct], source) for source in brief_sources)


@pytest.mark.each_engine
@pytest.mark.parametrize("construct", ["settled(x[i], 0.3)", "stretched(x[i], w[i, 0])", "turned_by(x[i], w[i, 1])"])
def test_constructs_of_the_brief_grammar_compile(lang64, construct):
    verdict = judge_modes(wide_program(0, f"    for i in x:\n        y[i] = {construct}"), lang64, ["backward"])
    assert verdict.modes == {"backward": AGREE}, verdict.words


def test_a_seed_always_gives_the_same_program(sources):
    assert [write_wide(seed).source for seed in range(40)] == sources[:40]
    assert len(set(sources)) > 195


def test_programs_have_no_races_and_stay_inside_arrays(lang64):
    for seed in range(8):
        trial = Trial(write_wide(seed), lang64)
        first = trial.samples[0]
        findings = ts.sanitize(trial.op, *first.floats.values(), first.a, *first.integers.values())
        assert not [one for one in findings if one.severity == "error"], seed


def test_compile_is_tried_now_and_then():
    assert sum("compile" in modes_of(seed) for seed in range(100)) == 100 // COMPILED_EVERY
    assert set(modes_of(1)) == set(MODES) - {"compile"}


# The mirror -------------------------------------------------------------------------------------

STATEMENTS = [
    ("y[0] += x[1] * 2.0", 4.0),
    ("a = x[1]\n    a += 1.0\n    y[0] = x[1]", 2.0),
    ("q = lang.Vector([x[0], x[1]])\n    r = q\n    r[0] = 9.0\n    y[0] = q[0]", 1.0),
    ("q = lang.Vector([x[0], x[1]])\n    q[0], q[1] = q[1], q[0]\n    y[0] = q[0] - q.y", 1.0),
    ("y[0] = 3.0\n    v = lang.atomic_max(y[0], x[1])\n    y[0] += v * 10.0", 33.0),
    ("y[0] = 3.0\n    v = lang.atomic_sub(y[0], x[1])\n    y[0] += v * 10.0", 31.0),
    ("a, b = x[0], x[1]\n    a, b = b, a + b\n    y[0] = a * 10.0 + b", 23.0),
    ("y[0] = (-7 // 2) % 5 + (-7) % 3 * 10.0", 21.0),
    ("for i, j in lang.ndrange(2, (1, 3)):\n        y[0] += i * 10.0 + j", 26.0),
    ("m = lang.Matrix([[x[0], 2.0], [3.0, 4.0]])\n    n = m @ m\n    m[0, 0] = 7.0\n    y[0] = n[0, 1]", 10.0),
]


@pytest.mark.parametrize(("statements", "right"), STATEMENTS)
def test_statements_compute_what_python_computes(statements, right):
    y = Array(torch.zeros(1, dtype=torch.float64))
    x = Array(torch.tensor([1.0, 2.0], dtype=torch.float64))
    run_mirror(f"def kernel(x, y):\n    {statements}\n", {"x": x, "y": y}, {})
    assert float(y[0]) == right


def test_functions_take_copies_but_for_templates():
    source = """
@lang.func
def changed(q, r: lang.template()):
    q[0] = 5.0
    r = r * 2.0


def kernel(x, y):
    q, r = lang.Vector([x[0], 0.0]), lang.Vector([x[1], 0.0])
    changed(q, r)
    y[0] = q[0] * 10.0 + r[0]
"""
    y = Array(torch.zeros(1, dtype=torch.float64))
    run_mirror(source, {"x": Array(torch.tensor([1.0, 2.0], dtype=torch.float64)), "y": y}, {})
    assert float(y[0]) == 14.0


@pytest.mark.parametrize("place", ["x.shape[0]", "-1"])
def test_an_index_outside_is_a_mistake_of_the_program(lang64, place):
    verdict = judge_modes(wide_program(0, f"    for i in x:\n        y[i] = x[{place}]"), lang64)
    assert set(verdict.modes.values()) == {INVALID}


# The judge --------------------------------------------------------------------------------------

WITH_A_COSINE = """
    for i in x:
        v1 = lang.sin(x[i]) + 0.2
        if v1 > -9.0:
            v1 = lang.cos(v1) * 0.5
        y[i] = v1
"""


def test_a_disagreement_in_any_mode_is_found_and_shrunk(lang64, monkeypatch):
    """With a sine in place of the mirror's cosine, only kernels with a cosine fail."""
    program = wide_program(0, WITH_A_COSINE)
    monkeypatch.setattr(_mirror.LANG, "cos", _mirror.LANG.sin)
    verdict = judge_modes(program, lang64)
    assert verdict.modes == dict.fromkeys(MODES, DISAGREE)
    small = shrunk(program, lambda one: judge_modes(one, lang64, ["backward"]).outcome == DISAGREE, tries=12)
    assert "lang.cos(" in small.source
    assert "if " not in small.source


@pytest.mark.parametrize(("value", "outcome"), [("x[i] + (w[i, 0] - x[i])", UNSTEADY), ("w[i, 0] + 1e-3", DISAGREE)])
def test_discontinuities_do_not_count_as_mistakes(lang64, monkeypatch, value, outcome):
    """What says nothing is only what changes with the last digits."""
    program = wide_program(0, f"    for i in x:\n        y[i] = lang.select({value} > w[i, 0], 0.3, 0.7)")
    monkeypatch.setattr(_mirror.LANG, "select", lambda condition, a, b: b if condition else a)  # surely wrong
    assert judge_modes(program, lang64, ["backward"]).outcome == outcome


def test_refusals_have_a_reason(lang64):
    body = "    for i in x:\n        y[i] = lang.atomic_add(t[None], x[i])"
    verdict = judge_modes(wide_program(0, body), lang64, ["backward"])
    assert verdict.outcome == REFUSED
    assert "atomic" in verdict.words["backward"]


# The page ---------------------------------------------------------------------------------------


def test_the_table_counts_outcomes_by_mode():
    campaign = Campaign("taichi", range(3), grammar="wide")
    campaign.outcomes = {
        0: {"seed": 0, "outcome": AGREE, "modes": {"backward": AGREE, "jvp": AGREE}, "words": {}},
        1: {"seed": 1, "outcome": REFUSED, "modes": {"backward": AGREE, "jvp": REFUSED}, "words": {}},
        2: {"seed": 2, "outcome": CRASH, "modes": {"backward": AGREE, "jvp": CRASH}, "words": {}},
    }
    page = describe_campaigns([campaign], "./scripts/fuzz --count 3")
    assert "| `backward` | 3 | 0 | 0 | 0 | 0 |" in page
    assert "| `jvp` | 1 | 1 | 0 | 0 | 1 |" in page
    assert [line["seed"] for line in campaign.failures] == [2]


def test_the_page_names_the_commits_and_leaves_out_engines_without_programs():
    line = {"outcome": AGREE, "modes": {"backward": AGREE}, "words": {}}
    campaign = Campaign("python", range(2), grammar="brief")
    campaign.outcomes = {seed: {"seed": seed, "commit": f"abc{seed}", **line} for seed in range(2)}
    page = describe_campaigns([campaign, Campaign("taichi", range(2))], "./scripts/fuzz")
    assert "of the grammar `brief`, 2 of 2 tried" in page
    assert "Commit abc0, abc1." in page
    assert "### Taichi" not in page


def test_a_stopped_campaign_can_be_continued(monkeypatch, tmp_path):
    """Programs that were being tried have no outcome: they did not crash."""
    log = tmp_path / "log.jsonl"
    campaign = Campaign("python", range(6), jobs=1, log=log)

    def hear_two_and_stop(self, child):
        child.kill()
        for seed in range(2):
            self._note({"seed": seed, "outcome": AGREE, "modes": {"backward": AGREE}, "words": {}})
        self.stop()
        return 2

    monkeypatch.setattr(Campaign, "_heard", hear_two_and_stop)
    assert campaign.run().counts == {AGREE: 2}
    again = Campaign("python", range(6), jobs=1, log=log).load()
    assert again.counts == {AGREE: 2}
    assert not again.failures


def test_outcomes_on_the_python_engine_count_as_long_as_the_code_is_the_same(monkeypatch, tmp_path):
    """A commit that changes pages alone does not make thousands of programs to be tried again."""
    log = tmp_path / "log.jsonl"
    line = {"outcome": AGREE, "modes": {"backward": AGREE}, "words": {}}
    commits = ["here", "pages before", "other code", ""]
    log.write_text("".join(json.dumps({"seed": s, "commit": one, **line}) + "\n" for s, one in enumerate(commits)))
    monkeypatch.setattr(_campaign, "has_same_code", lambda one, other: (one, other) == ("pages before", "here"))
    campaign = Campaign("python", range(4), log=log)
    campaign._commit = "here"
    assert set(campaign.load().outcomes) == {0, 1}
    compiled = Campaign("taichi", range(4), log=log)
    assert set(compiled.load().outcomes) == {0, 1, 2, 3}


def test_uncommitted_code_equals_no_other_code():
    head = "1" * 40
    assert not _campaign.has_same_code(f"{head}-dirty", head)
    assert not _campaign.has_same_code("", head)
    assert not _campaign.has_same_code(head, "2" * 40)


def test_a_record_can_replace_a_log(tmp_path):
    path = tmp_path / "fuzz.json"
    agree, refused = {"backward": AGREE, "jvp": AGREE}, {"backward": AGREE, "jvp": REFUSED}
    lines = {
        seed: {"seed": seed, "outcome": outcome, "modes": modes, "words": {}, "seconds": {"jvp": 1.0, "backward": 0.5}}
        for seed, outcome, modes in [(0, AGREE, agree), (1, AGREE, agree), (2, REFUSED, refused), (4, AGREE, agree)]
    }
    crashed = {"seed": 3, "outcome": CRASH, "modes": {"backward": CRASH}, "words": {}, "seconds": {}}
    campaign = Campaign("taichi", range(5), grammar="wide", outcomes=lines | {3: crashed})
    write_record(path, {"taichi": campaign.passed, "quadrants": {}})
    assert '"0-1,4"' in path.read_text()
    again = Campaign("taichi", range(5), grammar="wide", record=path).load()
    assert again.passed.keys() == lines.keys()
    assert again.counts == {AGREE: 3, REFUSED: 1}
    assert {seed: sum(one["seconds"].values()) for seed, one in again.outcomes.items()} == dict.fromkeys(lines, 1.5)
    assert Campaign("quadrants", range(5), grammar="wide", record=path).load().outcomes == {}
    first, second = (describe_campaigns([one], "./scripts/fuzz") for one in (again, campaign))
    assert "| `jvp` | 3 | 1 | 0 | 0 | 0 |" in first
    assert "| `jvp` | 3 | 1 | 0 | 0 | 0 |" in second
