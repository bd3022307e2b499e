"""FieldManagers as people write them for Stannum's Tube: sparse, partly filled, of vectors, keeping notes."""

import pytest
import torch

from support.dropin import assert_agree, make_leaf, side_by_side

pytestmark = [pytest.mark.thinned(6), side_by_side]

F64 = torch.float64


def base(layers):
    class ByTorch(layers.FieldManager):
        """Values go to and from the field as torch tensors; where it is placed is another's business."""

        def to_tensor(self, field):
            return field.to_torch()

        def grad_to_tensor(self, grad_field):
            return grad_field.to_torch()

        def from_tensor(self, field, tensor):
            field.from_torch(tensor)

        def grad_from_tensor(self, grad_field, tensor):
            grad_field.from_torch(tensor)

    return ByTorch


def placed_in(layers, lang, node):
    """Make a manager whose fields `node(builder, shape)` places."""

    class Placed(base(layers)):
        def construct_field(self, fields_builder, concrete_tensor_shape, needs_grad):
            made = lang.field(lang.f64, needs_grad=needs_grad)
            members = (made, made.grad) if needs_grad else (made,)
            node(fields_builder, concrete_tensor_shape).place(*members)
            return made

    return Placed


def scaled(lang):
    @lang.kernel
    def scaled(x: lang.template(), y: lang.template()):
        for i in y:
            y[i] = 3.0 * x[i] * x[i]

    return scaled


def tube_of(layers, lang, manager, kernel=scaled, **managers):
    n = layers.MatchDim("n")
    tube = layers.Tube().register_input_tensor((n,), F64, "x", field_manager=manager)
    tube = tube.register_output_tensor((n,), F64, "y", True, **managers)
    return tube.register_kernel(kernel(lang), ["x", "y"]).finish()


