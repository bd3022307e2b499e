"""A model of an op, layers and `ts.nn` modules trains and resumes in every setting as its twin in plain torch does."""

import importlib
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from support.engine_keeper import ENGINES

TESTS = Path(__file__).parents[1]

pytestmark = [
    pytest.mark.skipif(
        tuple(map(int, torch.__version__.split(".")[:2])) < (2, 7), reason="torch 2.6 shards parameters on GPUs alone"
    ),
    pytest.mark.skipif(
        not (dist.is_available() and dist.is_gloo_available()), reason="this torch is built without gloo"
    ),
]


def settings():
    """Return the table of settings. The torch modules that it imports use parts of torch that warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("layers.training_settings")


def compare(engine, *names, processes=2):
    """Compare in so many processes, and return how many settings each found the same."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]), "OMP_NUM_THREADS": "1"}
    command = [*launch, TESTS / "layers" / "training_settings.py", engine, *names]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.count("is the same") / processes


@pytest.mark.compiled_engine
@pytest.mark.parametrize("engine", ENGINES)
def test_one_training_setting_in_a_single_process(engine):
    """The one that ended the process when a field was filled from a DTensor."""
    assert compare(engine, "full") == 1


@pytest.mark.compiled_engine
@pytest.mark.costly
@pytest.mark.parametrize("engine", ENGINES)
def test_every_setting(engine):
    assert compare(engine) == len(settings().SETTINGS)


@pytest.mark.compiled_engine
@pytest.mark.costly
@pytest.mark.parametrize("engine", ENGINES)
def test_three_processes(engine):
    """Some of which have no part of a weight."""
    names = "fsdp", "full", "files", "fsdp1-orig"
    assert compare(engine, *names, processes=3) == len(names)


def test_the_page_shows_the_settings():
    page = settings().PAGE.read_text()
    assert page == settings().with_table(page), "write it: python tests/layers/training_settings.py --write"
