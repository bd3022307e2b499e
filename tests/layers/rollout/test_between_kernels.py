"""What the function of a rollout does between its kernels: it comes in order, or is refused with its line."""

import numpy as np
import pytest
import torch

import tinsmith as ts

N = 4


class Scene:
    """Kernels that add multiples of `x` to `y`, by what Python wrote into fields."""

    def __init__(self, lang):  # noqa: C901  # kernels are functions inside
        self.lang = lang
        real = lang.f64
        self.kind = lang.types.struct(pos=real, vel=lang.types.vector(2, real))
        x, y, z = self.x, self.y, self.z = [lang.field(real, N, needs_grad=True) for _ in range(3)]
        k = self.k = lang.field(lang.i32, N)
        vec = self.vec = lang.Vector.field(2, real, N)
        frames = self.frames = lang.field(real, (5, N))
        part, self.other = (self.kind.field(shape=N, needs_grad=True) for _ in range(2))
        self.part = part

        @lang.kernel
        def add(by: lang.f64):
            for i in x:
                y[i] += by * x[i]

        @lang.kernel
        def add_z():
            for i in x:
                y[i] += z[i] * x[i]

        @lang.kernel
        def add_k():
            for i in x:
                y[i] += k[i] * x[i]

        @lang.kernel
        def add_vec():
            for i in x:
                y[i] += (vec[i][0] + vec[i][1]) * x[i]

        @lang.kernel
        def add_part():
            for i in x:
                y[i] += (part[i].pos + part[i].vel[1]) * x[i]

        @lang.kernel
        def add_array(by: lang.types.ndarray(dtype=lang.f64, ndim=1)):
            for i in x:
                y[i] += by[i] * x[i]

        @lang.kernel
        def substep(f: lang.i32):
            for i in x:
                frames[f + 1, i] = 2.0 * frames[f, i] + x[i]

        @lang.kernel
        def show(f: lang.i32):
            for i in x:
                y[i] = frames[f, i]

        self.add, self.add_z, self.add_k, self.add_vec, self.add_part = add, add_z, add_k, add_vec, add_part
        self.add_array, self.substep, self.show = add_array, substep, show

    def contents(self):
        held = (self.x, self.y, self.z, self.k, self.vec, self.frames, self.part.pos, self.part.vel)
        return [one.to_torch() for one in held]


def whole(value):
    return torch.full((N,), value, dtype=torch.float64)


def by_a_counter(scene):
    for s in range(6):
        if s % 2 == 0:
            scene.add(1.0 * s)


def numbers_of_numpy(scene):
    scene.add(np.float32(2.0))
    scene.add(np.int64(3))
    scene.add(by=torch.tensor(1.0).item())


def without_gradients_of_torch(scene):
    with torch.no_grad():
        scene.add(6.0)


def prints_and_synchronizes(scene):
    print(scene.y.shape, scene.y.dtype)  # noqa: T201  # what a simulator's author may do
    scene.add(2.0)
    scene.lang.sync()
    scene.add(4.0)


def fills(scene):
    scene.z.fill(6.0)
    scene.add_z()
    scene.z.fill(9.0)


def copies(scene):
    scene.add(6.0)
    scene.z.copy_from(scene.y)
    scene.y.fill(0.0)
    scene.frames.fill(0.0)
    scene.add_z()


def structs(scene):
    scene.other.pos.fill(2.0)
    scene.other.vel.fill(4.0)
    scene.part.copy_from(scene.other)
    scene.add_part()


def whole_structs(scene):
    scene.part.fill(3.0)
    scene.add_part()


def structs_of_torch(scene):
    scene.part.from_torch({"pos": whole(2.0), "vel": torch.full((N, 2), 4.0, dtype=torch.float64)})
    scene.add_part()


def members(scene):
    for i in range(N):
        scene.part.pos[i] = 2.0
        scene.part.vel[i] = [1.0, 4.0]
    scene.add_part()


def tensors_that_change_later(scene):
    values = whole(6.0)
    scene.z.from_torch(values)
    values.fill_(9.0)
    scene.add_z()


def arrays_that_change_later(scene):
    values = np.full(N, 6.0)
    scene.z.from_numpy(values)
    values[:] = 9.0
    scene.add_z()


def array_arguments_that_change(scene):
    values = np.zeros(N)
    for s in range(4):
        values[:] = s
        scene.add_array(values)


def tensor_arguments_that_change(scene):
    values = whole(0.0)
    for s in range(4):
        values.fill_(s)
        scene.add_array(values)


def elements(scene):
    for i in range(N):
        scene.vec[i] = [2.0, 4.0]
    scene.add_vec()


