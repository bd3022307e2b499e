"""Arrays of networks as people use them: other dtypes and modes, transforms, none of the networks, wrong arguments."""

import copy

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call
from torch.utils.flop_counter import FlopCounterMode

import tinsmith as ts
from tinsmith.nn import Loss, NetworkArray, Trainer
from tinsmith.nn.networks import _fused

pytestmark = pytest.mark.thinned(4)

SMALL = {"otype": "CutlassMLP", "n_neurons": 8, "n_hidden_layers": 2, "activation": "Tanh"}
TABLE = {"otype": "HashGrid", "n_levels": 2, "log2_hashmap_size": 6, "base_resolution": 4}
CLOSE = {"rtol": 1e-9, "atol": 1e-11}
F64 = torch.float64


def array(encoding=None, **named):
    return NetworkArray((2, 3), 3, 2, SMALL, encoding, **({"dtype": F64} | named))


def normal(*shape, seed=0, dtype=F64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def by_matrices(net):
    twin = copy.deepcopy(net)
    twin.way = "matrices"
    return twin


# Dtypes ------------------------------------------------------------------------------------------
@pytest.mark.costly
def test_double_of_a_single_one(engine):
    net = array(dtype=torch.float32, engine=engine).double()
    x = normal(2, 3, 5, 3)
    assert net.layout.shape.dtype == "f64"
    torch.testing.assert_close(net(x), by_matrices(net)(x), **CLOSE)
    assert net.loss(x, normal(2, 3, 5, 2)).dtype == F64


def test_weights_of_another_dtype_loaded_in_their_place():
    single, double = array(dtype=torch.float32), array()
    double.load_state_dict(single.state_dict(), assign=True)
    x = normal(2, 3, 5, 3, dtype=torch.float32)
    assert torch.equal(double(x), single(x))


@pytest.fixture
def double_by_default():
    torch.set_default_dtype(F64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.costly
def test_single_networks_where_torch_makes_doubles(double_by_default):
    net = array(TABLE, dtype=torch.float32)
    assert net(torch.rand(2, 3, 5, 3, dtype=torch.float32)).dtype == torch.float32


def test_a_seed_means_the_same_where_torch_makes_doubles(double_by_default):
    there = ts.nn.Network(3, 2, SMALL).params
    torch.set_default_dtype(torch.float32)
    assert torch.equal(ts.nn.Network(3, 2, SMALL).params, there)


# Modes and transforms ----------------------------------------------------------------------------
@pytest.mark.costly
@pytest.mark.parametrize("encoding", [None, TABLE])
def test_training_after_inference_mode(encoding):
    net, x = array(encoding), normal(2, 3, 17, 3).sigmoid()
    with torch.inference_mode():
        expected = net(x), net.loss(x, x[..., :2])
    results = net(x), net.loss(x, x[..., :2])
    for one, other in zip(results, expected, strict=True):
        torch.testing.assert_close(one, other, **CLOSE)
    torch.autograd.grad(results[0].sum() + results[1].sum(), list(net.parameters()))


@pytest.mark.costly
@pytest.mark.parametrize("way", ["auto", "fused"])
def test_plain_calls_after_a_transform(way):
    net, x = array(way=way), normal(2, 3, 23, 3)
    slope = torch.func.grad(lambda x: net(x).square().sum())(x)
    x.requires_grad_()
    torch.testing.assert_close(torch.autograd.grad(net(x).square().sum(), x)[0], slope, **CLOSE)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own forward mode uses it
def test_transforms_within_each_other_and_forward_mode():
    net, x = array(), normal(2, 3, 5, 3)

    def steepness(x, net):
        slopes = torch.func.grad(lambda p: functional_call(net, p, (x,)).square().sum())(dict(net.named_parameters()))
        return slopes["params"].square().sum()

    for function in (torch.func.grad(steepness), lambda x, net: torch.func.jvp(net, (x,), (x,))[1]):
        torch.testing.assert_close(function(x, net), function(x, by_matrices(net)), **CLOSE)


def test_the_gradient_of_a_loss_by_a_transform():
    net, x, goal = array(), normal(2, 3, 5, 3), normal(2, 3, 5, 2, seed=1)

    def loss(p):
        own = copy.copy(net)
        own._parameters = {"params": p}
        return own.loss(x, goal).sum()

    wanted = torch.autograd.grad(net.loss(x, goal).sum(), net.params)[0]
    torch.testing.assert_close(torch.func.grad(loss)(net.params.detach()), wanted, **CLOSE)


def test_the_second_derivative_of_a_loss_is_refused_not_left_out():
    net, x, goal = array(), normal(2, 3, 5, 3), normal(2, 3, 5, 2, seed=1)
    (slope,) = torch.autograd.grad(net.loss(x, goal).sum(), net.params, create_graph=True)
    with pytest.raises(ts.GradientError, match='way = "matrices"'):
        slope.square().sum().backward()


@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # torch's own forward mode uses it
def test_other_derivatives_of_outputs_are_refused_with_the_way_that_has_them():
    """Their kernels' backward is by hand, but not by the user's: to leave it out would help nobody."""
    net, x = array(way="fused"), normal(2, 3, 5, 3).requires_grad_()
    slopes = torch.autograd.grad(net(x).square().sum(), (x, net.params), create_graph=True)
    for slope in slopes:
        with pytest.raises(ts.GradientError, match='second derivative\n.*NetworkArray.*way = "matrices"') as refused:
            slope.square().sum().backward(retain_graph=True)
        assert "backward=" not in str(refused.value)
    with pytest.raises(ts.GradientError, match='way = "matrices"'):
        torch.func.jvp(net, (x.detach(),), (x.detach(),))
    net.way = "matrices"
    (slope,) = torch.autograd.grad(net(x).square().sum(), x, create_graph=True)
    slope.square().sum().backward()


@pytest.mark.parametrize("otype", ["L2", "SMAPE"])
def test_a_loss_is_differentiable_in_its_target_and_input(otype):
    net, goal = array(), normal(2, 3, 5, 2, seed=1).requires_grad_()
    x = normal(2, 3, 5, 3).requires_grad_()
    gradients = torch.autograd.grad(net.loss(x, goal, otype).sum(), (x, goal, net.params))
    losses = [Loss(otype)(y, t) for y, t in zip(net(x).flatten(0, 1), goal.flatten(0, 1), strict=True)]
    wanted = torch.autograd.grad(sum(losses), (x, goal, net.params))
    for one, other in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(one, other, **CLOSE)
    assert torch.equal(torch.autograd.grad(net.loss(x.detach(), goal, otype).sum(), goal)[0], gradients[1])


# None of them, and some --------------------------------------------------------------------------
@pytest.mark.thinned(1)
@pytest.mark.parametrize("encoding", [None, TABLE])
@pytest.mark.parametrize("at", [torch.zeros(2, 3, dtype=torch.bool), [], np.zeros((0, 2), int)])
def test_none_of_the_networks(at, encoding):
    net, x = array(encoding), normal(0, 5, 3)
    before = [one.detach().clone() for one in net.parameters()]
    assert net(x, at=at).shape == (0, 5, 2)
    assert net.loss(x, normal(0, 5, 2), at=at).shape == (0,)
    assert net.loss(x, normal(0, 5, 2), "Variance", at=at).shape == (0,)
    assert Trainer(net, None, "L2").training_step(x, normal(0, 5, 2), at=at).shape == (0,)
    assert all(torch.equal(*pair) for pair in zip(before, net.parameters(), strict=True))


def test_places_as_nonzero_gives_them():
    mask = np.array([[False, True, True], [False, False, False]])
    assert array().rows(np.nonzero(mask)).tolist() == [1, 2]
    assert array().rows(torch.where(torch.from_numpy(mask))).tolist() == [1, 2]


@pytest.mark.costly
def test_frozen_parameters_stay_while_selected_networks_learn():
    for frozen in ("params", "encoding.params"):
        net, x = array(TABLE), normal(2, 5, 3).sigmoid()
        net.get_parameter(frozen).requires_grad_(False)
        before = {name: one.detach().clone() for name, one in net.named_parameters()}
        Trainer(net, None, "L2").training_step(x, x[..., :2], at=[1, 2])
        assert [name for name, one in net.named_parameters() if torch.equal(one, before[name])] == [frozen]


def test_cells_of_any_integer_type():
    points, cells = normal(4, 3), torch.tensor([0, 5, 1, 0])
    for net in (array(), by_matrices(array()), array(TABLE)):
        for dtype in (torch.uint8, torch.int16, torch.int32, torch.uint16):
            assert torch.equal(net.route_points(points, cells.to(dtype)), net.route_points(points, cells))


# Wrong arguments ---------------------------------------------------------------------------------
@pytest.mark.thinned(1)
@pytest.mark.parametrize("at", ["all", {1, 2}, [(0, 1), (1,)], 3])
def test_invalid_cells_are_refused(at):
    with pytest.raises(ts.ArgumentError, match="`at` does not select cells"):
        array()(normal(2, 5, 3), at=at)


def test_other_objects_are_refused():
    with pytest.raises(ts.ArgumentError, match=r"torch\.as_tensor\(x, dtype="):
        array()(np.zeros((2, 3, 5, 3)))
    with pytest.raises(ts.ArgumentError, match=r"torch\.as_tensor\(cells\)"):
        array().route_points(normal(4, 3), [0, 1, 2, 3])


@pytest.mark.thinned(1)
@pytest.mark.parametrize(
    ("n_in", "n_out", "name"), [(0, 2, "n_input_dims"), (3, -1, "n_output_dims"), (2.0, 1, "n_in")]
)
def test_invalid_numbers_of_dims_are_refused(n_in, n_out, name):
    with pytest.raises(ts.ArgumentError, match=f"`{name}"):
        NetworkArray(3, n_in, n_out, SMALL)


def test_grids_of_numpy_and_of_nonsense():
    for given in (np.array([2, 3]), torch.Size([2, 3]), [np.int64(2), 3]):
        assert NetworkArray(given, 3, 2, SMALL).grid_shape == (2, 3)
    assert NetworkArray(np.int64(4), 3, 2, SMALL).grid_shape == (4,)
    for given in (True, "23", None, 2.5, (2, 0), ()):
        with pytest.raises(ts.ArgumentError, match="not the shape of a grid"):
            NetworkArray(given, 3, 2, SMALL)


# Compiled, and memory ----------------------------------------------------------------------------
@pytest.mark.parametrize("otype", ["L2", "Variance"])
def test_a_loss_compiled_in_one_graph(otype):
    net, x, goal = array(), normal(2, 3, 5, 3), normal(2, 3, 5, 2, seed=1)
    compiled = torch.compile(lambda: net.loss(x, goal, otype), fullgraph=True, backend="aot_eager")
    weights = normal(2, 3, seed=2)
    torch.testing.assert_close(compiled(), net.loss(x, goal, otype), **CLOSE)
    actual, wanted = (
        torch.autograd.grad(made, net.params, weights)[0] for made in (compiled(), net.loss(x, goal, otype))
    )
    torch.testing.assert_close(actual, wanted, **CLOSE)


def test_the_gradient_of_a_loss_is_there_once():
    net, x, goal = array(), normal(2, 3, 5, 3), normal(2, 3, 5, 2, seed=1)
    loss = net.loss(x, goal)
    kept = loss.grad_fn.next_functions[0][0].slopes[0].data_ptr()
    (gradient,) = torch.autograd.grad(loss, net.params, normal(2, 3, seed=2), retain_graph=True)
    assert gradient.data_ptr() == kept
    (again,) = torch.autograd.grad(loss, net.params, normal(2, 3, seed=2))
    assert torch.equal(gradient, again)
    assert gradient.data_ptr() != again.data_ptr()


def test_numbers_of_dims_of_numpy():
    assert NetworkArray(2, np.int64(3), 2, SMALL)(normal(2, 5, 3, dtype=torch.float32)).shape == (2, 5, 2)


# Gradients of several at once, modes, other defaults ----------------------------------------------
@pytest.mark.costly
@pytest.mark.parametrize("width", [4, 8])
def test_many_gradients_of_a_loss_at_once(engine, width):
    net = NetworkArray((2, 3), 3, 2, SMALL | {"n_neurons": width}, dtype=F64, engine=engine)
    compute_each = torch.eye(6, dtype=F64)

    def losses():
        return net.loss(normal(2, 3, 5, 3), normal(2, 3, 5, 2, seed=1)).flatten()

    def gradient(weights, of, **named):
        return torch.autograd.grad(of, net.params, weights, retain_graph=True, **named)[0]

    wanted = torch.stack([gradient(weights, losses()) for weights in compute_each])
    older, newer = losses(), losses()
    for _ in range(2):  # the second goes back without what the forward pass kept
        torch.testing.assert_close(gradient(compute_each, older, is_grads_batched=True), wanted, **CLOSE)
        torch.testing.assert_close(
            torch.func.vmap(lambda weights: gradient(weights, newer))(compute_each), wanted, **CLOSE
        )


def test_plain_calls_after_fake_tensors(engine):
    net, x = array(engine=engine), normal(2, 3, 29, 3)
    with FakeTensorMode(allow_non_fake_inputs=True):
        net(torch.zeros(2, 3, 29, 3, dtype=F64))
    y = net(x)
    assert type(y) is torch.Tensor
    torch.testing.assert_close(y, by_matrices(net)(x), **CLOSE)


@pytest.mark.costly
def test_scattered_points_under_transforms_whatever_the_way(engine):
    net, points, cells = array(engine=engine, way="fused"), normal(4, 9, 3), torch.randint(0, 6, (9,))
    each = torch.stack([net.route_points(one, cells) for one in points])
    torch.testing.assert_close(torch.func.vmap(lambda one: net.route_points(one, cells))(points), each, **CLOSE)
    slope = torch.func.grad(lambda one: net.route_points(one, cells).square().sum())(points[0])
    one = points[0].requires_grad_()
    torch.testing.assert_close(slope, torch.autograd.grad(net.route_points(one, cells).square().sum(), one)[0], **CLOSE)


def test_scattered_points_where_torch_makes_halves(engine):
    net = array(engine=engine)
    points, cells = normal(70_000, 3), torch.randint(0, 6, (70_000,))
    wanted = net.route_points(points, cells)
    torch.set_default_dtype(torch.float16)
    try:
        assert torch.equal(net.route_points(points, cells), wanted)
    finally:
        torch.set_default_dtype(torch.float32)


def test_cells_named_by_numpys_short_integers():
    assert array().rows(np.array([5, 2], np.uint16)).tolist() == [5, 2]


def test_the_old_name_of_route_points_warns():
    with pytest.warns(DeprecationWarning, match="route_points"), pytest.raises(ts.TinsmithError):
        array().routed(normal(4, 3), [0, 1, 2, 3])


@pytest.mark.parametrize("call", ["forward", "inputs", pytest.param("loss", marks=pytest.mark.costly)])
def test_operations_are_counted_like_those_of_matrix_products(engine, call, monkeypatch):
    monkeypatch.setattr(_fused, "_OPS", {})  # a first call, which makes the op while torch counts
    counts = []
    x, target = torch.rand(3, 5, 2, requires_grad=call == "inputs"), torch.rand(3, 5, 3)
    for way in ("fused", "fused", "matrices"):
        net = ts.nn.NetworkArray((3,), 2, 3, {"n_neurons": 8, "n_hidden_layers": 1}, engine=engine, way=way)
        with FlopCounterMode(display=False) as forward:
            y = net.loss(x, target) if call == "loss" else net(x)
        with FlopCounterMode(display=False) as backward:
            y.sum().backward()
        counts.append((forward.get_total_flops(), backward.get_total_flops()))
        assert not y._is_view()
    products = 2 * 15 * (2 * 8 + 8 * 3)
    assert counts[2][0] == products
    # A loss has its gradient from the same launch.
    expected = (sum(counts[2]), 0) if call == "loss" else counts[2]
    assert counts[:2] == [expected, expected]
