"""Arguments that are structs: numbers, vectors and matrices by name."""

from dataclasses import dataclass
from typing import Any

import pytest
import torch

import cases
import tinsmith as ts


def looking(lang, dtype):
    number = {torch.float32: lang.f32, torch.float64: lang.f64}[dtype]
    vec3 = lang.types.vector(3, number)

    @lang.dataclass
    class Pose:
        turn: lang.types.matrix(3, 3, number)
        shift: vec3

    @lang.dataclass
    class Camera:
        focal: number
        count: lang.i32
        pose: Pose

        @lang.func
        def project(self, p):
            q = self.pose.turn @ p + self.pose.shift
            return self.focal * q[0] / q[2]

    @lang.func
    def shade(camera, p):
        return camera.pose.shift.dot(p) * camera.focal

    @lang.kernel
    def look(
        p: lang.types.ndarray(dtype=vec3, ndim=1), camera: Camera, gain: number, y: lang.types.ndarray(dtype=number)
    ):
        for i in p:
            whole = camera.project(p[i]) * gain + shade(camera, p[i])
            y[i] = whole + camera.focal * camera.count + camera.pose.turn[0, 1]

    return look, Camera, Pose


def looked(p, camera, gain):
    turn, shift = (torch.as_tensor(one, dtype=p.dtype) for one in camera["pose"].values())
    q = p @ turn.T + shift
    whole = camera["focal"] * q[:, 0] / q[:, 2] * gain + (p @ shift) * camera["focal"]
    return whole + camera["focal"] * camera["count"] + turn[0, 1]


@dataclass
class Holder:
    """Any object with the right attributes."""

    focal: Any
    count: int
    pose: Any


def given(dtype):
    points, turn = torch.rand(5, 3, dtype=dtype) + 1, torch.rand(3, 3, dtype=dtype).tolist()
    return points, {"focal": 1.25, "count": 3, "pose": {"turn": turn, "shift": [0.5, 0.25, 1.0]}}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_numbers_from_a_struct_a_dict_or_an_object(lang, dtype):
    look, camera, pose = looking(lang, dtype)
    op = ts.op("p[n, 3] -> y[n]")(look)
    assert op.arguments == ("p", "camera", "gain")
    points, numbers = given(dtype)
    parts = {"turn": lang.Matrix(numbers["pose"]["turn"]), "shift": lang.Vector(numbers["pose"]["shift"])}
    struct = camera(focal=1.25, count=3, pose=pose(**parts))
    holder = Holder(1.25, 3, numbers["pose"])
    leaf = points.clone().requires_grad_()
    expected = looked(leaf, numbers, 2.0)
    (slope,) = torch.autograd.grad(expected.exp().sum(), leaf)
    for one in (struct, numbers, holder):
        y = op(leaf, one, 2.0)
        cases.assert_close(y, expected)
        cases.assert_close(torch.autograd.grad(y.exp().sum(), leaf)[0], slope)
        cases.assert_close(op(p=leaf, gain=2.0, camera=one), expected)


def learned(dtype):
    points, numbers = given(dtype)
    focal = torch.tensor(1.25, dtype=dtype, requires_grad=True)
    turn, shift = (torch.tensor(one, dtype=dtype, requires_grad=True) for one in numbers["pose"].values())

    def camera(focal, turn, shift):
        return {"focal": focal, "count": 3, "pose": {"turn": turn, "shift": shift}}

    return points, camera, (focal, turn, shift)


SPEC = "p[n, 3], camera_focal[], camera_pose_turn[3, 3], camera_pose_shift[3] -> y[n]"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_members_that_learn(lang, dtype):
    op = ts.op(SPEC)(looking(lang, dtype)[0])
    points, camera, leaves = learned(dtype)
    y, expected = op(points, camera(*leaves), 2.0), looked(points, camera(*leaves), 2.0)
    cases.assert_close(y, expected)
    both = (torch.autograd.grad((one / 9).exp().sum(), leaves) for one in (y, expected))
    cases.assert_close(*both)


