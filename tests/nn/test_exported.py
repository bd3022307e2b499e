"""Programs with modules of `ts.nn`: saved, and loaded in a process that has only imported `tinsmith.nn`."""

import subprocess
import sys

import pytest
import setuptools  # noqa: F401 - before Quadrants, after which Python cannot import it any more, and Inductor does
import torch

import tinsmith as ts
from tinsmith.nn.encodings import _grid, _pointwise
from tinsmith.nn.networks import _fused
from tinsmith.torch_side import Recipe, _library

# Of torch's own modules, as they load and copy programs.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
]

GRID = {"otype": "DenseGrid", "n_levels": 2, "base_resolution": 4, "per_level_scale": 1.5}
WAVES = {"otype": "Frequency", "n_frequencies": 2}
NETWORK = {"n_neurons": 8, "n_hidden_layers": 1}
MODULES = {
    "grid": lambda engine: ts.nn.Encoding(2, GRID, engine=engine),
    "frequencies": lambda engine: ts.nn.Encoding(2, WAVES, engine=engine),
    "network": lambda engine: ts.nn.NetworkWithInputEncoding(2, 3, GRID, NETWORK, engine=engine),
    "array": lambda engine: ts.nn.NetworkArray((3,), 2, 3, NETWORK, engine=engine),
    "array with grids": lambda engine: ts.nn.NetworkArray((3,), 2, 3, NETWORK, GRID, engine=engine),
}


def exported(name, engine):
    """Export a module with a dynamic batch; return the module and its program."""
    module = MODULES[name](engine)
    is_array = isinstance(module, ts.nn.NetworkArray)
    x = torch.rand(3, 7, 2) if is_array else torch.rand(7, 2)
    sizes = ({int(is_array): torch.export.Dim("batch", min=2)},)
    return module, torch.export.export(module, (x,), dynamic_shapes=sizes), torch.cat([x, x], int(is_array))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", MODULES)
def test_the_op_is_made_from_what_the_program_holds(engine, name, monkeypatch):
    module, program, x = exported(name, engine)
    x.requires_grad_()
    want = module(x)
    wanted = torch.autograd.grad(want.sum(), (x, *module.parameters()), allow_unused=True)
    for home in (_grid, _pointwise, _fused):
        # As in another process, which has made no op yet.
        monkeypatch.setattr(home, "_OPS", {})
    loaded = program.module()
    made = loaded(x)
    torch.testing.assert_close(made, want)
    given = dict(loaded.named_parameters())
    parameters = [given[key] for key, _ in module.named_parameters()]
    gradients = torch.autograd.grad(made.sum(), (x, *parameters), allow_unused=True)
    for one, other in zip(gradients, wanted, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other)


LOAD = """
import sys
import torch
import tinsmith.nn
y = {load}
want = torch.load("want.pt")
torch.testing.assert_close(y(*want[:-1]), want[-1])
print("the same")
"""
WAYS = {
    "program": 'torch.export.load("program.pt2").module()',
    "package": 'torch._inductor.aoti_load_package("package.pt2")',
}


@pytest.mark.costly
@pytest.mark.parametrize("name", ["grid", "array with grids"])
def test_in_another_process(engine, name, tmp_path):
    module, program, x = exported(name, engine)
    torch.save([x, module(x).detach()], tmp_path / "want.pt")
    torch.export.save(program, tmp_path / "program.pt2")
    torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "package.pt2"))
    for load in WAYS.values():
        done = subprocess.run(
            [sys.executable, "-c", LOAD.format(load=load)], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.stdout.endswith("the same\n"), done.stderr[-3000:]


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        ("nonsense", "a graph calls an op of tinsmith by a recipe that cannot be read"),
        (
            Recipe("rings", "taichi", ()).write(),
            "the family `rings` of tinsmith, which does not exist.*Import `tinsmith",
        ),
    ],
)
def test_invalid_recipes_are_refused(recipe, words):
    with pytest.raises(ts.GraphError, match=f"(?s){words}"):
        torch.ops.tinsmith.library_2(recipe, [torch.ones(2)])


def test_a_known_call_looks_for_no_installed_engine(engine, monkeypatch):
    """That takes 50 us, which a graph spent at each call."""

    def refuse():
        raise AssertionError("a recipe was read again")

    module = MODULES["frequencies"](engine)
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    x = torch.rand(5, 2)
    first = compiled(x)
    monkeypatch.setattr(_library, "list_installed", refuse)
    torch.testing.assert_close(compiled(x), first)


@pytest.mark.parametrize("name", MODULES)
def test_torch_jit_script_names_the_layer(name):
    module = MODULES[name](None)
    kind = type(module).__name__
    words = rf"torch.jit.script cannot compile a layer of type {kind}\n  layer  {kind}\(.*\nUse torch.export"
    with pytest.raises(ts.ArgumentError, match=words):
        torch.jit.script(torch.nn.Sequential(module))
