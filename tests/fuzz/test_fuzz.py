"""Random kernels by the hundred: engines compute what the interpreter says, and nothing of it is refused.

`./scripts/fuzz` tries thousands; `--seed N --shrink` makes one that fails small.
"""

import ast

import pytest

from fuzz import _campaign
from fuzz._campaign import Campaign
from fuzz._grammar import program, write
from fuzz._shrink import shrunk
from fuzz._verdict import AGREE, DISAGREE, REFUSED, TANGENTLESS, UNSTEADY, judge
from support.engine_keeper import ENGINES
from tinsmith.engines.python import _exact_numbers

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")
PARTS = 10
"""Each engine's kernels in so many tests, of which the ordinary run takes one."""


def describe_failures(campaign):
    """Describe the failures of a campaign."""
    lines = [f"{campaign.engine}: {dict(campaign.counts)}"]
    lines += [f"seed {one['seed']}: {one['outcome']} {one['words'][:600]}" for one in campaign.failures]
    return "\n".join(lines)


def assert_all_agree(engine, seeds, log=None):
    # Starting a child takes as long as trying three kernels.
    campaign = Campaign(engine, seeds, log=log, jobs=1 if len(seeds) < 20 else 2).run()
    assert len(campaign.outcomes) == len(seeds)
    assert not campaign.failures, describe_failures(campaign)
    agreed = campaign.counts[AGREE] + campaign.counts[TANGENTLESS] + campaign.counts[UNSTEADY]
    assert agreed >= 0.98 * len(seeds), describe_failures(campaign)  # the grammar keeps clear of engines' mistakes
    assert campaign.counts[UNSTEADY] <= max(1, 0.005 * len(seeds)), describe_failures(campaign)
    assert campaign.counts[TANGENTLESS] <= max(4, 0.3 * len(seeds)), describe_failures(campaign)


@pytest.mark.thinned(PARTS)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("name", ENGINES)
def test_a_hundred_kernels(name, part):
    """Taichi gets the even seeds, Quadrants the odd ones."""
    assert_all_agree(name, range(ENGINES.index(name) + 10 * part, 10 * (part + 1), 2))


# The fuzz itself --------------------------------------------------------------------------------


def test_a_seed_always_gives_the_same_kernel():
    for seed in range(40):
        assert write(seed) == write(seed)
    assert len({write(seed).source for seed in range(200)}) == 200


CONSTRUCTS = {
    "a while": lambda node: isinstance(node, ast.While),
    "a break": lambda node: isinstance(node, ast.Break),
    "a continue": lambda node: isinstance(node, ast.Continue),
    "an elif or else": lambda node: isinstance(node, ast.If) and node.orelse,
    "a ternary": lambda node: isinstance(node, ast.IfExp),
    "a select": lambda node: called(node) == "select",
    "a vector": lambda node: called(node) == "Vector",
    "a matrix product": lambda node: isinstance(node, ast.MatMult),
    "a scatter": lambda node: isinstance(node, ast.AugAssign) and "[k[i]]" in ast.unparse(node.target),
    "a greatest": lambda node: called(node) == "atomic_max",
    "a serial loop": lambda node: called(node) == "loop_config",
    "a static loop": lambda node: isinstance(node, ast.For) and "static" in ast.unparse(node.iter),
    "an ndrange inside": lambda node: isinstance(node, ast.For) and "ndrange(2" in ast.unparse(node.iter),
    "a running average": lambda node: isinstance(node, ast.Assign) and "- 1] * 0.8" in ast.unparse(node.value),
    "a function by reference": lambda node: called(node) == "pushed",
    "an i64": lambda node: isinstance(node, ast.Attribute) and node.attr == "i64",
    "an f32": lambda node: isinstance(node, ast.Attribute) and node.attr == "f32",
    "locals changing places": lambda node: isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple),
}


def called(node):
    return getattr(node.func, "attr", getattr(node.func, "id", "")) if isinstance(node, ast.Call) else ""


@pytest.fixture(scope="module")
def trees():
    """Return the syntax trees of 300 kernels."""
    return [ast.parse(write(seed).source) for seed in range(300)]


