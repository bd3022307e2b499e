"""Scenes of everything that is not rigid: MPM, SPH, PBD, FEM, smoke, tools, and what couples them."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
import torch

from ._scenes import Ready, build, call_all, make_world, run_steps, scene

BOUNDS = {"lower_bound": (-0.5, -0.5, -0.2), "upper_bound": (0.5, 0.5, 1.0)}


# MPM -------------------------------------------------------------------------------------
def _mpm(gs: Any, material: Any, n_envs: int = 0, requires_grad: bool = False, is_alone: bool = False) -> Any:
    world = make_world(
        gs,
        dt=2e-3,
        substeps=2,
        requires_grad=requires_grad,
        mpm_options=gs.options.MPMOptions(particle_size=0.05, grid_density=16, **BOUNDS),
    )
    # Without rigid bodies, Genesis compiles none of their kernels: minutes.
    if not is_alone:
        world.add_entity(gs.morphs.Plane())
        world.add_entity(gs.morphs.Box(pos=(0.0, 0.0, 0.05), size=(0.3, 0.3, 0.1), fixed=True))
    body = world.add_entity(gs.morphs.Box(pos=(0.02, 0.0, 0.2), size=(0.15, 0.15, 0.15)), material=material)
    world.build(n_envs=n_envs)
    if not requires_grad:
        _deform(body)
    return world, body


def _deform(body: Any) -> None:
    """Deform particles a little: equal singular values have no singular vectors of their own."""
    state = body.solver.get_state(0)
    torch.manual_seed(0)
    with torch.no_grad():
        state.F.add_(0.05 * torch.randn(state.F.shape, dtype=state.F.dtype))
    body.solver.set_state(0, state)


def _squeeze(body: Any) -> None:
    """Move particles closer to each other: pressure acts only where they are denser than at rest."""
    places = body.get_particles_pos()
    center = places.mean(-2, keepdim=True)
    body.set_particles_pos(center + 0.85 * (places - center))


def _use_particles(body: Any, world: Any) -> None:
    """Call what sets and reads particles."""
    batch = (world.n_envs,) if world.n_envs else ()
    n = body.n_particles

    def some(*shape: int) -> torch.Tensor:
        return torch.rand(*batch, n, *shape, dtype=torch.float64)

    solver = body.solver
    calls = [
        lambda: body.set_particles_pos(body.get_particles_pos()),
        lambda: body.set_particles_vel(0.1 * some(3)),
        lambda: body.get_particles_vel(),
        lambda: body.set_particles_active(body.get_particles_active()),
        lambda: body.get_mass(),
        lambda: body.get_state(),
        lambda: solver.get_state(0),
        lambda: solver.set_state(0, solver.get_state(0)),
        lambda: solver.update_render_fields(),
        lambda: body.set_velocity(_doubles(0.1, 0.0, 0.0)),
        lambda: body.set_position(_doubles(0.0, 0.0, 0.3)),
        lambda: world.step(),
    ]
    call_all(calls)


def _doubles(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _leaf(*values: float) -> torch.Tensor:
    return _doubles(*values).requires_grad_()


@scene()
def mpm_elastic(gs: Any, ready: Ready) -> None:
    """Build an elastic cube that falls on a box."""
    world, body = _mpm(gs, gs.materials.MPM.Elastic())
    some = torch.arange(body.n_particles)[None] < 5
    call_all([lambda: body.set_particle_constraints(some, 0, 100.0)])
    run_steps(world, ready, 5)
    call_all([lambda: body.remove_particle_constraints()])
    _use_particles(body, world)
    frame = [np.zeros((1, body.n_particles, *shape)) for shape in ((3,), (3,), (3, 3), (3, 3), ())]
    call_all(
        [
            lambda: body.get_frame(0, *frame, np.zeros((1, body.n_particles), dtype=np.int32)),
            lambda: body.set_free(torch.ones(body.n_particles, dtype=torch.bool)),
            # Genesis' own `get_free` asks for a shape that it then refuses.
            lambda: body.solver._kernel_get_particles_free(
                body._particle_start, body.n_particles, torch.zeros(body.n_particles, dtype=torch.bool)
            ),
            lambda: body.set_particle_constraints(some, 0, 100.0),
        ]
    )


@scene(options=("backward",))
def mpm_gradients(gs: Any, ready: Ready) -> None:
    """Build a thrown muscle, with Genesis' own backward pass."""
    world, body = _mpm(gs, gs.materials.MPM.Muscle(n_groups=2), requires_grad=True, is_alone=True)
    body.set_position(_leaf(0.02, 0.0, 0.2))
    body.set_velocity(_leaf(0.5, 0.1, 0.2))
    actuation = _leaf(0.1, 0.2)
    call_all([lambda: body.set_muscle(muscle_group=torch.arange(body.n_particles) % 2)])
    call_all([lambda: body.set_muscle(muscle_direction=torch.tensor([[0.0, 0.0, 1.0]]).expand(body.n_particles, 3))])
    body.set_actuation(actuation)
    run_steps(world, ready, 2)
    call_all([lambda: body.get_particles_actu(), lambda: body.get_muscle_group()])
    states = body.get_state(), body.solver.get_state(world.sim.cur_substep_local)
    loss = torch.stack([_sum_particles(one) for one in states]).sum()
    call_all([lambda: loss.backward()])


