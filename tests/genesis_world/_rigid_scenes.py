"""Scenes of rigid bodies: joints, contact, constraints, inverse kinematics, sensors."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
import torch

from ._scenes import Ready, build, call_all, make_world, run_steps, scene

CHAIN = """<mujoco model="chain">
<compiler angle="radian"/>
<worldbody>
  <body name="a" pos="0 0 1"><joint name="j0" type="hinge" axis="0 1 0" damping="0.1" armature="0.01"/>
    <geom type="capsule" fromto="0 0 0 0 0 -0.3" size="0.03" mass="0.5"/>
    <body name="b" pos="0 0 -0.3">
      <joint name="j1" type="hinge" axis="1 0.2 0" stiffness="0.5" range="-1 1" limited="true"/>
      <geom type="capsule" fromto="0 0 0 0.1 0 -0.25" size="0.03" mass="0.4"/>
      <body name="c" pos="0.1 0 -0.25">
        <joint name="j2" type="slide" axis="0 0 1" frictionloss="0.05" range="-0.1 0.1" limited="true"/>
        <geom type="box" size="0.05 0.04 0.03" mass="0.3"/>
      </body>
    </body>
  </body>
  <body name="d" pos="0.5 0 0.5"><joint name="j3" type="ball" damping="0.05"/>
    <geom type="capsule" fromto="0 0 0 0 0 -0.3" size="0.03" mass="0.5"/>
  </body>
</worldbody>
<equality>
  <joint joint1="j0" joint2="j1" polycoef="0 0.5 0 0 0"/>
