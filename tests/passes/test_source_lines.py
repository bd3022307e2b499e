"""What passes write knows its line of the source: statements that use memory of the kernel, or its gradients.

Statements of the passes' own have none: sums and adjoints that start at zero, tapes, counters. In texts for people they
stand under the line of the statement before them (`codegen.add_comments`).
"""

from __future__ import annotations

import pytest

from tinsmith.ir import nodes, parse_ir, walk
from tinsmith.passes import generate_adjoint
from tinsmith.passes.adjoint import AdjointOptions

TEXTS = {
    "a log": """\
kernel smooth
  array x: f32[2]
  array k: i32[1]
  array y: f32[1]
  for t in 0 .. x.shape[0]:  @3
    for i in 0 .. x.shape[1]:  @4
      y[i] = y[i] * x[t, i]  @5
    y[k[t]] = y[0] * y[1]  @6
""",
    "a loop's sum": """\
kernel sums
  array x: f32[1]
  array y: f32[1]
  locals f32: s
  parallel for r in 0 .. y.shape[0]:  @3
    s = 0.0  @4
    for i in 0 .. x.shape[0]:  @5
      s = s + x[i] * x[r]  @6
    y[r] = s  @7
""",
    "a search for winners": """\
kernel largest
  array x: f32[2]
  array k: i32[1]
  array y: f32[1]
  parallel for i in 0 .. x.shape[0]:  @3
    for j in 0 .. x.shape[1]:  @4
      atomic max y[k[i]], x[i, j] * x[i, j]  @5
""",
}


@pytest.mark.parametrize("name", TEXTS)
def test_a_statement_has_the_line_that_it_comes_from(name: str) -> None:
    given = parse_ir(TEXTS[name])
    arrays = {form for array in given.arrays for form in (array, f"grad_{array}")}
    made = generate_adjoint([given], AdjointOptions(active={"x"}, outputs={"y"}, made={"y"}))
    for kernel in made.kernels:
        for one in walk.statements(kernel.body):
            used = walk.arrays_in(walk.expressions(one))
            used |= {one.array} if isinstance(one, nodes.Store | nodes.Atomic) else set()
            assert one.line or used.isdisjoint(arrays), f"{one} has no line"