def _sum_particles(state: Any) -> torch.Tensor:
    """Return a loss that depends on all of the state of particles."""
    return state.pos.pow(2).sum() + state.vel.sum() + state.F.sum() + state.C.sum() + state.Jp.sum()


@scene(is_variant=True, options=("backward",))
def mpm_small(gs: Any, ready: Ready) -> None:
    """Build a small elastic cube alone, with Genesis' gradients on."""
    options = gs.options.MPMOptions(particle_size=0.05, grid_density=16, **BOUNDS)
    world = make_world(gs, dt=2e-3, requires_grad=True, mpm_options=options)
    body = world.add_entity(
        gs.morphs.Box(pos=(0.0, 0.0, 0.2), size=(0.15, 0.15, 0.15)), material=gs.materials.MPM.Elastic()
    )
    world.build()
    _deform(body)
    run_steps(world, ready, 1)


@scene(is_variant=True, options=("batch",))
def mpm_liquid_batched(gs: Any, ready: Ready) -> None:
    """Build a viscous liquid in three environments."""
    world, body = _mpm(gs, gs.materials.MPM.Liquid(viscous=True), n_envs=3)
    run_steps(world, ready, 5)


@scene(is_variant=True)
def mpm_snow(gs: Any, ready: Ready) -> None:
    """Build snow, without rigid bodies."""
    world, body = _mpm(gs, gs.materials.MPM.Snow(), n_envs=1, is_alone=True)
    run_steps(world, ready, 5)


@scene()
def mpm_water(gs: Any, ready: Ready) -> None:
    """Build water, which needs no singular values."""
    world, body = _mpm(gs, gs.materials.MPM.Liquid(), is_alone=True)
    run_steps(world, ready, 2, 1)


@scene()
def mpm_sand_cpic(gs: Any, ready: Ready) -> None:
    """Build sand that is cut by a thin box (CPIC)."""
    world = make_world(
        gs,
        dt=2e-3,
        mpm_options=gs.options.MPMOptions(particle_size=0.05, grid_density=16, enable_CPIC=True, **BOUNDS),
    )
    world.add_entity(gs.morphs.Box(pos=(0.0, 0.0, 0.15), size=(0.3, 0.02, 0.3), fixed=True))
    sand = world.add_entity(
        gs.morphs.Box(pos=(0.0, 0.0, 0.3), size=(0.15, 0.15, 0.15)), material=gs.materials.MPM.Sand()
    )
    build(world)
    _deform(sand)
    ready()
    # Not a step: Genesis compiles the dynamics of rigid bodies for minutes.
    coupler = world.sim.coupler
    call_all([lambda: coupler.preprocess(0), lambda: coupler.reset(envs_idx=world._envs_idx)])


# SPH -------------------------------------------------------------------------------------
def _sph(gs: Any, ready: Ready, n_envs: int = 0, is_alone: bool = False, **options: Any) -> None:
    world = make_world(gs, dt=2e-3, sph_options=gs.options.SPHOptions(particle_size=0.03, **BOUNDS, **options))
    if not is_alone:
        world.add_entity(gs.morphs.Plane())
        world.add_entity(gs.morphs.Box(pos=(0.0, 0.0, 0.05), size=(0.2, 0.2, 0.1), fixed=True))
    body = world.add_entity(
        gs.morphs.Box(pos=(0.0, 0.0, 0.2), size=(0.15, 0.15, 0.15)), material=gs.materials.SPH.Liquid()
    )
    world.build(n_envs=n_envs)
    _squeeze(body)
    run_steps(world, ready, 8)
    _use_particles(body, world)
    n = body.n_particles
    call_all([lambda: body.get_frame(0, np.zeros((1, n, 3)), np.zeros((1, n, 3)), np.zeros((1, n), dtype=np.int32))])


