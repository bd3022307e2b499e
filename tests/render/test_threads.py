"""Along rays no two threads meet: one thread and two give the same bits."""

from __future__ import annotations

import pytest
import torch

from support.packed import draw_samples, make_rays
from tinsmith import render

RAYS = make_rays([int(count) for count in torch.randint(0, 9, (3000,), generator=torch.Generator().manual_seed(0))])


def of_densities(call):
    """Return a call of something that takes one number per sample."""
    return lambda d, c, t, s, **which: [call(d, RAYS, **which)]


CALLS = {
    "composite": lambda d, c, t, s, **which: render.composite(d, c, t, s, RAYS, **which),
    "distortion_loss": lambda d, c, t, s, **which: [render.distortion_loss(d, t, s, RAYS, **which)],
    "inclusive_prod": lambda d, c, t, s, **which: [render.inclusive_prod(c, RAYS, **which)],
    "accumulate": lambda d, c, t, s, **which: [render.accumulate(d, c, RAYS, **which)],
    "entropy_penalty": of_densities(render.entropy_penalty),
    "inclusive_sum": of_densities(render.inclusive_sum),
    "exclusive_sum": of_densities(render.exclusive_sum),
    "exclusive_prod": of_densities(render.exclusive_prod),
    "segment_sum": of_densities(render.segment_sum),
}
ORDINARY = ("composite", "distortion_loss")


@pytest.mark.parametrize(
    "name", [name if name in ORDINARY else pytest.param(name, marks=pytest.mark.costly) for name in CALLS]
)
def test_one_and_two_threads_give_the_same_bits(engine, lang, name):
    given = draw_samples(RAYS, dtype=torch.float32)
    seen = []
    for threads in (1, 2):
        lang.init(arch=lang.cpu, cpu_max_num_threads=threads, offline_cache=False, log_level=lang.WARN)
        leaves = [x.clone().requires_grad_() for x in given]
        outputs = CALLS[name](*leaves, engine=engine)
        loss = sum((y * y).sum() for y in outputs) + 0 * sum(leaf.sum() for leaf in leaves)
        seen.append([*outputs, *torch.autograd.grad(loss, leaves)])
    assert all(torch.equal(one, two) for one, two in zip(*seen, strict=True))
