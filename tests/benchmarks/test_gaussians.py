"""benchmarks/gaussians.py runs, says whether each number is held, and stops where a way computes something else."""

import sys

import pytest
import torch

from support import gaussians as given
from support.benchmarks import BENCHMARKS, run_benchmark
from tinsmith.render._ops import get_op
from tinsmith.render.gaussians import rasterization

WITH_A_WRONG_WAY = """\
import runpy, sys
import _gaussian_ways as ways
right = ways.by_tiles
ways.by_tiles = lambda *given, side: [1.1 * one for one in right(*given, side=side)]
sys.argv[:] = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.costly
@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is read from /proc")
def test_a_quick_run_writes_a_page(tmp_path):
    done = run_benchmark("gaussians.py", "--quick", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "gaussians-cpu.md").read_text(encoding="utf-8")
    assert "| 100 Gaussians, 32 x 32, forward and backward | tinsmith on quadrants | plain torch, by tiles |" in page
    assert "| 100 Gaussians, 32 x 32, forward and backward | tinsmith on taichi | by hand, " in page
    assert "| 300 Gaussians, 64 x 64, memory of a step | tinsmith on taichi | inputs, gradients, lists, image |" in page


@pytest.mark.parametrize("order", ["back to front", "front to back"])
def test_gradients_by_hand_are_the_generated_ones(engine, lang64, order, monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    from _gaussian_hand_ops import build_ops

    scene = given.make_scene(cameras=1)
    torch.manual_seed(1)
    covars = torch.rand(24, 6, dtype=torch.float64) * 0.01
    covars[:, [0, 3, 5]] += 0.05
    cameras = (scene["viewmats"], scene["Ks"], torch.zeros(24, dtype=torch.int32), torch.arange(24).int())
    radii = 9 * (scene["means"][:, 2:] > -2.9).int().expand(24, 2).contiguous()
    images, alphas, meta = rasterization(**scene, width=given.WIDTH, height=given.HEIGHT, engine=engine)
    starts = torch.cat([meta["isect_offsets"].flatten(), torch.tensor([len(meta["flatten_ids"])])]).int()
    blended = (
        *(meta[name] for name in ("means2d", "conics")),
        scene["colors"][meta["gaussian_ids"]],
        meta["opacities"],
    )
    calls = {
        "gaussian_covariance": (2, (scene["quats"], scene["scales"]), {}),
        "gaussian_projection": (
            2,
            (scene["means"], covars, *cameras, radii),
            {"width": 40.0, "height": 24.0, "eps2d": 0.3},
        ),
        "gaussian_blend": (4, (*blended, meta["flatten_ids"], starts), {"v": 1, "h": 32, "w": 48}),
    }
    ops = build_ops(engine, fp="f64", order=order)
    assert {name for name, *_ in ops} == calls.keys()
    for (name, *static), by_hand in ops.items():
        count, tensors, options = calls[name]
        generated = get_op(name, engine, scene["means"], *static)
        pairs = [compute_gradients(op, count, tensors, options) for op in (by_hand, generated)]
        for one, other in zip(*pairs, strict=True):
            assert other.abs().max() > 1e-3
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def compute_gradients(op, count, tensors, options):
    """Compute the gradients of all outputs by the first inputs."""
    leaves = [tensor.detach().requires_grad_() for tensor in tensors[:count]]
    outputs = op(*leaves, *tensors[count:], **options)
    outputs = [outputs] if isinstance(outputs, torch.Tensor) else outputs
    draw = torch.Generator().manual_seed(3)
    cotangents = [torch.randn(y.shape, generator=draw, dtype=y.dtype) for y in outputs]
    return torch.autograd.grad(outputs, leaves, cotangents)


@pytest.mark.costly
@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is read from /proc")
def test_a_step_with_many_gaussians_keeps_to_its_memory(engine, monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    from _gaussian_ways import measure_in_a_process

    # What two threads hold at one time differs by a twentieth from run to run: the least of three.
    memory = min((measure_in_a_process(engine, 100_000, 512) for _ in range(3)), key=lambda one: one.taken)
    assert memory.inputs < memory.needed < memory.taken <= 1.5 * memory.needed


@pytest.mark.costly
def test_a_way_that_computes_something_else_ends_the_run(tmp_path):
    done = run_benchmark("-c", WITH_A_WRONG_WAY, "gaussians.py", "--quick", "--out", tmp_path)
    assert done.returncode == 1
    assert "computes something else" in done.stderr
    assert not list(tmp_path.iterdir())