</equality>
</mujoco>"""


ARM = CHAIN[: CHAIN.index('  <body name="d"')] + "</worldbody></mujoco>"
"""The chain of three joints alone, without what closes it."""


def add_chain(gs: Any, world: Any, text: str = CHAIN) -> Any:
    """Add a chain of joints with limits, friction, damping and an equality."""
    with tempfile.NamedTemporaryFile("w", suffix=".xml", delete=False) as file:
        file.write(text)
    return world.add_entity(gs.morphs.MJCF(file=file.name))


def _doubles(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def _leaf(*values: float) -> torch.Tensor:
    return _doubles(*values).requires_grad_()


def _move(entity: Any, batch: tuple[int, ...] = ()) -> None:
    torch.manual_seed(3)
    n = entity.n_dofs
    entity.set_dofs_position(0.3 * torch.rand(*batch, n, dtype=torch.float64))
    entity.set_dofs_velocity(torch.rand(*batch, n, dtype=torch.float64) - 0.5)
    entity.control_dofs_force(0.3 * torch.rand(*batch, n, dtype=torch.float64))


# Joints ----------------------------------------------------------------------------------
@scene()
def rigid_chain(gs: Any, ready: Ready) -> None:
    """Build a swinging chain of joints with limits, friction and an equality, without contact."""
    world = make_world(gs, rigid_options=gs.options.RigidOptions(enable_collision=False))
    chain = add_chain(gs, world)
    world.build()
    _move(chain)
    run_steps(world, ready, 3)
    _use_dofs(world, chain)
    _use_links(world, chain)
    world.step()


def _use_dofs(world: Any, entity: Any) -> None:
    """Call what sets and reads joints."""
    batch = () if not world.n_envs else (world.n_envs,)
    some = 0.05 + 0.1 * torch.rand(*batch, entity.n_dofs, dtype=torch.float64)
    names = ("kp", "kv", "act_gain", "stiffness", "armature", "damping", "frictionloss", "velocity", "position")
    calls: list[Any] = [lambda name=name: getattr(entity, f"set_dofs_{name}")(some) for name in names]
    calls += [
        lambda name=name: getattr(entity, f"control_dofs_{name}")(some) for name in ("position", "velocity", "force")
    ]
    calls += [
        lambda: entity.set_dofs_act_bias(some, some, some),
        lambda: entity.set_dofs_force_range(-some - 5, some + 5),
        lambda: entity.set_dofs_limit(-some - 1, some + 1),
        lambda: entity.control_dofs_position_velocity(some, some),
        lambda: entity.set_qpos(entity.get_qpos()),
        lambda: entity.get_dofs_control_force(),
        lambda: entity.zero_all_dofs_velocity(),
    ]
    call_all(calls)


def _use_links(world: Any, entity: Any) -> None:
    """Call what sets and reads links, geometries and the whole state."""
    solver, batch = world.sim.rigid_solver, () if not world.n_envs else (world.n_envs,)
    force = torch.ones(*batch, 1, 3, dtype=torch.float64)
    last = [entity.n_links - 1]
    inertia = torch.eye(3, dtype=torch.float64).expand(*batch, 1, 3, 3)
    calls = [
        lambda: entity.get_links_vel(),
        lambda: entity.get_links_ang(),
        lambda: entity.get_links_acc(),
        lambda: entity.get_jacobian(entity.links[-2]),
        lambda: entity.get_jacobian(entity.links[-2], local_point=_doubles(0.1, 0.0, 0.0)),
        lambda: entity.apply_links_external_wrench(force, force, last),
        lambda: entity.apply_links_external_wrench(force, None, last, pos=force),
        lambda: entity.set_links_mass(torch.full((*batch, 1), 0.7, dtype=torch.float64), last),
        lambda: entity.set_links_COM(0.01 * force, last),
        lambda: entity.set_links_inertia(0.01 * inertia, last),
        lambda: entity.set_mass(1.5),
        lambda: entity.set_friction(0.7),
        lambda: entity.set_friction_torsional(0.01),
        lambda: entity.set_friction_rolling(0.01),
        lambda: entity.geoms[0].set_friction(0.8),
        lambda: entity.geoms[0].set_friction_torsional(0.02),
        lambda: entity.geoms[0].set_friction_rolling(0.02),
        lambda: solver.set_geoms_friction(_doubles(0.5), [0]),
        lambda: solver.set_geoms_friction_torsional(_doubles(0.5), [0]),
        lambda: solver.set_geoms_friction_rolling(_doubles(0.5), [0]),
        lambda: entity.set_friction_ratio(torch.full((*batch, 1), 0.9, dtype=torch.float64), last),
        lambda: solver.set_global_sol_params(_doubles(0.02, 1.0, 0.9, 0.95, 0.001, 0.5, 2.0)),
        lambda: solver.set_sol_params(_doubles(0.02, 1.0, 0.9, 0.95, 0.001, 0.5, 2.0)[None], geoms_idx=[0]),
        lambda: solver.set_gravity(_doubles(0.0, 0.0, -9.0)),
        lambda: solver.clear_external_force(),
        lambda: solver.update_verts_for_geoms([0]),
        lambda: solver.update_vverts_for_vgeoms([0]),
        lambda: solver.get_state(),
        lambda: solver.set_state(0, solver.get_state()),
        lambda: solver.check_errno(),
        lambda: solver.get_equality_constraints(),
        lambda: world.reset(),
    ]
    call_all(calls)


@scene(uses_fields=True, is_variant=True, options=("fields",))
def rigid_chain_fields(gs: Any, ready: Ready) -> None:
    """Build the chain with its state in fields instead of ndarrays, and set and read it."""
    world = make_world(gs, rigid_options=gs.options.RigidOptions(enable_collision=False))
    chain = add_chain(gs, world)
    build(world)
    ready()
    _move(chain)
    _use_dofs(world, chain)
    _use_links(world, chain)


@scene(is_variant=True, options=("batch",))
def rigid_chain_batched(gs: Any, ready: Ready) -> None:
    """Build the chain in three environments with parameters of their own, and set and read it."""
    options = gs.options.RigidOptions(
        enable_collision=False, batch_links_info=True, batch_joints_info=True, batch_dofs_info=True
    )
    world = make_world(gs, rigid_options=options)
    chain = add_chain(gs, world)
    build(world, n_envs=3)
    ready()
    _move(chain, (3,))
    _use_dofs(world, chain)
    _use_links(world, chain)
    some = [0, 2]
    call_all(
        [
            lambda: chain.set_dofs_position(torch.rand(2, chain.n_dofs, dtype=torch.float64), envs_idx=some),
            lambda: chain.set_dofs_velocity(torch.rand(2, chain.n_dofs, dtype=torch.float64), envs_idx=some),
            lambda: chain.set_qpos(torch.rand(2, chain.n_qs, dtype=torch.float64), envs_idx=some),
            lambda: world.reset(envs_idx=some),
        ]
    )


@scene(options=("backward",))
def rigid_backward(gs: Any, ready: Ready) -> None:
    """Build an arm, and call by hand parts of Genesis' own backward pass: Genesis compiles the whole for long."""
    from genesis.engine.solvers.rigid.abd import diff, forward_dynamics, manual_bw
    from genesis.engine.solvers.rigid.abd import forward_kinematics as kinematics
    from genesis.engine.solvers.rigid.collider import contact
    from genesis.engine.solvers.rigid.constraint import backward

    world = make_world(gs, requires_grad=True, rigid_options=gs.options.RigidOptions(enable_collision=False))
    arm = add_chain(gs, world, ARM)
    build(world)
    ready()
    solver = world.sim.rigid_solver
    state, info, rigid, config = solver.dyn_state, solver.dyn_info, solver.rigid_info, solver.rigid_config
    constraints, cache, envs = solver.constraint_solver.constraint_state, solver._rigid_adjoint_cache, world._envs_idx
    torch.manual_seed(3)
    state.dofs.vel.from_numpy(np.random.default_rng(0).random((arm.n_dofs, 1)))
    whole = solver.get_state()
    for one in (whole.qpos, whole.dofs_vel, whole.links_pos, whole.links_quat):
        one.grad = torch.rand_like(one)
    for one in (constraints.nt_H, constraints.bw_u, constraints.qacc):
        one.from_numpy(np.random.default_rng(1).random(one.shape) + 0.5)
    zeros = torch.zeros(1, 4, 3, dtype=torch.float64)
    call_all(
        [
            lambda: solver.add_grad_from_state(whole),
            lambda: solver.set_base_links_pos_grad(None, None, False, torch.rand(3, dtype=torch.float64)),
            lambda: solver.set_base_links_quat_grad(None, None, False, torch.rand(4, dtype=torch.float64)),
            lambda: solver.set_dofs_velocity_grad(None, None, torch.rand(arm.n_dofs, dtype=torch.float64)),
            lambda: solver.set_dofs_force_grad(None, None, torch.rand(arm.n_dofs, dtype=torch.float64)),
            lambda: diff.kernel_prepare_backward_substep(
                0, state, solver.dyn_state_adjoint_cache, cache, info, rigid, config
            ),
            lambda: diff.kernel_copy_next_to_curr_no_check(state, rigid, config),
            lambda: diff.kernel_copy_acc(0, state, cache, config),
            lambda: kinematics.kernel_forward_kinematics_replay(envs, state, info, rigid, config, is_backward=True),
            lambda: kinematics.kernel_COM_links_replay(state, info, rigid, config),
            lambda: kinematics.kernel_update_geoms_replay(state, info, rigid, config, is_backward=True),
            lambda: manual_bw.kernel_manual_compute_qacc_bw(state, rigid, config),
            lambda: backward.kernel_compute_gradients(constraints, rigid),
            lambda: contact.func_set_upstream_grad(
                zeros, zeros, zeros[..., 0].contiguous(), solver.collider.collider_state
            ),
            lambda: forward_dynamics.kernel_forward_dynamics_without_qacc(
                state, constraints, info, rigid, config, is_backward=False
            ),
            # The solver groups degrees of freedom into islands before it can be differentiated.
            lambda: solver.constraint_solver.add_equality_constraints(),
            lambda: solver.constraint_solver.add_inequality_constraints(),
            lambda: solver.constraint_solver.resolve(),
            lambda: backward.kernel_solve_adjoint_u(constraints, info, rigid, config),
        ]
    )


