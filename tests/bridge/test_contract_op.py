"""What an Op is besides a function: its attributes, its repr, copies, pickles, and life across engine restarts."""

import copy
import gc
import importlib
import io
import os
import pickle
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
import torch

import cases
import tinsmith as ts

X = torch.linspace(-1, 1, 5, dtype=torch.float64)


@pytest.fixture
def at_module_level(lang64):
    """Return the op `x -> x * x` of an importable module, for the engine at hand."""
    module = importlib.import_module("cases.at_module_level")
    return getattr(module, f"{lang64.__name__}_square")


def works(op):
    cases.assert_same_values_and_gradients(op, lambda x: x * x, (X,))
    return True


def test_attributes(lang64):
    kernel_of = {}

    def remember(kernel):
        kernel_of["it"] = kernel
        return ts.op("x[n] -> y[n]", name="my_square")(kernel)

    @remember
    @lang64.kernel
    def square(x: lang64.types.ndarray(), y: lang64.types.ndarray()):
        """Square every element."""
        for i in x:
            y[i] = x[i] * x[i]

    assert isinstance(square, ts.Op) and callable(square)
    assert square.kernel is kernel_of["it"]
    assert "x[n] -> y[n]" in str(square.spec)
    assert lang64.__name__ in str(square.engine).lower()
    for part in ("my_square", "x[n] -> y[n]", lang64.__name__):
        assert part in repr(square)


def test_profilers_and_graphs_show_an_op_by_its_name(lang64):
    op, x = cases.select_cases("square")[0].raw_op(lang64, torch.float64), X.clone().requires_grad_()
    other = ts.op("x[n] -> y[n]", name="not an identifier")(op.kernel)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        first, second = op(x), other(x)
        (first + second).sum().backward()
    seen = {event.key for event in profile.key_averages()}
    assert {"square", "squareBackward", "not an identifier", "not an identifierBackward"} <= seen
    assert not [key for key in seen if "EagerFunction" in key]
    assert "grad_fn=<squareBackward>" in repr(first)
    torch.testing.assert_close(x.grad, 4 * X)


def test_the_name_is_the_kernel_s_unless_given(lang64):
    case = cases.select_cases("convolution")[0]
    assert "convolution" in repr(case.raw_op(lang64, torch.float64))


def test_the_kernel_itself_stays_usable(lang64):
    case = cases.select_cases("square")[0]
    op = case.raw_op(lang64, torch.float64)
    works(op)
    y = torch.zeros_like(X)
    op.kernel(X, y)
    cases.assert_close(y, X * X)


def test_explain_is_text(lang64):
    assert isinstance(cases.select_cases("convolution")[0].raw_op(lang64, torch.float64).explain("all"), str)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy], ids=["copy", "deepcopy"])
def test_copies_work(lang64, at_module_level, copied):
    assert works(copied(at_module_level))
    for name in ("square", "chained", "own_backward", "method", "template_arrays"):
        case = cases.select_cases(name)[0]
        again = copied(case.raw_op(lang64, torch.float64))
        cases.assert_same_values_and_gradients(again, case.expected, case.inputs(torch.float64))


def test_an_op_in_a_module_is_deep_copied_with_it(lang64):
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.op = cases.select_cases("convolution")[0].raw_op(lang64, torch.float64)
            self.kernel = torch.nn.Parameter(torch.ones(2, dtype=torch.float64))

        def forward(self, x):
            return self.op(x, self.kernel)

    layer = Layer()
    twin = copy.deepcopy(layer)
    twin.kernel.data.mul_(2)
    cases.assert_close(twin(X), 2 * layer(X))


@pytest.mark.parametrize("protocol", [2, pickle.HIGHEST_PROTOCOL])
def test_pickles(at_module_level, protocol):
    assert works(at_module_level)  # with everything compiled that it caches
    assert works(pickle.loads(pickle.dumps(at_module_level, protocol)))


def test_torch_saves_and_loads_it(at_module_level):
    file = io.BytesIO()
    torch.save({"op": at_module_level}, file)
    file.seek(0)
    assert works(torch.load(file, weights_only=False)["op"])


def test_a_pickle_opens_in_another_process(at_module_level, lang64, tmp_path):
    path = tmp_path / "op.pickle"
    path.write_bytes(pickle.dumps(at_module_level))
    name = lang64.__name__
    program = f"""
import pickle, torch, {name} as lang
lang.init(arch=lang.cpu, log_level=lang.ERROR)
op = pickle.load(open({str(path)!r}, "rb"))
x = torch.tensor([2.0, 3.0], requires_grad=True)
op(x).sum().backward()
assert x.grad.tolist() == [4.0, 6.0], x.grad
print("fine")
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(cases.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.strip().endswith("fine"), done.stderr


def test_an_op_that_cannot_be_pickled_says_so(lang64):
    """A kernel written inside a function cannot be found again by name."""
    op = cases.select_cases("square")[0].build(lang64, lang64.f64)
    with pytest.raises((pickle.PicklingError, AttributeError, TypeError), match="square"):
        pickle.dumps(op)


def make_module(lang, monkeypatch, factor):
    """Make a module of the name `cells` with an op, as a notebook has it in `__main__` after its cell ran."""
    module = sys.modules.get("cells") or type(sys)("cells")
    monkeypatch.setitem(sys.modules, "cells", module)

    def double(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = 2.0 * x[i]

    def triple(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = 3.0 * x[i]

    function = double if factor == 2 else triple
    function.__module__, function.__qualname__ = "cells", "scale"
    module.scale = ts.op("x[n] -> y[n]")(lang.kernel(function))
    return module.scale


def test_an_op_whose_name_stands_for_another_kernel_cannot_be_pickled(lang, monkeypatch):
    """A cell that is run again leaves ops of the former kernel, whose pickle would be one of the new kernel."""
    former = make_module(lang, monkeypatch, 2)
    assert pickle.loads(pickle.dumps(former))(torch.ones(1)).item() == 2.0
    latter = make_module(lang, monkeypatch, 3)
    assert pickle.loads(pickle.dumps(latter))(torch.ones(1)).item() == 3.0
    with pytest.raises(pickle.PicklingError, match="its name stands for something else"):
        pickle.dumps(former)
    del sys.modules["cells"].scale
    with pytest.raises(pickle.PicklingError, match="its name stands for something else"):
        pickle.dumps(latter)


@pytest.mark.parametrize("is_other_kind", [False, True])
def test_a_pickle_in_a_process_without_the_kernel_says_so(lang, monkeypatch, is_other_kind):
    pickled = pickle.dumps(make_module(lang, monkeypatch, 2))
    if is_other_kind:
        sys.modules["cells"].scale = 3.0
    else:
        del sys.modules["cells"].scale
    with pytest.raises(pickle.UnpicklingError, match=r"needs the kernel `scale`(.|\n)*Put the kernel into a file"):
        pickle.loads(pickled)


def test_an_op_is_hashable_and_equal_to_itself_alone(lang64):
    case = cases.select_cases("square")[0]
    one, two = (case.build(lang64, lang64.f64) for _ in range(2))
    assert one == one and one != two and len({one, two, one}) == 2


def test_unreferenced_ops_are_freed(lang):
    """Ops are made in loops, one an object: none may stay in a table of ours."""
    op = cases.select_cases("square")[0].op(lang, torch.float32)
    op = ts.op("x[n] -> y[n]")(op.kernel)
    op(torch.ones(3, requires_grad=True)).sum().backward()
    torch.vmap(op)(torch.ones(2, 3))
    gone = weakref.ref(op._core)
    del op
    gc.collect()
    assert gone() is None
