"""Kernels from elsewhere go through the IR unchanged too: the table of ops, the splat kernel, random ones."""

import linecache

import pytest
import torch

import cases
from support import random_kernels
from support.roundtrip import assert_same, lower_kernel, print_lowered
from tinsmith.calls import make_checked_call
from tinsmith.ir import nodes
from tinsmith.kernels import splat


def _statements(body):
    for statement in body:
        yield statement
        for inner in (getattr(statement, "body", ()), getattr(statement, "orelse", ())):
            yield from _statements(inner)


@pytest.mark.thinned(20)
@pytest.mark.parametrize("seed", range(100))
def test_random_kernels(lang64, seed):
    source = random_kernels.Writer(seed).source()
    path = f"<printed kernel {seed}>"
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    scope = {"lang": lang64}
    exec(compile(source, path, "exec", dont_inherit=True), scope)
    x, w = (torch.rand(7, dtype=torch.float64) - 0.3 for _ in range(2))
    h, y, z = (torch.zeros(7, dtype=torch.float64) for _ in range(3))
    k = torch.randperm(7).int()
    assert_same(lang64.kernel(scope["kernel"]), x, w, k, h, torch.zeros(7, dtype=torch.int32), y, z, exact=False)


@pytest.mark.thinned(8)
@pytest.mark.parametrize("case", [case for case in cases.ALL if case.name != "batched"], ids=str)
def test_the_table_of_ops(case, lang):
    op = case.raw_op(lang, torch.float32)
    bound = op._bind(case.inputs(torch.float32), dict(case.keywords))
    core, call = op._core, make_checked_call(op._core, bound)
    values = dict(zip(core.signature.arrays, bound.tensors, strict=True)) | bound.scalars | bound.templates
    values |= {made.name: torch.zeros(made.shape, dtype=made.dtype) for made in core.plan_buffers(call)}
    for stage in core.signature.stages:
        own = stage.source.parameters[1:] if stage.is_method else stage.source.parameters
        is_by_arrays = all(stage.parameters[name].kind == "array" for name in own if name in stage.arrays)
        if is_by_arrays and not stage.results:  # the kernel alone, without the op that stores what it returns
            assert_same(stage.kernel, *(values[name] for name in own), exact=False)


@pytest.mark.parametrize("is_serial", [True, False])
def test_splat(lang, is_serial):
    n, h, w = 20, 12, 9
    pos = torch.rand(n, 2) * 9
    inputs = pos, torch.rand(n, 2) + 0.5, torch.rand(n) * 6, torch.rand(n, 3), torch.rand(n)
    assert_same(splat(lang, serial=is_serial), *inputs, torch.zeros(h, w, 3), exact=False)


def test_random_numbers_are_drawn(lang):
    @lang.kernel
    def kernel(x: lang.types.ndarray()):
        for i in x:
            x[i] = lang.random() + lang.random(lang.f32) * 2 + lang.randn() * 0

    kernel_ir = lower_kernel(kernel, torch.zeros(5)).kernel
    drawn = [s for s in _statements(kernel_ir.body) if isinstance(s, nodes.Draw)]
    assert [s.type for s in drawn] == ["f32"] * 4
    assert "random = _lang.random(_lang.f32)" in print_lowered(kernel, torch.zeros(5))


def test_lines_and_parallel_loops(lang):
    @lang.func
    def inner(v):
        return v * 2

    @lang.kernel
    def kernel(x: lang.types.ndarray()):
        for i in x:  # parallel
            x[i] += 1
        lang.loop_config(serialize=True)
        for i in x:  # serial
            for j in range(3):  # inside
                x[i] += inner(x[j])  # store
        if x.shape[0] > 2:
            for i in x:  # in a branch
                x[i] = 0

    with open(__file__) as file:
        lines = file.read().splitlines()
    kernel_ir = lower_kernel(kernel, torch.zeros(4)).kernel
    assert kernel_ir.path == __file__
    loops = [s for s in _statements(kernel_ir.body) if isinstance(s, nodes.For)]
    marks = [(lines[s.line - 1].partition("# ")[2], s.is_parallel) for s in loops]
    assert marks == [("parallel", True), ("serial", False), ("inside", False), ("in a branch", False)]
    assert any(
        isinstance(s, nodes.Atomic) and lines[s.line - 1].endswith("# store") for s in _statements(kernel_ir.body)
    )