@scene(options=("GJK", "backward"))
def rigid_backward_contact(gs: Any, ready: Ready) -> None:
    """Build a box on a plane and two balls, and call Genesis' differentiable contact by hand."""
    from genesis.engine.solvers.rigid.collider import narrowphase

    options = gs.options.RigidOptions(use_gjk_collision=True)
    world = make_world(gs, requires_grad=True, rigid_options=options)
    world.add_entity(gs.morphs.Plane())
    world.add_entity(gs.morphs.Box(pos=(0, 0, 0.0995), size=(0.2, 0.2, 0.2), euler=(0, 3, 10)))
    world.add_entity(gs.morphs.Sphere(pos=(0.5, 0, 0.5), radius=0.1))
    world.add_entity(gs.morphs.Sphere(pos=(0.52, 0.05, 0.68), radius=0.1))
    build(world)
    ready()
    solver = world.sim.rigid_solver
    collider = solver.collider
    state, inputs = collider.collider_state, collider.collider_state.diff_contact_input
    # Two contacts as detection leaves them: a corner of the box and the plane, and the two balls.
    _put(state.n_contacts, [2])
    for number, (first, second) in enumerate([(0, 1), (2, 3)]):
        _put(inputs.geom_a, first, (0, number))
        _put(inputs.geom_b, second, (0, number))
        _put(inputs.ref_id, number, (0, number))
        _put(inputs.valid, 1, (0, number))
    _put(inputs.core_local, [0.1, 0.1, -0.1], (0, 0))
    call_all(
        [
            lambda: narrowphase.func_narrow_phase_diff_convex_vs_convex(
                solver.dyn_state,
                state,
                inputs,
                solver.dyn_info,
                solver.rigid_info,
                collider.collider_info,
                solver.rigid_config,
                solver._errno,
            ),
        ]
    )


