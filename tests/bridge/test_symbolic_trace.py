"""Tracers of torch besides its compiler: `torch.fx.symbolic_trace`, `make_fx` and `torch.jit.trace`.

An op in a graph is what a `torch.library.custom_op` is there, which stands next to it: one call of its operator.
"""

import copy
import io
import pickle

import pytest
import torch
from torch.func import grad, jacrev, jvp, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves

import tinsmith as ts

pytestmark = [pytest.mark.thinned(4), pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")]

F64 = torch.float64


def rand(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=F64) + 0.1


@torch.library.custom_op("symbolic_trace_tests::cube", mutates_args=())
def cube_of_torch(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x**3 * w


@cube_of_torch.register_fake
def _(x, w):
    return torch.empty_like(x)


def cubes(lang):
    @ts.op("x[n], w[n] -> y[n]")
    @lang.kernel
    def cube(x: lang.types.ndarray(), w: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            y[i] = x[i] * x[i] * x[i] * w[i]

    return cube


def mixes(lang):
    """Build a kernel with numbers of all kinds, a dim given by keyword, scratch and two outputs."""

    @ts.op("x[n], a[] -> y[m], total[]", scratch="t[n]")
    @lang.kernel
    def mix(
        x: lang.types.ndarray(),
        a: lang.types.ndarray(),
        s: float,
        k: int,
        v: lang.types.vector(2, float),
        shift: lang.template(),
        t: lang.types.ndarray(),
        y: lang.types.ndarray(),
        total: lang.types.ndarray(),
    ):
        for i in x:
            t[i] = a[None] * x[i] * s
        for i in range(y.shape[0]):
            y[i] = t[0] * v[0] + v[1] * k + shift
        for i in x:
            total[None] += t[i] * x[i]

    return mix


def updates(lang):
    @ts.op("inout s[n], x[n] -> y[n]")
    @lang.kernel
    def update(s: lang.types.ndarray(), x: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in x:
            s[i] += 2.0 * x[i]
            y[i] = s[i] * s[i]

    return update


def noises(lang):
    @ts.op("x[*b, n] -> y[*b, n]")
    @lang.kernel
    def noise(x: lang.types.ndarray(ndim=1), y: lang.types.ndarray(ndim=1)):
        for i in x:
            y[i] = x[i] + lang.random(lang.f64)

    return noise


def chains(lang):
    @lang.kernel
    def sine(x: lang.types.ndarray(), t: lang.types.ndarray()):
        for i in x:
            t[i] = lang.sin(x[i])

    @lang.kernel
    def square(t: lang.types.ndarray(), y: lang.types.ndarray()):
        for i in t:
            y[i] = t[i] * t[i]

    return ts.chain("x[n] -> y[n]", [sine, square], scratch="t[n]")


class Model(torch.nn.Module):
    """A function of `x` and `w` among layers of torch."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.linear = torch.nn.Linear(4, 4, dtype=F64)
        self.w = torch.nn.Parameter(rand(4, seed=1))

    def forward(self, x):
        return self.function(self.linear(x).sin(), self.w) + 1.0


def targets(graph_module):
    return [node.target for node in graph_module.graph.nodes if node.op == "call_function"]


def assert_same(actual, wanted):
    for mine, theirs in zip(tree_leaves(actual), tree_leaves(wanted), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_a_call_is_one_node_like_that_of_a_custom_op(lang64):
    op = cubes(lang64)
    graphs = [torch.fx.symbolic_trace(Model(function)) for function in (op, cube_of_torch)]
    ours, theirs = ([(node.op, node.name) for node in graph.graph.nodes] for graph in graphs)
    assert [kind for kind, _ in ours] == [kind for kind, _ in theirs]
    assert targets(graphs[0])[0] is op.operator
    assert f"torch.ops.tinsmith.{op.operator._opname}.default(sin, w)" in graphs[0].code


X, W, A = rand(4), rand(4, seed=1), rand(seed=2)


def updated_copy(update):
    def call(s, x):
        s = s + 0.0
        return update(s, x), s

    return call


TRACED = {
    "tensors": (cubes, lambda op: lambda x, w: op(w=w.cos(), x=x), (X, W)),
    "a tensor of its own": (cubes, lambda op: lambda x: op(x, W), (X,)),
    "chain": (chains, lambda op: lambda x: op(x) * 2.0, (X,)),
    "numbers": (mixes, lambda op: lambda x, a, s, k: op(x, a, s, k, [s, 2.0], k, m=x.shape[0] + k), (X, A, 1.5, 3)),
    "a vector": (mixes, lambda op: lambda x, v: op(x, A, 1.0, 2, v, 0, m=3).total, (X, [1.0, 2.0])),
    "numbers alone": (mixes, lambda op: lambda s, m: op(X, A, s, 2, (1.0, 2.0), 1.5, m=m).y, (1.5, 3)),
    "inout": (updates, updated_copy, (W, X)),
    "functional": (updates, lambda op: lambda s, x: tuple(op.functional(s, x)), (W, X)),
}


@pytest.mark.parametrize("name", TRACED)
def test_graphs_run_and_are_copied_and_pickled(lang64, name):
    make, call, arguments = TRACED[name]
    function = call(make(lang64))
    graph = torch.fx.symbolic_trace(function)
    wanted = function(*arguments)
    runs = (graph, pickle.loads(pickle.dumps(graph)), copy.deepcopy(graph), torch.fx.Interpreter(graph).run)
    for run in runs:
        assert_same(run(*arguments), wanted)
    assert [str(target).startswith("tinsmith.") for target in targets(graph)].count(True) == 1


def test_a_graph_is_differentiated_mapped_and_compiled(lang64):
    op, chain = cubes(lang64), chains(lang64)

    def function(x):
        return chain(op(x, W)).sum()

    graph, x = torch.fx.symbolic_trace(function), X.clone().requires_grad_()
    assert_same(torch.autograd.grad(graph(x), x), torch.autograd.grad(function(x), x))
    batch = torch.stack([X, W])
    assert_same(vmap(grad(graph))(batch), vmap(grad(function))(batch))
    assert_same(torch.compile(graph, backend="aot_eager", fullgraph=True)(X), function(X))


def test_passes_keep_an_update(lang64):
    op = updates(lang64)

    def function(s, x):
        s = s * 1.0
        op(s, x)
        return s

    graph = torch.fx.symbolic_trace(function)
    graph.graph.eliminate_dead_code()
    graph.recompile()
    assert_same(graph(W, X), W + 2.0 * X)


def test_a_graph_draws_at_each_run(lang64):
    op = noises(lang64)
    graph = torch.fx.symbolic_trace(lambda x: op(x))
    graph.graph.eliminate_dead_code()
    graph.recompile()
    assert (graph(X) != graph(X)).all()
    of_batch = graph(X.expand(2, 4))
    assert (of_batch[0] != of_batch[1]).all()
    torch.manual_seed(0)
    drawn = graph(X)
    torch.manual_seed(0)
    assert torch.equal(drawn, op(X))


REFUSED = {
    "too few": (lambda op: lambda x: op(x), ts.ArgumentError, "op `cube` is missing `w`"),
    "no tensor": (lambda op: lambda x: op(x, "w"), ts.ArgumentError, "argument `w` of op `cube` must be a tensor"),
    "dtype": (
        lambda op: lambda x: op(x, X.to(torch.complex128)),
        ts.DtypeError,
        r"(?s)tensor `w` of op `cube` has the wrong dtype\n.*got +complex128\n.*`torch.view_as_real\(w\)`",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_mistakes_are_refused_while_tracing(lang64, name):
    make, error, words = REFUSED[name]
    with pytest.raises(error, match=words):
        torch.fx.symbolic_trace(make(cubes(lang64)))


def test_arguments_of_a_graph_are_checked_when_it_runs(lang64):
    cube, mix = cubes(lang64), mixes(lang64)
    with pytest.raises(ts.ShapeError, match="`w` does not fit `x` in op `cube`"):
        torch.fx.symbolic_trace(lambda x, w: cube(x, w))(X, W[:2])
    graph = torch.fx.symbolic_trace(lambda k, m: mix(X, A, 1.0, k, (1.0, 2.0), 0, m=m))
    with pytest.raises(ts.ArgumentError, match=r"(?s)scalar argument `k` of op `mix` does not fit.*1099511627776"):
        graph(2**40, 3)
    with pytest.raises(ts.ShapeError, match="`y` would have a negative size in op `mix`"):
        graph(2, -3)


# make_fx ----------------------------------------------------------------------------------------
def make_gradient(function):
    def both(x, w):
        return torch.autograd.grad(function(x, w).sum(), (x, w))

    return both


@pytest.mark.parametrize("pre_dispatch", [False, True])
@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_make_fx(lang64, mode, pre_dispatch):
    op = cubes(lang64)
    options = {"tracing_mode": mode, "pre_dispatch": pre_dispatch}
    graphs = [make_fx(function, **options)(X, W) for function in (op, cube_of_torch)]
    assert targets(graphs[0]) == [op.operator]
    assert len(targets(graphs[1])) == 1
    assert_same(graphs[0](W, X), op(W, X))
    leaves = [one.clone().requires_grad_() for one in (X, W)]
    graph = make_fx(make_gradient(op), **options)(*leaves)
    names = [str(target) for target in targets(graph) if str(target).startswith("tinsmith.")]
    assert names == [str(op.operator), f"tinsmith.{op.operator._opname}_backward.default"]
    assert_same(graph(*leaves), make_gradient(lambda x, w: x**3 * w)(*leaves))


TRANSFORMED = {
    "vmap": vmap,
    "vmap of grad": lambda f: vmap(grad(lambda x, w: f(x, w).sum())),
    "jacrev": lambda f: lambda x, w: jacrev(f)(x[0], w[0]),
    "jvp": lambda f: lambda x, w: jvp(f, (x[0], w[0]), (w[0], x[0])),
}


@pytest.mark.parametrize("name", TRANSFORMED)
@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_make_fx_of_transforms(lang64, mode, name):
    transform, op, batch = TRANSFORMED[name], cubes(lang64), (rand(3, 4), rand(3, 4, seed=1))
    graph = make_fx(transform(op), tracing_mode=mode)(*batch)
    again = [one + 0.5 for one in batch]
    assert_same(graph(*again), transform(lambda x, w: x**3 * w)(*again))


# torch.jit.trace --------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["tensors", "chain", "inout", "functional"])
def test_the_older_tracer(lang64, name):
    make, call, arguments = TRACED[name]
    op = make(lang64)
    function = call(op)
    traced = torch.jit.trace(function, tuple(one.clone() for one in arguments))
    others = tuple(rand(7, seed=place) for place, _ in enumerate(arguments))
    assert_same(traced(*others), function(*others))


def test_a_saved_trace_has_a_gradient_and_draws(lang64):
    op, noise, x = cubes(lang64), noises(lang64), X.clone().requires_grad_()
    file = io.BytesIO()
    torch.jit.save(torch.jit.trace(lambda x: op(x, x), (X,)), file)
    file.seek(0)
    loaded = torch.jit.load(file)
    assert_same(torch.autograd.grad(loaded(x).sum(), x), (4.0 * X**3,))
    drawing = torch.jit.trace(lambda x: noise(x), (X,), check_trace=False)
    assert (drawing(X) != drawing(X)).all()


def test_values_that_jit_trace_would_record_as_constants_are_refused(lang64):
    op = mixes(lang64)
    with pytest.raises(ts.ArgumentError, match=r"(?s)torch.jit.trace would record dim `m` of op `mix`.*torch.export"):
        torch.jit.trace(lambda x: op(x, A, 1.0, 2, (1.0, 2.0), 0, m=x.shape[0]).y, (X,))
    with pytest.raises(ts.ArgumentError, match=r"(?s)torch.jit.trace cannot record `v` of op `mix`.*torch.compile"):
        torch.jit.trace(lambda x: op(x, A, 1.0, 2, (1.0, 2.0), 0, m=3).y, (X,))


# Layers -----------------------------------------------------------------------------------------
def tube_of(lang):
    @lang.kernel
    def cube(x: lang.template(), w: lang.template(), y: lang.template()):
        for i in y:
            y[i] = x[i] * x[i] * x[i] * w[i]

    tube = ts.Tube()
    for name in "xw":
        tube.register_input_tensor((ts.MatchDim("n"),), F64, name)
    return tube.register_output_tensor((ts.MatchDim("n"),), F64, "y", True).register_kernel(cube, [*"xwy"]).finish()


def tin_of(lang):
    @lang.data_oriented
    class Cubes:
        def __init__(self):
            self.x, self.w, self.y = (lang.field(lang.f64, shape=4, needs_grad=True) for _ in range(3))

        @lang.kernel
        def run(self):
            for i in self.y:
                self.y[i] = self.x[i] * self.x[i] * self.x[i] * self.w[i]

    cubes = Cubes()
    layer = ts.Tin(cubes).register_kernel("run").register_output_field(cubes.y, "y")
    for name in "xw":
        layer.register_input_field(getattr(cubes, name), name)
    return layer.finish()


@pytest.mark.parametrize("make", [tube_of, tin_of])
def test_a_layer_is_one_node(lang64, make):
    layer = make(lang64)
    model = Model(layer)
    graph = torch.fx.symbolic_trace(model)
    assert [node.target for node in graph.graph.nodes if node.op == "call_module"] == ["linear", "function"]
    assert_same(graph(X), model(X))
    x = X.clone().requires_grad_()
    assert_same(torch.autograd.grad(graph(x).sum(), x), torch.autograd.grad(model(x).sum(), x))


NETWORKS = {
    "Encoding": lambda: ts.nn.Encoding(4, {"otype": "Frequency", "n_frequencies": 2}),
    "Network": lambda: ts.nn.Network(4, 3, {"n_neurons": 16, "n_hidden_layers": 1}),
    "NetworkWithInputEncoding": lambda: ts.nn.NetworkWithInputEncoding(
        4, 3, {"otype": "Frequency", "n_frequencies": 2}, {"n_neurons": 16, "n_hidden_layers": 1}
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_module_of_nn_is_one_node(lang, name):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), NETWORKS[name](), torch.nn.Tanh())
    graph, x = torch.fx.symbolic_trace(model), torch.rand(5, 4)
    assert [node.target for node in graph.graph.nodes if node.op == "call_module"] == ["0", "1", "2"]
    assert_same(pickle.loads(pickle.dumps(graph))(x), model(x))
    with pytest.raises(ts.ArgumentError, match=rf"(?s)call of a {name} that is not part.*torch.nn.Sequential\(layer\)"):
        torch.fx.symbolic_trace(model[1])
