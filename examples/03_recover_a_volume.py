"""What is in the box? A volume and its transfer function, both unknown, recovered from eight pictures.

A transfer function is a table that maps each value of a volume to a color and a density, as in the display of medical
scans. Here a volume of 32 x 32 x 32 values is rendered from eight sides; then an initial volume and table
are optimized by gradient descent until their pictures are the same, and a ninth view, which was held out, is the test.
The values need not be the same: with values and the table's rows in another order, the pictures are the same. The
densities must agree.

    python examples/03_recover_a_volume.py --out out/recovered

writes pictures there: the views, how the one left out came into sight, and the two tables. A minute on two cores.
Cells (`# %%`) run one by one in an editor that knows them, or all together as a script.
"""

# %% Options
import argparse
import time
from pathlib import Path

import torch
from matplotlib import pyplot as plt
from torch.nn import functional

import tinsmith as ts
from tinsmith.render import image_rays, volume_render

parser = argparse.ArgumentParser(description="Recover a volume and a transfer function from eight pictures.")
parser.add_argument("--out", type=Path, default=Path("out/recovered"))
parser.add_argument("--quick", action="store_true", help="small pictures and few steps, for tests")
options, _ = parser.parse_known_args()  # a notebook has arguments of its own
if __name__ == "__main__":
    options.out.mkdir(parents=True, exist_ok=True)
ts.init("cpu")
torch.manual_seed(0)

BOX = [-1.0, -1.0, -1.0, 1.0, 1.0, 1.0]
WHITE = torch.ones(3)
SIZE, ROWS = 32, 16  # cells along each side of the volume, rows of the table
SIDE, STEPS, RAYS = (24, 80, 1024) if options.quick else (64, 1000, 4096)  # pixels of a picture; of training


# %% What is in the box
def true_volume():
    """Build the values of the true volume: a ring around a ball, both with soft edges."""
    side = (torch.arange(SIZE) + 0.5) / SIZE * 2 - 1  # where the cells' middles are
    x, y, z = torch.meshgrid(side, side, side, indexing="ij")
    u, w = 0.8 * x + 0.6 * z, 0.8 * z - 0.6 * x  # the ring is tilted
    ring = 1.0 - (((u * u + y * y).sqrt() - 0.6) ** 2 + w * w).sqrt() / 0.4
    ball = 0.9 - (x * x + y * y + z * z).sqrt() / 0.5
    return torch.maximum(ring, ball).clamp(0, 1)


def true_table():
    """Build the true transfer function: air, a thin blue skin, and orange flesh with a dark heart."""
    value = torch.linspace(0, 1, ROWS)[:, None]
    skin = torch.exp(-(((value - 0.3) / 0.08) ** 2))
    flesh = torch.sigmoid((value - 0.58) * 30)
    heart = torch.sigmoid((value - 0.85) * 30)
    color = skin * torch.tensor([0.1, 0.45, 0.9]) + flesh * torch.tensor([0.95, 0.5, 0.1])
    color = color * (1 - heart) + heart * torch.tensor([0.35, 0.05, 0.1])
    return torch.cat([color.clamp(0, 1), 4 * skin + 12 * flesh], dim=1)


# %% Eight pictures, and one more
def camera(around, above, distance=3.4):
    """Return the pose of a camera that looks at the middle, with x to the right, y down, z ahead. Angles are
    in turns.
    """
    around, above = (torch.tensor(2 * torch.pi * turns) for turns in (around, above))
    place = torch.stack([above.cos() * around.cos(), above.cos() * around.sin(), above.sin()])
    right = torch.stack([-around.sin(), around.cos(), torch.tensor(0.0)])
    down = torch.linalg.cross(-place, right)
    return torch.cat([torch.stack([right, down, -place], dim=1), (distance * place)[:, None]], dim=1)


def views(side):
    """Return origins and directions (9, side, side, 3) of rays: eight views from all sides, and the one held out."""
    heights = [0.11, -0.07, 0.04, -0.12, 0.08, -0.03, 0.13, -0.09]  # in turns: a quarter is straight above
    poses = [camera(turn * 3 / 8, height) for turn, height in enumerate(heights)] + [camera(0.44, 0.03)]
    lens = torch.tensor([[1.6 * side, 0, side / 2], [0, 1.6 * side, side / 2], [0, 0, 1]])
    rays = [image_rays(pose, lens, side, side) for pose in poses]
    return torch.stack([one.origins for one in rays]), torch.stack([one.directions for one in rays])


def seen(volume, table, origins, directions, step=0.5 / SIZE, **options):
    """Render the colors of rays through a volume. The side of a cell is 2 / SIZE."""
    return volume_render(volume, table, origins, directions, BOX, step=step, background=WHITE, **options).color


if __name__ == "__main__":
    origins, directions = views(SIDE)
    with torch.no_grad():
        pictures = seen(true_volume(), true_table(), origins, directions)