def _put(tensor: Any, value: Any, at: tuple[int, ...] = ()) -> None:
    """Write into a part of a tensor of the engine."""
    content = tensor.to_numpy()
    content[at] = value
    tensor.from_numpy(content)


# Contact ---------------------------------------------------------------------------------
def _add_pile(gs: Any, world: Any) -> list[Any]:
    """Add boxes and balls that touch each other and the ground."""
    morphs = gs.morphs
    world.add_entity(morphs.Plane())
    return [
        world.add_entity(morphs.Box(pos=(0, 0, 0.0995), size=(0.2, 0.2, 0.2))),
        world.add_entity(morphs.Box(pos=(0.03, 0.02, 0.2985), size=(0.2, 0.2, 0.2), euler=(0, 0, 20))),
        world.add_entity(morphs.Sphere(pos=(0.5, 0, 0.0995), radius=0.1)),
        world.add_entity(morphs.Sphere(pos=(0.52, 0.05, 0.29), radius=0.1)),
    ]


def _pile(gs: Any, ready: Ready, n_envs: int = 0, **options: Any) -> Any:
    """Build a pile, find its contacts and solve for their forces by parts: Genesis compiles a step for long."""
    world = make_world(gs, rigid_options=gs.options.RigidOptions(**options))
    bodies = _add_pile(gs, world)
    build(world, n_envs=n_envs)
    batch = (n_envs,) if n_envs else ()
    torch.manual_seed(3)
    for body in bodies:
        body.set_dofs_velocity(0.1 * torch.rand(*batch, 6, dtype=torch.float64) - 0.05)
    ready()
    solver = world.sim.rigid_solver
    call_all(
        [
            lambda: solver.detect_collision(),
            lambda: solver.constraint_solver.add_equality_constraints(),
            lambda: solver.constraint_solver.add_inequality_constraints(),
            lambda: solver.constraint_solver.resolve(),
            lambda: bodies[0].get_contacts(),
            lambda: bodies[0].get_links_net_contact_force(),
            lambda: bodies[0].set_pos(_doubles(0.0, 0.0, 0.11).expand(*batch, 3)),
            lambda: bodies[0].get_AABB(),
        ]
    )
    return world


@scene(is_variant=True)
def rigid_contact(gs: Any, ready: Ready) -> None:
    """Build boxes and balls on a plane, with MPR, multi-contact and Newton's method."""
    world = _pile(gs, ready)
    solver = world.sim.rigid_solver
    links = [one.idx for one in solver.links if not one.is_fixed][:2]
    call_all(
        [
            lambda: solver.add_weld_constraint(links[0], links[1]),
            lambda: solver.constraint_solver.add_equality_constraints(),
            lambda: solver.get_weld_constraints(),
            lambda: solver.delete_weld_constraint(links[0], links[1]),
            lambda: solver.add_screw_constraint(links[0], links[1], (0.0, 0.0, 1.0), 0.1),
            lambda: solver.delete_screw_constraint(links[0], links[1]),
            lambda: solver.set_state(0, solver.get_state(), partial=True),
        ]
    )


