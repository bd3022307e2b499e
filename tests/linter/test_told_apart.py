"""Pairs of kernels of which only one has a mistake: what is copied, pinned, counted alone or loaded is not reported."""

import textwrap

import pytest

from tinsmith.linter import lint_file

HEAD = """
import dataclasses
import {engine} as ti

@dataclasses.dataclass(frozen=True)
class Mesh:
    points: ti.Tensor
"""
ROWS = {
    "a function that only copies what is overwritten later": (
        "TS101",
        """
        @ti.func
        def keep(x: ti.template(), y: ti.template()):
            for i in range(4):
                y[i] = {value}

        @ti.kernel
        def k(x: ti.types.ndarray(dtype=ti.f32, ndim=1), y: ti.types.ndarray(dtype=ti.f32, ndim=1)):
            keep(x, y)
            for i in range(4):
                x[i] = 2.0
        """,
        {"x[i]": None, "x[i] * x[i]": "warning"},
    ),
    "a variable of the loop that a condition computes from the others": (
        "TS105",
        """
        @ti.kernel
        def k(group: ti.types.ndarray(dtype=ti.i32, ndim=1), y: ti.types.ndarray(dtype=ti.f32, ndim=1), n: ti.i32):
            for i, j in ti.ndrange(n, n):
                if {value}:
                    y[i] = 1.0 * j
        """,
        {"group[i] == j": None, "j == group[i]": None, "group[i] == group[j]": "warning", "group[i] != j": "warning"},
    ),
    "a counter of an iteration of the parallel loop": (
        "TS402",
        """
        @ti.kernel
        def k(count: ti.types.ndarray(dtype=ti.i32, ndim=1), y: ti.types.ndarray(dtype=ti.f32, ndim=2)):
            for b in range(4):
                for j in range(3):
                    slot = ti.atomic_add(count[{value}], 1)
                    y[b, slot] = 2.0
        """,
        {"b": None, "0": "warning", "j": "warning", "b // 2": "warning"},
    ),
    "a parameter to which a call gives what is loaded": (
        "TS411",
        """
        @ti.func
        def spread(y: ti.template(), i: int, factor: float):
            for j in range(3):
                y[i, j] += factor * 2.0

        @ti.kernel
        def k(x: ti.types.ndarray(dtype=ti.f32, ndim=1), y: ti.types.ndarray(dtype=ti.f32, ndim=2)):
            for i in range(4):
                w = x[i]
                spread(y, i, {value})
        """,
        {"x[i]": "info", "w": "info", "x[i] * 2.0": "warning", "-w": "warning"},
    ),
    "ends of an edge, of an array of vectors that another loop fills number by number": (
        "TS303",
        """
        @ti.kernel
        def k(mesh: Mesh, x: ti.types.ndarray(dtype=ti.f32, ndim=2), y: ti.types.ndarray(dtype=ti.f32, ndim=1)):
            for i in range(4):
                for j in ti.static(range(3)):
                    mesh.points[i][j] = x[i, j]
            for i in range(4):
                y[i] = ({value}).norm()
        """,
        {"mesh.points[i] - mesh.points[i + 1]": None, "mesh.points[i] - mesh.points[0]": "warning"},
    ),
}


@pytest.mark.parametrize("engine", ["taichi", "quadrants"])
@pytest.mark.parametrize("row", ROWS)
def test_only_the_wrong_kernel_of_a_pair_is_reported(row, engine, tmp_path):
    rule, text, cases = ROWS[row]
    file = tmp_path / "kernels.py"
    for value, severity in cases.items():
        kernel = textwrap.dedent(text).replace("{value}", value)
        file.write_text(HEAD.format(engine=engine) + kernel)
        severities = {one.severity for one in lint_file(file) if one.rule == rule}
        assert severities == ({severity} if severity else set()), value
