"""A recursion done right in three ways: the exponentially weighted moving average of many series.

    y[t] = (1 - a[t]) y[t - 1] + a[t] x[t],   y before the first step is 0

The natural kernel keeps it in one cell, step after step. The values are right, but with
Taichi's reverse mode the gradient by `a` is silently wrong: it reads the cell as it is at the end
(https://github.com/taichi-dev/taichi/issues/2425).
Here are that kernel, the same one as an op, and three other ways; all are compared with torch in float64.

    python examples/02_moving_average.py --out out/averaged

draws the gradients in `a` there: the right one, and Taichi's.
Cells (`# %%`) run one by one in an editor that knows them, or all together as a script.
"""

# %% Options
import argparse
import time
from pathlib import Path

import taichi as ti
import torch
from matplotlib import pyplot as plt

import tinsmith as ts

parser = argparse.ArgumentParser(description="A moving average and its gradient, right in three ways.")
parser.add_argument("--out", type=Path, default=Path("out/averaged"))
parser.add_argument("--quick", action="store_true", help="few and short series, for tests")
options, _ = parser.parse_known_args()  # a notebook has arguments of its own
if __name__ == "__main__":
    options.out.mkdir(parents=True, exist_ok=True)
ts.init("cpu", default_fp=ti.f64)
torch.manual_seed(0)
SERIES, STEPS = (7, 12) if options.quick else (1000, 200)
x = torch.randn(SERIES, STEPS, dtype=torch.float64)
a = torch.rand(STEPS, dtype=torch.float64)


# %% The naive way
# All steps in one cell, which is overwritten.
@ti.kernel
def in_one_cell(x: ti.types.ndarray(), a: ti.types.ndarray(), cell: ti.types.ndarray()):
    for i in range(x.shape[0]):
        for t in range(x.shape[1]):
            cell[i] = (1.0 - a[t]) * cell[i] + a[t] * x[i, t]


def naive(x, a):
    """Return the last average as Taichi alone computes it, and its gradients in x and a."""
    x, a = (tensor.detach().clone().requires_grad_() for tensor in (x, a))
    cell = torch.zeros(len(x), dtype=x.dtype, requires_grad=True)
    for tensor in (x, a, cell):
        tensor.grad = torch.zeros_like(tensor)
    in_one_cell(x, a, cell)
    cell.grad.fill_(1.0)
    in_one_cell.grad(x, a, cell)
    return cell.detach(), x.grad, a.grad


# %% The same kernel as an op
# Overwritten values of the cell are kept, and restored in the backward pass.
one_cell = ts.op("x[n, t], a[t] -> cell[n]")(in_one_cell)