# %% A guess
class Guess(torch.nn.Module):
    """A volume and a table, computed from parameters without bounds.

    The volume is a sum of grids, coarse to fine, so that what no picture tells follows what they tell around it.
    """

    def __init__(self):
        super().__init__()
        sizes = [SIZE // 8, SIZE // 4, SIZE // 2, SIZE]
        self.values = torch.nn.ParameterList(0.1 * torch.randn(1, 1, size, size, size) for size in sizes)
        start = torch.cat([torch.zeros(ROWS, 3), torch.linspace(-4, 3, ROWS)[:, None]], dim=1)
        self.rows = torch.nn.Parameter(start)  # denser where values are higher, all gray

    def forward(self):
        colors, densities = self.rows[:, :3].sigmoid(), functional.softplus(self.rows[:, 3:])
        finest = (SIZE,) * 3
        values = sum(functional.interpolate(grid, finest, mode="trilinear") for grid in self.values)
        return (values[0, 0] - 1.5).sigmoid(), torch.cat([colors, densities], dim=1)


def roughness(volume):
    """Return the mean difference between neighbors: of all volumes with the right pictures, smooth ones are more
    likely.
    """
    return sum(volume.diff(dim=dim).abs().mean() for dim in range(3))


def psnr(image, truth):
    return -10 * (image - truth).square().mean().log10().item()


# %% Optimization
if __name__ == "__main__":
    guess = Guess()
    rates = [{"params": guess.values.parameters(), "lr": 0.1}, {"params": [guess.rows], "lr": 0.05}]
    optimizer = torch.optim.Adam(rates, betas=(0.9, 0.99), eps=1e-12)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, [rate["lr"] for rate in rates], STEPS + 1, pct_start=0.1)
    known = [tensor[:8].reshape(-1, 3) for tensor in (origins, directions, pictures)]
    begin, sights = time.perf_counter(), []
    for step in range(STEPS + 1):
        if step % (STEPS // 20) == 0:
            with torch.no_grad():
                sights.append(seen(*guess(), origins[8], directions[8]))
            took, reached = time.perf_counter() - begin, psnr(sights[-1], pictures[8])
            print(f"step {step:5}  {took:6.1f} s  the view left out: {reached:5.2f} dB", flush=True)
        pick = torch.randint(len(known[0]), (RAYS,))
        origin, direction, color = (tensor[pick] for tensor in known)
        volume, table = guess()
        looks = seen(volume, table, origin, direction, step=2 / SIZE, jitter=True)
        loss = functional.mse_loss(looks, color) + 0.005 * roughness(volume)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


# %% Results
def agreement(volume, table, other_volume, other_table):
    """Return the correlation of two volumes' densities."""
    densities = [density_in(volume, table), density_in(other_volume, other_table)]
    return torch.corrcoef(torch.stack(densities))[0, 1].item()


def density_in(volume, table):
    """Return the density of each volume value according to the table, flattened."""
    row = volume.flatten() * (ROWS - 1)
    before = row.floor().long().clamp(max=ROWS - 2)
    return torch.lerp(table[before, 3], table[before + 1, 3], row - before)


def show(images, titles, name, columns):
    """Save pictures under their titles to a file."""
    rows = -(-len(images) // columns)
    figure, panels = plt.subplots(rows, columns, figsize=(2.2 * columns, 2.5 * rows), layout="constrained")
    for axes, image, title in zip(panels.flat, images, titles, strict=True):
        axes.imshow(image.clamp(0, 1))
        axes.set_title(title, fontsize=11)
        axes.set_axis_off()
    figure.savefig(options.out / name, dpi=100)


def plot_table(axes, table, title):
    """Plot the density of each value in a table, with the colors below."""
    value = torch.linspace(0, 1, ROWS)
    axes.plot(value, table[:, 3], color="black")
    axes.bar(value, table[:, 3].clamp(min=0.4), width=1 / (ROWS - 1), color=table[:, :3].clamp(0, 1).tolist())
    axes.set(title=title, xlabel="value", ylabel="density")


if __name__ == "__main__":
    with torch.no_grad():
        estimate = guess()
    titles = [f"view {number}" for number in range(1, 9)]
    show(pictures[:8], titles, "views.png", columns=4)
    every = STEPS // 20
    titles = [*(f"after {number * every} steps" for number in range(4)), f"after {STEPS} steps", "truth"]
    show([*sights[:4], sights[-1], pictures[8]], titles, "left_out.png", columns=6)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    plot_table(left, estimate[1], "transfer function that was found")
    plot_table(right, true_table(), "true transfer function")
    figure.savefig(options.out / "tables.png", dpi=100)
    print(f"densities agree: correlation {agreement(*estimate, true_volume(), true_table()):.3f}")
    print(f"views.png, left_out.png and tables.png are in {options.out}")