@scene(is_variant=True, options=("GJK",))
def rigid_contact_gjk(gs: Any, ready: Ready) -> None:
    """Build the pile with GJK, box-box detection, CG, an elliptic cone and torsional and rolling friction."""
    _pile(
        gs,
        ready,
        use_gjk_collision=True,
        box_box_detection=True,
        constraint_solver=gs.constraint_solver.CG,
        friction_cone=gs.friction_cone.elliptic,
        enable_torsional_friction=True,
        enable_rolling_friction=True,
        integrator=gs.integrator.Euler,
    )


@scene(is_variant=True)
def rigid_contact_mujoco(gs: Any, ready: Ready) -> None:
    """Build the pile as MuJoCo does, with no-slip iterations and implicit integration."""
    _pile(gs, ready, enable_mujoco_compatibility=True, noslip_iterations=2, integrator=gs.integrator.implicitfast)


@scene(is_variant=True, options=("batch", "hibernation"))
def rigid_contact_sleeping(gs: Any, ready: Ready) -> None:
    """Build the pile in two environments, with bodies that fall asleep."""
    _pile(gs, ready, n_envs=2, use_hibernation=True, hibernation_thresh_vel=10.0)


@scene(options=("batch", "hibernation"))
def rigid_sleeping(gs: Any, ready: Ready) -> None:
    """Let two boxes fall asleep in two environments and wake them up, beside a body that is only moved."""
    options = gs.options.RigidOptions(use_hibernation=True, hibernation_thresh_vel=10.0)
    world = make_world(gs, rigid_options=options)
    # Boxes that meet the ground only: Genesis compiles other contact for minutes.
    world.add_entity(gs.morphs.Plane(contype=2, conaffinity=1))
    size, bits = (0.2, 0.2, 0.2), {"contype": 1, "conaffinity": 2}
    table = world.add_entity(gs.morphs.Box(pos=(0, 2, 0.05), size=size, fixed=True, **bits))
    box = world.add_entity(gs.morphs.Box(pos=(0, 0, 0.0995), size=size, **bits))
    other = world.add_entity(gs.morphs.Box(pos=(0.5, 0, 0.0995), size=size, **bits))
    world.add_entity(gs.morphs.Box(pos=(2, 0, 0.3), size=(0.2, 0.2, 0.2)), material=gs.materials.Kinematic())
    world.build(n_envs=2)
    run_steps(world, ready, 6)
    solver, force = world.sim.rigid_solver, torch.ones(2, 1, 3, dtype=torch.float64)
    calls = [
        lambda: box.get_contacts(),
        lambda: box.get_links_net_contact_force(),
        lambda: solver.detect_collision(),
        lambda: box.set_pos(_doubles(0.0, 0.0, 0.11).expand(2, 3)),
        lambda: table.set_pos(_doubles(0.0, 2.0, 0.05).expand(2, 3)),
        lambda: box.set_quat(_doubles(1.0, 0.0, 0.0, 0.0).expand(2, 4)),
        lambda: table.set_quat(_doubles(1.0, 0.0, 0.0, 0.0).expand(2, 4)),
        lambda: other.set_qpos(other.get_qpos()),
        lambda: other.set_dofs_velocity(0.1 * torch.ones(2, 6, dtype=torch.float64)),
        lambda: other.apply_links_external_wrench(force, force, [0]),
        lambda: box.get_AABB(),
        lambda: box.get_verts(),
        lambda: solver.add_weld_constraint(box.base_link_idx, other.base_link_idx),
        lambda: world.step(),
        lambda: solver.get_weld_constraints(),
        lambda: solver.delete_weld_constraint(box.base_link_idx, other.base_link_idx),
        lambda: solver.set_state(0, solver.get_state()),
        lambda: world.reset(),
        lambda: world.step(),
    ]
    call_all(calls)


