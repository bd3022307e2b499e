"""Peak memory of a step of many small networks (forward, loss and backward), in a process of its own.

    python benchmarks/_network_memory.py WAY CELLS WIDTH HIDDEN

Prints the parameters' bytes and those that the process grew by at most during the step, together; samples and
targets are there already. A step of fewer networks has compiled what there is to compile (one of as many would
leave memory behind that then seems to cost nothing). Linux only: the peak is set back by /proc/self/clear_refs.
"""

from __future__ import annotations

import ctypes
import gc
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

os.environ |= {"ENABLE_TAICHI_HEADER_PRINT": "False", "ENABLE_QUADRANTS_HEADER_PRINT": "False"}

import torch

from _network_ways import Networks, error, perceptrons, pieces

WAYS = ("taichi", "quadrants", "torch")


def prepared(way: str, networks: Networks) -> Callable[[], None]:
    """Return a function that runs a step's forward and backward pass."""
    x, target = networks.batches()
    if way == "torch":
        weights, biases = pieces(networks)
        return lambda: error(perceptrons(weights, biases, x), target).backward()
    array = networks.array(way)
    return lambda: array.loss(x, target).sum().backward()


def taken(way: str, networks: Networks) -> int:
    """Return the peak memory of a step in bytes."""
    for _ in range(2):
        prepared(way, Networks(512, networks.width, networks.hidden))()
    step = prepared(way, networks)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    before = of_status("VmRSS")
    step()
    return 4 * networks.parameters + of_status("VmHWM") - before


def of_status(name: str) -> int:
    match = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
    assert match is not None
    return 1024 * int(match[1])


def in_a_process(way: str, networks: Networks) -> int:
    """Return the peak memory of a step in bytes, measured in a new process."""
    sizes = (networks.cells, networks.width, networks.hidden)
    command = [sys.executable, str(Path(__file__)), way, *map(str, sizes)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1])


if __name__ == "__main__":
    torch.manual_seed(0)
    print(taken(sys.argv[1], Networks(*map(int, sys.argv[2:5]))))
