"""What Python prints for an error of an op: the user's own frames, and a note that says how to see the others."""

import subprocess
import sys
import threading
import traceback

import pytest
import torch

import tinsmith as ts
from tinsmith._errors import GradientError, internal_error
from tinsmith._tracebacks import NOTE, PYTHON_LAUNCHES, hide_frames

HAS_NOTES = sys.version_info >= (3, 11)


@pytest.fixture
def double(lang):
    @ts.op("x[n] -> y[n]")
    @lang.kernel
    def double(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = 2.0 * x[i]

    return double


@pytest.fixture
def rows(lang):
    @ts.op("x[n, m] -> y[n]")
    @lang.kernel
    def rows(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i, 0]

    return rows


def print_uncaught(capsys, call):
    """Return what Python prints if a call ends the program."""
    with pytest.raises((ts.TinsmithError, RuntimeError)) as caught:
        call()
    capsys.readouterr()
    sys.excepthook(caught.type, caught.value, caught.tb)
    return capsys.readouterr().err


def list_files(text):
    return [line.split('"')[1] for line in text.splitlines() if line.startswith("  File ")]


WAYS = {
    "call": lambda op: op(torch.ones(2, 3)),
    "vmap": lambda op: torch.func.vmap(op)(torch.ones(2, 3, 4)),
    "grad": lambda op: torch.func.grad(lambda x: op(x).sum())(torch.ones(2, 3)),
    "no_grad": lambda op: torch.no_grad()(lambda x: op(x))(torch.ones(2, 3)),
    "compile": lambda op: torch.compile(op, fullgraph=True, backend="eager")(torch.ones(2, 3)),
    "compiled function": lambda op: torch.compile(lambda x: op(x).sum(), backend="eager")(torch.ones(2, 3)),
}


@pytest.mark.parametrize("way", WAYS)
def test_only_frames_of_the_user_are_printed(double, capsys, way):
    text = print_uncaught(capsys, lambda: WAYS[way](double))
    # Those of this file and of pytest, which called it.
    assert 1 <= len([one for one in list_files(text) if one == __file__]) <= 4
    assert not [one for one in list_files(text) if "/torch/" in one or "src/tinsmith" in one]
    assert "ShapeError: `x` does not fit its spec in op `double`" in text
    assert text.rstrip().endswith(NOTE) or not HAS_NOTES


def test_a_spec_that_does_not_match_ends_at_the_decorator(lang, capsys):
    @lang.kernel
    def triple(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = 3.0 * x[i]

    text = print_uncaught(capsys, lambda: ts.op("x[n], z[n] -> y[n]")(triple))
    assert list_files(text)[-1] == __file__
    assert "SpecError" in text


def test_no_line_of_generated_code_is_printed(rows, capsys):
    """The engine's own report is the error's cause, and shows the generated kernel."""
    with pytest.raises(ts.KernelError) as caught:
        rows(torch.ones(2, 3))
    assert caught.value.__cause__ is not None
    capsys.readouterr()
    sys.excepthook(caught.type, caught.value, caught.tb)
    text = capsys.readouterr().err
    assert "for i in x" in text and "_lang" not in text
    assert "direct cause" not in text


def test_an_error_in_a_thread_is_shortened_too(double, capsys, monkeypatch):
    thread = threading.Thread(target=double, args=(torch.ones(2, 3),))
    # pytest collects errors of threads with a hook of its own.
    import tinsmith._tracebacks

    printed = []
    monkeypatch.setattr(threading, "excepthook", printed.append)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    tinsmith._tracebacks.install()
    thread.start()
    thread.join()
    (one,) = printed
    frames = traceback.extract_tb(one.exc_traceback)
    assert one.exc_type is ts.ShapeError
    assert not [frame for frame in frames if "src/tinsmith" in frame.filename]


def test_logged_tracebacks_are_short(double):
    try:
        double(torch.ones(2, 3))
    except ts.ShapeError as error:
        files = list_files("".join(traceback.format_exception(error)))
    assert len(files) <= 2 and files[0] == __file__


def test_the_full_traceback_can_be_asked_for(double, capsys, monkeypatch):
    short = list_files(print_uncaught(capsys, lambda: double(torch.ones(2, 3))))
    monkeypatch.setenv("TINSMITH_TRACEBACK", "full")
    text = print_uncaught(capsys, lambda: double(torch.ones(2, 3)))
    assert len(list_files(text)) > len(short) + 3
    assert NOTE not in text


def raise_internal_error():
    raise internal_error(GradientError, "the tape is gone")


def raise_error_of_torch():
    torch.ones(2) + torch.ones(3)


@pytest.mark.parametrize("fail", [raise_internal_error, raise_error_of_torch])
def test_other_errors_keep_their_frames(capsys, fail):
    with pytest.raises((ts.TinsmithError, RuntimeError)) as caught:
        fail()
    before = len(traceback.extract_tb(caught.tb))
    hide_frames(caught.value)
    capsys.readouterr()
    sys.excepthook(caught.type, caught.value, caught.tb)
    text = capsys.readouterr().err
    assert len(list_files(text)) == before
    assert NOTE not in text


def test_a_bug_that_torch_wraps_keeps_its_cause():
    """To ask whether an error is shortened changes nothing."""
    bug = internal_error(GradientError, "the tape is gone")
    bug.__cause__ = ValueError("why")
    wrapping = type("TorchRuntimeError", (RuntimeError,), {"__module__": "torch._dynamo.exc"})("wrapped")
    wrapping.__context__ = bug
    with pytest.raises(RuntimeError) as caught:
        raise wrapping
    hide_frames(caught.value)
    assert isinstance(bug.__cause__, ValueError)


def divide_by_zero(lang):
    """Return the error of a kernel that Python runs and that divides by zero."""

    @ts.op("x[n] -> y[n]: i32", engine="python")
    @lang.kernel
    def invert(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = 1 // x[i]

    with pytest.raises(ZeroDivisionError) as caught:
        invert(torch.zeros(3, dtype=torch.int32))
    return caught


def test_an_error_inside_a_kernel_that_python_runs_ends_in_the_kernel(lang):
    caught = divide_by_zero(lang)
    frames = traceback.extract_tb(caught.tb)
    assert PYTHON_LAUNCHES
    assert frames[-1].name == "invert" and "1 // x[i]" in (frames[-1].line or "")
    assert len([frame for frame in frames if "src/tinsmith" in frame.filename]) == 1


SCRIPT = """
import tinsmith as ts, torch

def train():
    ts.render.composite(torch.ones(3), torch.ones(3, 2), torch.ones(3), torch.ones(4))

train()
"""


def test_a_script_ends_in_its_own_line(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 1
    assert list_files(done.stderr) == [str(path), str(path)], done.stderr
    assert "tinsmith.ShapeError" in done.stderr or "tinsmith.ArgumentError" in done.stderr, done.stderr


class Printer:
    """What IPython's shell writes tracebacks with: `InteractiveTB`."""

    def structured_traceback(self, kind, error, frames, tb_offset=None):
        self.error, self.offset = error, tb_offset
        return [kind.__name__, *(frame.filename for frame in traceback.extract_tb(frames))]


@pytest.fixture
def printer(monkeypatch):
    """Import tinsmith's hooks in a process where IPython runs."""
    import tinsmith._tracebacks

    made = Printer()
    module = type(sys)("IPython")
    module.get_ipython = lambda: type("Shell", (), {"InteractiveTB": made})
    monkeypatch.setitem(sys.modules, "IPython", module)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    tinsmith._tracebacks.install()
    return made


@pytest.mark.parametrize("way", WAYS)
def test_ipython_prints_the_same(double, printer, way):
    """IPython has a printer of its own, and does not call sys.excepthook."""
    with pytest.raises((ts.ShapeError, RuntimeError)) as caught:
        WAYS[way](double)
    kind, *files = printer.structured_traceback(caught.type, caught.value, caught.tb, tb_offset=1)
    assert kind == "ShapeError" and printer.offset == 1
    assert set(files) == {__file__} and len(files) <= 3


def test_ipython_prints_errors_inside_a_kernel_that_python_runs(lang, printer):
    caught = divide_by_zero(lang)
    kind, *files = printer.structured_traceback(caught.type, caught.value, caught.tb)
    assert kind == "ZeroDivisionError" and files == [__file__, __file__]


def test_ipython_prints_an_error_that_follows_one_of_an_op(double, printer):
    def call():
        try:
            double(torch.ones(2, 3))
        except ts.ShapeError as error:
            raise RuntimeError("the first layer") from error

    with pytest.raises(RuntimeError) as caught:
        call()
    printer.structured_traceback(caught.type, caught.value, caught.tb)
    assert [one.filename for one in traceback.extract_tb(printer.error.__cause__.__traceback__)] == [__file__]


def test_ipython_prints_other_errors_as_always(printer):
    with pytest.raises(RuntimeError) as caught:
        raise_error_of_torch()
    before = len(traceback.extract_tb(caught.tb))
    kind, *files = printer.structured_traceback(caught.type, caught.value, caught.tb)
    assert kind == "RuntimeError" and len(files) == before
    # It asks for the error that is handled if it is given none, and calls itself with a tuple for a cause.
    with pytest.raises(AttributeError):
        printer.structured_traceback(None, None, None)


CELLS = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance(colors="NoColor")
shell.run_cell("import taichi as ti, tinsmith as ts, torch; ts.init('cpu')", store_history=True)
shell.run_cell('''
@ts.op("x[n] -> y[n]")
@ti.kernel
def double(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = 2.0 * x[i]
report = ts.check(double, torch.ones(3))
''', store_history=True)
shell.run_cell("print(report)", store_history=True)
for call in ("double(x)", "torch.compile(double)(x)", "torch.func.vmap(double)(x[None])"):
    print("== call")
    shell.run_cell("x = torch.ones(2, 2)\\n" + call, store_history=True)
print("== lint")
shell.run_cell('''@ti.kernel
def count(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        n = 0
        n += 0.5 * x[i]
        y[i] = n
print(ts.lint(count))
ts.op("x[n] -> y[m]")(count)(torch.ones(3))
''', store_history=True)
print("== timed")
shell.run_cell('''%%time
@ti.kernel
def timed(x: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in x:
        y[i] = 2.0 * x[i]
ts.op("x[n] -> y[n]")(timed)
''', store_history=True)
"""


def test_ipython_shows_lines_of_cells_alone(tmp_path):
    pytest.importorskip("IPython")
    pytest.importorskip("taichi")
    done = subprocess.run(
        [sys.executable, "-c", CELLS], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=True
    )
    start, *calls, lint, timed = done.stdout.split("== ")
    assert start.count("check of op `double`") == 1
    for text in calls:
        assert "-> 2 " in text and "ShapeError: `x` does not fit its spec in op `double`" in text, text
        assert text.count("Cell In[") == 1 and "File " not in text and NOTE in text or not HAS_NOTES, text
    assert "In[7]:5:9: error TS301" in lint, lint
    assert "A cell that begins with `%%time` keeps no source" in timed and "inspect.py" not in timed, timed
