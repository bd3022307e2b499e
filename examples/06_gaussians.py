"""Three-dimensional Gaussians, fitted to sixteen pictures of a knot, and rendered from a held-out view.

A scene is a set of Gaussians: each has a position, a size along three axes, a rotation, an opacity and a color. They
are projected, sorted by depth and blended, which is differentiable in all of these numbers. Here a knot of beads is
rendered from sixteen sides; then random Gaussians are optimized by gradient descent until their pictures are the
same, while a strategy adds Gaussians where they are needed and removes invisible ones. The held-out view is the test.

    python examples/06_gaussians.py --out out/gaussians

writes pictures there, and splats.ply, which other viewers open. A minute on two cores.
Cells (`# %%`) run one by one in an editor that knows them, or all together as a script.
"""

# %% Options
import argparse
import math
import time
from pathlib import Path

import torch
from matplotlib import pyplot as plt

import tinsmith as ts
from tinsmith.render import gaussians, l1_ssim_loss

parser = argparse.ArgumentParser(description="Fit Gaussians to sixteen pictures of a knot.")
parser.add_argument("--out", type=Path, default=Path("out/gaussians"))
parser.add_argument("--quick", action="store_true", help="small pictures and few steps, for tests")
options, _ = parser.parse_known_args()  # a notebook has arguments of its own
if __name__ == "__main__":
    options.out.mkdir(parents=True, exist_ok=True)
ts.init("cpu")
torch.manual_seed(0)

SIDE, STEPS, START = (32, 120, 400) if options.quick else (64, 500, 800)  # pixels; of training; blobs at the start
VIEWS = 16
SEEN = [round(STEPS * part) for part in (0, 0.05, 0.2, 1)]
"""Steps after which the view left out is drawn."""


# %% The knot
def knot():
    """Build a trefoil knot of 240 beads in all colors of the rainbow."""
    turn = torch.linspace(0, 2 * math.pi, 241)[:240]
    ring = 2 + (3 * turn).cos()
    places = torch.stack([ring * (2 * turn).cos(), ring * (2 * turn).sin(), 1.2 * (3 * turn).sin()], dim=1) / 3
    hues = torch.stack([(turn + shift).cos() for shift in (0, 2.1, 4.2)], dim=1)
    return {
        "means": places,
        "scales": torch.full((240, 3), 0.06),
        "quats": torch.tensor([1.0, 0, 0, 0]).repeat(240, 1),
        "opacities": torch.full((240,), 0.95),
        "colors": 0.5 + 0.45 * hues,
    }


# %% Cameras
def camera(around, above, distance=3.5):
    """Return the matrix from world to camera (x right, y down, z ahead) of a camera that looks at the middle."""
    place = torch.tensor([math.cos(above) * math.cos(around), math.cos(above) * math.sin(around), math.sin(above)])
    right = torch.tensor([-math.sin(around), math.cos(around), 0.0])
    axes = torch.stack([right, torch.linalg.cross(-place, right), -place])
    return torch.cat([torch.cat([axes, distance * -axes @ place[:, None]], dim=1), torch.tensor([[0.0, 0, 0, 1]])])


def look(scene, cameras):
    """Render pictures (cameras, SIDE, SIDE, 3) of Gaussians on white; return them with the `info` for a strategy."""
    lens = torch.tensor([[1.5 * SIDE, 0, SIDE / 2], [0, 1.5 * SIDE, SIDE / 2], [0, 0, 1]])
    count = len(cameras)
    pictures, _, info = gaussians.rasterization(
        **scene,
        viewmats=cameras,
        Ks=lens.expand(count, 3, 3),
        width=SIDE,
        height=SIDE,
        backgrounds=torch.ones(count, 3),
        packed=False,
    )
    return pictures, info


if __name__ == "__main__":
    heights = [0.6 * math.sin(2.4 * view) for view in range(VIEWS)]
    cameras = torch.stack([camera(2 * math.pi * view / VIEWS, heights[view]) for view in range(VIEWS)])
    left_out = camera(0.9 * math.pi, 0.35)[None]
    with torch.no_grad():
        pictures, (truth,) = look(knot(), cameras)[0], look(knot(), left_out)[0]


# %% Random Gaussians
def scene_of(params):
    """Compute the Gaussians' properties from parameters without bounds."""
    return {
        "means": params["means"],
        "scales": params["scales"].exp(),
        "quats": params["quats"],
        "opacities": params["opacities"].sigmoid(),
        "colors": params["colors"].sigmoid(),
    }


if __name__ == "__main__":
    start = {
        "means": 2 * torch.rand(START, 3) - 1,
        "scales": torch.full((START, 3), math.log(0.08)),
        "quats": torch.randn(START, 4),
        "opacities": torch.full((START,), -1.0),
        "colors": torch.zeros(START, 3),
    }
    params = {name: torch.nn.Parameter(one) for name, one in start.items()}
    rates = {"means": 0.004, "scales": 0.02, "quats": 0.01, "opacities": 0.05, "colors": 0.04}
    optimizers = {name: torch.optim.Adam([params[name]], lr=rate, eps=1e-15) for name, rate in rates.items()}
    strategy = gaussians.DefaultStrategy(
        grow_grad2d=0.002,
        refine_start_iter=STEPS // 8,
        refine_stop_iter=STEPS * 5 // 8,
        refine_every=STEPS // 8,
        reset_every=10 * STEPS,
    )
    strategy.check_sanity(params, optimizers)
    state = strategy.initialize_state(scene_scale=1.0)


# %% Optimization
def psnr(picture):
    return -10 * (picture - truth).square().mean().log10().item()


if __name__ == "__main__":
    begin, sights = time.perf_counter(), []
    for step in range(STEPS + 1):
        if step in SEEN:
            with torch.no_grad():
                (sight,) = look(scene_of(params), left_out)[0]
            sights.append(sight)
            took, count = time.perf_counter() - begin, len(params["means"])
            words = f"step {step:4}  {took:5.1f} s  {count:5} Gaussians"
            print(f"{words}  the view left out: {psnr(sight):5.2f} dB", flush=True)
        pick = torch.randint(VIEWS, (1,))
        picture, info = look(scene_of(params), cameras[pick])
        loss = l1_ssim_loss(picture, pictures[pick])
        strategy.step_pre_backward(params, optimizers, state, step, info)
        loss.backward()
        for optimizer in optimizers.values():
            optimizer.step()
            optimizer.zero_grad()
        strategy.step_post_backward(params, optimizers, state, step, info, packed=False)


# %% Results
if __name__ == "__main__":
    figure, panels = plt.subplots(1, len(SEEN) + 1, figsize=(2.2 * (len(SEEN) + 1), 2.6), layout="constrained")
    titles = [f"after {step} steps" if step else "at the start" for step in SEEN] + ["truth"]
    for axes, image, title in zip(panels, [*sights, truth], titles, strict=True):
        axes.imshow(image.clamp(0, 1))
        axes.set_title(title, fontsize=11)
        axes.set_axis_off()
    figure.suptitle("The view left out")
    figure.savefig(options.out / "knot.png", dpi=100)
    # Files keep colors as harmonics: 0.5 and the constant one, 1 / sqrt(4 pi), times its coefficient.
    sh0 = (params["colors"].sigmoid() - 0.5) * math.sqrt(4 * math.pi)
    splats = {name: one.detach() for name, one in params.items() if name != "colors"}
    gaussians.save_ply(options.out / "splats.ply", {**splats, "sh0": sh0.detach()[:, None]})
    print(f"knot.png and splats.ply are in {options.out}")
