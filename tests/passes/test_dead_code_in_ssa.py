"""Dead code in SSA form: loops that hand locals on, and that store."""

import pytest

from tinsmith.ir import parse_ir, print_ir, verify
from tinsmith.passes.polish import eliminate_dead_code

HEADER = """\
kernel loops
  array x: f32[1]
  array y: f32[1]
  locals f32: head, next, last, cell, idle, head_2, next_2, last_2, cell_2
  locals u1: done
"""

CASES = {
    "a loop that stores stays": (
        """\
  loop j in 0 .. x.shape[0]:  @3
    idle = x[j] * 2.0  @4
    y[j] = x[j]  @5
""",
        """\
  loop j in 0 .. x.shape[0]:  @3
    y[j] = x[j]  @5
""",
    ),
    "what an iteration hands on stays, with what it is computed from": (
        """\
  loop j in 0 .. x.shape[0] [exit = done]:  @3
    carry head = 1.0 then next last last cell cell
    idle = x[j] * 2.0  @4
    next = head * x[j]  @5
    done = next < 0.1  @6
  y[0] = last  @7
""",
        """\
  loop j in 0 .. x.shape[0] [exit = done]:  @3
    carry head = 1.0 then next last last cell cell
    next = head * x[j]  @5
    done = next < 0.1  @6
  y[0] = last  @7
""",
    ),
    "a loop whose results nobody reads goes": (
        """\
  loop j in 0 .. x.shape[0]:  @3
    carry head = 1.0 then next last last cell cell
    next = head * x[j]  @5
  y[0] = 1.0  @7
""",
        """\
  y[0] = 1.0  @7
""",
    ),
    "a loop inside one that stores": (
        """\
  parallel loop i in 0 .. y.shape[0]:  @3
    loop j in 0 .. x.shape[0]:  @4
      carry head = 0.0 then next last last cell cell
      next = head + x[j]  @5
    loop k in 0 .. x.shape[0]:  @6
      carry head_2 = 0.0 then next_2 last last_2 cell cell_2
      next_2 = head_2 + x[k]  @7
    y[i] = last  @8
""",
        """\
  parallel loop i in 0 .. y.shape[0]:  @3
    loop j in 0 .. x.shape[0]:  @4
      carry head = 0.0 then next last last cell cell
      next = head + x[j]  @5
    y[i] = last  @8
""",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_dead_statements_are_removed(name):
    given, wanted = (parse_ir(HEADER + body) for body in CASES[name])
    verify(given, is_ssa=True)
    left = eliminate_dead_code(given.body)
    assert left == wanted.body, print_ir(given)
