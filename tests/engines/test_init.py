"""ts.init: one line starts an engine to match torch, and what was made before it goes on working."""

import re
import sys
import threading

import pytest
import torch

import cases
import tinsmith as ts
from tinsmith._errors import EngineError
from tinsmith.engines import get

pytestmark = pytest.mark.each_engine


@pytest.fixture(autouse=True)
def _quiet(capfd):
    """Silence the engines, which print where they start."""


def third(lang):
    """Build a kernel that divides a float literal: the result has the precision of default_fp."""

    @ts.op("x[n] -> y[n]: f64")
    @lang.kernel
    def third(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = 1.0 / 3.0

    return third


def precision(lang):
    error = abs(third(lang)(torch.zeros(1, dtype=torch.float64)).item() - 1 / 3)
    return torch.float64 if error < 1e-12 else torch.float32


def test_init_starts_the_named_engine(lang):
    name = lang.__name__
    lang.reset()
    assert ts.init("cpu", engine=name) == (name,)
    case = cases.select_cases("square")[0]
    cases.assert_same_values_and_gradients(case.build(lang, lang.f32), case.expected, case.inputs(torch.float32))


def test_auto_starts_every_engine_in_use(lang):
    names = ts.init("cpu")
    assert lang.__name__ in names
    cases.assert_close(
        cases.select_cases("square")[0].op(lang, torch.float32)(torch.tensor([3.0])), torch.tensor([9.0])
    )


def test_floats_in_kernels_follow_torch_s_default(lang):
    ts.init("cpu", engine=lang.__name__)
    assert precision(lang) == torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        ts.init("cpu", engine=lang.__name__)
        assert precision(lang) == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_options_go_to_the_engine(lang):
    ts.init("cpu", engine=lang.__name__, default_fp=lang.f64)
    assert precision(lang) == torch.float64


def test_loops_that_carry_values_are_differentiable_from_the_start(lang):
    """Quadrants refuses their reverse mode unless an option is on."""
    ts.init("cpu", engine=lang.__name__, default_fp=lang.f64)
    case = cases.select_cases("row_products")[0]
    cases.assert_same_values_and_gradients(case.build(lang, lang.f64), case.expected, case.inputs(torch.float64))


def test_the_first_launch_may_come_from_another_thread(lang):
    ts.init("cpu", engine=lang.__name__, default_fp=lang.f64)
    case, failures = cases.select_cases("two_loops")[0], []
    op = case.op(lang, torch.float64)

    def work():
        try:
            cases.assert_same_values_and_gradients(op, case.expected, case.inputs(torch.float64))
        except BaseException as error:  # noqa: BLE001 - shown below
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not failures


def test_ops_made_before_a_restart_keep_working(lang):
    case = cases.select_cases("convolution")[0]
    op, inputs = case.build(lang, lang.f64), case.inputs(torch.float64)
    leaves = cases.make_leaves(inputs)
    y = op(*leaves)
    ts.init("cpu", engine=lang.__name__, default_fp=lang.f64)
    y.sum().backward()
    twins = cases.make_leaves(inputs)
    case.expected(*twins).sum().backward()
    for mine, twin in zip(leaves, twins, strict=True):
        cases.assert_close(mine.grad, twin.grad, rtol=1e-5, atol=1e-5)  # the forward ran with default_fp=f32
    cases.assert_same_values_and_gradients(op, case.expected, inputs)


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch has CUDA")
def test_cuda_without_cuda_is_refused(lang):
    with pytest.raises(ts.EngineError, match=r"(?s)CUDA.*ts\.init\('cpu'\)"):
        ts.init("cuda", engine=lang.__name__)


def test_dtypes_of_one_engine_go_to_all_that_are_started(lang):
    """With both engines imported, `default_fp` is a value of one of them."""
    import quadrants
    import taichi

    assert ts.init("cpu", default_fp=lang.f64, default_ip=lang.i64) == ("taichi", "quadrants")
    assert precision(taichi) == precision(quadrants) == torch.float64


def test_a_value_that_another_engine_does_not_have_is_refused(lang):
    words = r"cannot pass the option `default_fp` to \w+, which has nothing called `.*\n.*\n.*with its own values"
    with pytest.raises(ts.EngineError, match=words):
        ts.init("cpu", default_fp=lang.types.ndarray)


def test_an_unknown_engine_is_refused():
    words = "there is no engine 'tachi'\n  engines  taichi, quadrants, python\nDid you mean 'taichi'"
    with pytest.raises(ts.EngineError, match=words):
        ts.init("cpu", engine="tachi")


MISSPELT = {"defualt_fp": "default_fp", "engines": "engine", "fastmath": "fast_math"}


@pytest.mark.parametrize("option", MISSPELT)
def test_an_option_that_the_engine_lacks_is_named_with_the_nearest(lang, option):
    words = f"ts.init got an unknown option `{option}`, which the `init` of {lang.__name__} does not have either\n"
    with pytest.raises(ts.ArgumentError, match=re.escape(f"{words}Did you mean `{MISSPELT[option]}`?")):
        ts.init("cpu", engine=lang.__name__, **{option: "x"})


@pytest.mark.parametrize("option", ["device", "backend"])
def test_a_device_by_name_is_refused_with_the_first_argument(lang, option):
    with pytest.raises(ts.ArgumentError, match=re.escape("first argument, `ts.init('cpu')`")):
        ts.init(engine=lang.__name__, **{option: "cpu"})


@pytest.mark.parametrize("value", ["f64", torch.float64, float], ids=str)
def test_a_default_dtype_is_the_engine_s(lang, value):
    name = lang.__name__
    shown = f"{'ti' if name == 'taichi' else 'qd'}.{'f32' if value is float else 'f64'}"
    words = (
        f"option `default_fp` of ts.init must be a dtype of {name}\n  got  {value!r}\nImport {name} and pass `{shown}`."
    )
    with pytest.raises(ts.ArgumentError, match=re.escape(words)):
        ts.init("cpu", engine=name, default_fp=value)


def test_an_engine_s_own_arch_is_answered_with_its_name(lang):
    with pytest.raises(ts.EngineError, match=r"Write ts\.init\('cpu'\)\."):
        ts.init(lang.cpu)


def test_an_engine_without_a_home_folder_is_refused(engine, monkeypatch):
    """Imported, it would abort the process."""
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    loaded = get(engine)
    assert loaded.lang.__name__ == engine  # it is loaded: nothing is left to refuse
    monkeypatch.delitem(sys.modules, engine)
    monkeypatch.delitem(vars(loaded), "lang")  # it is lazy
    with pytest.raises(
        EngineError, match=rf"engine '{engine}' cannot find a folder for its cache(?s:.*)Set HOME to a writable folder"
    ):
        _ = loaded.lang