@scene()
def sph(gs: Any, ready: Ready) -> None:
    """Build a drop of water on a box with WCSPH."""
    _sph(gs, ready)


@scene(options=("batch",))
def sph_dfsph(gs: Any, ready: Ready) -> None:
    """Build a drop of water with DFSPH, in two environments."""
    _sph(
        gs,
        ready,
        n_envs=2,
        is_alone=True,
        pressure_solver="DFSPH",
        max_density_solver_iterations=3,
        max_divergence_solver_iterations=3,
    )


# PBD -------------------------------------------------------------------------------------
def _pbd(gs: Any, is_alone: bool = False) -> Any:
    world = make_world(gs, dt=2e-3, pbd_options=gs.options.PBDOptions(particle_size=0.03, **BOUNDS))
    if not is_alone:
        world.add_entity(gs.morphs.Plane())
        world.add_entity(gs.morphs.Box(pos=(0.0, 0.0, 0.05), size=(0.2, 0.2, 0.1), fixed=True))
    return world


def _write_sheet(count: int = 6, size: float = 0.3) -> str:
    """Write a square sheet of triangles to a file. Return its name."""
    places = np.linspace(-size / 2, size / 2, count)
    lines = [f"v {x} {y} 0" for y in places for x in places]
    for row in range(count - 1):
        for first in range(row * count + 1, row * count + count):
            lines += [f"f {first} {first + 1} {first + count}", f"f {first + 1} {first + count + 1} {first + count}"]
    with tempfile.NamedTemporaryFile("w", suffix=".obj", delete=False) as file:
        file.write("\n".join(lines))
    return file.name


@scene()
def pbd_cloth(gs: Any, ready: Ready) -> None:
    """Build cloth that falls on a box and is fixed to it."""
    world = _pbd(gs)
    morph = gs.morphs.Mesh(file=_write_sheet(), pos=(0.0, 0.0, 0.12))
    cloth = world.add_entity(morph, material=gs.materials.PBD.Cloth())
    world.build()
    run_steps(world, ready, 3)
    _use_particles(cloth, world)
    call_all(
        [
            lambda: cloth.fix_particles([0, 1]),
            lambda: cloth.fix_particles_to_link(world.rigid_solver.links[-1].idx, [2, 3]),
            lambda: world.step(),
            lambda: world.step(),
            lambda: cloth.release_particle([0, 1]),
            lambda: world.reset(),
            lambda: world.step(),
        ]
    )


@scene()
def pbd_elastic(gs: Any, ready: Ready) -> None:
    """Build an elastic ball of tetrahedra."""
    world = _pbd(gs, is_alone=True)
    world.add_entity(gs.morphs.Sphere(pos=(0.0, 0.0, 0.2), radius=0.1), material=gs.materials.PBD.Elastic())
    world.build()
    run_steps(world, ready, 3)


@scene(options=("batch",))
def pbd_liquid(gs: Any, ready: Ready) -> None:
    """Build liquid and free particles, with wind and other force fields."""
    world = _pbd(gs, is_alone=True)
    cube = gs.morphs.Box(pos=(0.0, 0.0, 0.2), size=(0.12, 0.12, 0.12))
    liquid = world.add_entity(cube, material=gs.materials.PBD.Liquid())
    grain = gs.morphs.Box(pos=(0.4, 0.0, 0.2), size=(0.06, 0.06, 0.06))
    grains = world.add_entity(grain, material=gs.materials.PBD.Particle())
    fields = gs.force_fields
    call_all(
        [
            lambda: world.add_force_field(fields.Wind(direction=(1, 0, 0), strength=2.0)),
            lambda: world.add_force_field(fields.Point(strength=1.0, position=(0, 0, 0.5))),
            lambda: world.add_force_field(fields.Drag(linear=0.1, quadratic=0.1)),
        ]
    )
    world.build(n_envs=2)
    _squeeze(liquid)
    # Beyond the bounds, which push them back.
    call_all([lambda: grains.set_particles_pos(grains.get_particles_pos() + _doubles(0.1, 0.0, 0.0))])
    run_steps(world, ready, 2)


