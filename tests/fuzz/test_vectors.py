"""The fuzz in float32: programs that CPUs run in strips and lanes, and what it says of one that these get wrong."""

from dataclasses import replace

import pytest
import torch

from fuzz import _single
from fuzz._judge import judge_modes
from fuzz._vectors import write_vectors
from fuzz._verdict import AGREE, DISAGREE, ROUNDED
from fuzz._wide import wide_program
from tinsmith.ir import nodes, walk

IN_STRIPS = """    for i in x:
        v1 = 0.2
        for j in range(w.shape[1]):
            v1 += lang.exp(w[i, j])
        y[i] = v1"""
IN_LANES = """    for i in x:
        v1 = 0.2
        while v1 < 4.0:
            v1 += lang.exp(v1 * 0.1) + 0.1
        y[i] = v1 + x[i]"""
ELEMENTWISE = """    for i in x:
        y[i] = lang.exp(x[i]) * 0.5"""


@pytest.mark.thinned(4)
@pytest.mark.parametrize("seed", [3, 6, 7, 11])
def test_programs_in_float32(lang, seed):
    verdict = judge_modes(write_vectors(seed), lang, ["backward"], dtype=torch.float32)
    assert verdict.modes == {"backward": AGREE}, verdict.words
    assert verdict.vectors


@pytest.mark.parametrize("body", [IN_STRIPS, IN_LANES, ELEMENTWISE])
def test_a_mistake_of_a_vector_form_is_seen(lang, monkeypatch, body):
    """Each form is taken, and what it alone does wrong is no matter of rounding."""
    program = wide_program(1, body)  # in parallel
    verdict = judge_modes(program, lang, ["backward"], dtype=torch.float32)
    assert verdict.outcome == AGREE and verdict.vectors, verdict.words

    right = _single.strip_functions

    def wrong(kernel, **options):
        transformed = right(kernel, **options)
        body = tuple(walk.transform(one, with_sines) for one in transformed.body)
        return transformed if transformed is kernel else replace(transformed, body=body)

    monkeypatch.setattr(_single, "strip_functions", wrong)
    verdict = judge_modes(program, lang, ["backward"], dtype=torch.float32)
    assert verdict.outcome == DISAGREE
    assert "without strips and lanes: agree" in verdict.words["backward"]


def with_sines(expr):
    if isinstance(expr, nodes.Unary) and expr.operator == "arithmetic_exp":
        return nodes.Unary("arithmetic_sin", with_sines(expr.value), expr.type)
    return walk.rebuild(expr, with_sines)


def test_too_few_digits_are_no_mistake(lang):
    program = wide_program(1, "    for i in x:\n        y[i] = (lang.exp(x[i] * 1e-5) - 1.0) * 1e5")
    verdict = judge_modes(program, lang, ["backward"], dtype=torch.float32)
    assert verdict.outcome == ROUNDED
