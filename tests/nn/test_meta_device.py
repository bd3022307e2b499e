"""Modules made on the meta device: with memory, and reset or loaded, they are those that were made with memory."""

import pytest
import torch

import tinsmith as ts

GRID = {"otype": "HashGrid", "n_levels": 4, "log2_hashmap_size": 8}
SMALL = {"otype": "FullyFusedMLP", "n_neurons": 16, "n_hidden_layers": 2}
PARTS = {"otype": "Composite", "nested": [{"otype": "Frequency", "n_dims_to_encode": 2}, {"otype": "Identity"}]}
MODULES = {
    "encoding": lambda: ts.nn.Encoding(3, GRID),
    "encoding without parameters": lambda: ts.nn.Encoding(3, {"otype": "Frequency"}),
    "network": lambda: ts.nn.Network(3, 2, SMALL, seed=4),
    "network without padding": lambda: ts.nn.Network(3, 2, {**SMALL, "activation": "Sine"}, alignment=1),
    "network with a grid": lambda: ts.nn.NetworkWithInputEncoding(3, 2, GRID, SMALL),
    "network with padding between columns": lambda: ts.nn.NetworkWithInputEncoding(3, 2, PARTS, SMALL),
    "array": lambda: ts.nn.NetworkArray((2, 3), 3, 2, SMALL, seed=5),
    "array with a grid": lambda: ts.nn.NetworkArray((2, 3), 3, 2, SMALL, GRID),
    "array with frequencies": lambda: ts.nn.NetworkArray((2, 3), 3, 2, SMALL, {"otype": "Frequency"}),
}


def reset(module):
    for one in module.modules():
        one.reset_parameters()


@pytest.mark.parametrize("name", MODULES)
def test_a_module_from_the_meta_device_is_that_made_with_memory(name, lang):
    wanted = MODULES[name]()
    x = torch.rand(*(wanted.grid_shape if name.startswith("array") else ()), 5, 3)
    for start in (reset, lambda module: module.load_state_dict(wanted.state_dict())):
        with torch.device("meta"):
            module = MODULES[name]()
        assert all(one.is_meta for one in (*module.parameters(), *module.buffers()))
        module.to_empty(device="cpu")
        with torch.no_grad():
            for one in module.parameters():
                one.fill_(torch.nan)
        start(module)
        torch.testing.assert_close(list(module.parameters()), list(wanted.parameters()), rtol=0, atol=0)
        torch.testing.assert_close(module(x), wanted(x), rtol=0, atol=0)


def test_buffers_without_memory_of_their_own_are_made_again():
    """No state dict contains them: `to_empty` left the columns that pad an input with any numbers."""
    module = MODULES["network with padding between columns"]()
    before = {name: one.clone() for name, one in module.named_buffers()}
    assert before
    module._apply(lambda tensor: torch.full_like(tensor, 7))
    torch.testing.assert_close(dict(module.named_buffers()), before)
    assert module.double().constants is None or module.double().constants.dtype == torch.float64


def test_a_part_of_an_array_cannot_be_reset():
    array = MODULES["array with a grid"]()
    for part in (array.part([0, 1]), array.part([0, 1]).encoding):
        with pytest.raises(ts.ArgumentError, match="a part of a NetworkArray has no initial parameters of its own"):
            part.reset_parameters()