@pytest.mark.compiled_engine
def test_transforms_and_graphs(lang64):
    op = ts.op(SPEC)(looking(lang64, torch.float64)[0])
    points, camera, leaves = learned(torch.float64)

    def run(*parts):
        return op(points, camera(*parts), 2.0)

    def run_in_torch(*parts):
        return looked(points, camera(*parts), 2.0)

    assert torch.autograd.gradcheck(run, leaves)
    assert torch.autograd.gradgradcheck(run, leaves)
    tangents = tuple(torch.rand_like(one) for one in leaves)
    for actual, wanted in zip(*(torch.func.jvp(f, leaves, tangents) for f in (run, run_in_torch)), strict=True):
        cases.assert_close(actual, wanted)
    many = tuple(torch.rand(4, *one.shape, dtype=torch.float64) + 0.5 for one in leaves)
    cases.assert_close(torch.func.vmap(run)(*many), torch.func.vmap(run_in_torch)(*many))
    cases.assert_close(torch.compile(run, backend="aot_eager", fullgraph=True)(*leaves), run_in_torch(*leaves))
    assert ts.gradcheck(op, points, camera(*(one.detach() for one in leaves)), 2.0)
    assert not [one for one in op.lint() if one.severity == "error"]


@pytest.mark.parametrize("other", ["taichi", "quadrants"])
def test_on_another_engine(lang64, other):
    op = ts.op(SPEC, engine=other)(looking(lang64, torch.float64)[0])
    points, camera, leaves = learned(torch.float64)
    cases.assert_close(op(points, camera(*leaves), 2.0), looked(points, camera(*leaves), 2.0))


def test_refusals(lang64):
    look, _, _ = looking(lang64, torch.float64)
    op = ts.op("p[n, 3] -> y[n]")(look)
    points, numbers = given(torch.float64)
    with pytest.raises(ts.ArgumentError, match="argument `camera` of op `look` has no `count`") as refusal:
        op(points, {"focal": 1.0}, 2.0)
    assert "focal, count, pose.turn, pose.shift" in str(refusal.value)
    with pytest.raises(ts.ArgumentError, match="`camera` of op `look` has no field `zoom`"):
        op(points, {**numbers, "zoom": 3}, 2.0)
    with pytest.raises(ts.ArgumentError, match="`camera.count` of op `look` must be an integer"):
        op(points, {**numbers, "count": 1.5}, 2.0)
    with pytest.raises(ts.ArgumentError, match="`camera.focal` of op `look` is a tensor"):
        op(points, {**numbers, "focal": torch.tensor(1.0)}, 2.0)
    with pytest.raises(ts.ArgumentError, match="too many arguments"):
        op(points, numbers, 2.0, 3.0)
    with pytest.raises(ts.ArgumentError, match="argument `camera.focal` of op `look` was given twice"):
        op(points, numbers, 2.0, camera_focal=1.0)


def test_kernels_that_are_refused(lang64):
    ray = lang64.types.struct(t=lang64.f64)

    @lang64.kernel
    def change(x: lang64.types.ndarray(), ray: ray, y: lang64.types.ndarray()):
        for i in x:
            ray.t += 1.0
            y[i] = ray.t

    words = r"kernel `change` cannot .*: the kernel assigns to `ray.t`, which belongs to the caller\n"
    with pytest.raises(ts.KernelError, match=words + r" +at +\S+test_structs.py:\d+\nChange a copy"):
        ts.op("x[n] -> y[n]")(change)

    @lang64.kernel
    def clash(x: lang64.types.ndarray(), ray_t: lang64.f64, ray: ray, y: lang64.types.ndarray()):
        for i in x:
            y[i] = ray.t * ray_t

    with pytest.raises(ts.KernelError, match="member `ray.t` of kernel `clash` has the name of another argument"):
        ts.op("x[n] -> y[n]")(clash)


@pytest.mark.compiled_engine
def test_loops_over_a_field_of_nested_structs(lang64):
    vec2 = lang64.types.vector(2, lang64.f64)
    segment = lang64.types.struct(direction=vec2, length=lang64.f64)
    entry = lang64.types.struct(segment=segment, weight=lang64.f64)
    held = entry.field(shape=6, needs_grad=True)
    x, y = (lang64.field(lang64.f64, 6, needs_grad=True) for _ in range(2))

    @lang64.kernel
    def fill():
        for i in held:
            held[i] = entry(1, 1.0)
            held[i].segment = segment(direction=vec2(x[i]), length=x[i] ** 2)
            held[i].segment.direction[0] *= 2

    @lang64.kernel
    def read():
        for i in held:
            one = held[i]
            y[i] = one.segment.direction.sum() * held[i].segment.length + held[i].weight

    def run():
        fill()
        read()

    value = torch.randn(6, dtype=torch.float64, requires_grad=True)
    result = ts.rollout(run, {"x": x}, {"y": y})(value)
    torch.testing.assert_close(result, 3.0 * value**3 + 1.0)
    (slope,) = torch.autograd.grad(result.sum(), value)
    torch.testing.assert_close(slope, 9.0 * value**2)
