"""Debuggers, prints, errors and coverage tools see a kernel that Python runs on the user's own lines."""

import bdb
import io
import pdb  # noqa: T100  # what is tested
import re
import sys
import traceback
import warnings

import pytest
import torch

import tinsmith as ts
from support.pythonic import run_by_python, use_python_engine

FILE = __file__


def make_pool(lang):
    @lang.func
    def weight(distance):
        inner = lang.exp(-distance * distance)
        return inner * 2.0

    @lang.kernel
    def pool(x: lang.types.ndarray(), p: lang.types.ndarray(dtype=lang.math.vec3, ndim=1), y: lang.types.ndarray()):
        for i in y:
            total = 0.0
            v = p[i] * 2.0
            for j in range(x.shape[1]):
                total += x[i, j] * weight(v.norm())
            y[i] = total

    return ts.op("x[n, m], p[n, 3] -> y[n]", engine="python")(pool)


def find_line(text):
    """Return the number of the only line of this file with this text."""
    with open(FILE) as file:
        return next(number for number, line in enumerate(file, start=1) if line.strip() == text)


class Script(pdb.Pdb):
    """A debugger with its commands written down; `text` is what it printed."""

    def __init__(self, *commands):
        self.output = io.StringIO()
        super().__init__(stdin=io.StringIO("\n".join([*commands, ""])), stdout=self.output, nosigint=True, readrc=False)
        self.use_rawinput = False

    @property
    def text(self):
        return self.output.getvalue()


def inputs():
    return torch.ones(2, 3, requires_grad=True), torch.full((2, 3), 0.25, requires_grad=True)


def debug(call, *commands):
    # Breakpoints belong to the process, and are numbered there.
    bdb.Breakpoint.clearBreakpoints()
    script = Script(*commands, "continue")
    script.runcall(call)
    return script.text


def test_a_breakpoint_stops_on_the_user_s_line_and_shows_locals(lang):
    op, (x, p) = make_pool(lang), inputs()
    line = find_line("y[i] = total")
    words = debug(
        lambda: op(x, p), f"break {FILE}:{line}", "continue", "p i, total", "p v", "p x[0, 1]", "p y[i]", "clear 1"
    )
    assert f"> {FILE}({line})pool()" in words and "-> y[i] = total" in words
    assert "(np.int32(0), np.float32(" in words
    assert "[0.5, 0.5, 0.5]" in words and "np.float32(1.0)" in words and "np.float32(0.0)" in words


def test_a_breakpoint_in_a_function_of_the_language(lang):
    op, (x, p) = make_pool(lang), inputs()
    line = find_line("return inner * 2.0")
    words = debug(lambda: op(x, p), f"break {FILE}:{line}", "continue", "p inner", "up", "p j", "clear 1")
    assert f"> {FILE}({line})weight()" in words and "np.float32(0.47" in words


