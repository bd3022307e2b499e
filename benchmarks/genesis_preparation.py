"""How long tinsmith prepares a simulation step of Genesis, beside the engine that compiles the same kernels.

    python benchmarks/genesis_preparation.py

A chain of three hinges, one unedited rigid substep in float64: its first forward and backward pass, in a process with
empty caches, and in a second one that finds what the first one left on disk. Seconds of the processor: of the engine,
which compiles kernels and launches each for the first time, and of all the rest. Needs the extra `tinsmith[genesis]`.

Prints a table in Markdown. The goal is at most twice the engine's own time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
GOAL = 2.0
"""How much of the engine's time all else may take."""
CHAIN = """<mujoco><worldbody><body pos="0 0 1"><joint type="hinge" axis="0 1 0"/>
<geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.03"/><body pos="0.3 0 0"><joint type="hinge" axis="0 1 0"/>
<geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.03"/><body pos="0.3 0 0"><joint type="hinge" axis="0 0 1"/>
<geom type="capsule" fromto="0 0 0 0.3 0 0" size="0.03"/></body></body></body></worldbody></mujoco>"""


class EngineClock:
    """Counts the seconds of the processor that the engine takes to compile kernels and to launch each once."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def time(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function whose time is counted."""

        def run_timed(*arguments: Any, **named: Any) -> Any:
            start = time.process_time()
            try:
                return run(*arguments, **named)
            finally:
                self.seconds += time.process_time() - start

        return run_timed

    def watch_engine(self) -> None:
        """Count from now on what Quadrants compiles."""
        from tinsmith.engines import _common
        from tinsmith.engines._quadrants import Quadrants

        Quadrants._compile_alone = self.time(Quadrants._compile_alone)
        make_launcher = _common.make_launcher

        def make_timed(*arguments: Any, **named: Any) -> Any:
            launch = make_launcher(*arguments, **named)
            timed = self.time(launch)

            def launch_timed_once(*given: Any) -> Any:
                nonlocal timed
                # The engine generates machine code at the first launch.
                now, timed = timed, launch
                return now(*given)

            vars(launch_timed_once).update(vars(launch))
            return launch_timed_once

        _common.make_launcher = make_timed


def build_chain() -> tuple[Callable[[], None], Mapping[str, Any], Mapping[str, Any]]:
    """Return a substep of a rigid chain, and what goes in and comes out of it."""
    import genesis as gs
    from genesis.engine.solvers.rigid.abd.forward_kinematics import kernel_forward_kinematics_links_geoms

    gs.init(backend=gs.cpu, precision="64", logging_level="warning")
    rigid = gs.options.RigidOptions(enable_collision=False, enable_joint_limit=False, disable_constraint=True)
    scene = gs.Scene(show_viewer=False, sim_options=gs.options.SimOptions(dt=0.01, substeps=1), rigid_options=rigid)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "chain.xml")
        file.write_text(CHAIN, "utf-8")
        scene.add_entity(gs.morphs.MJCF(file=str(file)))
        scene.build()
    scene.step()
    solver = scene.sim.rigid_solver
    state, info = solver.dyn_state, solver.rigid_info

    def step() -> None:
        solver._is_forward_pos_updated = False
        kernel_forward_kinematics_links_geoms(scene._envs_idx, state, solver.dyn_info, info, solver.rigid_config)
        solver.substep(0)

    inputs = {"qpos": info.qpos, "vel": state.dofs.vel, "force": state.dofs.ctrl_force}
    return step, inputs, {"qpos_out": info.qpos, "vel_out": state.dofs.vel}


def build_particles() -> tuple[Callable[[], None], Mapping[str, Any], Mapping[str, Any]]:
    """Return substeps of an elastic cube of the material point method, and what goes in and comes out of them."""
    import genesis as gs

    gs.init(backend=gs.cpu, precision="64", logging_level="error")
    scene = gs.Scene(
        show_viewer=False,
        sim_options=gs.options.SimOptions(dt=4 * 0.004, substeps=4, requires_grad=True),
        mpm_options=gs.options.MPMOptions(
            lower_bound=(-0.2,) * 3, upper_bound=(1.0,) * 3, grid_density=16, particle_size=0.0375
        ),
    )
    body = gs.morphs.Box(pos=(0.4, 0.4, 0.25), size=(0.15,) * 3)
    scene.add_entity(morph=body, material=gs.materials.MPM.Elastic(E=1e4, nu=0.3, sampler="regular"))
    scene.build()
    sim, particles = scene.sim, scene.sim.mpm_solver.particles

    def step() -> None:
        for substep in range(4):
            sim._cur_substep_global = substep
            sim.substep(substep)
        sim._cur_substep_global = 0

    return step, {"places": (particles.pos, 0), "velocities": (particles.vel, 0)}, {"end": (particles.pos, -1)}


SCENES = {"rigid chain": build_chain, "mpm": build_particles}


def read_tensor(given: Any) -> Any:
    """Return what a field, or its part `(field, index)`, holds, as a tensor that requires a gradient."""
    field, index = given if isinstance(given, tuple) else (given, ...)
    return field.to_torch()[index].clone().requires_grad_()


def work(name: str) -> None:
    """Print the seconds of a first forward and backward pass, of the engine and of the rest, as JSON."""
    import torch

    import tinsmith as ts

    clock = EngineClock()
    step, inputs, outputs = SCENES[name]()
    given = [read_tensor(one) for one in inputs.values()]
    roll = ts.rollout(step, inputs, outputs)
    clock.watch_engine()
    seconds: dict[str, tuple[float, float]] = {}

    def note(name: str, run: Callable[[], Any]) -> Any:
        clock.seconds, start = 0.0, time.process_time()
        made = run()
        seconds[name] = clock.seconds, time.process_time() - start - clock.seconds
        return made

    results = note("forward", lambda: roll(*given))
    shown = results if isinstance(results, tuple) else (results,)
    total = torch.stack([one.sum() for one in shown]).sum()
    note("backward", lambda: torch.autograd.grad(total, given))
    print(json.dumps(seconds))


def main() -> None:
    if sys.argv[1:2] == ["work"]:
        work(sys.argv[2])
        return
    print("| process | pass | engine, s | tinsmith, s | ratio |\n|---|---|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "XDG_CACHE_HOME": folder, "TINSMITH_CACHE": "1"}
        for process in ("first", "second"):
            command = [sys.executable, str(HERE), "work"]
            done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
            seconds: dict[str, tuple[float, float]] = json.loads(done.stdout.splitlines()[-1])
            both = tuple(map(sum, zip(*seconds.values(), strict=True)))
            for name, (engine, ours) in {**seconds, "both": both}.items():
                print(f"| {process} | {name} | {engine:.1f} | {ours:.1f} | {ours / engine:.2f} |", flush=True)
            print(f"{process} process: {both[1] / both[0]:.2f} of the engine's time; goal <= {GOAL}", file=sys.stderr)


if __name__ == "__main__":
    main()
