"""The engine that modules run on: asked for, found running, or started."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

import tinsmith as ts
from support.thinned import RUNS_ON_PYTHON
from tinsmith._config import config
from tinsmith.calls import _language

CPU = torch.device("cpu")


def test_the_named_engine_is_given(lang, engine):
    assert _language.language(engine, CPU) is lang
    assert _language.language(engine, CPU) is lang  # the second time it is remembered


def test_an_engine_that_was_stopped_is_started_again(lang, engine):
    _language.language(engine, CPU)
    lang.reset()
    assert _language.language(engine, CPU) is lang
    x = torch.ones(3)

    @lang.kernel
    def double(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = 2.0 * x[i]

    assert ts.op("x[n] -> y[n]")(double)(x).tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize(
    ("imported", "runs", "chosen"),
    [
        ((), {}, "taichi"),
        (("quadrants",), {}, "quadrants"),
        (("taichi", "quadrants"), {"quadrants": "cpu"}, "quadrants"),
        (("taichi", "quadrants"), {"taichi": "cuda", "quadrants": "cpu"}, "quadrants"),
        (("taichi", "quadrants"), {"taichi": "cuda"}, "quadrants"),
        (("taichi",), {"taichi": "cuda"}, "taichi"),  # and refused: it would have to be stopped
    ],
)
def test_the_chosen_engine(monkeypatch, imported, runs, chosen):
    monkeypatch.setattr(_language, "list_loaded", lambda: imported)
    monkeypatch.setattr(_language, "list_running", lambda: tuple(runs))
    monkeypatch.setattr(_language, "get", lambda name: SimpleNamespace(device_type=lambda: runs[name]))
    assert _language._choose_engine("cpu") == chosen


def test_an_engine_on_another_device_is_not_restarted(engine):
    with pytest.raises(ts.DeviceError) as caught:
        _language.language(engine, torch.device("cuda"))
    assert str(caught.value).splitlines() == [
        f"engine {engine} runs on another device than the tensors",
        "  tensors  cuda",
        "  engine   cpu",
        "Move the module and its inputs there, or start the engine again: "
        f"ts.init('cuda', engine='{engine}'). A new start empties the engine's fields.",
    ]


def test_an_unknown_engine_is_refused():
    with pytest.raises(ts.EngineError, match="there is no engine 'taci'"):
        _language.language("taci", CPU)


def test_an_engine_starts_silently(engine):
    code = (
        "import torch; from tinsmith.calls._language import language; "
        f"assert language({engine!r}, torch.device('cpu')).__name__ == {engine!r}"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout + said.stderr == ""


@pytest.mark.parametrize("case", range(3))
def test_python_runs_the_cases_that_are_chosen_for_it(lang, request, case):
    @lang.kernel
    def double(x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = 2.0 * x[i]

    op = ts.op("x[n] -> y[n]")(double)
    assert op(torch.ones(3)).tolist() == [2.0, 2.0, 2.0]
    is_on_python = ", on python" in str(op.explain("all"))
    assert is_on_python == (request.node.stash.get(RUNS_ON_PYTHON, False) or config().engine == "python")