# FEM -------------------------------------------------------------------------------------
def _fem(
    gs: Any,
    material: Any,
    requires_grad: bool = False,
    more: dict[str, Any] | None = None,
    has_plane: bool = True,
    height: float = 0.1,
    is_box: bool = False,
    **options: Any,
) -> Any:
    """Make a world with an elastic ball or, with fewer elements, an elastic box."""
    world = make_world(
        gs,
        dt=1e-4,
        requires_grad=requires_grad,
        fem_options=gs.options.FEMOptions(**{"damping": 0.1, **options}),
        **(more or {}),
    )
    # The SAP coupler has a floor of its own, and refuses a plane.
    if has_plane:
        world.add_entity(gs.morphs.Plane())
    place = (0.0, 0.0, height)
    shape = gs.morphs.Box(pos=place, size=(0.2, 0.2, 0.2)) if is_box else gs.morphs.Sphere(pos=place, radius=0.1)
    return world, world.add_entity(shape, material=material)


@scene(options=("backward",))
def fem_explicit(gs: Any, ready: Ready) -> None:
    """Build an elastic ball on a box, explicit, with Genesis' own backward pass."""
    world, body = _fem(gs, gs.materials.FEM.Muscle(n_groups=2, E=1e5), requires_grad=True)
    world.add_entity(gs.morphs.Box(pos=(0.0, 0.0, -0.05), size=(0.3, 0.3, 0.1), fixed=True))
    world.build()
    ready()
    body.set_position(_leaf(0.0, 0.0, 0.099))
    body.set_velocity(_leaf(0.1, 0.0, -0.2))
    groups = torch.arange(body.n_elements) % 2
    direction = _doubles(0.0, 0.0, 1.0).repeat(body.n_elements, 1)
    solver, n = world.sim.fem_solver, body.n_vertices
    call_all(
        [
            lambda: body.set_actuation(_doubles(0.1, 0.2)),
            lambda: body.set_muscle(groups, direction),
            lambda: body.process_input(),
            lambda: solver.substep_pre_coupling(0),
            lambda: world.step(),
            lambda: body.get_state(),
            lambda: body.get_frame(
                0, np.zeros((1, n, 3)), np.zeros((1, n, 3)), np.zeros((1, body.n_elements), dtype=np.int32)
            ),
            lambda: body.get_el2v(),
        ]
    )
    # Parts of Genesis' own backward pass, by hand: its gradient of an actuation gives a kernel wrong arguments.
    state = solver.get_state(0)
    for one in (state.pos, state.vel):
        one.grad = torch.rand_like(one)
    actuation = torch.rand(1, body.n_elements, dtype=torch.float64)
    active = (groups % 2).to(torch.int32)[None].contiguous()
    call_all(
        [
            lambda: solver.add_grad_from_state(state),
            lambda: solver.copy_grad(0, 1),
            lambda: body.set_pos_grad(0, torch.zeros(1, n, 3, dtype=torch.float64)),
            lambda: body.set_vel_grad(0, torch.zeros(1, n, 3, dtype=torch.float64)),
            lambda: solver._kernel_set_elements_actu_grad(0, body._el_start, body.n_elements, actuation),
            lambda: solver.reset_grad_till_frame(1),
            lambda: body.clear_grad(0),
            # Genesis' own `deactivate` fails, and `set_active` passes a number where the kernel takes an array.
            lambda: solver._kernel_set_active(0, body._el_start, body.n_elements, active),
        ]
    )


@scene()
def fem_implicit(gs: Any, ready: Ready) -> None:
    """Build an implicit elastic ball with vertices that are held."""
    world, body = _fem(
        gs,
        gs.materials.FEM.Elastic(model="linear_corotated", E=1e5),
        use_implicit_solver=True,
        enable_vertex_constraints=True,
        n_linesearch_iterations=2,
    )
    world.build()
    target = _doubles(0.0, 0.0, 0.2, 0.1, 0.0, 0.2).reshape(2, 3)
    call_all(
        [
            lambda: body.set_vertex_constraints([0, 1], target),
            lambda: body.set_vertex_constraints([2], is_soft_constraint=True, stiffness=10.0),
            lambda: body.update_constraint_targets([0, 1], target),
        ]
    )
    run_steps(world, ready, 2)
    call_all([lambda: body.remove_vertex_constraints([0]), lambda: world.step(), lambda: world.reset()])