@scene(uses_views=True, options=("batch",))
def rigid_masked(gs: Any, ready: Ready) -> None:
    """Choose environments by a mask, with Genesis' views of memory on."""
    world = make_world(gs)
    world.add_entity(gs.morphs.Plane())
    box = world.add_entity(gs.morphs.Box(pos=(0, 0, 0.0995), size=(0.2, 0.2, 0.2)))
    body = world.add_entity(gs.morphs.Box(pos=(1, 0, 0.3), size=(0.2, 0.2, 0.2)), material=gs.materials.Kinematic())
    build(world, n_envs=3)
    ready()
    mask = torch.tensor([True, False, True])
    calls = []
    for entity in (box, body):
        calls += [
            lambda entity=entity: entity.set_qpos(entity.get_qpos(), envs_idx=mask),
            lambda entity=entity: entity.set_pos(entity.get_pos()[mask], envs_idx=mask),
            lambda entity=entity: entity.set_quat(entity.get_quat()[mask], envs_idx=mask),
            lambda entity=entity: entity.set_dofs_velocity(0.1 * torch.ones(3, 6, dtype=torch.float64), envs_idx=mask),
        ]
    call_all([*calls, lambda: world.reset(envs_idx=mask)])


@scene(uses_fields=True, is_variant=True, options=("fields",))
def rigid_contact_fields(gs: Any, ready: Ready) -> None:
    """Build the pile with its state in fields instead of ndarrays."""
    _pile(gs, ready)


@scene()
def rigid_terrain(gs: Any, ready: Ready) -> None:
    """Build a ball on a terrain, and a drone."""
    world = make_world(gs)
    heights = np.round(np.random.default_rng(0).random((8, 8)), 2)
    terrain = world.add_entity(gs.morphs.Terrain(horizontal_scale=0.25, vertical_scale=0.1, height_field=heights))
    world.add_entity(gs.morphs.Sphere(pos=(1.0, 1.0, 0.15), radius=0.1))
    drone = world.add_entity(gs.morphs.Drone(file="urdf/drones/cf2x.urdf", pos=(0.5, 0.5, 1.0)))
    build(world)
    ready()
    call_all(
        [
            lambda: drone.set_propellers_rpm([14000.0, 14100.0, 14200.0, 14300.0]),
            lambda: drone.update_propeller_vgeoms(),
            lambda: world.sim.rigid_solver.get_terrain_height(_doubles(1.03, 0.94)[None], terrain.base_link_idx),
        ]
    )


@scene()
def rigid_reaching(gs: Any, ready: Ready) -> None:
    """Build an arm of three joints for inverse kinematics and planning of a path."""
    world = make_world(gs)
    arm = add_chain(gs, world, ARM)
    world.build()
    ready()
    hand, pos = arm.get_link("c"), _doubles(0.1, 0.15, 0.5)
    goal = _doubles(0.5, 0.4, 0.05)
    call_all(
        [
            lambda: arm.inverse_kinematics(link=hand, pos=pos),
            lambda: arm.forward_kinematics(goal),
            lambda: world.sim.rigid_solver.forward_kinematics_query(arm, arm.get_qpos()),
            lambda: arm.plan_path(qpos_goal=goal, num_waypoints=10, timeout=5.0),
            lambda: arm.plan_path(qpos_goal=goal, num_waypoints=10, timeout=5.0, planner="RRT"),
        ]
    )


@scene(uses_fields=True, is_variant=True, options=("fields",))
def rigid_reaching_fields(gs: Any, ready: Ready) -> None:
    """Build the arm with its state in fields: Genesis' planner by random trees fails with ndarrays."""
    from genesis.engine.solvers.rigid.collider import mpr

    world = make_world(gs)
    arm = add_chain(gs, world, ARM)
    build(world)
    ready()
    goal = _doubles(0.5, 0.4, 0.05)
    options = {"num_waypoints": 10, "timeout": 5.0, "ignore_collision": True}
    call_all(
        [
            # Genesis never calls it, and its kernel fails with ndarrays.
            lambda: mpr.clear(world.sim.rigid_solver.collider.mpr.mpr_state),
            lambda: arm.plan_path(qpos_goal=goal, planner="RRT", **options),
        ]
    )


