"""Arrays of networks: the kernels against plain torch, and that networks know nothing of each other."""

import copy
import pickle

import pytest
import torch

import tinsmith as ts
from tinsmith.nn import Loss, NetworkArray
from tinsmith.nn._activations import apply

pytestmark = pytest.mark.thinned(6)

CLOSE = {"rtol": 1e-9, "atol": 1e-11}
ACTIVATIONS = ["ReLU", "LeakyReLU", "SiLU", "Exponential", "Sine", "Sigmoid", "Squareplus", "Softplus", "Tanh", "None"]
# (width, hidden layers, outputs, biases): rows of one vector, of two, wider than the networks, of a single neuron.
SHAPES = [(8, 2, 3, True), (16, 3, 1, False), (5, 3, 7, True), (1, 1, 2, True), (12, 2, 3, False), (4, 4, 9, True)]
# More outputs than a row has, and than a vector: in parts, the last one not full.
SHAPES += [(16, 2, 20, True), (8, 2, 19, False)]
# Those whose samples stand in the lanes of a vector.
NARROW = [(4, 2, 3, True), (6, 1, 2, False), (3, 3, 5, True), (1, 2, 1, True)]


@pytest.fixture(autouse=True)
def _poisoned(configure):
    """Fill the kernels' memory with NaN instead of zeros, so that what they leave out shows."""
    configure(poison="1")


def array(engine, width=8, hidden=2, n_out=3, biases=True, act="ReLU", out="None", **named):
    config = {
        "otype": "CutlassMLP",
        "n_neurons": width,
        "n_hidden_layers": hidden,
        "activation": act,
        "output_activation": out,
    }
    named = {"dtype": torch.float64, "way": "fused"} | named
    net = NetworkArray((2, 3), 3, n_out, config, biases=biases, engine=engine, **named)
    with torch.no_grad():
        net.params.add_(0.1 * torch.randn(net.params.shape, generator=seeded(1), dtype=net.params.dtype))
    return net


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=seeded(seed), dtype=dtype)


def by_hand(net, x):
    """Evaluate each network by itself, layer by layer: [cell, batch, n_in] to [cell, batch, n_out]."""
    layers = net.layers()
    act, out = net.config.options["activation"], net.config.options["output_activation"]
    outputs = []
    for cell, a in enumerate(x):
        for number, (weights, biases) in enumerate(layers):
            a = a @ weights[cell]
            a = a if biases is None else a + biases[cell]
            a = apply(out if number == len(layers) - 1 else act, a)
        outputs.append(a)
    return torch.stack(outputs)


def assert_same(net, batch=7):
    x = normal(2, 3, batch, 3).requires_grad_()
    cotangent = normal(2, 3, batch, net.n_output_dims, seed=5)
    ours, true = net(x), by_hand(net, x.reshape(6, batch, 3)).reshape(2, 3, batch, -1)
    torch.testing.assert_close(ours, true, **CLOSE)
    wanted = torch.autograd.grad(true, (x, net.params), cotangent)
    for one, other in zip(torch.autograd.grad(ours, (x, net.params), cotangent), wanted, strict=True):
        torch.testing.assert_close(one, other, **CLOSE)


@pytest.mark.thinned(9)
@pytest.mark.parametrize(("width", "hidden", "n_out", "biases"), SHAPES)
def test_shapes(engine, width, hidden, n_out, biases):
    assert_same(array(engine, width, hidden, n_out, biases), batch=19)


@pytest.mark.parametrize(("width", "hidden", "n_out", "biases"), NARROW)
def test_narrow_shapes(engine, width, hidden, n_out, biases):
    net = array(engine, width, hidden, n_out, biases)
    assert net.layout.whole.by_sample
    assert_same(net)


def test_wide_networks_are_parallel_over_neurons(engine):
    assert not any(array(engine, width, 2).layout.whole.by_sample for width in (8, 16))


def test_no_hidden_layer(engine):
    assert_same(array(engine, hidden=0, n_out=5))


