"""A first op: which blur was it?

A photograph and a blurred copy of it are known; the blur is unknown. Blurring a picture by a small kernel of
weights is a few lines of Taichi. One more line makes it an operation of torch, whose gradient is checked here, and then
used: gradient descent finds the weights, which show the motion of the camera.

    python examples/01_first_op.py --out out/first_op

Cells (`# %%`) run one by one in an editor that knows them, or all together as a script.
"""

# %% Options
import argparse
from pathlib import Path

import numpy as np
import taichi as ti
import torch
from matplotlib import cbook
from matplotlib import pyplot as plt
from PIL import Image

import tinsmith as ts

parser = argparse.ArgumentParser(description="Find the blur between two pictures.")
parser.add_argument("--out", type=Path, default=Path("out/first_op"))
parser.add_argument("--quick", action="store_true", help="a small picture and few steps, for tests")
options, _ = parser.parse_known_args()  # a notebook has arguments of its own
if __name__ == "__main__":
    options.out.mkdir(parents=True, exist_ok=True)
ts.init("cpu")
torch.manual_seed(0)


# %% The kernel, and the line
# Inputs are left of the arrow, outputs right of it, with their sizes. The op allocates `blurred`.
@ts.op("image[h, w], weights[k, l] -> blurred[h - k + 1, w - l + 1]")
@ti.kernel
def blur(image: ti.types.ndarray(), weights: ti.types.ndarray(), blurred: ti.types.ndarray()):
    for i, j in blurred:
        total = 0.0
        for a in range(weights.shape[0]):
            for b in range(weights.shape[1]):
                total += weights[a, b] * image[i + a, j + b]
        blurred[i, j] = total


# %% Is it right?
# The kernel is interpreted, so check it on small inputs.
if __name__ == "__main__":
    print(ts.check(blur, torch.rand(6, 5), torch.rand(3, 2)))

# %% Two pictures
if __name__ == "__main__":
    SIZE, WIDTH = (64, 7) if options.quick else (256, 15)
    photograph = Image.open(cbook.get_sample_data("grace_hopper.jpg", asfileobj=False)).convert("L")
    photograph = photograph.crop((60, 30, 460, 430)).resize((SIZE, SIZE), Image.Resampling.LANCZOS)
    sharp = torch.from_numpy(np.array(photograph)) / 255


def stroke(width):
    """Return the blur kernel of a camera that moved along a hook during the exposure."""
    weights = torch.zeros(width, width)
    for turn in torch.linspace(0, 1, 200):
        row = (0.9 - 0.8 * turn) * (width - 1)
        column = (0.5 + 0.4 * torch.cos(3.5 * turn)) * (width - 1)
        weights[row.round().long(), column.round().long()] += 1.0
    return weights / weights.sum()


if __name__ == "__main__":
    true = stroke(WIDTH)
    blurred = blur(sharp, true)

# %% Finding the blur
# Weights are not negative and add up to one: softmax ensures that, and torch's part and the kernel's
# are one program for autograd.
if __name__ == "__main__":
    scores = torch.zeros(WIDTH * WIDTH, requires_grad=True)
    optimizer = torch.optim.Adam([scores], lr=0.3)
    for step in range(40 if options.quick else 150):
        weights = scores.softmax(0).reshape(WIDTH, WIDTH)
        loss = (blur(sharp, weights) - blurred).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(
                f"step {step:3}  loss {loss.item():.2e}  weights off by {(weights - true).abs().sum().item() / 2:.1%}"
            )


# %% What it looks like
def show(axes, image, title):
    """Show an image in gray under its title, with its maximum in white."""
    axes.imshow(image.detach(), cmap="gray", vmin=0)
    axes.set_title(title, fontsize=11)
    axes.set_axis_off()


if __name__ == "__main__":
    figure, panels = plt.subplots(1, 4, figsize=(12, 3.4), layout="constrained")
    show(panels[0], sharp, "photograph")
    show(panels[1], blurred, "blurred photograph")
    show(panels[2], true, f"true blur, {WIDTH} x {WIDTH} weights")
    show(panels[3], weights, "blur found by gradient descent")
    figure.savefig(options.out / "blur.png", dpi=100)
    print(f"blur.png is in {options.out}")