@scene()
def rigid_kinematic(gs: Any, ready: Ready) -> None:
    """Move a body that is not simulated, and see it and a fixed one by rays."""
    from genesis import sensors as kinds

    world = make_world(gs, rigid_options=gs.options.RigidOptions(enable_collision=False))
    seen = gs.materials.Kinematic(use_visual_raycasting=True)
    body = world.add_entity(
        gs.morphs.Box(pos=(0, 0, 0.3), size=(0.2, 0.2, 0.2), enable_custom_vverts=True), material=seen
    )
    wall = world.add_entity(
        gs.morphs.Box(pos=(1, 0, 0.3), size=(0.2, 0.2, 0.2), fixed=True),
        material=gs.materials.Rigid(use_visual_raycasting=True),
    )
    pattern = kinds.SphericalPattern(n_points=(4, 3))
    world.add_sensor(kinds.Raycaster(entity_idx=wall.idx, pattern=pattern))
    build(world)
    ready()
    _sense(world)
    solver = world.sim.kinematic_solver
    call_all(
        [
            lambda: body.set_pos(_doubles(0.0, 0.0, 0.5)),
            lambda: body.set_quat(_doubles(1.0, 0.0, 0.0, 0.0)),
            lambda: body.set_dofs_position(0.1 * torch.ones(body.n_dofs, dtype=torch.float64)),
            lambda: body.set_dofs_velocity(0.1 * torch.ones(body.n_dofs, dtype=torch.float64)),
            lambda: body.zero_all_dofs_velocity(),
            lambda: body.set_qpos(body.get_qpos()),
            lambda: body.set_vverts(None),
            lambda: body.set_vverts(torch.rand(body.n_vverts, 3, dtype=torch.float64)),
            lambda: solver.get_state(),
            lambda: solver.set_state(0, solver.get_state()),
            lambda: solver.update_vgeoms(),
            lambda: _sense(world),
        ]
    )


@scene()
def rigid_rays(gs: Any, ready: Ready) -> None:
    """Build boxes and a ball that see each other by rays."""
    from genesis import sensors as kinds

    world = make_world(gs, rigid_options=gs.options.RigidOptions(enable_collision=False))
    box = world.add_entity(gs.morphs.Box(pos=(0, 0, 1.0), size=(0.2, 0.2, 0.2)))
    ball = world.add_entity(gs.morphs.Sphere(pos=(0.5, 0, 1.0), radius=0.1))
    fixed = world.add_entity(
        gs.morphs.Box(pos=(0, 1, 1.0), size=(0.2, 0.2, 0.2), fixed=True, collision=False),
        material=gs.materials.Rigid(use_visual_raycasting=True),
    )
    pattern = kinds.SphericalPattern(n_points=(4, 3))
    for one in (box, ball, fixed):
        world.add_sensor(kinds.Raycaster(entity_idx=one.idx, pattern=pattern))
    world.build()
    ready()
    _sense(world)
    call_all([lambda: _cast_as_viewer(world)])


def _cast_as_viewer(world: Any) -> None:
    """Cast a ray as the viewer does for the body under a mouse. Its first cast, when it is made, hits nothing."""
    from genesis.vis.viewer_plugins.raycast import Raycaster

    caster = Raycaster(world)
    for _ in range(3):
        caster.cast(np.array([0.0, 0.01, 2.0]), np.array([0.0, 0.0, -1.0]))


@scene()
def rigid_unused(gs: Any, ready: Ready) -> None:
    """Call by hand what Genesis defines for rigid bodies and never launches, or launches backward only."""
    from genesis.engine.solvers.rigid.abd import forward_dynamics as dynamics
    from genesis.engine.solvers.rigid.abd import forward_kinematics as kinematics

    world = make_world(gs)
    chain = add_chain(gs, world, ARM)
    build(world)
    _move(chain)
    ready()
    solver = world.sim.rigid_solver
    state, info, rigid, config = solver.dyn_state, solver.dyn_info, solver.rigid_info, solver.rigid_config
    constraints, all_worlds = solver.constraint_solver.constraint_state, torch.zeros(1, dtype=torch.int32)
    call_all(
        [
            lambda: dynamics.kernel_compute_mass_matrix(all_worlds, state, info, rigid, config, decompose=True),
            lambda: dynamics.kernel_forward_dynamics(state, constraints, info, rigid, config),
            lambda: dynamics.kernel_update_acc(state, info, rigid, config),
            lambda: dynamics.update_qvel(state, rigid, config),
            lambda: dynamics.update_qacc_from_qvel_delta(state, rigid, config),
            lambda: kinematics.kernel_update_geoms(all_worlds, state, info, rigid, config, force_update_all_geoms=True),
            lambda: solver.set_state(0, solver.get_state(), partial=True),
        ]
    )