@pytest.mark.thinned(9)
@pytest.mark.parametrize("act", ACTIVATIONS)
def test_activations(engine, act):
    assert_same(array(engine, act=act, out=ACTIVATIONS[ACTIVATIONS.index(act) - 1]))


@pytest.mark.thinned(3)
@pytest.mark.parametrize("act", ["ReLU", "SiLU", "Sine"])
def test_narrow_activations(engine, act):
    out = ACTIVATIONS[ACTIVATIONS.index(act) - 1]
    assert_same(array(engine, width=4, hidden=1, act=act, out=out), batch=9)


@pytest.mark.parametrize("batch", [1, 2, 3, 4, 5, 8, 16, 17, 35])
def test_batches_of_any_size(engine, batch):
    assert_same(array(engine), batch)


@pytest.mark.parametrize("batch", [1, 7, 8, 9, 17])
def test_narrow_batches_of_any_size(engine, batch):
    assert_same(array(engine, width=4), batch)


@pytest.mark.costly
def test_hidden_layers_keep_their_activations_apart(engine):
    """The Taichi project tinn has one buffer for all hidden layers: with more than one its gradients are wrong."""
    net = array(engine, hidden=4, act="Tanh")
    assert_same(net)
    x, cotangent = normal(2, 3, 7, 3), normal(2, 3, 7, 3, seed=5)
    (right,) = torch.autograd.grad(net(x), net.params, cotangent)
    weights = [one.detach() for one, _ in net.layout.layers(right)]
    assert all(one.abs().max() > 1e-6 for one in weights)
    assert torch.autograd.gradcheck(lambda p: torch.func.functional_call(net, {"params": p}, (x,)), net.params)


@pytest.mark.costly
@pytest.mark.parametrize("width", [4, 16])
def test_nan_inputs_give_nan_outputs(engine, width):
    """As in torch: a maximum of NaN and zero would be zero, and a training that went wrong look as if it had not."""
    net = array(engine, width, out="ReLU", dtype=torch.float32)
    x = normal(2, 3, 7, 3, dtype=torch.float32)
    x[0, 1, 2, 0] = torch.nan
    x.requires_grad_()
    shown = {}
    for way in ("fused", "matrices"):
        net.way = way
        y = net(x)
        shown[way] = [one.isnan() for one in (y, *torch.autograd.grad(y.sum(), (x, net.params)))]
    assert all(torch.equal(*pair) for pair in zip(*shown.values(), strict=True))
    y, _, params = shown["fused"]
    assert int(y.sum()) == 3 and bool(params[1].any()) and not bool(params[0].any())
    losses = net.loss(x.detach(), normal(2, 3, 7, 3, dtype=torch.float32))
    assert losses.isnan().nonzero().tolist() == [[0, 1]]


@pytest.mark.costly
def test_single_precision(engine):
    net = array(engine, width=16, hidden=3, act="SiLU", dtype=torch.float32)
    x = normal(2, 3, 9, 3, dtype=torch.float32).requires_grad_()
    cotangent = normal(2, 3, 9, 3, seed=5, dtype=torch.float32)
    twin = copy.deepcopy(net).double()
    true = by_hand(twin, x.double().reshape(6, 9, 3)).reshape(2, 3, 9, 3)
    wanted = torch.autograd.grad(true, (x, twin.params), cotangent.double())
    gradients = torch.autograd.grad(net(x), (x, net.params), cotangent)
    for one, other in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(one.double(), other.double(), rtol=1e-4, atol=1e-5)


@pytest.mark.thinned(16)
@pytest.mark.parametrize("otype", ["L1", "L2", "RelativeL1", "RelativeL2", "MAPE", "SMAPE", "CrossEntropy", "Variance"])
@pytest.mark.parametrize(("width", "batch"), [(4, 6), (8, 18)])
def test_losses(engine, otype, width, batch):
    net = array(engine, width, out="Sigmoid")
    x, target = normal(2, 3, batch, 3), normal(2, 3, batch, 3, seed=7).abs()
    weights = normal(2, 3, seed=8)
    ours = net.loss(x, target, otype)
    y = by_hand(net, x.reshape(6, batch, 3))
    true = torch.stack([Loss(otype)(one, goal) for one, goal in zip(y, target.reshape(6, batch, 3), strict=True)])
    torch.testing.assert_close(ours, true.reshape(2, 3), **CLOSE)
    (wanted,) = torch.autograd.grad(true.reshape(2, 3), net.params, weights)
    torch.testing.assert_close(torch.autograd.grad(ours, net.params, weights)[0], wanted, **CLOSE)


