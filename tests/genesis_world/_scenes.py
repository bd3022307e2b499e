"""Small scenes of Genesis that launch its kernels: on the CPU, in float64, without a viewer."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

Ready = Callable[[], None]
"""Called when a scene has come to where its launches are worth trying."""


@dataclass(frozen=True)
class Scene:
    """A scene.

    Attributes:
        run: builds it and steps it; calls its second argument when it is ready.
        uses_fields: whether Genesis keeps the state of rigid bodies in fields instead of ndarrays.
        uses_views: whether Genesis reads and sets its state through torch tensors that share memory, not by kernels.
        is_variant: whether it is another scene with other options, so that kernels are tried again.
        options: those of `OPTIONS` that it turns on.
    """

    run: Callable[[Any, Ready], None]
    uses_fields: bool = False
    uses_views: bool = False
    is_variant: bool = False
    options: tuple[str, ...] = ()


OPTIONS = {
    "batch": "several environments (`n_envs`)",
    "hibernation": "bodies that fall asleep (`use_hibernation`)",
    "GJK": "collision detection by GJK instead of MPR (`use_gjk_collision`)",
    "fields": "state of rigid bodies in fields instead of ndarrays (`GS_ENABLE_NDARRAY=0`)",
    "backward": "Genesis' own backward pass (`requires_grad`)",
}
"""Options of Genesis that are off in most scenes, and what they do."""
SCENES: dict[str, Scene] = {}


def scene(**options: Any) -> Callable[[Callable[[Any, Ready], None]], Callable[[Any, Ready], None]]:
    """Register a function as a scene of its name."""

    def register(run: Callable[[Any, Ready], None]) -> Callable[[Any, Ready], None]:
        SCENES[run.__name__] = Scene(run, **options)
        return run

    return register


def start(one: Scene) -> Any:
    """Start Genesis as a scene wants it. Returns the module."""
    os.environ["GS_ENABLE_NDARRAY"] = "0" if one.uses_fields else "1"
    # Otherwise Genesis' own getters and setters use views of memory on the CPU, and no kernel.
    os.environ["GS_ENABLE_ZEROCOPY"] = "1" if one.uses_views else "0"
    import genesis as gs

    gs.init(backend=gs.cpu, precision="64", logging_level="error", seed=1)
    return gs


def save_kernels() -> None:
    """Write the kernels that the engine compiled to its cache: it does so when it ends, and a scene may be stopped."""
    from quadrants.lang import impl

    impl.get_runtime().prog.dump_cache_data_to_disk()


def make_world(gs: Any, *, requires_grad: bool = False, substeps: int = 1, dt: float = 1e-2, **options: Any) -> Any:
    """Make an empty scene without a viewer."""
    sim = gs.options.SimOptions(dt=dt, substeps=substeps, requires_grad=requires_grad)
    return gs.Scene(show_viewer=False, sim_options=sim, **options)


def build(world: Any, **options: Any) -> None:
    """Build a scene without Genesis' first step, which compiles the dynamics of rigid bodies for minutes."""
    world.sim.step = lambda: None
    try:
        world.build(**options)
    finally:
        del world.sim.step


def run_steps(world: Any, ready: Ready, warm: int, count: int = 2) -> None:
    """Step a scene until it is ready, and then some more."""
    for _ in range(warm):
        world.step()
    ready()
    for _ in range(count):
        world.step()


def call_all(calls: Iterable[Callable[[], Any]]) -> None:
    """Call all, and print what one refuses: the others are still worth it."""
    for number, call in enumerate(calls):
        try:
            call()
        except Exception as error:  # noqa: BLE001
            lines = str(error).strip().splitlines() or [""]  # an engine puts its reason last
            print(f"  call {number}: {type(error).__name__}: {lines[-1][:300]}", file=sys.stderr)
