"""Kernels as an op has them rewritten: over ranges, serial, with annotations of their own; and batched."""

from dataclasses import replace

import pytest
import torch

import tinsmith as ts
from support.interpreted import run_with_gradients
from tinsmith.engines import of_kernel
from tinsmith.frontend import read
from tinsmith.frontend.lowering import lower
from tinsmith.frontend.tree import annotate, loop_over_ranges, serialize_loops
from tinsmith.ir import nodes
from tinsmith.passes import batch_kernel, serialize_kernel

CASES = {}


def case(spec, **shapes):
    """Return a decorator that adds a kernel with its op's spec and the shapes of its inputs, after a batch of 3."""

    def add(build):
        CASES[build.__name__] = (build, spec, shapes)
        return build

    return add


@case("x[*b, n], k[m] -> y[*b, n - m + 1]", x=(3, 9), k=(4,))
def correlation(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), k: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in y:
            for j in range(k.shape[0]):
                y[i] += x[i + j] * k[j]

    return kernel


@case("x[*b, n, m] -> y[*b, n, m], z[*b]", x=(3, 4, 5))
def over_indices(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray(), z: lang.types.ndarray()):
        for i, j in x:
            y[i, j] += x[i, j] * (i + 1) - j
        lang.loop_config(block_dim=32)
        for ij in lang.grouped(x):
            y[ij] += x[ij] * ij[1] * x.shape[0]
        for i, j in lang.ndrange((1, 3), x.shape[1]):
            z[None] += x[i, j] ** 2

    return kernel


@case("x[*b, n] -> y[*b, n]", x=(3, 8))
def work_between_loops(lang):
    @lang.func
    def mixed(old, new, by: lang.template()):
        return old * by + new * (1 - by)

    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        y[0] = x[0] * 2
        for _ in range(1):
            state = y[0]
            for i in range(x.shape[0]):
                state = mixed(state, x[i], 0.75)
                y[i] = state
        y[0] -= x[1]

    return kernel


@case("x[*b, n] -> y[*b, n]", x=(3, 8))
def static_above(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for k in lang.static(range(1, 3)):
            for i in x:
                y[i] += x[(i + k) % x.shape[0]] * k

    return kernel


def _tree(source, ranks, is_serial):
    """Rewrite a kernel as an op does for a launch."""
    tree = loop_over_ranges(annotate(source.tree, dict.fromkeys(ranks, "_lang.types.ndarray()")), ranks)
    return serialize_loops(tree) if is_serial else tree


@pytest.mark.parametrize("is_batched", [False, True], ids=["one", "batched"])
@pytest.mark.parametrize("is_serial", [False, True], ids=["parallel", "serial"])
@pytest.mark.parametrize("name", CASES)
def test_the_printed_kernel_computes_what_the_op_does(name, is_serial, is_batched, lang64):
    build, spec, shapes = CASES[name]
    kernel = build(lang64)
    op = ts.op(spec)(kernel)
    batch = [item.split("[")[0].strip("-> ,") for item in spec.split("]") if "*b" in item] if is_batched else []
    inputs = {key: torch.randn(shape, dtype=torch.float64) for key, shape in shapes.items()}
    if not is_batched:
        inputs = {key: value[0] if f"{key}[*b" in spec else value for key, value in inputs.items()}
    given = op(*inputs.values())
    wanted = given._asdict() if isinstance(given, tuple) else {"y": given}
    arrays = inputs | {key: torch.zeros_like(value) for key, value in wanted.items()}
    ranks = {key: value.ndim - (key in batch) for key, value in arrays.items()}
    engine = of_kernel(kernel)
    source = read(engine.function_of(kernel))
    source = replace(source, tree=_tree(source, ranks, is_serial and not batch))
    facts = {key: nodes.Array(key, "f64", rank) for key, rank in ranks.items()}
    kernel_ir = lower(source, engine, facts).kernel
    if batch:
        kernel_ir = serialize_kernel(batch_kernel(kernel_ir, batch)) if is_serial else batch_kernel(kernel_ir, batch)
    after = run_with_gradients(kernel_ir, arrays, {}).arrays
    for key, value in wanted.items():
        torch.testing.assert_close(after[key], value)
    loops = [one for one in kernel_ir.body if isinstance(one, nodes.For)]
    assert loops
    assert all(loop.is_parallel is not is_serial for loop in loops)


def test_other_settings_of_a_loop_change_nothing(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray(dtype=lang.f32, ndim=1)):
        lang.loop_config(block_dim=64)
        for i in range(3):
            x[i] = 1
        lang.loop_config(serialize=True, block_dim=64)
        for i in range(3):
            x[i] += 1
        for i in x:
            x[i] += 1

    engine = of_kernel(kernel)
    kernel_ir = lower(read(engine.function_of(kernel)), engine, {"x": nodes.Array("x", "f32", 1)}).kernel
    assert [one.is_parallel for one in kernel_ir.body if isinstance(one, nodes.For)] == [True, False, True]
