"""`loop_config(serialize=...)`: which loops run in order, as far as lint and roles are told."""

import pytest

from tinsmith.linter import lint_file

SETTINGS = {
    "": True,
    "ti.loop_config(serialize=True)": False,
    "ti.loop_config(serialize=False)": True,
    "ti.loop_config(serialize=True); ti.loop_config(block_dim=32)": False,
    "ti.loop_config(block_dim=32); ti.loop_config(serialize=True)": False,
}
TEXT = """import taichi as ti

@ti.kernel
def add(x: ti.types.ndarray(), y: ti.types.ndarray()):
    {settings}
    for i in range(1, x.shape[0]):
        y[i] = x[i] + y[i - 1]
"""


@pytest.mark.parametrize("settings", SETTINGS)
def test_a_race_is_one_of_parallel_loops(settings):
    rules = {finding.rule for finding in lint_file("add.py", TEXT.format(settings=settings))}
    assert ("TS106" in rules) == SETTINGS[settings]
    assert ("TS108" in rules) != SETTINGS[settings]
