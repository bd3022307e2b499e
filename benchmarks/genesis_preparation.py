"""How long tinsmith prepares a simulation step of Genesis, beside the engine that compiles the same kernels.

    python benchmarks/genesis_preparation.py [--only mpm] [--out FOLDER]

A chain of three hinges, one unedited rigid substep, and four substeps of an elastic cube (material point method), in
float64: the first forward and backward pass, in a process with empty caches, and in a second one that finds what the
first one left on disk. Seconds of the processor: of the engine, which compiles kernels and launches each for the first
time, and of all the rest. Needs the extra `tinsmith[genesis]`.

Prints a table, and writes it to benchmarks/results/genesis-preparation-cpu.md, unless `--only` is given without
`--out`. The goals are at most twice the engine's own time, and in a second process a fifth of the first one's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
RESULTS = HERE.parent / "results"
GOAL = 2.0
"""How much of the engine's time all else may take."""
SHARE = 0.2
"""How much of its time in the first process it may take in the second one."""
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


Seconds = Mapping[str, tuple[float, float]]
"""Seconds of the engine and of the rest, by pass."""


def measure(scene: str) -> dict[str, Seconds]:
    """Measure a scene in two processes, by the process."""
    measured: dict[str, Seconds] = {}
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "XDG_CACHE_HOME": folder, "TINSMITH_CACHE": "1"}
        for process in ("first", "second"):
            command = [sys.executable, str(HERE), "work", scene]
            done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
            measured[process] = json.loads(done.stdout.splitlines()[-1])
    return measured


def write_table(measured: Mapping[str, Mapping[str, Seconds]]) -> list[str]:
    """Return the table in Markdown, and below it how the goals are met."""
    lines = ["| scene | process | pass | engine, s | tinsmith, s | ratio |", "|---|---|---|---:|---:|---:|"]
    ends = []
    for scene, processes in measured.items():
        totals: list[tuple[float, float]] = []
        for process, seconds in processes.items():
            engine, rest = map(sum, zip(*seconds.values(), strict=True))
            totals.append((engine, rest))
            for name, (one, other) in {**seconds, "both": (engine, rest)}.items():
                lines.append(f"| {scene} | {process} | {name} | {one:.1f} | {other:.1f} | {other / one:.2f} |")
        (engine, first), (_, second) = totals
        ends.append(
            f"- {scene}, first process: {first / engine:.2f} of the engine's time, {_judge(first / engine, GOAL)}"
        )
        share = second / first
        ends.append(f"- {scene}, second process: {share:.2f} of the first one's time, {_judge(share, SHARE)}")
    return [*lines, "", *ends]


def _judge(number: float, goal: float) -> str:
    return f"goal <= {goal}: {'held' if number <= goal else 'MISSED'}"


def main() -> None:
    if sys.argv[1:2] == ["work"]:
        work(sys.argv[2])
        return
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--only", choices=SCENES, help="one scene")
    asked.add_argument("--out", type=Path, help="folder for the results; benchmarks/results unless --only")
    options = asked.parse_args()
    lines = write_table({scene: measure(scene) for scene in SCENES if options.only in (None, scene)})
    print("\n".join(lines))
    out = options.out or (None if options.only else RESULTS)
    if out is not None:
        write_page(lines, out)


def write_page(lines: Sequence[str], out: Path) -> None:
    """Write the results into a folder."""
    head = (
        "Seconds of the processor of a first forward and backward pass, in a process with empty caches and in a second "
    )
    head += "one. What is measured, and how: `benchmarks/genesis_preparation.py`."
    out.mkdir(parents=True, exist_ok=True)
    page = ["# Preparing a simulation step of Genesis, on cpu", "", head, "", *lines, ""]
    (out / "genesis-preparation-cpu.md").write_text("\n".join(page), "utf-8")


if __name__ == "__main__":
    main()