@scene()
def fem_cloth(gs: Any, ready: Ready) -> None:
    """Build cloth of finite elements."""
    world = make_world(gs, dt=1e-3)
    world.add_entity(gs.morphs.Mesh(file=_write_sheet(), pos=(0.0, 0.0, 0.12)), material=gs.materials.FEM.Cloth())
    call_all([lambda: world.build()])
    ready()


@scene(options=("batch",))
def fem_held(gs: Any, ready: Ready) -> None:
    """Build an explicit elastic box whose vertices are held, in two environments."""
    world, body = _fem(
        gs, gs.materials.FEM.Elastic(E=1e5), has_plane=False, is_box=True, enable_vertex_constraints=True
    )
    world.build(n_envs=2)
    targets = body.get_state().pos[:, :2] + 0.01
    call_all(
        [
            lambda: body.set_vertex_constraints([[0, 1], [0, 1]], targets),
            lambda: body.set_vertex_constraints([[2], [2]], is_soft_constraint=True, stiffness=10.0),
        ]
    )
    run_steps(world, ready, 2)


# Coupling --------------------------------------------------------------------------------
@scene()
def coupling_sap_alone(gs: Any, ready: Ready) -> None:
    """Build an elastic box on the floor, with hydroelastic contact (SAP) and without rigid bodies."""
    world, _ = _fem(
        gs,
        gs.materials.FEM.Elastic(model="linear_corotated", E=1e5),
        more={"coupler_options": gs.options.SAPCouplerOptions()},
        has_plane=False,
        is_box=True,
        height=0.098,
        use_implicit_solver=True,
        n_linesearch_iterations=0,
    )
    world.build()
    run_steps(world, ready, 1, 1)


@scene()
def coupling_sap(gs: Any, ready: Ready) -> None:
    """Build a rigid box on an elastic one with hydroelastic contact (SAP)."""
    more = {"coupler_options": gs.options.SAPCouplerOptions()}
    world, body = _fem(
        gs,
        gs.materials.FEM.Elastic(model="linear_corotated", E=1e5),
        more=more,
        has_plane=False,
        is_box=True,
        use_implicit_solver=True,
        n_linesearch_iterations=0,
    )
    world.add_entity(gs.morphs.Box(pos=(0.0, 0.0, 0.24), size=(0.1, 0.1, 0.1)))
    add_hinges(gs, world)
    build(world)
    ready()
    # Not a step: Genesis compiles the dynamics of rigid bodies for minutes.
    solver, coupler = world.sim.fem_solver, world.sim.coupler
    call_all([lambda: coupler.preprocess(0), lambda: solver.substep_pre_coupling(0), lambda: coupler.couple(0)])


@scene(is_variant=True, options=("batch",))
def coupling_sap_vertices(gs: Any, ready: Ready) -> None:
    """Build the same with contact at vertices, in two environments."""
    options = gs.options.SAPCouplerOptions(
        fem_floor_contact_type="vert", rigid_floor_contact_type="vert", rigid_rigid_contact_type="tet"
    )
    world, body = _fem(
        gs,
        gs.materials.FEM.Elastic(model="linear_corotated", E=1e5),
        more={"coupler_options": options},
        has_plane=False,
        use_implicit_solver=True,
    )
    world.add_entity(gs.morphs.Box(pos=(0.3, 0.0, 0.049), size=(0.1, 0.1, 0.1)))
    world.add_entity(gs.morphs.Box(pos=(0.3, 0.0, 0.147), size=(0.1, 0.1, 0.1)))
    world.build(n_envs=2)
    run_steps(world, ready, 8)


def add_hinges(gs: Any, world: Any) -> Any:
    """Add two bodies whose joints are held equal, for constraints of the SAP coupler."""
    from ._rigid_scenes import CHAIN, add_chain

    return add_chain(gs, world, CHAIN.replace('pos="0 0 1"', 'pos="1 0 1"'))


