"""Hundreds of tiny networks paint a photograph.

The photograph is divided into blocks, and each block has a network that maps a position in the block to a
color. A single network of this size could not learn much; there are many independent ones, and all train at once.

    python examples/05_networks_paint.py --out out/painted

`tinsmith learn-image` does this with a progress display and more ways to encode places: docs/how-to/learn-image.md.
"""

# %% Options
import argparse
import time
from pathlib import Path

import numpy as np
import torch
from matplotlib import cbook
from matplotlib import pyplot as plt
from PIL import Image

import tinsmith as ts

parser = argparse.ArgumentParser(description="Tiny networks paint a photograph.")
parser.add_argument("--out", type=Path, default=Path("out/painted"))
parser.add_argument("--quick", action="store_true", help="a small picture and few steps, for tests")
options, _ = parser.parse_known_args()  # a notebook has arguments of its own
if __name__ == "__main__":
    options.out.mkdir(parents=True, exist_ok=True)
ts.init("cpu")
torch.manual_seed(0)

# %% A photograph, cut into blocks
if __name__ == "__main__":
    BLOCKS, SIDE, STEPS = (4, 16, 40) if options.quick else (12, 24, 400)
    SIZE = BLOCKS * SIDE
    photograph = Image.open(cbook.get_sample_data("grace_hopper.jpg", asfileobj=False)).convert("RGB")
    photograph = photograph.crop((60, 30, 460, 430)).resize((SIZE, SIZE), Image.Resampling.LANCZOS)
    pixels = torch.from_numpy(np.array(photograph)) / 255


def cut(image):
    """Cut an image [row, column, channel] into [block row, block column, pixel of the block, channel]."""
    return image.view(BLOCKS, SIDE, BLOCKS, SIDE, 3).transpose(1, 2).reshape(BLOCKS, BLOCKS, SIDE * SIDE, 3)


def joined(blocks):
    """Join blocks [block row, block column, pixel of the block, channel] to an image [row, column, channel]."""
    return blocks.view(BLOCKS, BLOCKS, SIDE, SIDE, 3).transpose(1, 2).reshape(SIZE, SIZE, 3)


if __name__ == "__main__":
    colors = cut(pixels)
    middles = (torch.arange(SIDE) + 0.5) / SIDE  # of pixels, from 0 to 1 across a block
    places = torch.cartesian_prod(middles, middles).expand(BLOCKS, BLOCKS, -1, -1)

# %% A network for each block
# Two hidden layers of 16, on sines and cosines of the position; the keys are those of tiny-cuda-nn.
if __name__ == "__main__":
    networks = ts.nn.NetworkArray(
        (BLOCKS, BLOCKS),
        n_input_dims=2,
        n_output_dims=3,
        network_config={"otype": "FullyFusedMLP", "activation": "ReLU", "n_neurons": 16, "n_hidden_layers": 2},
        encoding_config={"otype": "Frequency", "n_frequencies": 4},
    )
    trainer = ts.nn.Trainer(networks, {"otype": "Adam", "learning_rate": 1e-2}, "L2")
    numbers = networks.params.numel()
    each = numbers // networks.cells
    print(f"{networks.cells} networks, {each} numbers each, for {SIDE * SIDE * 3} numbers of a block")

# %% Training: one step is one pass through all networks
if __name__ == "__main__":
    shots, begin = [], time.perf_counter()
    for step in range(STEPS + 1):
        if step in (STEPS // 20, STEPS // 4, STEPS):
            with torch.no_grad():
                painted = joined(networks(places)).clamp(0, 1)
            shots.append(painted)
            error = (painted - pixels).square().mean().item()
            print(f"step {step:3}  {time.perf_counter() - begin:4.1f} s  {-10 * np.log10(error):.1f} dB", flush=True)
        trainer.training_step(places, colors)

# %% One network alone: that of a corner is trained towards black, and the others stay bitwise the same
if __name__ == "__main__":
    kept = networks.params.detach().clone()
    trainer.training_step(places[:1, :1, :, :].reshape(1, -1, 2), torch.zeros(1, SIDE * SIDE, 3), at=[[0, 0]])
    changed = (networks.params != kept).flatten(1).any(1)
    print(f"trained alone: {changed.sum().item()} network changed")

# %% What it looks like
if __name__ == "__main__":
    titles = [f"after {step} steps" for step in (STEPS // 20, STEPS // 4, STEPS)] + ["photograph"]
    figure, panels = plt.subplots(1, 4, figsize=(12, 3.4), layout="constrained")
    for axes, image, title in zip(panels, [*shots, pixels], titles, strict=True):
        axes.imshow(image)
        axes.set_title(title, fontsize=11)
        axes.set_axis_off()
    figure.suptitle(f"{BLOCKS} x {BLOCKS} networks, one a block of {SIDE} x {SIDE} pixels")
    figure.savefig(options.out / "painted.png", dpi=100)
    print(f"painted.png is in {options.out}")
