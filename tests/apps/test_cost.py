"""Runs that this machine cannot finish: refused by an estimate, before anything is made; those of every day are not."""

import pytest
from typer.testing import CliRunner

from tinsmith._errors import InputError
from tinsmith.apps import _cost
from tinsmith.apps._cost import Cost, require_affordable
from tinsmith.cli import app

GB = 1e9
ABSURD = {
    "fit-image": (["--gaussians", "100000000"], ["--gaussians  100000000", "at least 29 GB"]),
    "fit-image for ever": (["--steps", "10000000000"], ["--steps      10000000000", "would take too long", "days"]),
    "fit-splats": (["--gaussians", "100000000", "--most", "100000000"], ["--gaussians  100000000", "GB"]),
    "fit-splats pictures": (["--size", "10000"], ["--size       10000", "GB"]),
    "fit-scene": (["--rays", "1000000000"], ["--rays     1000000000", "GB"]),
    "fit-scene pictures": (["--size", "100000"], ["--size     100000", "GB"]),
    "learn-image": (["--batch-size", "10000000000"], ["--batch-size  10000000000", "GB"]),
    "simulate": (["spring-robot", "--steps", "10000000000"], ["--steps       10000000000", "GB"]),
    "simulate for ever": (
        ["spring-robot", "--iterations", "100000000000"],
        ["would take too long", "at least 579 days"],
    ),
}


@pytest.fixture
def a_machine(monkeypatch):
    """Pretend that 16 GB are free."""
    monkeypatch.setattr(_cost, "_find_free_memory", lambda device: 16 * GB)


@pytest.mark.usefixtures("a_machine")
@pytest.mark.parametrize("case", ABSURD)
def test_absurd_sizes_are_refused_before_anything_is_allocated(case, tmp_path):
    options, words = ABSURD[case]
    out = tmp_path / "out"
    result = CliRunner().invoke(app, [case.split()[0], *options, "--out", str(out), "--quiet"])
    assert result.exit_code == 2, result.output
    assert all(word in result.stderr for word in words), result.stderr
    assert not out.exists()


@pytest.mark.usefixtures("a_machine")
def test_affordable_runs_are_not_refused():
    require_affordable(Cost(15 * GB, 86400.0), "cpu", gaussians=5)


def test_the_time_limit_holds_for_the_cpu_only(monkeypatch):
    monkeypatch.setattr(_cost, "_find_free_memory", lambda device: 16 * GB)
    cost = Cost(1.0, 40 * 86400.0)
    require_affordable(cost, "cuda", steps=5)
    with pytest.raises(InputError, match=r"too long(.|\n)*at least 40 days(.|\n)*Choose a smaller value"):
        require_affordable(cost, "cpu", steps=5)


def test_free_memory_is_a_plausible_number():
    assert 1e7 < _cost._find_free_memory("cpu") < 1e15
