"""What passes write knows its line of the source: statements that use memory of the kernel, or its gradients.

Statements of the passes' own have none: sums and adjoints that start at zero, tapes, counters. In texts for people they
stand under the line of the statement before them (`codegen.add_comments`).
"""

from __future__ import annotations

import re

import pytest

from support.pass_texts import FOLDER, read_example
from tinsmith.ir import nodes, parse_ir, walk

NAMES = sorted(path.stem for path in FOLDER.glob("*.txt"))


def kernels_in(text: str) -> list[nodes.Kernel]:
    """Return the kernels of a golden text, without what stands between them."""
    return [parse_ir(one) for one in re.findall(r"^kernel .*\n(?:  .*\n)*", text, re.MULTILINE)]


@pytest.mark.parametrize("name", NAMES)
def test_a_statement_has_the_line_that_it_comes_from(name: str) -> None:
    example = read_example(name)
    given = parse_ir(example.given)
    assert all(one.line for one in walk.statements(given.body))
    arrays = {form for array in given.arrays for form in (array, f"grad_{array}", f"{array}_dot")}
    for kernel in kernels_in(example.made()):
        for one in walk.statements(kernel.body):
            used = walk.arrays_in(walk.expressions(one))
            used |= {one.array} if isinstance(one, nodes.Store | nodes.Atomic) else set()
            assert one.line or used.isdisjoint(arrays), f"{one} has no line"