@pytest.mark.thinned(3)
@pytest.mark.parametrize("construct", CONSTRUCTS)
def test_the_grammar_has_every_construct(construct, trees):
    count = sum(any(CONSTRUCTS[construct](node) for node in ast.walk(tree)) for tree in trees)
    assert count >= 5, f"{construct} in {count} of 300 kernels"


def test_nests_are_three_deep(trees):
    def depth(node):
        inner = max([depth(child) for child in ast.iter_child_nodes(node)], default=0)
        return inner + isinstance(node, ast.For | ast.While)

    depths = [depth(tree) for tree in trees]
    assert sum(one >= 4 for one in depths) >= 20  # the top level's loop, and three in it


WITH_A_COSINE = """
    for i in x:
        v1 = lang.sin(x[i]) + 0.2
        if v1 > -9.0:
            v1 = lang.cos(v1) * 0.5
        y[i] = v1
"""


def test_a_disagreement_is_found_and_shrunk(lang64, monkeypatch):
    """With an interpreter's sine in place of its cosine, only kernels with a cosine fail."""
    wrong = program(0, WITH_A_COSINE, ["y"], is_single=False)
    assert judge(wrong, lang64).outcome == AGREE
    monkeypatch.setitem(_exact_numbers.FLOAT_UNARY, "cos", _exact_numbers.FLOAT_UNARY["sin"])
    assert judge(wrong, lang64).outcome == DISAGREE
    small = shrunk(wrong, lambda one: judge(one, lang64).outcome == DISAGREE)
    assert "lang.cos(" in small.source
    assert "lang.sin(" not in small.source
    assert "if " not in small.source


OTHER_NAMES_OF_ONE_ELEMENT = """
    lang.loop_config(serialize=True)
    for i in range(x.shape[0]):
        y[k[i]] = (y[i] * 0.7 + a) + y[k[i]]
        z[i] = y[i]
"""


def test_elements_under_two_names(lang64):
    """Compiled as the engines would by themselves, it is wrong."""
    kernel = program(1, OTHER_NAMES_OF_ONE_ELEMENT, ["y", "z"], is_single=False)
    assert judge(kernel, lang64).outcome == AGREE


@pytest.mark.parametrize("line", ["v1 = x[i] + (w[i, 0] - x[i])", "v1 = w[i, 0] + 1e-3"])
def test_kernels_at_a_discontinuity_do_not_count_as_wrong(lang64, monkeypatch, line):
    """What says nothing is only what changes with the last digits."""
    body = f"""
    for i in x:
        {line}
        y[i] = 0.3 if v1 > w[i, 0] else 0.7
"""
    kernel = program(0, body, ["y"], is_single=False)
    # An interpreter that is surely wrong.
    monkeypatch.setitem(_exact_numbers.COMPARISONS, ">", lambda left, right: left <= right)
    assert judge(kernel, lang64).outcome == (UNSTEADY if "x[i]" in line else DISAGREE)


def test_a_refusal_does_not_count_as_agreement(lang64):
    kernel = program(0, "    for i in x:\n        y[i] = x[i + 1]", ["y"], is_single=False)
    verdict = judge(kernel, lang64)
    assert verdict.outcome == REFUSED
    assert "out of range in every call" in verdict.words


def test_a_dead_child_process_counts_as_a_crash_and_others_run(monkeypatch, tmp_path):
    dying = tmp_path / "fuzz"
    dying.mkdir()
    (dying / "__init__.py").write_text("")
    (dying / "__main__.py").write_text(DYING)
    monkeypatch.setattr(_campaign, "__file__", str(dying / "_campaign.py"))
    log = tmp_path / "log.jsonl"
    campaign = Campaign("taichi", range(5), jobs=1, log=log).run()
    assert campaign.counts == {"agree": 4, "crash": 1}
    assert campaign.failures[0]["seed"] == 3
    assert "exit status -6" in campaign.failures[0]["words"]
    again = Campaign("taichi", range(5), jobs=1, log=log)
    monkeypatch.setattr(Campaign, "_child", None)  # nothing is left to do
    assert again.run().counts == campaign.counts


DYING = """
import json, os, sys
for seed in map(int, sys.argv[-1].split(",")):
    print(json.dumps({"begin": seed}), flush=True)
    if seed == 3:
        os.abort()
    print(json.dumps({"seed": seed, "outcome": "agree", "words": "", "check": ""}), flush=True)
"""
