"""Speed: the progress bar's is the summary's, and torch runs on one thread, in every app."""

from __future__ import annotations

import io
import re
import time
from types import SimpleNamespace

import pytest
import torch
from rich.console import Console
from torch.utils._python_dispatch import TorchDispatchMode

from tinsmith.apps._interrupt import Stop
from tinsmith.apps._progress import format_speed, progress_bar
from tinsmith.apps._training import Training
from tinsmith.apps.fit_image import fit_image
from tinsmith.apps.fit_scene import fit_scene
from tinsmith.apps.fit_splats import fit_splats
from tinsmith.apps.learn_image import learn_image
from tinsmith.apps.simulate import SimulateOptions, simulate


def _make_learner(steps, slow_from):
    """Make a learner whose first steps take no time and whose later steps take a millisecond each."""

    def training_step(training):
        time.sleep(1e-3 if training.step >= slow_from else 0.0)
        return 1.0

    return SimpleNamespace(
        steps=steps,
        training_step=training_step,
        take_snapshot=lambda: SimpleNamespace(psnr=None, frame=None),
        quality=lambda history: 20.0,
    )


@pytest.mark.parametrize("a_step", [1, 2048])
def test_the_progress_bar_and_the_summary_show_the_same_speed(a_step):
    shown = io.StringIO()
    training = Training(_make_learner(1500, 700))
    with progress_bar(Console(file=shown, force_terminal=True, width=140), "fitting", "rays", a_step) as watch:
        training.run(lambda: None, watch, Stop())
    rates = re.findall(r"([\d,.]+) rays/s", shown.getvalue())
    summary = training.describe_run([])
    assert float(rates[-1].replace(",", "")) == pytest.approx(summary["steps_per_second"] * a_step, rel=0.02)
    assert summary["steps_per_second"] == pytest.approx(1500 / summary["seconds"])


def test_speeds_are_formatted():
    speeds = [(0.512, "steps"), (9.996, "steps"), (38.6, "steps"), (86016.2, "rays")]
    assert [format_speed(*speed) for speed in speeds] == [
        "0.51 steps/s",
        "10.00 steps/s",
        "39 steps/s",
        "86,016 rays/s",
    ]


class _ThreadCounts(TorchDispatchMode):
    """Records the operations for which torch may use several threads."""

    def __init__(self):
        super().__init__()
        self.threaded = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        # `lift_fresh` computes nothing: it is part of `torch.tensor` and `torch.from_numpy`.
        if torch.get_num_threads() > 1 and function is not torch.ops.aten.lift_fresh.default:
            self.threaded.add(str(function))
        return function(*args, **(kwargs or {}))


RUNS = {
    "fit-image": (fit_image, "options", {"steps": 2}),
    "fit-scene": (fit_scene, "fitting", {"steps": 2}),
    "fit-splats": (fit_splats, "splatting", {"steps": 2}),
    "learn-image": (learn_image, "learning", {}),
    "simulate": (simulate, None, {}),
}


@pytest.mark.parametrize("name", RUNS)
def test_torch_runs_on_one_thread(request, tmp_path, name):
    run, fixture, changes = RUNS[name]
    if fixture is None:
        given = SimulateOptions(tmp_path / "out", "wave-source", steps=4, iterations=1)
    else:
        given = request.getfixturevalue(fixture)(**changes)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with _ThreadCounts() as seen:
            run(given)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    assert not seen.threaded