def integers_that_are_read(scene):
    scene.k.fill(4)
    for i in range(N):
        scene.k[i] += 2
    scene.add_k()


def sums_of_integers(scene):
    scene.k.fill(1)
    scene.add_k()
    scene.add(1.0 + float(scene.k.to_numpy().sum()))


def gradients_that_are_cleared(scene):
    scene.z.grad.fill(0.0)
    scene.part.grad.fill(0.0)
    scene.add(6.0)


RIGHT = [
    by_a_counter,
    numbers_of_numpy,
    without_gradients_of_torch,
    prints_and_synchronizes,
    fills,
    structs,
    whole_structs,
    structs_of_torch,
    members,
    tensors_that_change_later,
    arrays_that_change_later,
    array_arguments_that_change,
    tensor_arguments_that_change,
    elements,
    integers_that_are_read,
    sums_of_integers,
    gradients_that_are_cleared,
]


@pytest.mark.parametrize("body", RIGHT, ids=lambda body: getattr(body, "__name__", None))
def test_operations_between_kernels_run_in_order(lang64, body):
    scene = Scene(lang64)

    def forward():
        scene.y.fill(0.0)
        body(scene)

    run, x = ts.rollout(forward, {"x": scene.x}, {"y": scene.y}), torch.rand(N, dtype=torch.float64).requires_grad_()
    for _ in range(2):
        y = run(x)
        torch.testing.assert_close(y, 6.0 * x)
        torch.testing.assert_close(torch.autograd.grad(y.sum(), x)[0], whole(6.0))


def test_a_field_that_is_copied_passes_its_gradient_on(lang64):
    scene = Scene(lang64)

    def forward():
        scene.y.fill(0.0)
        copies(scene)

    x = torch.rand(N, dtype=torch.float64).requires_grad_()
    y = ts.rollout(forward, {"x": scene.x}, {"y": scene.y})(x)
    torch.testing.assert_close(y, 6.0 * x * x)
    torch.testing.assert_close(torch.autograd.grad(y.sum(), x)[0], 12.0 * x)


def test_fields_of_substeps(lang64):
    scene = Scene(lang64)

    def forward():
        for i in range(N):
            scene.frames[0, i] = 0.0
        for f in range(4):
            scene.substep(f)
        scene.show(4)

    x = torch.rand(N, dtype=torch.float64).requires_grad_()
    y = ts.rollout(forward, {"x": scene.x}, {"y": scene.y})(x)
    torch.testing.assert_close(y, 15.0 * x)
    torch.testing.assert_close(torch.autograd.grad(y.sum(), x)[0], whole(15.0))


def reads_an_array(scene):
    scene.y.to_numpy()


def reads_a_tensor(scene):
    scene.vec.to_torch()


def reads_structs(scene):
    scene.part.to_numpy()


def prints_a_field(scene):
    str(scene.y)


def updates_an_element(scene):
    scene.z[0] += 1.0


def writes_an_entry(scene):
    scene.vec[0][1] = 1.0


def writes_a_member_of_an_element(scene):
    scene.part[0].pos = 1.0


def writes_a_tensor_with_a_gradient(scene):
    scene.z.from_torch(whole(1.0).requires_grad_())


REFUSED = {
    reads_an_array: "reads a field from Python",
    reads_a_tensor: "reads a field from Python",
    reads_structs: "reads a field from Python",
    prints_a_field: "reads a field from Python",
    updates_an_element: "reads a field from Python",
    writes_an_entry: "reads a field from Python",
    writes_a_member_of_an_element: "by `part.pos[i] = ...`",
    writes_a_tensor_with_a_gradient: "Name the field among the rollout's inputs",
}


@pytest.mark.parametrize("body", REFUSED, ids=lambda body: body.__name__)
def test_refused_operations_name_their_line_and_change_nothing(lang64, body):
    scene = Scene(lang64)
    scene.y.fill(3.0)

    def forward():
        scene.y.fill(0.0)
        scene.add(1.0)
        body(scene)

    before = scene.contents()
    with pytest.raises(ts.TinsmithError) as caught:
        ts.rollout(forward, {"x": scene.x}, {"y": scene.y})(torch.rand(N, dtype=torch.float64))
    assert REFUSED[body] in str(caught.value)
    assert f"{__file__}:{body.__code__.co_firstlineno + 1}" in str(caught.value)
    assert all(torch.equal(now, then) for now, then in zip(scene.contents(), before, strict=True))
    # Nobody listens any more.
    scene.add(1.0)
    torch.testing.assert_close(scene.y.to_torch(), 3.0 + scene.x.to_torch())
