"""Rollouts of soft matter: prints how far values and gradients are from those of Genesis' own steps alone."""

from __future__ import annotations

import json

import genesis as gs
import torch

import tinsmith as ts

gs.init(backend=gs.cpu, precision="64", logging_level="error", seed=0)
torch.set_num_threads(1)
SUBSTEPS = 2


def start(name, dt, material, shape, **options):
    """Build a scene with one body. Return the simulator and the function that runs its substeps."""
    sim_options = gs.options.SimOptions(dt=SUBSTEPS * dt, substeps=SUBSTEPS, requires_grad=name == "ball")
    scene = gs.Scene(show_viewer=False, sim_options=sim_options, **options)
    scene.add_entity(morph=shape, material=material)
    scene.build()
    sim = scene.sim

    def run():
        for substep in range(SUBSTEPS):
            sim._cur_substep_global = substep
            sim.substep(substep)
        sim._cur_substep_global = 0

    return sim, run


def compare(run, pos, vel, places, *, keeps_steps):
    """Return how far a rollout is from Genesis alone, in its values, and in its gradient by central differences."""
    first, last = ((pos, 0), (vel, 0)), ((pos, -1), (vel, -1))
    fields = (first, last) if keeps_steps else ((pos, vel), (pos, vel))
    rollout = ts.rollout(run, dict(zip(("p", "v"), fields[0], strict=True)), dict(zip("pv", fields[1], strict=True)))

    def run_alone(given):
        for field, tensor in zip((pos, vel), given, strict=True):
            content = field.to_torch().clone()
            (content[0] if keeps_steps else content)[:] = tensor
            field.from_torch(content)
        run()
        contents = [field.to_torch().clone() for field in (pos, vel)]
        return [one[-1] for one in contents] if keeps_steps else contents

    given = [one.requires_grad_() for one in (places, 0.1 * torch.randn_like(places))]
    results = rollout(*given)
    expected = run_alone([one.detach() for one in given])
    weights = [torch.randn_like(one) / one.abs().max() for one in expected]
    gradients = torch.autograd.grad(sum((a * b).sum() for a, b in zip(results, weights, strict=True)), given)

    def lose(direction, size):
        moved = [one.detach() + size * step for one, step in zip(given, direction, strict=True)]
        return sum((a * b).sum() for a, b in zip(run_alone(moved), weights, strict=True))

    direction = [torch.randn_like(one) for one in given]
    differences = (lose(direction, 1e-6) - lose(direction, -1e-6)) / 2e-6
    slope = sum((a * b).sum() for a, b in zip(gradients, direction, strict=True))
    pairs = zip(results, expected, strict=True)
    return {
        "value": max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs),
        "gradient": float((slope - differences).abs() / differences.abs()),
    }


def drop():
    """Return the errors for a squeezed drop of smoothed particles."""
    bounds = gs.options.SPHOptions(particle_size=0.05, lower_bound=(-0.5, -0.5, 0.0), upper_bound=(0.5, 0.5, 1.0))
    box = gs.morphs.Box(pos=(0, 0, 0.3), size=(0.15, 0.15, 0.15))
    liquid = gs.materials.SPH.Liquid(mu=0.02, gamma=0.02, sampler="regular")
    sim, run = start("drop", 2e-3, liquid, box, sph_options=bounds)
    particles = sim.sph_solver.particles
    places = particles.pos.to_torch().clone()
    middle = places.mean(0, keepdim=True)
    torch.manual_seed(0)
    places = middle + 0.8 * (places - middle) + 0.002 * torch.randn_like(places)
    return compare(run, particles.pos, particles.vel, places, keeps_steps=False)


def ball():
    """Return the errors for an elastic ball of finite elements."""
    sphere = gs.morphs.Sphere(pos=(0, 0, 0.12), radius=0.1)
    elastic = gs.materials.FEM.Elastic(E=1e4, nu=0.3, rho=1000.0, model="linear")
    sim, run = start("ball", 1e-3, elastic, sphere, fem_options=gs.options.FEMOptions(damping=5.0, floor_height=0.0))
    vertices = sim.fem_solver.elements_v
    torch.manual_seed(0)
    places = vertices.pos.to_torch()[0].clone()
    places += 0.002 * torch.randn_like(places)
    return compare(run, vertices.pos, vertices.vel, places, keeps_steps=True)


print("RESULTS", json.dumps({one.__name__: one() for one in (drop, ball)}))
