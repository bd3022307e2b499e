"""The fuzz of stencils: programs whose loops have edges, run in strips, and have gradients that gather."""

import pytest
import torch

from fuzz._judge import judge_modes
from fuzz._stencils import write_stencils
from fuzz._verdict import AGREE

SEEDS = (2, 3, 5, 9)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("seed", SEEDS)
def test_programs_agree(lang64, seed):
    verdict = judge_modes(write_stencils(seed), lang64, ["backward", "vmap", "jvp"])
    assert {*verdict.modes.values()} == {AGREE}, verdict.words


@pytest.mark.thinned(4)
@pytest.mark.parametrize("seed", SEEDS)
def test_programs_in_float32(lang, seed):
    verdict = judge_modes(write_stencils(seed), lang, ["backward", "vmap"], dtype=torch.float32)
    assert {*verdict.modes.values()} == {AGREE}, verdict.words


def test_programs_run_in_strips(lang):
    verdicts = [judge_modes(write_stencils(seed), lang, ["backward"], dtype=torch.float32) for seed in (1, 3)]
    assert all(one.vectors for one in verdicts)
