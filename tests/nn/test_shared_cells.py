"""An array of networks shared out among processes by its cells, held against the whole array in each of them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import tinsmith as ts
from support.engine_keeper import ENGINES
from tinsmith.nn.networks._owners import Owners

WORKER = Path(__file__).with_name("shared_cells_worker.py")
TESTS = Path(__file__).parents[1]
HAS_GLOO = dist.is_available() and dist.is_gloo_available()


def start(processes, *arguments):
    """Start the worker in so many processes, and return what they print."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path]), "OMP_NUM_THREADS": "1"}
    command = [*launch, WORKER, *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.mark.costly
@pytest.mark.skipif(not HAS_GLOO, reason="this torch is built without gloo")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("first", "then"), [(2, (1,)), pytest.param(3, (1, 2), marks=pytest.mark.costly)])
def test_processes_train_their_own_networks_and_go_on_in_other_numbers(engine, first, then, tmp_path):
    assert start(first, "train", tmp_path, engine).count("the same") == first
    for processes in then:
        assert start(processes, "load", tmp_path, engine).count("the same") == processes


class Mesh:
    """As much of a DeviceMesh as the rule asks."""

    def __init__(self, *sizes, rank=0):
        self.ndim, self._sizes, self._rank = len(sizes), sizes, rank

    def size(self):
        return self._sizes[0]

    def get_local_rank(self):
        return self._rank


@pytest.mark.parametrize(("cells", "processes"), [(10, 3), (7, 7), (9, 2), (5, 1)])
def test_networks_are_shared_out_as_torch_splits(cells, processes):
    parts = torch.arange(cells).chunk(processes)
    for rank, part in enumerate(parts):
        assert list(Owners(Mesh(processes, rank=rank), cells).own) == part.tolist()


def test_a_process_without_networks_is_refused():
    with pytest.raises(ts.ArgumentError, match="a process would have no network") as refused:
        Owners(Mesh(4), 5)
    assert "Use 3 processes" in str(refused.value)


def test_a_mesh_of_several_dims_is_refused():
    with pytest.raises(ts.ArgumentError, match="along one dim of a mesh"):
        Owners(Mesh(2, 2), 8)
