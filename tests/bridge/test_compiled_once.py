"""Generated kernels are compiled once for each text: by ops of one kernel, batches and derivatives."""

import gc

import pytest
import torch

import tinsmith as ts
from tinsmith.engines import get


@pytest.fixture
def compiled(engine, monkeypatch):
    """Names of the kernels that the engine has compiled since."""
    names, real = [], get(engine).compile

    def compile_noted(function, *given, **options):
        names.append(function.__name__)
        return real(function, *given, **options)

    monkeypatch.setattr(get(engine), "compile", compile_noted)
    return names


def cubes(lang, spec="x[n] -> y[n]"):
    @lang.kernel
    def cube(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i] * x[i]

    return ts.op(spec)(cube)


def gradient(op, x):
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(op(leaf).sum(), leaf)[0]


def test_two_ops_of_one_text_share_their_gradient(lang, compiled):
    x = torch.rand(5)
    first, second = cubes(lang), cubes(lang)
    torch.testing.assert_close(gradient(first, x), 3 * x * x)
    assert compiled.count("cube_adjoint_0") == 1
    torch.testing.assert_close(gradient(second, x), 3 * x * x)
    assert compiled.count("cube_adjoint_0") == 1
    gradient(cubes(lang), x.double())
    assert compiled.count("cube_adjoint_0") == 2


def test_a_kernel_that_nobody_needs_is_let_go(lang, compiled):
    """With the op, and not with the next garbage collection: there is no reference cycle."""
    x = torch.rand(5)
    gc.collect()
    gc.disable()
    try:
        gradient(cubes(lang), x)
        gradient(cubes(lang), x)
    finally:
        gc.enable()
    assert compiled.count("cube_adjoint_0") == 2


def test_the_engine_s_options_count(lang, compiled, monkeypatch):
    x = torch.rand(5)
    first = cubes(lang)
    gradient(first, x)
    config = lang.lang.impl.current_cfg()
    config.fast_math, before = not config.fast_math, config.fast_math
    try:
        gradient(cubes(lang), x)
    finally:
        config.fast_math = before
    assert compiled.count("cube_adjoint_0") == 2


def test_a_batch_that_runs_sample_by_sample_has_the_gradient_of_a_single_call(lang, compiled):
    """A local of the top level that a loop adds to cannot be batched in one launch."""

    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def normalise(x: lang.types.ndarray(), y: lang.types.ndarray()):
        s = 0.0
        for i in x:
            s += x[i]
        for i in x:
            y[i] = x[i] / s

    x = torch.rand(5)
    gradient(normalise, x)
    single = [name for name in compiled if "adjoint" in name]
    rows = torch.rand(3, 5)
    gradients = torch.func.vmap(torch.func.grad(lambda one: normalise(one).pow(2).sum()))(rows)
    leaf = rows.clone().requires_grad_()
    wanted = torch.autograd.grad((leaf / leaf.sum(1, keepdim=True)).pow(2).sum(), leaf)[0]
    torch.testing.assert_close(gradients, wanted)
    assert [name for name in compiled if "adjoint" in name] == single
