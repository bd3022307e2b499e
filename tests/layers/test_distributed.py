"""Two processes that each hold half of the data train as one that holds it all."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

WORKER = Path(__file__).with_name("distributed_worker.py")
TESTS = Path(__file__).parents[1]

pytestmark = pytest.mark.skipif(
    not (dist.is_available() and dist.is_gloo_available()), reason="this torch is built without gloo"
)


@pytest.fixture(scope="module")
def worker():
    spec = importlib.util.spec_from_file_location("distributed_worker", WORKER)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def folder(lang, tmp_path):
    """Run two processes and return the folder with their results."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*launch, WORKER, lang.__name__, tmp_path],
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return tmp_path


def test_gradients_of_two_processes_are_those_of_one(lang, folder, worker):
    expected = worker.trained(lang, rank=0, processes=1)
    assert {"tin.w", "kernel", "first.weight", "first.bias"} == set(expected["parameters"])
    assert all(gradient.abs().max() > 1e-3 for gradient in expected["gradients"][0].values())
    for rank in (0, 1):
        gradients = torch.load(folder / f"{lang.__name__}-{rank}.pt", weights_only=True)
        torch.testing.assert_close(gradients, expected)
