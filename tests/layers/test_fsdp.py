"""torch's `fully_shard` around layers and networks: two processes with half of the data each train as one with all."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from support.engine_keeper import ENGINES

WORKER = Path(__file__).with_name("fsdp_worker.py")
TESTS = Path(__file__).parents[1]


@pytest.mark.costly
@pytest.mark.skipif(
    tuple(map(int, torch.__version__.split(".")[:2])) < (2, 7), reason="torch 2.6 shards parameters on GPUs alone"
)
@pytest.mark.skipif(not (dist.is_available() and dist.is_gloo_available()), reason="this torch is built without gloo")
@pytest.mark.parametrize("engine", ENGINES)
def test_trained_by_two_processes(engine):
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([*launch, WORKER, engine], env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.count("the same") == 2