@scene()
def coupling_all(gs: Any, ready: Ready) -> None:
    """Build MPM, SPH, PBD and FEM in one scene, touching a rigid box and each other."""
    world = make_world(
        gs,
        dt=1e-3,
        mpm_options=gs.options.MPMOptions(particle_size=0.05, grid_density=16, **BOUNDS),
        sph_options=gs.options.SPHOptions(particle_size=0.04, **BOUNDS),
        pbd_options=gs.options.PBDOptions(particle_size=0.04, **BOUNDS),
        fem_options=gs.options.FEMOptions(),
    )
    world.add_entity(gs.morphs.Plane())
    world.add_entity(gs.morphs.Box(pos=(0.0, 0.0, 0.05), size=(0.4, 0.4, 0.1)))
    cube = {"size": (0.12, 0.12, 0.12)}
    world.add_entity(gs.morphs.Box(pos=(0.0, 0.0, 0.16), **cube), material=gs.materials.MPM.Elastic())
    world.add_entity(gs.morphs.Box(pos=(0.1, 0.0, 0.16), **cube), material=gs.materials.SPH.Liquid())
    world.add_entity(gs.morphs.Box(pos=(0.0, 0.1, 0.16), **cube), material=gs.materials.PBD.Liquid())
    world.add_entity(gs.morphs.Sphere(pos=(0.0, 0.0, 0.26), radius=0.06), material=gs.materials.FEM.Elastic(E=1e5))
    world.build()
    run_steps(world, ready, 4)


# Smoke, tools, skeletons with a skin -----------------------------------------------------
@scene()
def smoke(gs: Any, ready: Ready) -> None:
    """Build a jet of smoke."""
    from ._jet import Jet

    world = make_world(gs, dt=1e-2, sf_options=gs.options.SFOptions(res=8, solver_iters=4, decay=0.99))
    world.sim.sf_solver.set_jets([Jet(), Jet()])
    world.build()
    run_steps(world, ready, 2)


@scene(options=("backward",))
def tool(gs: Any, ready: Ready) -> None:
    """Build a tool that moves into elastic matter, with Genesis' own backward pass."""
    world = make_world(
        gs,
        dt=2e-3,
        requires_grad=True,
        mpm_options=gs.options.MPMOptions(particle_size=0.05, grid_density=16, **BOUNDS),
    )
    world.add_entity(gs.morphs.Plane())
    blade = world.add_entity(
        gs.morphs.Mesh(file="meshes/sphere.obj", scale=0.05, pos=(0.0, 0.0, 0.3)),
        material=gs.materials.Tool(sdf_res=16),
    )
    body = world.add_entity(
        gs.morphs.Box(pos=(0.02, 0.0, 0.2), size=(0.15, 0.15, 0.15)), material=gs.materials.MPM.Elastic()
    )
    world.build()
    blade.set_velocity(vel=_leaf(0.0, 0.0, -0.5)[None], ang=_leaf(0.1, 0.0, 0.2)[None])
    run_steps(world, ready, 2)
    call_all(
        [
            lambda: blade.set_position(_leaf(0.0, 0.0, 0.3)[None]),
            lambda: blade.set_quaternion(_leaf(1.0, 0.0, 0.0, 0.0)[None]),
            lambda: world.step(),
            lambda: _loss_of(body.get_state(), blade.get_state()).backward(),
            lambda: world.reset(),
        ]
    )


def _loss_of(body: Any, blade: Any) -> torch.Tensor:
    """Return a loss that depends on all of the state of a tool, and on the particles that it moves."""
    return body.pos.pow(2).sum() + sum(one.sum() for one in (blade.pos, blade.quat, blade.vel, blade.ang))


@scene()
def hybrid(gs: Any, ready: Ready) -> None:
    """Build a soft skin around rigid links."""
    world = make_world(gs, dt=3e-3, substeps=2, mpm_options=gs.options.MPMOptions(grid_density=32, **BOUNDS))
    body = world.add_entity(
        gs.morphs.URDF(file="urdf/simple/two_link_arm.urdf", pos=(-0.2, 0.0, 0.3), scale=0.2, fixed=True),
        material=gs.materials.Hybrid(
            material_rigid=gs.materials.Rigid(gravity_compensation=1.0),
            material_soft=gs.materials.MPM.Muscle(E=1e4, nu=0.45, rho=1000.0, model="neohooken"),
            thickness=0.05,
            damping=1000.0,
        ),
    )
    build(world)
    ready()
    body.update_soft_part(0)