@pytest.mark.costly
def test_a_loss_that_is_not_finite_where_no_output_is(engine):
    """Kernels fill a vector up with outputs that are 0: log 0 must not come to the others."""
    config = {"otype": "CutlassMLP", "n_neurons": 8, "n_hidden_layers": 2}
    net = NetworkArray((2, 3), 3, 3, config, engine=engine, dtype=torch.float64, way="fused")
    with torch.no_grad():
        net.params.abs_()
    x, target = normal(2, 3, 6, 3).abs(), normal(2, 3, 6, 3, seed=7).abs()
    loss = net.loss(x, target, "CrossEntropy")
    true = Loss("CrossEntropy")(by_hand(net, x.reshape(6, 6, 3)), target.reshape(6, 6, 3))
    torch.testing.assert_close(loss.mean(), true, **CLOSE)
    grads = torch.autograd.grad(loss.mean(), net.params)[0], torch.autograd.grad(true, net.params)[0]
    torch.testing.assert_close(*grads, **CLOSE)


def test_a_loss_can_be_differentiated_twice_with_retain_graph(engine):
    net = array(engine)
    loss = net.loss(normal(2, 3, 6, 3), normal(2, 3, 6, 3, seed=7)).sum()
    (first,) = torch.autograd.grad(loss, net.params, retain_graph=True)
    (second,) = torch.autograd.grad(loss, net.params)
    assert torch.equal(first, second)


def test_networks_are_independent_of_each_other(engine):
    net = array(engine)
    x = normal(2, 3, 6, 3)
    other = x.clone()
    other[1, 2] += 1.0
    changed = (net(x) != net(other)).flatten(2).any(2)
    assert changed.tolist() == [[False, False, False], [False, False, True]]


# A few of them ---------------------------------------------------------------------------------
AT = {
    "a mask": torch.tensor([[False, True, False], [False, False, True]]),
    "indices": [1, 5],
    "places": [[0, 1], [1, 2]],
}


@pytest.mark.costly
@pytest.mark.parametrize("at", AT.values(), ids=AT.keys())
def test_selected_networks_are_evaluated(engine, at):
    net = array(engine)
    x = normal(2, 3, 6, 3)
    few = x.reshape(6, 6, 3)[[1, 5]]
    torch.testing.assert_close(net(few, at), net(x).reshape(6, 6, 3)[[1, 5]], **CLOSE)
    (gradient,) = torch.autograd.grad(net.loss(few, torch.zeros_like(few), at=at).sum(), net.params)
    assert gradient.flatten(1).abs().amax(1).nonzero().flatten().tolist() == [1, 5]
    part = net.part(at)
    assert torch.equal(part.params, net.params[[1, 5]])
    torch.testing.assert_close(part(few), net(few, at))


def test_training_selected_networks_leaves_the_others_unchanged(engine):
    net = array(engine)
    optimizer = ts.nn.RowOptimizer(net.parameters(), {"otype": "Adam"})
    x, target = normal(2, 3, 6, 3), normal(2, 3, 6, 3, seed=7)
    for rows in ([0, 1, 2, 3, 4, 5], [1, 5], [5]):
        before = net.params.detach().clone()
        few, goal = x.reshape(6, 6, 3)[rows], target.reshape(6, 6, 3)[rows]
        part = net.part(rows)
        (gradient,) = torch.autograd.grad(part.loss(few, goal).sum(), part.params)
        optimizer.step(rows=rows, gradients=[gradient])
        moved = (net.params != before).flatten(1).any(1).nonzero().flatten().tolist()
        assert moved == rows


