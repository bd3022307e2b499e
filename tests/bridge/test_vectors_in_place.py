"""Kernels that use an array of vectors whole and number by number: both engines took the two for different memory."""

import os
import subprocess
import sys

import pytest
import torch

import tinsmith as ts


def adds_to_what_was_there(lang):
    @ts.op("x[n] -> y[n, 2]")
    @lang.kernel
    def op(x: lang.types.ndarray(), y: lang.types.ndarray(dtype=lang.types.vector(2, lang.f64), ndim=1)):
        for i in x:
            before = y[i][0]
            y[i] = lang.Vector([x[i], 2.0 * x[i]])
            y[i][0] += before

    return op, lambda x: torch.stack([x, 2 * x], 1)


def multiplies_after_a_read(lang):
    @ts.op("x[n] -> y[n, 2], z[n]")
    @lang.kernel
    def op(
        x: lang.types.ndarray(),
        y: lang.types.ndarray(dtype=lang.types.vector(2, lang.f64), ndim=1),
        z: lang.types.ndarray(),
    ):
        for i in x:
            z[i] = y[i][0]
            y[i] = lang.Vector([x[i], 0.5])
            y[i][0] *= x[i]
            z[i] += y[i][0]

    return op, lambda x: (torch.stack([x * x, 0.5 + 0 * x], 1), x * x)


def stores_a_number_into_a_vector_that_was_read(lang):
    @ts.op("x[n] -> y[n, 2], z[n]")
    @lang.kernel
    def op(
        x: lang.types.ndarray(),
        y: lang.types.ndarray(dtype=lang.types.vector(2, lang.f64), ndim=1),
        z: lang.types.ndarray(),
    ):
        for i in x:
            before = y[i]
            y[i][0] = x[i]
            after = y[i]
            z[i] = after[0] * after[0] + before[0]

    return op, lambda x: (torch.stack([x, 0 * x], 1), x * x)


def entries_that_are_counted(lang):
    @ts.op("x[n] -> y[n, 2]")
    @lang.kernel
    def op(x: lang.types.ndarray(), y: lang.types.ndarray(dtype=lang.types.vector(2, lang.f64), ndim=1)):
        for i in x:
            for j in range(3):
                first = y[i][j % 2]
                y[i] = 0.5 * y[i] + x[i]
                y[i][j % 2] += first

    def twin(x):
        y = [0 * x, 0 * x]
        for j in range(3):
            first = y[j % 2]
            y = [0.5 * one + x for one in y]
            y[j % 2] = y[j % 2] + first
        return torch.stack(y, 1)

    return op, twin


def assert_agree(ours, theirs):
    several = [made if isinstance(made, tuple) else (made,) for made in (ours, theirs)]
    for one, other in zip(*several, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    "program",
    [
        adds_to_what_was_there,
        multiplies_after_a_read,
        stores_a_number_into_a_vector_that_was_read,
        entries_that_are_counted,
    ],
)
def test_a_vector_and_its_numbers_are_one_memory(lang64, program):
    op, twin = program(lang64)
    x = torch.rand(3, dtype=torch.float64) + 0.5
    assert_agree(op(x), twin(x))
    assert_agree(torch.func.jacrev(op)(x), torch.func.jacrev(twin)(x))
    assert_agree(torch.func.jacfwd(op)(x), torch.func.jacfwd(twin)(x))
    batch = torch.stack([x, 2 * x])
    assert_agree(torch.vmap(op)(batch), torch.vmap(twin)(batch))


AT_TOP = """
import {engine} as ti
import tinsmith as ts
import torch

ts.init("cpu", default_fp=ti.f64, engine="{engine}")
two = ti.types.vector(2, ti.f64)


@ts.op("p[n, 2] -> y[n]")
@ti.kernel
def reads(p: ti.types.ndarray(dtype=two, ndim=1), y: ti.types.ndarray()):
    first = p[0][0]
    for i in y:
        y[i] = first * p[0][1] + p[0][0]


@ts.op("x[n] -> y[n, 2]")
@ti.kernel
def adds(x: ti.types.ndarray(), y: ti.types.ndarray(dtype=two, ndim=1)):
    y[0][0] = x[0]
    for i in x:
        y[0][0] += x[i]


x = torch.tensor([0.5, 1.5], dtype=torch.float64)
assert reads(torch.stack([x, x])).tolist() == [1.25, 1.25]
assert adds(x).tolist() == [[2.5, 0.0], [0.0, 0.0]]
assert torch.func.jacrev(adds)(x)[0, 0].tolist() == [2.0, 1.0]
assert torch.func.jacrev(reads)(torch.stack([x, x]))[1].tolist() == [[2.5, 0.5], [0.0, 0.0]]
assert torch.vmap(adds)(torch.stack([x, 2 * x]))[:, 0, 0].tolist() == [2.5, 5.0]
"""


@pytest.mark.compiled_engine
@pytest.mark.costly
@pytest.mark.parametrize("engine", ["taichi", "quadrants"])
def test_numbers_of_vectors_outside_of_loops(engine, tmp_path):
    """On all threads, in a process of its own: both engines ended it where a later loop uses the same number."""
    path = tmp_path / "program.py"
    path.write_text(AT_TOP.format(engine=engine))
    parallel = os.environ | {"TINSMITH_SERIAL_BELOW": "0"}
    command = [sys.executable, str(path)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=parallel)
    assert process.returncode == 0, process.stderr[-2000:]


@pytest.mark.parametrize("why", ["bounds", "division", "product"])
def test_numbers_at_the_top_of_a_kernel_that_is_compiled_from_its_ir(lang64, why):
    """Printed number by number, it would end the process: it is compiled on arrays of numbers."""
    vector = lang64.types.vector(2, lang64.f64)

    @ts.op("p[n, 2] -> y[n], q[n, 2]", check_bounds=why == "bounds")
    @lang64.kernel
    def op(
        p: lang64.types.ndarray(dtype=vector, ndim=1),
        y: lang64.types.ndarray(),
        q: lang64.types.ndarray(dtype=vector, ndim=1),
    ):
        k = 3
        first = p[0][1]
        if lang64.static(why == "division"):
            first *= -k // 2
        for i in p:
            y[i] = 2.0 + first * p[i][0] * p[0][1]
            if lang64.static(why == "product"):
                lang64.atomic_mul(y[i], p[i][1])
            q[i] = p[i] * y[i]

    def twin(p):
        y = 2.0 + p[0, 1] ** 2 * p[:, 0] * (-2 if why == "division" else 1)
        y = y * p[:, 1] if why == "product" else y
        return y, p * y[:, None]

    p = torch.rand(3, 2, dtype=torch.float64) + 0.5
    assert_agree(op(p), twin(p))
    torch.testing.assert_close(torch.func.jacrev(op)(p), torch.func.jacrev(twin)(p))
    batch = torch.rand(2, 3, 2, dtype=torch.float64)
    assert_agree(torch.vmap(op)(batch), torch.vmap(twin)(batch))