@pytest.mark.compiled_engine
@pytest.mark.parametrize("kind", ["pointer", "bitmasked"])
def test_sparse_fields(layers, lang64, kind):
    def node(builder, shape):
        return getattr(builder, kind)(lang64.i, shape[0] // 2).dense(lang64.i, 2)

    class Sparse(placed_in(layers, lang64, node)):
        def from_tensor(self, field, tensor):
            for place, value in enumerate(tensor.tolist()):
                field[place] = value  # activates

    tube = tube_of(layers, lang64, Sparse())
    for size in (4, 6, 4):
        x = make_leaf(size)
        assert_agree(tube(x), 3 * x**2, [x])


def test_a_field_begins_each_call_at_zero(layers, lang64):
    """A manager may write some elements and leave the others."""

    class Partly(placed_in(layers, lang64, lambda builder, shape: builder.dense(lang64.i, shape))):
        def from_tensor(self, field, tensor):
            for place, value in enumerate(tensor.tolist()):
                if value > 0:
                    field[place] = value

    tube = tube_of(layers, lang64, Partly())
    for x in (torch.tensor([1.0, 2.0, 3.0], dtype=F64), torch.tensor([-1.0, 5.0, -1.0], dtype=F64)):
        torch.testing.assert_close(tube(x), 3 * x.relu() ** 2)


@pytest.mark.compiled_engine
def test_activated_cells_do_not_survive_a_call(layers, lang64):
    class Active(placed_in(layers, lang64, lambda builder, shape: builder.pointer(lang64.i, shape))):
        def from_tensor(self, field, tensor):
            for place, value in enumerate(tensor.tolist()):
                if value > 0:
                    field[place] = value

    def ones(lang):
        @lang.kernel
        def ones(x: lang.template(), y: lang.template()):
            for i in x:
                y[i] = 1.0

        return ones

    tube = tube_of(layers, lang64, Active(), ones)
    for x in (torch.tensor([1.0, 2.0, -3.0], dtype=F64), torch.tensor([-1.0, 5.0, 2.0], dtype=F64)):
        assert tube(x).tolist() == (x > 0).double().tolist()


def test_a_manager_of_vectors(layers, lang64):
    """A tensor's last dim becomes the field's elements."""

    class Vectors(base(layers)):
        def construct_field(self, fields_builder, concrete_tensor_shape, needs_grad):
            *shape, n = concrete_tensor_shape
            made = lang64.Vector.field(n, lang64.f64, needs_grad=needs_grad)
            members = (made, made.grad) if needs_grad else (made,)
            fields_builder.dense(lang64.i, shape).place(*members)
            return made

    @lang64.kernel
    def norms(x: lang64.template(), y: lang64.template()):
        for i in x:
            y[i] = x[i].dot(x[i])

    tube = layers.Tube().register_input_tensor((layers.MatchDim("n"), 3), F64, "x", field_manager=Vectors())
    tube = tube.register_output_tensor((layers.MatchDim("n"),), F64, "y", True)
    tube, x = tube.register_kernel(norms, ["x", "y"]).finish(), make_leaf(4, 3)
    assert_agree(tube(x), (x**2).sum(1), [x])


def test_managers_receive_the_shape_and_needs_grad(layers, lang64):
    calls = []

    class Noting(placed_in(layers, lang64, lambda builder, shape: builder.dense(lang64.i, shape))):
        def construct_field(self, fields_builder, concrete_tensor_shape, needs_grad):
            calls.append((tuple(concrete_tensor_shape), needs_grad))
            return super().construct_field(fields_builder, concrete_tensor_shape, needs_grad)

    tube = tube_of(layers, lang64, Noting())
    x = make_leaf(3)
    assert_agree(tube(x), 3 * x**2, [x])
    assert ((3,), True) in calls


def test_batched_outputs_and_intermediates_with_managers(layers, lang64):
    manager = placed_in(layers, lang64, lambda builder, shape: builder.dense(lang64.i, shape))
    batch, kernel = (layers.BatchDim, layers.MatchDim("n")), scaled(lang64)
    tube = layers.Tube().register_input_tensor(batch, F64, "x")
    tube = tube.register_intermediate_field(batch, lang64.f64, "s", True, field_manager=manager())
    tube = tube.register_output_tensor(batch, F64, "y", True, field_manager=manager())
    tube = tube.register_kernel(kernel, ["x", "s"]).register_kernel(kernel, ["s", "y"], name="again").finish()
    for shape in ((2, 3), (3, 2)):
        x = make_leaf(*shape)
        assert_agree(tube(x), 27 * x**4, [x])


def test_two_calls_before_one_backward(layers, lang64):
    tube = tube_of(layers, lang64, placed_in(layers, lang64, lambda builder, shape: builder.dense(lang64.i, shape))())
    first, second = make_leaf(3), make_leaf(3)
    assert_agree(tube(first) * tube(second), 9 * first**2 * second**2, [first, second])


def test_a_manager_of_a_single_number(layers, lang64):
    class Single(base(layers)):
        def construct_field(self, fields_builder, concrete_tensor_shape, needs_grad):
            made = lang64.field(lang64.f64, needs_grad=needs_grad)
            fields_builder.place(made, made.grad) if needs_grad else fields_builder.place(made)
            return made

    @lang64.kernel
    def squared(x: lang64.template(), y: lang64.template()):
        y[None] = x[None] * x[None]

    tube = layers.Tube().register_input_tensor((), F64, "x", field_manager=Single())
    tube = tube.register_output_tensor((), F64, "y", True).register_kernel(squared, ["x", "y"]).finish()
    x = make_leaf()
    assert_agree(tube(x), x**2, [x])


# Layouts of Stannum's manual ----------------------------------------------------------------------
def blocks(layers, lang):
    """Return nested blocks of two."""
    return placed_in(layers, lang, lambda builder, shape: builder.dense(lang.i, shape[0] // 2).dense(lang.i, 2))()


@pytest.mark.parametrize("persistent", [True, False], ids=["persistent", "eager"])
def test_a_field_manager_lays_fields_out(layers, lang64, persistent):
    inside, n, kernel = blocks(layers, lang64), layers.MatchDim("n"), scaled(lang64)
    tube = layers.Tube(persistent_field=persistent).register_input_tensor((n,), F64, "x", field_manager=inside)
    tube = tube.register_intermediate_field((n,), lang64.f64, "between", True, field_manager=inside)
    tube = tube.register_output_tensor((n,), F64, "y", True, field_manager=inside)
    tube = tube.register_kernel(kernel, ["x", "between"], name="a").register_kernel(kernel, ["between", "y"]).finish()
    for size in (4, 2):
        x = make_leaf(size)
        assert_agree(tube(x), 27 * x**4, [x])


def test_a_field_manager_may_make_a_field_of_another_shape(layers, lang64):
    class Padded(placed_in(layers, lang64, lambda builder, shape: builder.dense(lang64.i, shape[0] + 2))):
        """A zero before the first element and one behind the last."""

        def grad_to_tensor(self, grad_field):
            return grad_field.to_torch()[1:-1]

        def from_tensor(self, field, tensor):
            field.from_torch(torch.nn.functional.pad(tensor, (1, 1)))

    def smoothed(lang):
        @lang.kernel
        def smoothed(x: lang.template(), y: lang.template()):
            for i in y:
                y[i] = x[i] + 2.0 * x[i + 1] + x[i + 2]

        return smoothed

    tube, x = tube_of(layers, lang64, Padded(), smoothed), make_leaf(4)
    padded = torch.nn.functional.pad(x, (1, 1))
    assert_agree(tube(x), padded[:-2] + 2 * padded[1:-1] + padded[2:], [x])


def test_a_batch_with_a_field_manager(layers, lang64):
    @lang64.kernel
    def weighed(w: lang64.template(), x: lang64.template(), y: lang64.template()):
        for i in x:
            y[i] = w[i] * x[i] + 2.0

    batch = (layers.BatchDim, 4)
    tube = layers.Tube().register_input_tensor(batch, F64, "x", field_manager=blocks(layers, lang64))
    tube = tube.register_input_tensor((4,), F64, "w").register_output_tensor(batch, F64, "y", True)
    tube = tube.register_kernel(weighed, ["w", "x", "y"]).finish()
    x, w = make_leaf(2, 4), make_leaf(4)
    assert_agree(tube(x, w), w * x + 2, [x, w])
