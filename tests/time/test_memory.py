"""A scan keeps no more states than its memory holds, and runs no more steps than its schedule says."""

import subprocess
import sys
import weakref

import pytest
import torch

import tinsmith as ts


class Watched:
    """A step that counts its calls, and how many of the states that it made are alive."""

    def __init__(self):
        self.calls = 0
        self.most = 0
        self._made = weakref.WeakSet()

    def __call__(self, state, _):
        self.calls += 1
        following = 0.999 * state
        self._made.add(following)
        self.most = max(self.most, len(self._made))
        return following, None


@pytest.mark.parametrize(
    ("length", "states", "passes"),
    # of all steps, how many are run at most, in forward passes; besides, each is recorded once
    [(1000, 30, 2.6), (500, 3, 11), pytest.param(10_000, 100, 2.5, marks=pytest.mark.costly)],
)
def test_states_and_steps_are_bounded(length, states, passes):
    x = torch.ones(250, requires_grad=True)  # 1 kB
    step = Watched()
    end, _ = ts.scan(step, x, length=length, memory=1000 * states)
    end.sum().backward()
    torch.testing.assert_close(x.grad, torch.full((250,), 0.999**length))
    assert step.calls <= passes * length + length + 1  # the last is the look at the first step
    assert step.most <= 4  # kept are copies


def test_no_step_is_run_again_if_all_states_fit():
    step = Watched()
    end, _ = ts.scan(step, torch.ones(250, requires_grad=True), length=100, memory="10MB")
    end.sum().backward()
    assert step.calls == 100 + 1


def test_the_graph_of_the_steps_is_not_kept():
    step = Watched()
    end, _ = ts.scan(step, torch.ones(250, requires_grad=True), length=300, checkpoint=100)
    assert step.most <= 4
    end.sum().backward()
    assert step.most <= 4


FULL = """
import torch
import tinsmith as ts

torch.set_num_threads(1)
calls = 0


def step(state, _):
    global calls
    calls += 1
    return 0.9999 * state, None


def run(length):
    x = torch.ones(250_000, requires_grad=True)
    end, _ = ts.scan(step, x, length=length, memory="100MB")
    end.sum().backward()


def resident(name):
    # Not `ru_maxrss`, which begins with what the process that started this one had.
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


run(300)  # loads what torch needs
before = resident("VmRSS")
calls = 0
run(10_000)
print(calls, resident("VmHWM") - before)
"""


@pytest.mark.costly
@pytest.mark.skipif(sys.platform != "linux", reason="reads what the process has resident from /proc")
def test_ten_thousand_steps_of_a_megabyte_stay_within_their_memory():
    done = subprocess.run([sys.executable, "-c", FULL], capture_output=True, text=True, check=True)
    calls, extra = map(int, done.stdout.split())
    assert calls <= 2.5 * 10_000 + 10_000 + 1
    # 100 MB of states, and a few more with their gradients: 102 to 113 MB, as the system hands out memory.
    assert extra <= 118e6


@pytest.mark.gpu
@pytest.mark.parametrize("options", [{"memory": "20kB"}, {"checkpoint": 7}, {"checkpoint": "all"}], ids=str)
def test_offloaded_states_lie_in_the_hosts_memory(options):
    x = torch.rand(250, device="cuda", requires_grad=True)

    def peak(**more):
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        end, _ = ts.scan(lambda x, _: (x - 0.01 * x.sin(), None), x, length=1000, **options, **more)
        held = torch.cuda.memory_allocated() - before
        (gradient,) = torch.autograd.grad(end.sum(), x)
        return held, gradient

    (on_device, wanted), (off_device, slope) = peak(), peak(offload=True)
    assert torch.equal(slope, wanted)
    assert off_device < on_device and off_device <= 20_000