def test_a_breakpoint_in_the_generated_gradient(lang):
    op, (x, p) = make_pool(lang), inputs()
    y = op(x, p)
    seen = []

    def trace(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith("<tinsmith pool_adjoint"):
            seen.append((frame.f_code.co_name, sorted(frame.f_code.co_varnames)))
        return

    sys.settrace(trace)
    try:
        y.sum().backward()
    finally:
        sys.settrace(None)
    names = seen[0][1]
    assert "grad_x" in names and "grad_y" in names


def test_a_debugger_steps_into_the_generated_gradient(lang):
    op, (x, p) = make_pool(lang), inputs()
    y = op(x, p)
    words = debug(
        lambda: y.sum().backward(),
        "break ts.engines.python.run_kernel, 'adjoint' in function.__name__",
        "continue",
        "clear 1",
        *["step", "next", "next"],
        "list",
        "p grad_y",
    )
    assert re.search(r"> <tinsmith pool_adjoint_0 \w+>\(\d+\)pool_adjoint_0\(\)", words)
    assert "def pool_adjoint_0(" in words
    assert "grad_y = array([1., 1.], dtype=float32)" in words


def test_steps_stay_on_the_user_s_lines_with_next(lang):
    op, (x, p) = make_pool(lang), inputs()
    first = find_line("total = 0.0")
    words = debug(lambda: op(x, p), f"break {FILE}:{first}", "continue", "clear 1", "next", "next", "next")
    assert [f"({first + step})pool()" in words for step in range(4)] == [True] * 4


def test_expressions_at_the_prompt(lang):
    """Vectors have the engine's operators and functions there, and a number that is assigned gets the local's type."""
    op, (x, p) = make_pool(lang), inputs()
    line = find_line("total += x[i, j] * weight(v.norm())")
    words = debug(
        lambda: op(x, p),
        f"break {FILE}:{line}",
        "continue",
        "clear 1",
        "p v + 1, 1 - v, x[i, j] * v, -v, v / 2, v @ v, (v > 0.25).all()",
        "p v.norm(), v.dot(v), v.cross(v), p[i].max()",
        "p p[7]",
        "!total = 3.0",
        "next",
        "p total",
    )
    assert "([1.5, 1.5, 1.5], [0.5, 0.5, 0.5], [0.5, 0.5, 0.5], [-0.5, -0.5, -0.5], [0.25, 0.25, 0.25]," in words
    assert "np.float32(0.75), np.True_)" in words
    assert "(np.float32(0.8660254), np.float32(0.75), [0.0, 0.0, 0.0], np.float32(0.25))" in words
    assert "p[7] is out of range for p[n, 3] = (2, 3)" in words
    assert "np.float32(3.9" in words


def stop_here(lang):
    @lang.kernel
    def stops(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            breakpoint()  # noqa: T100
            y[i] = x[i] * 2.0

    return stops


def test_breakpoint_stops_in_the_kernel(lang, monkeypatch):
    frames = []
    monkeypatch.setattr(sys, "breakpointhook", lambda: frames.append(sys._getframe(1)))
    op = ts.op("x[n] -> y[n]", engine="python")(stop_here(lang))
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = op(x)
    assert [(one.f_code.co_filename, one.f_code.co_name) for one in frames] == [(FILE, "stops")] * 2
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert gradient.tolist() == [2.0, 2.0]


def test_a_compiled_engine_refuses_breakpoint(lang, monkeypatch):
    monkeypatch.setattr(sys, "breakpointhook", lambda: pytest.fail("stopped in the compiler"))
    op = ts.op("x[n] -> y[n]")(stop_here(lang))
    with pytest.raises(ts.KernelError, match=r'calls a debugger.*\n.*test_debugging.py:\d+\n.*engine="python"'):
        op(torch.ones(2))


def test_print_prints_at_once(lang, capsys):
    @lang.kernel
    def prints(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            v = lang.Vector([x[i], 2.0])
            print("at", i, x[i], v, f"{x[i]:.1f}")  # noqa: T201
            y[i] = v.sum()

    op = ts.op("x[n] -> y[n]", engine="python")(prints)
    op(torch.tensor([0.5, 1.5], requires_grad=True))
    assert capsys.readouterr().out == "at 0 0.5 [0.5, 2.0] 0.5\nat 1 1.5 [1.5, 2.0] 1.5\n"


def gather(lang):
    @lang.kernel
    def picks(x: lang.types.ndarray(), k: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in y:
            y[i] = x[k[i], 1]

    return picks


def divide(lang):
    @lang.kernel
    def divides(x: lang.types.ndarray(), k: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in y:
            y[i] = x[0, 0] + 7 // k[i]

    return divides


def insist(lang):
    @lang.kernel
    def insists(x: lang.types.ndarray(), k: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in y:
            assert k[i] > 0, "no index is 0"
            y[i] = x[0, 0]

    return insists


@pytest.mark.parametrize(
    ("build", "error", "words", "line"),
    [
        (gather, IndexError, "x[12, 1] is out of range for x[n, m] = (12, 8)", "y[i] = x[k[i], 1]"),
        (divide, ZeroDivisionError, "integer division by zero", "y[i] = x[0, 0] + 7 // k[i]"),
        (insist, AssertionError, "no index is 0", 'assert k[i] > 0, "no index is 0"'),
    ],
)
def test_an_error_is_at_the_user_s_line_without_frames_of_tinsmith(lang, build, error, words, line):
    op = ts.op("x[n, m], k[j] -> y[j]", engine="python")(build(lang))
    index = {gather: 12, divide: 0, insist: 0}[build]
    with pytest.raises(error) as caught:
        op(torch.zeros(12, 8), torch.tensor([1, index], dtype=torch.int32))
    assert str(caught.value) == words
    frames = traceback.extract_tb(caught.value.__traceback__)
    assert [(one.filename, one.line) for one in frames][-1] == (FILE, line)
    assert [one.name for one in frames if "tinsmith/operation" in one.filename] == ["__call__"]
    assert not [one for one in frames if "tinsmith/engines" in one.filename]


def list_frames_of_tinsmith(error):
    frames = traceback.extract_tb(error.__traceback__)
    assert not [one for one in frames if "tinsmith/engines" in one.filename]
    return [one.name for one in frames if "/tinsmith/" in one.filename]


def test_an_error_in_a_gradient_is_in_its_source_without_frames_of_tinsmith(lang):
    x = torch.tensor([0.0], requires_grad=True)
    with use_python_engine(nan=True):
        y = ts.op("x[n] -> y[n]")(take_root(lang))(x)
        with pytest.raises(FloatingPointError, match="is NaN") as caught:
            y.backward(torch.zeros(1))
    assert traceback.extract_tb(caught.value.__traceback__)[-1].filename.startswith("<tinsmith takes_root_adjoint")
    assert list_frames_of_tinsmith(caught.value) == ["backward"]


def test_an_error_in_a_layer_is_at_the_user_s_line_without_frames_of_tinsmith(lang):
    x, y = lang.field(lang.f32, shape=3, needs_grad=True), lang.field(lang.f32, shape=3, needs_grad=True)

    @lang.kernel
    def insists(limit: lang.f32):
        for i in x:
            assert x[i] < limit, "too large"
            y[i] = x[i]

    with use_python_engine():
        layer = ts.EmptyTin().register_input_field(x).register_output_field(y).register_kernel(insists, 2.0).finish()
        layer(torch.ones(3))
        with pytest.raises(AssertionError, match="too large") as caught:
            layer(torch.arange(3.0))
    assert traceback.extract_tb(caught.value.__traceback__)[-1].line == 'assert x[i] < limit, "too large"'
    assert list_frames_of_tinsmith(caught.value) == ["record_or_run"]


def test_large_arrays_warn_once(lang):
    @lang.kernel
    def first(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in y:
            y[i] = x[i]

    from tinsmith.engines import of_kernel, runner_of

    runner_of(of_kernel(first), "python")._has_warned = False
    op = ts.op("x[n] -> y[1]", engine="python")(first)
    with pytest.warns(ts.SlowEngineWarning, match=r"array `x` has 100,001 elements"):
        op(torch.ones(100_001))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        op(torch.ones(100_001))


def test_unsupported_functions_are_refused_by_name(lang):
    @lang.kernel
    def shared(x: lang.types.ndarray(), y: lang.types.ndarray()):
        lang.loop_config(block_dim=4)
        for i in x:
            lang.simt.block.sync()
            y[i] = lang.simt.warp.all_nonzero(1, 1) + x[i]

    with use_python_engine(), pytest.raises(ts.KernelError, match="blocks of threads|warp|simt"):
        ts.op("x[n] -> y[n]")(shared)(torch.ones(4))


def compute_by_name(lang, name, dtype):  # noqa: C901  # a branch for each row
    """Build a kernel that does one operation on numbers or vectors of a type."""

    @lang.func
    def compute(a, b):
        if lang.static(name == "sqrt"):
            a = lang.sqrt(a)
        elif lang.static(name == "log"):
            a = lang.log(a)
        elif lang.static(name == "asin"):
            a = lang.asin(a)
        elif lang.static(name == "/"):
            a = a / b
        elif lang.static(name == "%"):
            a = a % b
        elif lang.static(name == "-"):
            a -= b
        elif lang.static(name == "*"):
            a *= b
        elif lang.static(name == "pow"):
            a = a**b
        elif lang.static(name == "vector"):
            a = lang.Vector([b, a / b]).x
        else:
            a = (lang.Vector([a, b]) / lang.Vector([a, b]).norm())[0]
        return a

    @lang.kernel
    def computes(
        x: lang.types.ndarray(dtype=dtype, ndim=1),
        k: lang.types.ndarray(dtype=dtype, ndim=1),
        y: lang.types.ndarray(dtype=dtype, ndim=1),
    ):
        for i in y:
            y[i] = compute(x[i], k[i])

    return computes


@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
@pytest.mark.parametrize(
    ("name", "a", "b", "words"),
    [
        ("sqrt", -1.0, 1.0, "sqrt(-1.0) is NaN"),
        ("log", -1.0, 1.0, "log(-1.0) is NaN"),
        ("asin", 2.0, 1.0, "asin(2.0) is NaN"),
        ("/", 0.0, 0.0, "0.0 / 0.0 is NaN"),
        ("%", 1.0, 0.0, "1.0 % 0.0 is NaN"),
        ("-", float("inf"), float("inf"), "inf - inf is NaN"),
        ("*", float("inf"), 0.0, "inf * 0.0 is NaN"),
        ("pow", -1.0, 0.5, "pow(-1.0, 0.5) is NaN"),
        ("vector", 0.0, 0.0, "0.0 / 0.0 is NaN"),
        ("norm", 0.0, 0.0, "0.0 / 0.0 is NaN"),
    ],
)
def test_the_first_nan_is_an_error_with_its_operands(lang, name, a, b, words, dtype):
    kind = {"f16": torch.float16, "f32": torch.float32, "f64": torch.float64}[dtype]
    kernel = compute_by_name(lang, name, getattr(lang, dtype))
    a, b = (torch.tensor([2.0 if name != "asin" else 0.5, one], dtype=kind) for one in (a, b))
    with pytest.raises(FloatingPointError) as caught:
        run_by_python(kernel, a, b, torch.zeros(2, dtype=kind), nan=True)
    assert str(caught.value) == words


def take_root(lang):
    @lang.kernel
    def takes_root(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = lang.sqrt(x[i])

    return takes_root


def test_nan_in_values_and_in_the_generated_gradient(lang):
    with use_python_engine(nan=True):
        op = ts.op("x[n] -> y[n]")(take_root(lang))
        with pytest.raises(FloatingPointError, match=re.escape("sqrt(-1.0) is NaN")) as caught:
            op(torch.tensor([1.0, -1.0]))
        frame = traceback.extract_tb(caught.value.__traceback__)[-1]
        assert (frame.filename, frame.line) == (FILE, "y[i] = lang.sqrt(x[i])")
        # The value is 0, and its derivative infinite.
        x = torch.tensor([0.0], requires_grad=True)
        y = op(x)
        with pytest.raises(FloatingPointError, match="is NaN") as caught:
            y.backward(torch.zeros(1))
        files = [one.filename for one in traceback.extract_tb(caught.value.__traceback__)]
        assert [one for one in files if one.startswith("<tinsmith takes_root_adjoint")]
    assert ts.op("x[n] -> y[n]", engine="python")(take_root(lang))(torch.tensor([-1.0])).isnan().all()


def test_nan_that_was_an_operand_is_no_error(lang):
    with use_python_engine(nan=True):
        op = ts.op("x[n] -> y[n]")(take_root(lang))
        assert op(torch.tensor([float("nan")])).isnan().all()


def test_only_the_python_engine_takes_raise_on_nan(engine):
    with pytest.raises(
        ts.ArgumentError, match=r'raise_on_nan.*compiled engines have no such check.*\n.*engine="python"'
    ):
        ts.init("cpu", engine=engine, raise_on_nan=True)


def run_twice(lang):
    @lang.kernel
    def first(x: lang.types.ndarray(), t: lang.types.ndarray()):
        for i in x:
            if x[i] > 0:
                t[i] = x[i] * 2.0

    @lang.kernel
    def second(t: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in y:
            y[i] = t[i]

    return [first, second]


def test_a_read_of_what_nothing_has_written(lang):
    x = torch.tensor([1.0, -1.0], requires_grad=True)
    with use_python_engine(unwritten=True):
        op = ts.chain("x[n] -> y[n]", run_twice(lang), scratch="t[n]", init={"t": "empty", "y": "empty"})
        op(x.abs()).sum().backward()
        assert x.grad.tolist() == [2.0, -2.0]
        with pytest.raises(ValueError, match=r"t\[1\] is read before it is written, and its memory is unin") as caught:
            op(x)
        assert traceback.extract_tb(caught.value.__traceback__)[-1].line == "y[i] = t[i]"
    ts.chain("x[n] -> y[n]", run_twice(lang), scratch="t[n]", init={"t": "empty"}, engine="python")(x)


def test_entries_of_vectors_that_nothing_has_written(lang):
    @lang.kernel
    def fill(x: lang.types.ndarray(), y: lang.types.ndarray(dtype=lang.math.vec2, ndim=1)):
        for i in x:
            y[i].x = x[i]
            if x[i] > 0:
                y[i][1] = x[i]
            y[i] = y[i] + 1.0

    with use_python_engine(unwritten=True):
        op = ts.op("x[*b, n] -> y[*b, n, 2]", init={"y": "empty"})(fill)
        assert op(torch.ones(2, 3)).eq(2.0).all()
        with pytest.raises(ValueError, match=re.escape("y[1] is read before it is written")):
            op(torch.tensor([[1.0, 1.0], [1.0, -1.0]]))
