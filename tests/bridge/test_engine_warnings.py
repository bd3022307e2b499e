"""With `default_fp=f64` and float32 tensors, every store rounds. Generated kernels write that cast out.

Otherwise the engine warns "Assign may lose precision", of lines that nobody wrote. Of a kernel that the engine gets as
it was written, it warns as it does without tinsmith.
"""

# pyright: reportInvalidTypeForm=false

import re
from pathlib import Path

import pytest
import torch

import tinsmith as ts

pytestmark = [pytest.mark.compiled_engine, pytest.mark.each_engine]


@pytest.fixture
def warning_lang(lang64, configure):
    """Return an engine that compiles everything here: one that reads its cache does not warn."""
    configure(cache="0")
    lang64.init(arch=lang64.cpu, default_fp=lang64.f64, log_level=lang64.WARN, offline_cache=False)
    return lang64


def build_kernels_of_parts(lang):
    """Return kernels, each with its spec and inputs, by what is generated of them."""
    array = lang.types.ndarray()

    def strips(x: array, y: array):
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                v = x[i, j]
                y[i] += lang.log(v) * v + lang.sin(v) + lang.tanh(v) + lang.exp(v) * 0.1

    def local_sums(x: array, y: array):
        for i in range(x.shape[0]):
            for j in range(x.shape[1]):
                y[i] += x[i, j] * x[i, j] * 0.1

    def elements(x: array, y: array):
        for i in range(x.shape[0]):
            turn = lang.Matrix([[0.1, x[i]], [-x[i], 0.1]])
            v = turn @ lang.Vector([x[i], 0.3])
            for d in lang.static(range(2)):
                y[i, d] = v[d]

    square = torch.rand(20, 70) + 0.1
    return {
        "strips": (strips, "x[n, m] -> y[n]", (square,)),
        "local sums": (local_sums, "x[n, m] -> y[n]", (square,)),
        "elements": (elements, "x[n] -> y[n, 2]", (square[0],)),
    }


def build_kernels_of_loops(lang):
    """Return kernels, each with its spec and inputs, by what is generated of them."""
    array = lang.types.ndarray()

    def lanes(x: array, y: array):
        for i in range(x.shape[0]):
            t = 0.0
            while t < 4.0:
                y[i] += lang.exp(-0.3 * t) * lang.log(x[i] + t) + (x[i] + 0.1) ** (t + 0.1)
                t += 0.3 + 0.1 * x[i]

    def gathers(x: array, k: array, y: array):
        for i in k:
            y[k[i]] += x[k[i]] * 0.1

    def tapes(x: array, y: array):
        lang.loop_config(serialize=True)
        for i in range(1, x.shape[0]):
            y[i] = lang.sin(y[i - 1] * 0.5) + x[i]
            y[i] *= y[i] * 0.7
            y[i] = lang.max(y[i], 0.1)

    def constants(x: array, y: array):
        y[0] = 0.1
        lang.loop_config(serialize=True)
        for i in range(1, x.shape[0]):
            y[i] = y[i - 1] * x[i]

    line, places = torch.rand(70) + 0.1, torch.randint(0, 70, (70,), dtype=torch.int32)
    return {
        "lanes": (lanes, "x[n] -> y[n]", (line,)),
        "gathers": (gathers, "x[n], k[n]: i32 -> y[n]", (line, places)),
        "tapes": (tapes, "x[n] -> y[n]", (line,)),
        "constants": (constants, "x[n] -> y[n]", (line,)),
    }


NAMES = ("strips", "lanes", "gathers", "local sums", "tapes", "constants", "elements")


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", NAMES)
def test_the_engine_warns_of_no_generated_line(warning_lang, name, capfd):
    function, spec, inputs = {**build_kernels_of_parts(warning_lang), **build_kernels_of_loops(warning_lang)}[name]
    op = ts.op(spec)(warning_lang.kernel(function))
    leaves = [one.requires_grad_(one.is_floating_point()) for one in inputs]
    weights = torch.rand_like(op(*leaves))
    (gradient,) = torch.autograd.grad((weights * op(*leaves)).sum(), leaves[:1])
    exact = [one.detach().double().requires_grad_() if one.requires_grad else one for one in leaves]
    (wanted,) = torch.autograd.grad((weights.double() * op(*exact)).sum(), exact[:1])
    torch.func.jvp(lambda x: op(x, *leaves[1:]), (leaves[0].detach(),), (torch.ones_like(leaves[0]),))
    torch.testing.assert_close(op(*leaves).double(), op(*exact), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradient.double(), wanted, rtol=1e-4, atol=1e-4)
    warned = re.findall(r'File "(<tinsmith [^"]*)", line (\d+).*?lose precision', "".join(capfd.readouterr()), re.S)
    assert [one for one in warned if f" of {Path(__file__).name} " not in one[0]] == []
