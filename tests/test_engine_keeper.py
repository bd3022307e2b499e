"""The fixtures of tests/conftest.py keep their word: configurations, order, restarts, selection."""

from pathlib import Path

import pytest
import torch

from support.engine_keeper import Configuration


def _quotient_dtype(lang):
    """Return the dtype of a Python float divided in a kernel: the engine's default_fp, seen from outside."""

    @lang.kernel
    def third(out: lang.types.ndarray()):
        out[0] = 1.0 / 3.0

    out = torch.zeros(1, dtype=torch.float64)
    third(out)
    return torch.float64 if abs(out.item() - 1 / 3) < 1e-12 else torch.float32


def test_lang_runs_with_f32_as_users_have_it(lang):
    assert _quotient_dtype(lang) == torch.float32


def test_lang64_runs_with_f64(lang64):
    assert _quotient_dtype(lang64) == torch.float64


def test_an_engine_starts_once_for_many_tests(engine, engine_keeper):
    lang = engine_keeper.ensure(engine, Configuration())
    runtime = lang.lang.impl.get_runtime()
    engine_keeper.ensure(engine, Configuration())
    assert lang.lang.impl.get_runtime() is runtime


def test_an_engine_that_a_test_reset_is_started_again(engine, engine_keeper):
    lang = engine_keeper.ensure(engine, Configuration())
    lang.reset()
    engine_keeper.ensure(engine, Configuration())
    assert _quotient_dtype(lang) == torch.float32


def test_no_banner_is_printed(engine, engine_keeper, capfd):
    engine_keeper.ensure(engine, Configuration()).reset()
    engine_keeper.ensure(engine, Configuration())
    assert capfd.readouterr() == ("", "")


ON_A_GPU = """
    import pytest

    def test_quick(): pass

    @pytest.mark.gpu
    def test_gpu(): pass
"""


@pytest.mark.parametrize(
    ("options", "has_gpu", "chosen", "skipped"),
    [
        ([], False, 2, 1),
        ([], True, 2, 0),
        (["-m", "not gpu"], True, 1, 0),
    ],
)
def test_gpu_tests_skip_by_themselves(pytester, monkeypatch, options, has_gpu, chosen, skipped):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: has_gpu)
    pytester.makeconftest(Path(__file__).with_name("conftest.py").read_text())
    pytester.makepyfile(ON_A_GPU)
    result = pytester.runpytest_inprocess(*options)
    result.assert_outcomes(passed=chosen - skipped, skipped=skipped, deselected=2 - chosen)