# %% First way: an array of all steps
# One launch. Series are parallel, the time loop is inside; each element is written
# once, so the backward pass finds every state where it is. Use it where all averages are needed anyway.
@ts.op("x[n, t], a[t] -> y[n, t]")
@ti.kernel
def all_steps(x: ti.types.ndarray(), a: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in range(x.shape[0]):
        y[i, 0] = a[0] * x[i, 0]
        for t in range(1, x.shape[1]):
            y[i, t] = (1.0 - a[t]) * y[i, t - 1] + a[t] * x[i, t]


# %% Second way: one launch for each step
# The loop is in Python. torch keeps the states, and other operations may run between two steps.
# Use it where a step is large: a small one and its gradient cost 50 to 100 us, nearly all of it Python's.
@ts.op("before[n], x[n], a[] -> after[n]")
@ti.kernel
def step(before: ti.types.ndarray(), x: ti.types.ndarray(), a: ti.types.ndarray(), after: ti.types.ndarray()):
    for i in x:
        after[i] = (1.0 - a[None]) * before[i] + a[None] * x[i]


def step_by_step(x, a):
    y = torch.zeros_like(x[:, 0])
    for t in range(x.shape[1]):
        y = step(y, x[:, t], a[t])
    return y


# %% Third way: a gradient by hand
# It is a recursion itself, back in time. With c the gradient of what comes after a step:
#     c[t] = grad_y[t] + (1 - a[t + 1]) c[t + 1],   grad_x[t] = a[t] c[t],   grad_a[t] = sum of c[t] (x[t] - y[t - 1])
# Use it where you know something that the kernel's source does not show.
@ts.op("x[n, t], a[t] -> y[n, t]")
@ti.kernel
def by_hand(x: ti.types.ndarray(), a: ti.types.ndarray(), y: ti.types.ndarray()):
    for i in range(x.shape[0]):
        s = 0.0
        for t in range(x.shape[1]):
            s = (1.0 - a[t]) * s + a[t] * x[i, t]
            y[i, t] = s


@by_hand.backward
@ti.kernel
def by_hand_backward(
    x: ti.types.ndarray(),
    a: ti.types.ndarray(),
    y: ti.types.ndarray(),
    grad_y: ti.types.ndarray(),
    grad_x: ti.types.ndarray(),
    grad_a: ti.types.ndarray(),
):
    for i in range(x.shape[0]):
        c = 0.0
        for back in range(x.shape[1]):
            t = x.shape[1] - 1 - back
            c += grad_y[i, t]
            before = 0.0
            if t > 0:
                before = y[i, t - 1]
            grad_x[i, t] = a[t] * c
            ti.atomic_add(grad_a[t], c * (x[i, t] - before))  # of all series
            c *= 1.0 - a[t]


# %% Are they right?
def in_torch(x, a):
    y = torch.zeros_like(x[:, 0])
    for t in range(x.shape[1]):
        y = (1 - a[t]) * y + a[t] * x[:, t]
    return y


def with_gradients(average):
    """Return a function that computes the last averages and their gradients, like `naive`."""

    def value_and_gradients(x, a):
        x, a = (tensor.detach().clone().requires_grad_() for tensor in (x, a))
        y = average(x, a)
        return y.detach(), *torch.autograd.grad(y.sum(), [x, a])

    return value_and_gradients


if __name__ == "__main__":
    WAYS = {
        "torch, step by step": with_gradients(in_torch),
        "Taichi's reverse mode, in one cell": naive,
        "the same kernel as an op": with_gradients(one_cell),
        "1. all steps in an array": with_gradients(lambda x, a: all_steps(x, a)[:, -1]),
        "2. a launch a step": with_gradients(step_by_step),
        "3. gradient by hand": with_gradients(lambda x, a: by_hand(x, a)[:, -1]),
    }


def error(actual, expected):
    """Return the largest error of values and gradients, relative to the largest expected one."""
    pairs = zip(actual, expected, strict=True)
    return max(((one - other).abs().max() / other.abs().max()).item() for one, other in pairs)


def timed(way, x, a, repeats=5):
    """Return the time of a call in milliseconds, the minimum of several."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        way(x, a)
        times.append(time.perf_counter() - begin)
    return 1e3 * min(times)


if __name__ == "__main__":
    exact = WAYS["torch, step by step"](x, a)
    print(f"{SERIES} series of {STEPS} steps, float64")
    print(f"{'':36}{'error':>10}{'ms':>10}")
    for name, way in WAYS.items():
        wrong = error(way(x, a), exact)
        print(f"{name:36}{wrong:>10.0e}{timed(way, x, a):>10.2f}  {'right' if wrong < 1e-9 else 'WRONG'}")


# %% Plot: all right ways lie on one line
if __name__ == "__main__":
    shown = min(12, STEPS)  # early values have decayed to nothing
    figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
    for name, way in WAYS.items():
        is_right = way is not naive
        style = {"color": "black", "alpha": 0.5} if is_right else {"color": "#c0392b", "marker": "o"}
        label = {"torch, step by step": "torch, and all ops"}.get(name) if is_right else f"{name} (wrong)"
        axes.plot(range(STEPS - shown, STEPS), way(x, a)[2][-shown:], label=label, lw=2, **style)
    axes.set(title="Gradient of the sum of the last averages", xlabel="time step t", ylabel="derivative by a[t]")
    axes.axhline(0, color="#bbbbbb", lw=1, zorder=0)
    axes.legend(frameon=False)
    figure.savefig(options.out / "gradients.png", dpi=100)
    print(f"gradients.png is in {options.out}")
