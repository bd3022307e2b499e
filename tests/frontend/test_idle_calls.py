"""Idle calls: whether what an atomic returns is used depends on what is done with it, not on how it is spelled."""

import ast

import pytest

from tinsmith.engines import parse_statement
from tinsmith.frontend._idle_calls import find_idle_calls

ADD = "ti.atomic_add(y[i], v)"
IDLE = [
    ADD,
    f"{ADD} ** 2",
    f"-{ADD}",
    f"old = {ADD}",
    f"old: ti.f64 = {ADD}",
    f"a = b = {ADD}",
    f"a, b = {ADD}, v\nz[i] = b",
    f"({ADD}, v)",
    f"a = 0.0\na += {ADD}",
    f"a = {ADD}\nb = a * 2",
    f"ti.select({ADD} > 0.0, 1.0, 2.0)",
    f"1.0 if {ADD} > 0.0 else 2.0",
    f"v > 0.0 and {ADD} > 0.0",
    f"ti.Vector([ti.max({ADD}, 0.0), 1.0])",
    f"(old := {ADD})",
    f"a = (old := {ADD})",
    f"for k in ti.static(range(2)): {ADD} * k",
    f"if ti.static(v > 0): old = {ADD}",
]
USED = [
    f"z[i] = {ADD}",
    f"z[i] += {ADD}",
    f"z[{ADD}] = v",
    f"old = z[{ADD}]",
    f"a = {ADD}\nb = a * 2\nz[i] = b",
    f"a, b = {ADD}, v\nz[i] = a",
    f"a = b = {ADD}\nz[i] = b",
    f"a = 0.0\na += {ADD}\nz[i] = a",
    f"f({ADD})",
    f"print({ADD})",
    f"return {ADD}",
    f"if {ADD} > 0.0: pass",
    f"while {ADD} > 0.0: break",
    f"for k in range({ADD}): pass",
    f"for k in ti.static(range({ADD})): pass",
    f"assert {ADD} > 0.0",
    f"z[0] if {ADD} > 0.0 else g(z)",
    f"{ADD} > 0.0 and g(z)",
    f"z[i] = (old := {ADD})",
    f"(old := {ADD})\nz[i] = old",
    f"total = {ADD}",
    f"[g(k) for k in range({ADD})]",
]


@pytest.mark.parametrize("body", [*IDLE, *USED])
def test_idle_calls(body):
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    tree = parse_statement(f"def f(total, y, z, i, v):\n{lines}\n")
    assert isinstance(tree, ast.FunctionDef)
    assert (ADD in {ast.unparse(call) for call in find_idle_calls(tree)}) is (body in IDLE)