@scene(options=("batch",))
def rigid_mixed_shapes(gs: Any, ready: Ready) -> None:
    """Build environments with different shapes of one entity."""
    world = make_world(gs)
    shapes = [gs.morphs.Box(pos=(0, 0, 0.1), size=(0.2, 0.2, 0.2)), gs.morphs.Sphere(pos=(0, 0, 0.1), radius=0.1)]
    world.add_entity(shapes)
    call_all([lambda: world.add_entity(shapes, material=gs.materials.Kinematic())])
    ready()
    build(world, n_envs=2)
    mask = torch.tensor([True, False])
    call_all([lambda: world.sim.rigid_solver.constraint_solver.clear(mask)])


# Sensors ---------------------------------------------------------------------------------
@scene()
def sensors(gs: Any, ready: Ready) -> None:
    """Build all sensors of a rigid body: contact by distance fields, inertia, tactile, temperature."""
    from genesis.options.sensors.options import TemperatureProperties

    warm: dict[str, Any] = {"properties_dict": {-1: TemperatureProperties()}}
    grid = {"grid_size": (2, 2, 1), "simulate_all_link_temperatures": True}
    more: list[tuple[str, dict[str, Any]]] = [
        ("Contact", {}),
        ("ContactForce", {}),
        ("IMU", {}),
        ("JointTorque", {}),
        ("TemperatureGrid", warm | grid),
    ]
    _touch(gs, ready, more, "sdf")


@scene()
def sensors_by_rays(gs: Any, ready: Ready) -> None:
    """Build tactile sensors that find contact by rays."""
    _touch(gs, ready, [], "raycast")


def _sense(world: Any) -> None:
    """Measure with all sensors, without a step: Genesis would compile the dynamics of rigid bodies for minutes."""
    world.sim._sensor_manager.step()


def _touch(gs: Any, ready: Ready, more: list[tuple[str, dict[str, Any]]], query: str) -> None:
    """Put a ball on a box with `more` sensors and tactile ones that find contact by `query`, "sdf" or "raycast"."""
    from genesis import sensors as kinds

    world = make_world(gs)
    # The box meets the ground only: Genesis compiles contact of spheres with boxes for minutes.
    world.add_entity(gs.morphs.Plane(contype=2, conaffinity=1))
    box = world.add_entity(gs.morphs.Box(pos=(0, 0, 0.0995), size=(0.2, 0.2, 0.2), contype=1, conaffinity=2))
    ball = world.add_entity(gs.morphs.Sphere(pos=(0.0, 0.02, 0.2985), radius=0.1, contype=8, conaffinity=4))
    at: dict[str, Any] = {"entity_idx": box.idx, "link_idx_local": 0}
    grid: dict[str, Any] = at | {"probe_local_pos": [(0.0, 0.0, 0.1), (0.02, 0.02, -0.1)], "probe_radius": 0.03}
    by: dict[str, Any] = {"contact_depth_query": query}
    tracked: dict[str, Any] = {"track_link_idx": [ball.base_link_idx]}
    wanted = [(name, ({"entity_idx": box.idx} if name == "JointTorque" else at) | options) for name, options in more]
    wanted += [
        ("SurfaceDistanceProbe", grid | tracked | {"probe_radius": 0.5}),
        ("ContactProbe", grid | by),
        ("ContactDepthProbe", grid | by),
        ("KinematicTaxel", grid | by),
        ("ProximityTaxel", grid | tracked),
        ("ElastomerTaxel", grid | tracked | by),
    ]
    for name, options in wanted:
        call_all([lambda name=name, options=options: world.add_sensor(getattr(kinds, name)(**options))])
    world.build()
    world.sim.rigid_solver.detect_collision()
    ready()
    _sense(world)
    box.set_pos(_doubles(0.0, 0.0, 0.0993))
    world.sim.rigid_solver.detect_collision()
    _sense(world)