REFUSED = {
    "a mask of another shape": (torch.ones(3, 2, dtype=torch.bool), "does not have the shape of the grid"),
    "outside": ([6], r"a cell outside the grid[\s\S]*Count cells from 0 to 5"),
    "negative": ([-1], "a cell outside the grid"),
    "twice": ([1, 1], "a cell twice"),
    "no indices": (torch.rand(2), "does not select cells"),
}


@pytest.mark.parametrize(("at", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_choices(engine, at, words):
    with pytest.raises(ts.ArgumentError, match=words):
        array(engine).rows(at)


# Scattered points ------------------------------------------------------------------------------
def test_scattered_points(engine):
    net = array(engine)
    points = normal(50, 3).requires_grad_()
    cells = torch.randint(0, 6, (50,), generator=seeded(3))
    cells[cells == 2] = 4  # nobody asks for one of them
    cotangent = normal(50, 3, seed=5)
    ours = net.route_points(points, cells)
    true = by_hand(net, points.expand(6, 50, 3))[cells, torch.arange(50)]
    torch.testing.assert_close(ours, true, **CLOSE)
    wanted = torch.autograd.grad(true, (points, net.params), cotangent)
    for one, other in zip(torch.autograd.grad(ours, (points, net.params), cotangent), wanted, strict=True):
        torch.testing.assert_close(one, other, **CLOSE)


@pytest.mark.thinned(9)
@pytest.mark.parametrize(("width", "hidden", "n_out", "biases"), [SHAPES[0], SHAPES[6], NARROW[0]])
def test_networks_without_points_have_gradients_of_zero(engine, width, hidden, n_out, biases):
    net = array(engine, width, hidden, n_out, biases)
    cells = torch.tensor([0, 3, 3])
    (gradient,) = torch.autograd.grad(net.route_points(normal(3, 3), cells).sum(), net.params)
    assert (gradient[[1, 2, 4, 5]] == 0.0).all() and bool(gradient[3].any()) and bool(gradient.isfinite().all())


@pytest.mark.parametrize("way", ["fused", "matrices"])
def test_no_points(engine, way):
    net = array(engine, way=way)
    assert net.route_points(normal(0, 3), torch.zeros(0, dtype=torch.int64)).shape == (0, 3)
    assert net(normal(2, 3, 0, 3)).shape == (2, 3, 0, 3)


def test_cells_outside_are_refused(engine):
    with pytest.raises(ts.ArgumentError, match=r"outside the grid[\s\S]*Count cells from 0, along"):
        array(engine).route_points(normal(2, 3), torch.tensor([0, 6]))


# By matrices -----------------------------------------------------------------------------------
@pytest.mark.costly
def test_matrix_products_give_the_same_and_second_derivatives(engine):
    net, twin = array(engine, act="Tanh"), array(engine, act="Tanh", way="matrices")
    x, target = normal(2, 3, 6, 3), normal(2, 3, 6, 3, seed=7)
    torch.testing.assert_close(net(x), twin(x), **CLOSE)
    torch.testing.assert_close(net.loss(x, target), twin.loss(x, target), **CLOSE)
    points, cells = normal(20, 3, seed=2), torch.randint(0, 6, (20,), generator=seeded(3))
    torch.testing.assert_close(net.route_points(points, cells), twin.route_points(points, cells), **CLOSE)
    x.requires_grad_()
    (slope,) = torch.autograd.grad(twin(x).sum(), x, create_graph=True)
    torch.autograd.grad(slope.square().sum(), twin.params)


# A torch module --------------------------------------------------------------------------------
def test_a_torch_module(engine, tmp_path):
    net = array(engine)
    x = normal(2, 3, 6, 3)
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert torch.equal(twin(x), net(x))
    other = array(engine, seed=4)
    assert not torch.equal(other(x), net(x))
    other.load_state_dict(net.state_dict())
    assert torch.equal(other(x), net(x))
    assert "(2, 3), 3 x 8 x 8 x 3, ReLU, None, biases=True" in repr(net)


def test_compiled(engine):
    net = array(engine)
    x = normal(2, 3, 6, 3)
    torch.testing.assert_close(torch.compile(net, fullgraph=True, backend="aot_eager")(x), net(x))


@pytest.mark.costly
def test_gradients_of_one_thread_and_two_are_the_same_bits(engine):
    net, x = array(engine, width=16), normal(2, 3, 64, 3)
    before = torch.get_num_threads()
    gradients = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            gradients.append(torch.autograd.grad(net(x).square().sum(), net.params)[0])
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*gradients)


WRONG = {
    "x": (
        lambda net: net(normal(2, 3, 6, 4)),
        ts.ShapeError,
        r"`x` of NetworkArray has the wrong shape\n.*\(2, 3, batch, 3\)",
    ),
    "dtype": (lambda net: net(normal(2, 3, 6, 3).float()), ts.DtypeError, "another dtype than the NetworkArray"),
    "target": (lambda net: net.loss(normal(2, 3, 6, 3), normal(2, 3, 5, 3)), ts.ShapeError, "another batch than `x`"),
    "loss": (lambda net: net.loss(normal(2, 3, 6, 3), normal(2, 3, 6, 3), "L3"), ts.ConfigError, "L3"),
    "grid": (lambda _: NetworkArray((2, 0), 3, 3), ts.ArgumentError, "not the shape of a grid"),
    "way": (
        lambda _: NetworkArray(2, 3, 3, way="fast"),
        ts.ArgumentError,
        "(?s)`way` of NetworkArray has an unknown value, 'fast'.*'auto'",
    ),
    "complex": (lambda _: NetworkArray(2, 3, 3, dtype=torch.complex64), ts.DtypeError, "does not run in this dtype"),
}


@pytest.mark.parametrize(("call", "error", "words"), WRONG.values(), ids=WRONG.keys())
def test_refusals(engine, call, error, words):
    with pytest.raises(error, match=words):
        call(array(engine))


def test_initial_weights():
    def at_first(act, seed=3):
        config = {"n_neurons": 24, "n_hidden_layers": 2, "activation": act}
        return NetworkArray(500, 6, 4, config, dtype=torch.float64, seed=seed)

    net = at_first("ReLU")
    for (weights, biases), (fan_in, fan_out) in zip(net.layers(), [(6, 24), (24, 24), (24, 4)], strict=True):
        bound = (6 / (fan_in + fan_out)) ** 0.5
        assert 0.99 * bound < weights.abs().max() <= bound
        torch.testing.assert_close(weights.std(), torch.tensor(bound / 3**0.5), rtol=0.02, atol=0, check_dtype=False)
        assert biases.abs().max() == 0
    assert torch.equal(net.params, at_first("ReLU").params)
    assert not torch.equal(net.params, at_first("ReLU", seed=4).params)
    assert not torch.equal(net.params[0], net.params[1])
    bounds = [30 / 6, (6 / 24) ** 0.5, (6 / 24) ** 0.5]
    for (weights, _), bound in zip(at_first("Sine").layers(), bounds, strict=True):
        assert 0.99 * bound < weights.abs().max() <= bound


@pytest.mark.gpu
@pytest.mark.parametrize("way", ["auto", "fused", "matrices"])
def test_on_cuda_it_agrees_with_plain_torch(engine, way):
    net = array(engine, 16, 2, 3, act="Tanh", way=way)
    x, cotangent = normal(2, 3, 21, 3).requires_grad_(), normal(2, 3, 21, 3, seed=5)
    true = by_hand(net, x.reshape(6, 21, 3)).reshape(2, 3, 21, 3)
    wanted = torch.autograd.grad(true, (x, net.params), cotangent)
    net, there = net.cuda(), x.detach().cuda().requires_grad_()
    ours = net(there)
    torch.testing.assert_close(ours.cpu(), true, **CLOSE)
    for one, other in zip(torch.autograd.grad(ours, (there, net.params), cotangent.cuda()), wanted, strict=True):
        torch.testing.assert_close(one.cpu(), other, **CLOSE)
