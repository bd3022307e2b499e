"""What the Python engine does not run is refused, with the true cause."""

import pytest
import torch

import tinsmith as ts
from support.pythonic import use_python_engine


def test_a_gradient_that_cannot_be_generated(lang):
    """The engine has no reverse mode of its own to fall back on."""

    @lang.kernel
    def halves(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            for j in range(2) if x[i] > 0.0 else range(1):
                y[i] += x[i] * (j + 1)

    op = ts.op("x[n] -> y[n]", engine="python")(halves)
    assert op(torch.tensor([1.0, -1.0])).tolist() == [3.0, -1.0]
    with pytest.raises(
        ts.GradientError, match=r"for which no adjoint can be generated\n.*is computed at run time"
    ) as caught:
        op(torch.ones(2, requires_grad=True))
    # There is no other gradient to try.
    assert "own" not in str(caught.value) and "adjoint='engine'" not in str(caught.value)


def test_the_engine_s_own_gradient(lang):
    @lang.kernel
    def double(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = 2.0 * x[i]

    op = ts.op("x[n] -> y[n]", engine="python", adjoint="engine")(double)
    with pytest.raises(ts.GradientError, match="the Python engine has no reverse mode of its own"):
        op(torch.ones(2, requires_grad=True)).sum().backward()


def test_a_module_names_the_language_of_its_kernels():
    encoding = ts.nn.Encoding(2, {"otype": "Frequency", "n_frequencies": 2}, engine="python")
    with pytest.raises(
        ts.EngineError, match=r"library's kernels, which need a compiled engine.*\n.*\n.*TINSMITH_ENGINE"
    ):
        encoding(torch.ones(1, 2))


def test_networks_run_where_everything_does(lang):
    """Their kernels too, and the values are those of the compiled engine."""
    encoding = ts.nn.Encoding(2, {"otype": "Frequency", "n_frequencies": 2}, engine=lang.__name__)
    points = torch.rand(4, 2)
    compiled = encoding(points)
    with use_python_engine():
        again = ts.nn.Encoding(2, {"otype": "Frequency", "n_frequencies": 2}, engine=lang.__name__)(points)
    torch.testing.assert_close(again, compiled)


BODIES = {  # what compiled engines do not take, with what is said of it
    "while j < 3:\n    j += 1\nelse:\n    y[i] = 1.0": "has a loop with `else`",
    "for _ in range(3):\n    y[i] = 1.0\nelse:\n    y[i] = 2.0": "has a loop with `else`",
    "def inner(a):\n    return a\ny[i] = inner(x[i])": "contains `def`, which no engine supports",
    "match j:\n    case 0:\n        y[i] = 1.0": "contains `match`, which no engine supports",
    "a, (b, c) = x[i], (1, 2)": r"assigns to `\(b, c\)`",
    # Python would use the value of an earlier iteration.
    "if x[i] > 0.0:\n    t = x[i]\ny[i] = t": "uses `t` where it is not defined",
    "for a in range(2):\n    y[i] += a\ny[i] = a": "uses `a` where it is not defined",
    "if x[i] > 0.0:\n    return": "has a `return` inside an `if` or a loop, which a kernel must not have",
}


@pytest.mark.parametrize("body", BODIES)
def test_statements_that_compiled_engines_refuse_are_refused(lang, body, tmp_path):
    lines = ["def build(lang):", "    @lang.kernel"]
    lines += ["    def kernel(x: lang.types.ndarray(), y: lang.types.ndarray()):"]
    lines += ["        for i in x:", "            j = 0"]
    lines += [" " * 12 + line for line in [*body.split("\n"), "y[i] += j"]]
    file = tmp_path / "kernels.py"
    file.write_text("\n".join([*lines, "    return kernel", ""]))
    names: dict = {}
    exec(compile(file.read_text(), str(file), "exec"), names)
    kernel = names["build"](lang)
    x = torch.tensor([1.0, -1.0])
    with pytest.raises(ts.KernelError, match=rf"(?s)`kernel` .*{BODIES[body]}\n  at  .*kernels.py:\d+\n"):
        ts.op("x[n] -> y[n]", engine="python")(kernel)(x)
    with pytest.raises(ts.KernelError):
        ts.op("x[n] -> y[n]")(kernel)(x)


def test_a_vector_is_no_condition(lang):
    @lang.kernel
    def signs(p: lang.types.ndarray(dtype=lang.math.vec2, ndim=1), y: lang.types.ndarray()):
        for i in p:
            if p[i] > 0.0:
                y[i] = 1.0

    with pytest.raises(
        TypeError, match=r"a condition must be a number, not a vector or matrix; use `any\(\)` or `all\(\)`"
    ):
        ts.op("p[n, 2] -> y[n]", engine="python")(signs)(torch.ones(2, 2))
